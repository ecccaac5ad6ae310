//! The same view as text, once: for pipes and files.

use genesis::base::size::Bytes;
use genesis_profile::model::{Device, Forecast, Profile};
use genesis_profile::units;
use genesis_replay::table::Table;

use super::{Course, Found};

/// One process.
pub(crate) fn describe(course: &Course) -> String {
    let Some(now) = course.now() else {
        return String::new();
    };
    let mut text = format!("{}\n\n", title(now));
    let mut table = Table::new(&[
        "device", "live", "cached", "reserved", "limit", "peak", "fragm.", "allocs/s", "hits",
        "refused",
    ]);
    for device in &now.devices {
        let rates = course.rates(device.ordinal);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        table.add(vec![
            shortened(&format!("{} {}", device.ordinal, units::one_line(&device.name)), 26),
            Bytes(device.now.allocated_bytes).to_string(),
            Bytes(cached_bytes(device)).to_string(),
            Bytes(device.now.reserved_bytes).to_string(),
            Bytes(device.usable_bytes).to_string(),
            Bytes(device.peak.reserved_bytes).to_string(),
            percent(device.fragmentation_index),
            or_dash(rates.map(|rates| rate(rates.allocations))),
            or_dash(rates.and_then(|rates| rates.hit_rate).map(percent)),
            units::count(device.out_of_memory_events),
        ]);
    }
    text += &table.to_string();
    for device in &now.devices {
        if device.oversubscribed_bytes() > 0 {
            let (now, peak) = (device.oversubscribed_bytes(), device.peak_oversubscribed_bytes());
            let (now, peak) = (Bytes(now), Bytes(peak));
            text += &format!("device {}: {now} beyond the device, peak {peak}\n", device.ordinal);
        }
        if let Some(forecast) = &device.forecast {
            text += &format!("device {}: {}\n", device.ordinal, outlook(forecast));
        }
    }
    if !now.call_sites.is_empty() {
        let mut table = Table::new(&["call site", "live", "peak", "blocks"]);
        for summary in &now.call_sites {
            let counts = &summary.counts;
            table.add(vec![
                units::site(now.site(summary.site)),
                Bytes(counts.live_bytes).to_string(),
                Bytes(counts.peak_bytes).to_string(),
                units::count(counts.allocations.saturating_sub(counts.frees)),
            ]);
        }
        text += &format!("\n{table}");
    }
    text
}

/// Several processes, a line each.
pub(crate) fn list(found: &[Found]) -> String {
    let mut table = Table::new(&["program", "process", "live", "reserved"]);
    for found in found {
        let sum = |bytes: fn(&Device) -> u64| {
            Bytes(found.profile.devices.iter().map(bytes).sum()).to_string()
        };
        table.add(vec![
            program(&found.profile, 60),
            found.process_id().to_string(),
            sum(|device| device.now.allocated_bytes),
            sum(|device| device.now.reserved_bytes),
        ]);
    }
    format!("{table}\n`genesis top PROCESS` shows one of them.\n")
}

/// The program and how it allocates.
pub(super) fn title(now: &Profile) -> String {
    format!(
        "{} · process {} · {} on {}",
        program(now, 60),
        now.process_id,
        now.strategy,
        now.backend
    )
}

/// When memory runs out.
pub(super) fn outlook(forecast: &Forecast) -> String {
    let what = if forecast.is_leak { "a leak" } else { "a growth of the peak" };
    format!(
        "memory runs out in {:.0} steps, at least {:.0}: {what} of {} a step",
        forecast.steps_left,
        forecast.fewest_steps_left,
        Bytes(forecast.bytes_per_step as u64)
    )
}

/// The command line, shortened, without characters that move a terminal's cursor.
pub(super) fn program(profile: &Profile, most_characters: usize) -> String {
    shortened(&units::one_line(&profile.program), most_characters)
}

fn shortened(text: &str, most_characters: usize) -> String {
    match text.char_indices().nth(most_characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Bytes that are reserved and neither live nor pending.
pub(super) fn cached_bytes(device: &Device) -> u64 {
    device.now.reserved_bytes.saturating_sub(device.now.active_bytes)
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// A number a second, in three or four digits.
pub(super) fn rate(a_second: f64) -> String {
    match a_second {
        small if small < 99.95 => format!("{small:.1}"),
        large => units::count(large.round() as u64),
    }
}
