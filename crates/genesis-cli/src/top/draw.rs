//! The screen, in the size of the terminal.
//!
//! Every device has a panel: a bar of the uses of its memory, figures, and a graph of live bytes
//! over the last minutes. Graphs shrink until everything fits. If not even panels without graphs
//! fit, each device is a line. Below are the biggest call sites, as many as there is room for.
//! Parts of a bar differ in pattern as well as in colour.

use genesis::base::size::Bytes;
use genesis_profile::model::{Device, Profile};
use genesis_profile::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Row, Sparkline, Table, TableState};

use super::app::{App, Page, State, View};
use super::plain::{cached_bytes, outlook, percent, program, rate, title};
use super::{Course, Found, describe_shared};

/// Lines of a panel without its graph: two of the frame, the bar, two of figures.
const PANEL_LINES: u16 = 5;
/// The highest graph.
const MOST_GRAPH_LINES: u16 = 8;
/// Lines for call sites, before graphs grow.
const SITE_LINES: u16 = 8;

const LIVE: (&str, Color) = ("█", Color::Blue);
const PENDING: (&str, Color) = ("▓", Color::Magenta);
const CACHED: (&str, Color) = ("▒", Color::Yellow);
const UNUSED: (&str, Color) = ("░", Color::DarkGray);

/// A column of numbers.
const NUMBER: Constraint = Constraint::Length(10);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    match &app.page {
        Page::List { found, selected } => {
            frame.render_widget(" processes that say what they hold".bold(), head);
            draw_lists(frame, body, app, (found, *selected));
            frame.render_widget(keys(&[("↑↓", "choose"), ("Enter", "show"), ("q", "quit")]), foot);
        }
        Page::Process(view) => {
            draw_head(frame, head, view);
            if let Some(now) = view.course.now() {
                draw_process(frame, body, now, &view.course);
            }
            frame.render_widget(keys(&[("q", "quit"), ("Backspace", "all processes")]), foot);
        }
    }
}

fn keys(keys: &[(&'static str, &'static str)]) -> Line<'static> {
    let each = keys.iter().flat_map(|(key, what)| {
        [Span::raw(" "), key.bold(), Span::raw(" "), what.fg(Color::DarkGray), Span::raw("  ")]
    });
    each.collect::<Vec<_>>().into()
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = view.course.now().map(title).unwrap_or_default();
    let state = match view.state {
        State::Running => Span::raw(""),
        State::Quiet(seconds) => format!(" said nothing for {seconds} s ").black().on_yellow(),
        State::Ended => " has ended ".white().on_red(),
    };
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(state.width() as u16)])
            .areas(area);
    frame.render_widget(format!(" {text}").bold(), left);
    frame.render_widget(state, right);
}

/// The processes, and below them the devices that some share.
fn draw_lists(frame: &mut Frame<'_>, area: Rect, app: &App, (found, selected): (&[Found], usize)) {
    let list_lines = found.len() as u16 + 1;
    let [list, _, shared] = Layout::vertical([
        Constraint::Length(list_lines),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    if app.shared.is_empty() {
        return draw_list(frame, area, found, selected);
    }
    draw_list(frame, list, found, selected);
    frame.render_widget(Paragraph::new(describe_shared(&app.shared)), shared);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, found: &[Found], selected: usize) {
    if found.is_empty() {
        let message = " none now; run one with GENESIS_TOP=on in its environment";
        return frame.render_widget(message, area);
    }
    let rows = found.iter().map(|found| {
        let sum = |bytes: fn(&Device) -> u64| {
            Bytes(found.profile.devices.iter().map(bytes).sum()).to_string()
        };
        Row::new([
            right(found.process_id()),
            right(sum(|device| device.now.allocated_bytes)),
            right(sum(|device| device.now.reserved_bytes)),
            format!(" {}", program(&found.profile, 200)),
        ])
    });
    let header = [right("process"), right("live"), right("reserved"), " program".to_owned()];
    let table = Table::new(rows, [NUMBER, NUMBER, NUMBER, Constraint::Fill(1)])
        .header(Row::new(header).fg(Color::DarkGray))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("▸ ");
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_process(frame: &mut Frame<'_>, area: Rect, now: &Profile, course: &Course) {
    let device_count = now.devices.len() as u16;
    let site_lines = (now.call_sites.len() as u16 + 1).min(SITE_LINES);
    let lines = |graph_lines: &u16| device_count.saturating_mul(PANEL_LINES + graph_lines);
    let fits = |height: u16| (0..=MOST_GRAPH_LINES).rev().find(|graph| lines(graph) <= height);
    // Call sites are left out before graphs are.
    let graph_lines = fits(area.height.saturating_sub(site_lines))
        .filter(|lines| *lines > 0)
        .or_else(|| fits(area.height));
    let device_lines = graph_lines.map_or(1, |lines| PANEL_LINES + lines);
    let mut rest = area;
    for (index, device) in now.devices.iter().enumerate() {
        let left = now.devices.len() - index;
        // The last line counts the devices without room.
        if rest.height < device_lines || rest.height == device_lines && left > 1 {
            return frame.render_widget(format!(" … and {left} more devices").dim(), rest);
        }
        let [place, below] =
            Layout::vertical([Constraint::Length(device_lines), Constraint::Fill(1)]).areas(rest);
        match graph_lines {
            Some(_) => draw_panel(frame, place, device, course),
            None => draw_line(frame, place, device, course),
        }
        rest = below;
    }
    draw_sites(frame, rest, now);
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, device: &Device, course: &Course) {
    let name = format!(" {}: {} ", device.ordinal, units::one_line(&device.name));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().fg(Color::DarkGray))
        .title(name.bold())
        .title_bottom(concerns_of(device));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [bar, levels, rates, graph] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(inner);
    frame.render_widget(bar_of(device, bar.width), bar);
    frame.render_widget(levels_of(device), levels);
    frame.render_widget(rates_of(device, course), rates);
    draw_graph(frame, graph, device, course);
}

/// What the user should know of, at the foot of the panel: mostly nothing.
fn concerns_of(device: &Device) -> Line<'static> {
    let mut spans = Vec::new();
    if device.oversubscribed_bytes() > 0 {
        let bytes = Bytes(device.oversubscribed_bytes());
        spans.push(format!(" {bytes} beyond the device ").fg(Color::Yellow).bold());
    }
    if let Some(forecast) = &device.forecast {
        spans.push(format!(" {} ", outlook(forecast)).red().bold());
    }
    spans.into()
}

/// Live bytes, a column for each reading, the latest at the right; the highest column is full.
fn draw_graph(frame: &mut Frame<'_>, area: Rect, device: &Device, course: &Course) {
    if area.is_empty() {
        return;
    }
    let live = course.live_bytes(device.ordinal, usize::from(area.width));
    let top_bytes = live.iter().copied().max().unwrap_or(0);
    let width = (live.len() as u16).min(area.width);
    let place = Rect { x: area.right() - width, width, ..area };
    let graph = Sparkline::default().data(&live).max(top_bytes.max(1)).fg(LIVE.1);
    frame.render_widget(graph, place);
    // Left of the graph's first column, if there is room.
    let label = format!("live, up to {}", Bytes(top_bytes));
    if usize::from(area.width - width) > label.chars().count() {
        frame.render_widget(label.fg(Color::DarkGray), Rect { height: 1, ..area });
    }
}

fn draw_line(frame: &mut Frame<'_>, area: Rect, device: &Device, course: &Course) {
    let [name, bar, text] =
        Layout::horizontal([Constraint::Length(4), Constraint::Fill(1), Constraint::Length(56)])
            .areas(area);
    frame.render_widget(format!(" {:>2}", device.ordinal).bold(), name);
    frame.render_widget(bar_of(device, bar.width), bar);
    let rates = course.rates(device.ordinal);
    let figures = format!(
        " live {} cached {} of {} {}",
        Bytes(device.now.allocated_bytes),
        Bytes(cached_bytes(device)),
        Bytes(device.usable_bytes),
        rates.map_or_else(String::new, |rates| format!("{}/s", rate(rates.allocations))),
    );
    frame.render_widget(figures, text);
}

/// The device's memory in `width` characters: live, pending, cached, not reserved.
fn bar_of(device: &Device, width: u16) -> Line<'static> {
    let now = &device.now;
    let whole = device.usable_bytes.max(now.reserved_bytes).max(1);
    let ends = [
        (now.allocated_bytes, LIVE),
        (now.active_bytes, PENDING),
        (now.reserved_bytes, CACHED),
        (whole, UNUSED),
    ];
    let mut drawn = 0;
    let parts = ends.map(|(end_bytes, (symbol, color))| {
        let part = end_bytes.min(whole) as f64 / whole as f64;
        let end = (part * f64::from(width)).round() as usize;
        let count = end.saturating_sub(drawn);
        drawn = drawn.max(end);
        symbol.repeat(count).fg(color)
    });
    Line::from_iter(parts)
}

fn levels_of(device: &Device) -> Line<'static> {
    let now = &device.now;
    let pending_bytes = now.active_bytes.saturating_sub(now.allocated_bytes);
    let mut spans = Vec::new();
    for ((symbol, color), name, bytes) in [
        (LIVE, "live", now.allocated_bytes),
        (PENDING, "pending", pending_bytes),
        (CACHED, "cached", cached_bytes(device)),
    ] {
        // Few programs have anything pending.
        if bytes > 0 || name != "pending" {
            spans.extend([symbol.fg(color), format!(" {name} ").into()]);
            spans.extend([Bytes(bytes).to_string().bold(), "   ".into()]);
        }
    }
    let (reserved, limit) = (Bytes(now.reserved_bytes), Bytes(device.usable_bytes));
    spans.extend(["reserved ".into(), reserved.to_string().bold()]);
    spans.push(format!(" of {limit}, peak {}", Bytes(device.peak.reserved_bytes)).into());
    spans.into()
}

fn rates_of(device: &Device, course: &Course) -> Line<'static> {
    let mut spans =
        vec!["fragmentation ".into(), percent(device.fragmentation_index).bold(), "   ".into()];
    if let Some(rates) = course.rates(device.ordinal) {
        spans.extend([rate(rates.allocations).bold(), " allocations/s   ".into()]);
        spans.extend([rate(rates.frees).bold(), " frees/s   ".into()]);
        if let Some(hit_rate) = rates.hit_rate {
            spans.extend(["hits ".into(), percent(hit_rate).bold(), "   ".into()]);
        }
    }
    if device.out_of_memory_events > 0 {
        let count = units::count(device.out_of_memory_events);
        spans.push(format!("{count} requests refused").red().bold());
    }
    spans.into()
}

fn draw_sites(frame: &mut Frame<'_>, area: Rect, now: &Profile) {
    if now.call_sites.is_empty() {
        let message = " No call sites: they are known while a profile is made (GENESIS_PROFILE).";
        return frame.render_widget(message.fg(Color::DarkGray), area);
    }
    let rows = now.call_sites.iter().map(|summary| {
        let counts = &summary.counts;
        Row::new([
            right(Bytes(counts.live_bytes)),
            right(Bytes(counts.peak_bytes)),
            right(units::count(counts.allocations.saturating_sub(counts.frees))),
            format!(" {}", units::site(now.site(summary.site))),
        ])
    });
    let header = Row::new([right("live"), right("peak"), right("blocks"), " call site".to_owned()]);
    let (header, widths) =
        (header.fg(Color::DarkGray), [NUMBER, NUMBER, NUMBER, Constraint::Fill(1)]);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// A number at the right of its column.
fn right(number: impl std::fmt::Display) -> String {
    format!("{:>10}", number.to_string())
}
