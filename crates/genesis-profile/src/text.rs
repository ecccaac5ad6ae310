//! The profile as plain text for the terminal, and the growth between two profiles.
//!
//! UTF-8, at most a hundred columns, no colours. Names and paths come from the program; control
//! characters in them become spaces.

mod diff;
mod holders;
mod ranks;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::levels;
use crate::model::{Action, Counts, Device, Frame, Levels, Profile, Timeline};
use crate::units::{self, bytes, count, percent, time};

pub use diff::diff;
use holders::push_holders;
pub use ranks::ranks;

const MOST_ROWS: usize = 15;
/// The most characters of a name in a line.
const NAME_CHARACTERS: usize = 60;

/// The report: each device's levels, peak and failures, the biggest holders, the sizes.
pub fn report(profile: &Profile) -> String {
    let mut text = String::from("Genesis memory profile\n");
    push(&mut text, format_args!("{}", heading(profile)));
    let peaks = Peaks::of(profile);
    for (row, device) in profile.devices.iter().enumerate() {
        push_device(&mut text, profile, device, peaks.rows.get(row).copied().flatten());
    }
    push_holders(&mut text, profile);
    push_sizes(&mut text, profile);
    push_sites(&mut text, profile);
    text
}

fn push(text: &mut String, line: std::fmt::Arguments) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

/// The program and its run, in a line each.
fn heading(profile: &Profile) -> String {
    let Profile { process_id, strategy, backend, genesis_version, .. } = profile;
    let events = profile.history.events.len() as u64;
    let dropped = match profile.history.dropped_events {
        0 => String::new(),
        dropped => format!(" (the latest; {} before them)", count(dropped)),
    };
    let lines = format!(
        "  {}\n  process {process_id}, begun {}, {} long, {} events{dropped}\n  \
         {strategy} on {backend}, Genesis {genesis_version}",
        short(&profile.program),
        date(profile.started_unix_ns),
        time(profile.duration_ns),
        count(events),
    );
    lines.lines().map(units::one_line).collect::<Vec<_>>().join("\n")
}

fn push_device(text: &mut String, profile: &Profile, device: &Device, peak: Option<Peak>) {
    let name = units::one_line(&device.name);
    push(text, format_args!("\nDevice {} · {}", device.ordinal, short(&name)));
    push(text, format_args!("  {:<14}{:>12}{:>12}", "", "now", "peak"));
    for (level, now, peak) in levels_of(&device.now, &device.peak) {
        push(text, format_args!("  {level:<14}{:>12}{:>12}", bytes(now), bytes(peak)));
    }
    let (usable, total) = (device.usable_bytes, device.total_bytes);
    push(
        text,
        format_args!(
            "  {:<14}{:>12}            of {}; {} of it was reserved at the peak",
            "usable",
            bytes(usable),
            bytes(total),
            percent(device.peak.reserved_bytes, usable),
        ),
    );
    let idle = device.now.reserved_bytes.saturating_sub(device.now.allocated_bytes);
    let waste = percent(idle, device.now.reserved_bytes);
    push(text, format_args!("  {:<14}{waste:>12}            of the reserved is not live", "waste"));
    push(
        text,
        format_args!(
            "  {:<14}{:>12.2}            1 − largest free run ∕ all that is free",
            "fragmentation", device.fragmentation_index,
        ),
    );
    push(
        text,
        format_args!(
            "  {} allocations, {} frees, {} served from what their stream had free",
            count(device.allocations),
            count(device.frees),
            percent(device.hits, device.allocations),
        ),
    );
    if let Some(peak) = peak {
        let about = if peak.is_exact { "at" } else { "about" };
        let place = nearest_annotation(profile, peak.time_ns);
        push(text, format_args!("  peak of allocated {about} {}{place}", time(peak.time_ns)));
    }
    if device.peak_oversubscribed_bytes() > 0 {
        let (now, most) = (device.oversubscribed_bytes(), device.peak_oversubscribed_bytes());
        let (now, most) = (bytes(now), bytes(most));
        push(text, format_args!("  {now} beyond the device's memory, peak {most}"));
    }
    push_failures(text, profile, device);
}

fn push_failures(text: &mut String, profile: &Profile, device: &Device) {
    if device.out_of_memory_events == 0 {
        return;
    }
    push(text, format_args!("  out of memory {} ×", count(device.out_of_memory_events)));
    let failed = |event: &&crate::model::Event| {
        event.action == Action::OutOfMemory && event.device == device.ordinal
    };
    let known: Vec<_> = profile.history.events.iter().filter(failed).collect();
    for event in known.iter().rev().take(MOST_ROWS).rev() {
        let (at, size) = (time(event.time_ns), bytes(event.requested_bytes));
        let place = nearest_annotation(profile, event.time_ns);
        let site = match event.site {
            0 => String::new(),
            site => format!(", {}", short(&units::site(profile.site(site)))),
        };
        push(text, format_args!("    {at:>12}  {size:>10} requested{place}{site}"));
    }
}

fn levels_of(a: &Levels, b: &Levels) -> [(&'static str, u64, u64); 4] {
    [
        ("requested", a.requested_bytes, b.requested_bytes),
        ("allocated", a.allocated_bytes, b.allocated_bytes),
        ("active", a.active_bytes, b.active_bytes),
        ("reserved", a.reserved_bytes, b.reserved_bytes),
    ]
}

/// The moment at which a device's allocated bytes were highest.
#[derive(Clone, Copy)]
struct Peak {
    bytes: u64,
    time_ns: u64,
    is_exact: bool,
}

struct Peaks {
    rows: Vec<Option<Peak>>,
}

impl Peaks {
    /// Exact within the history; before it, an interval of the timeline.
    fn of(profile: &Profile) -> Self {
        let mut rows: Vec<Option<Peak>> = vec![None; profile.devices.len()];
        let mut raise = |row: usize, peak: Peak| {
            if rows[row].is_none_or(|highest| peak.bytes > highest.bytes) {
                rows[row] = Some(peak);
            }
        };
        levels::walk(profile, |event, row, levels| {
            let (bytes, time_ns) = (levels.allocated_bytes, event.time_ns);
            raise(row, Peak { bytes, time_ns, is_exact: true });
        });
        for Timeline { device, interval_ns, peaks } in &profile.timelines {
            let Some(row) = profile.device_row(*device) else {
                continue;
            };
            for (index, levels) in (0..).zip(peaks) {
                let time_ns = interval_ns.saturating_mul(index);
                raise(row, Peak { bytes: levels.allocated_bytes, time_ns, is_exact: false });
            }
        }
        rows.iter_mut().for_each(|row| *row = row.filter(|peak| peak.bytes > 0));
        Self { rows }
    }
}

/// `, in step › forward` or `, 1.2 ms after "checkpoint"`; empty without an annotation before.
fn nearest_annotation(profile: &Profile, time_ns: u64) -> String {
    let mut open: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut before = None;
    for event in profile.history.events.iter().take_while(|event| event.time_ns <= time_ns) {
        match event.action {
            Action::RangePush => open.entry(event.address).or_default().push(event.name),
            Action::RangePop => {
                open.entry(event.address).or_default().pop();
            }
            Action::Mark => before = Some((event.time_ns, profile.name(event.name).to_owned())),
            Action::Iteration => {
                let name = format!("iteration {} ended", event.requested_bytes);
                before = Some((event.time_ns, name));
            }
            _ => {}
        }
    }
    if let Some(ranges) = open.values().find(|ranges| !ranges.is_empty()) {
        let names: Vec<&str> = ranges.iter().map(|&name| profile.name(name)).collect();
        return format!(", in {}", short(&units::one_line(&names.join(" › "))));
    }
    before.map_or_else(String::new, |(at_ns, name)| {
        format!(", {} after {}", time(time_ns - at_ns), short(&units::one_line(&name)))
    })
}

fn push_sizes(text: &mut String, profile: &Profile) {
    let mut rows: Vec<(u64, Counts)> =
        profile.sizes.iter().map(|size| (size.block_bytes, size.counts)).collect();
    rows.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.peak_bytes), *key));
    push_counts(text, "block size", rows.iter().map(|(key, counts)| (bytes(*key), *counts)));
}

fn push_sites(text: &mut String, profile: &Profile) {
    let mut rows: Vec<(u32, Counts)> =
        profile.call_sites.iter().map(|site| (site.site, site.counts)).collect();
    rows.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.peak_bytes), *key));
    let named = |(key, counts): &(u32, Counts)| (units::site(profile.site(*key)), *counts);
    push_counts(text, "call site", rows.iter().map(named));
}

fn push_counts(
    text: &mut String,
    what: &str,
    rows: impl ExactSizeIterator<Item = (String, Counts)>,
) {
    let length = rows.len();
    if length == 0 {
        return;
    }
    push(text, format_args!("\nThe whole run, by {what}"));
    push(
        text,
        format_args!(
            "  {:>12}{:>12}{:>14}{:>11}{:>10}  {what}",
            "peak", "live", "allocations", "lifetime", "hits"
        ),
    );
    for (name, counts) in rows.take(MOST_ROWS) {
        let lifetime = counts.lifetime_ns.checked_div(counts.frees);
        push(
            text,
            format_args!(
                "  {:>12}{:>12}{:>14}{:>11}{:>10}  {}",
                bytes(counts.peak_bytes),
                bytes(counts.live_bytes),
                count(counts.allocations),
                lifetime.map_or_else(|| "-".to_owned(), time),
                percent(counts.hits, counts.allocations),
                short(&name),
            ),
        );
    }
    push_rest(text, length);
}

fn push_rest(text: &mut String, length: usize) {
    if let Some(rest) = length.checked_sub(MOST_ROWS).filter(|&rest| rest > 0) {
        push(text, format_args!("  … and {} more", count(rest as u64)));
    }
}

/// The beginning of a name that fits into a line.
fn short(name: &str) -> String {
    if name.chars().count() <= NAME_CHARACTERS {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARACTERS - 1).chain(['…']).collect()
}

/// `2026-09-21 14:13:20 UTC`. The calendar is Howard Hinnant's `civil_from_days`.
fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let shifted = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The frames of a call site, which identify it in any profile.
fn frames_of(profile: &Profile, site: u32) -> &[Frame] {
    &profile.site(site).frames
}

#[cfg(test)]
mod tests;
