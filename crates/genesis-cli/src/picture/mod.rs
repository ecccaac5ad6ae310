//! The picture of `genesis compare`: live and reserved memory over the calls of a program.
//!
//! One panel for each trace: live memory as a filled area, the memory that each strategy holds as
//! a line above it, and right of the chart a key with the peaks. A point is the highest value since
//! the point before, so no peak is missed. Text is drawn in the viewer's fonts.

pub(crate) mod batches;
pub(crate) mod plan;

use std::path::Path;

use genesis_replay::report::{Report, Sample};
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 1240;
const PANEL_HEIGHT: u32 = 460;
const KEY_WIDTH: u32 = 270;
const FONT: &str = "sans-serif";
const GIB: f64 = (1u64 << 30) as f64;

const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
const FAINT_INK: RGBColor = RGBColor(0x5b, 0x67, 0x75);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xec);
const LIVE: RGBColor = RGBColor(0xc3, 0xd0, 0xde);
/// Colour-blind readers can tell them apart.
const LINES: [RGBColor; 7] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x44, 0x44, 0x44),
];

/// Draws `traces`, each the reports of one trace, into the SVG file `path`. Traces without a
/// report are left out.
pub(crate) fn draw(path: &Path, traces: &[Vec<&Report>]) -> Result<()> {
    let panels: Vec<_> = traces.iter().filter(|reports| !reports.is_empty()).collect();
    let size = (WIDTH, PANEL_HEIGHT * panels.len() as u32);
    write(path, size, |root| {
        let areas = root.split_evenly((panels.len(), 1));
        areas.iter().zip(&panels).try_for_each(|(area, reports)| draw_panel(area, reports))
    })
}

/// Draws into the SVG file `path`, of `size`, what `draw` draws.
fn write(path: &Path, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::failed(format!("{}: cannot draw: {error}", path.display()))
    };
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn: Drawn = root.fill(&WHITE).map_err(Into::into).and_then(|()| {
        draw(&root)?;
        Ok(root.present()?)
    });
    drawn.map_err(|error| failed(&error))?;
    drop(root);
    std::fs::write(path, svg).map_err(|error| failed(&error))
}

fn draw_panel(area: &Area<'_>, reports: &[&Report]) -> Drawn {
    let (chart_area, key_area) = area.split_horizontally(WIDTH - KEY_WIDTH);
    let first = reports[0];
    let highest = |sample: &Sample| sample.live_bytes.max(sample.reserved_bytes);
    let top_bytes = reports.iter().flat_map(|report| &report.samples).map(highest).max();
    let top_gib = gib(top_bytes.unwrap_or(0)).max(1e-3) * 1.06;
    let title = format!("{} — memory reserved by each strategy", first.trace);
    let mut chart = ChartBuilder::on(&chart_area)
        .caption(title, (FONT, 22).into_font().color(&INK))
        .margin(18)
        .margin_top(14)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..first.calls.max(1) as f64, 0.0..top_gib)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .x_labels(10)
        .y_labels(8)
        .x_label_formatter(&|calls| grouped(calls.round() as u64))
        .y_label_formatter(&|gib| axis_number(*gib, top_gib))
        .x_desc("calls of the program (allocate, free, …)")
        .y_desc("memory on the device, GiB")
        .label_style((FONT, 14).into_font().color(&FAINT_INK))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .draw()?;
    let live = first.samples.iter().map(|sample| (sample.calls as f64, gib(sample.live_bytes)));
    chart.draw_series(AreaSeries::new(live, 0.0, LIVE.mix(0.75)).border_style(LIVE))?;
    for (number, report) in by_peak(reports) {
        let points =
            report.samples.iter().map(|sample| (sample.calls as f64, gib(sample.reserved_bytes)));
        chart.draw_series(LineSeries::new(points, line_style(number)))?;
    }
    draw_key(&key_area, reports)
}

fn draw_key(area: &Area<'_>, reports: &[&Report]) -> Drawn {
    let (text_left, mut top) = (46, 62);
    let live_bytes = reports[0].live_peak_bytes;
    area.draw(&Rectangle::new([(8, top - 7), (36, top + 7)], LIVE.mix(0.75).filled()))?;
    entry(area, (text_left, top), "live", &format!("peak {:.2} GiB", gib(live_bytes)))?;
    for (number, report) in by_peak(reports) {
        top += 54;
        let swatch = vec![(8, top), (36, top)];
        area.draw(&PathElement::new(swatch, line_style(number).stroke_width(4)))?;
        let mut detail = format!("peak {:.2} GiB", gib(report.cold.reserved_peak_bytes));
        if let Some(ratio) = report.reserved_over_live() {
            detail += &format!(", {ratio:.3} × live");
        }
        if report.cold.failures > 0 {
            detail = format!("out of memory: {} requests", grouped(report.cold.failures));
        }
        entry(area, (text_left, top), &report.strategy, &detail)?;
    }
    Ok(())
}

fn entry(area: &Area<'_>, (left, top): (i32, i32), name: &str, detail: &str) -> Drawn {
    let anchor = Pos::new(HPos::Left, VPos::Center);
    let name_style = (FONT, 16).into_font().style(FontStyle::Bold).color(&INK).pos(anchor);
    let detail_style = (FONT, 14).into_font().color(&FAINT_INK).pos(anchor);
    area.draw(&Text::new(name, (left, top), name_style))?;
    area.draw(&Text::new(detail, (left, top + 19), detail_style))?;
    Ok(())
}

/// The reports with their numbers, the highest peak first, so that lower lines are drawn over
/// higher ones and the key reads like the chart.
fn by_peak<'a>(reports: &[&'a Report]) -> Vec<(usize, &'a Report)> {
    let mut numbered: Vec<_> = reports.iter().copied().enumerate().collect();
    numbered.sort_by_key(|(_, report)| std::cmp::Reverse(report.cold.reserved_peak_bytes));
    numbered
}

fn line_style(number: usize) -> ShapeStyle {
    ShapeStyle::from(LINES[number % LINES.len()]).stroke_width(2)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// A label of the memory axis, as exact as an axis up to `top_gib` needs.
fn axis_number(gib: f64, top_gib: f64) -> String {
    match top_gib {
        top if top >= 8.0 => format!("{gib:.0}"),
        top if top >= 2.0 => format!("{gib:.1}"),
        _ => format!("{gib:.2}"),
    }
}
