//! The processes of a program side by side: which holds most, which is unlike the others, and what
//! each held at the same step.

use std::collections::BTreeMap;

use super::{MOST_ROWS, push, push_rest, short};
use crate::levels;
use crate::model::{Action, Levels, Profile};
use crate::units::{bytes, count, percent, signed_bytes};

/// A process is unlike the others if its peak is off their median by more than one part of so many.
const ODD_PART: u64 = 10;
/// The most processes with a column each at a step; of more, the lowest and the highest.
const MOST_COLUMNS: usize = 5;

/// The report on processes with these names, such as `rank 3`.
pub fn ranks(processes: &[(String, Profile)]) -> String {
    let mut text = format!("Genesis memory of {} processes\n", processes.len());
    let rows: Vec<Row> = processes.iter().map(|(name, profile)| Row::of(name, profile)).collect();
    push_rows(&mut text, &rows);
    push_fullest(&mut text, &rows);
    push_odd(&mut text, &rows);
    push_steps(&mut text, processes);
    text
}

/// One process: all its devices together.
struct Row<'a> {
    name: &'a str,
    process_id: u32,
    /// The highest live bytes, as requested.
    live_bytes: u64,
    reserved_bytes: u64,
    usable_bytes: u64,
    cached_bytes: u64,
    failures: u64,
}

impl<'a> Row<'a> {
    fn of(name: &'a str, profile: &Profile) -> Self {
        let sum = |of: fn(&crate::model::Device) -> u64| {
            profile.devices.iter().map(of).fold(0, u64::saturating_add)
        };
        Self {
            name,
            process_id: profile.process_id,
            live_bytes: sum(|device| device.peak.requested_bytes),
            reserved_bytes: sum(|device| device.peak.reserved_bytes),
            usable_bytes: sum(|device| device.usable_bytes),
            cached_bytes: sum(|device| {
                device.now.reserved_bytes.saturating_sub(device.now.active_bytes)
            }),
            failures: sum(|device| device.out_of_memory_events),
        }
    }
}

fn push_rows(text: &mut String, rows: &[Row<'_>]) {
    let titles = ["process", "live peak", "reserved peak", "of the device", "cached at end"];
    let [process, live, reserved, part, cached] = titles;
    push(
        text,
        format_args!(
            "\n  {:<12}{process:>9}{live:>12}{reserved:>15}{part:>15}{cached:>15}{:>10}",
            "", "failures"
        ),
    );
    for row in rows {
        let Row { process_id, live_bytes, reserved_bytes, cached_bytes, .. } = *row;
        push(
            text,
            format_args!(
                "  {:<12}{process_id:>9}{:>12}{:>15}{:>15}{:>15}{:>10}",
                short(row.name),
                bytes(live_bytes),
                bytes(reserved_bytes),
                percent(reserved_bytes, row.usable_bytes),
                bytes(cached_bytes),
                count(row.failures),
            ),
        );
    }
}

fn push_fullest(text: &mut String, rows: &[Row<'_>]) {
    // Devices may differ: the one with the least left, not the one with the most held.
    let left = |row: &&Row| row.usable_bytes.saturating_sub(row.reserved_bytes);
    if let Some(row) = rows.iter().min_by_key(left) {
        push(
            text,
            format_args!(
                "\nThe fullest: {}, with {} left at its peak",
                row.name,
                bytes(left(&row))
            ),
        );
    }
}

fn push_odd(text: &mut String, rows: &[Row<'_>]) {
    // Of two nobody can say which is unlike the other.
    if rows.len() < 3 {
        return;
    }
    let median = median(rows.iter().map(|row| row.live_bytes).collect());
    let off = |row: &&Row| row.live_bytes.abs_diff(median);
    let Some(odd) = rows.iter().max_by_key(off) else { return };
    if off(&odd) <= median / ODD_PART {
        push(text, format_args!("None is unlike the others: all within 10 % of the median"));
        return;
    }
    let difference = i128::from(odd.live_bytes) - i128::from(median);
    push(
        text,
        format_args!(
            "The odd one out: {}, whose live peak is {}, {} from the median of {}",
            odd.name,
            bytes(odd.live_bytes),
            signed_bytes(difference),
            bytes(median)
        ),
    );
}

/// The lower of the two in the middle, so that it is one of the values.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The highest live bytes, as requested, within each step of a process; by the step's number. A step
/// whose begin is not in the history is left out.
fn steps(profile: &Profile) -> BTreeMap<u64, u64> {
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for event in &profile.history.events {
        if event.action == Action::Iteration {
            ends.push((event.time_ns, event.requested_bytes));
        }
    }
    let mut peaks = vec![0; ends.len()];
    let mut now = vec![Levels::default(); profile.devices.len()];
    now.iter_mut().zip(&profile.history.start).for_each(|(now, start)| *now = *start);
    let mut step = 0;
    levels::walk(profile, |event, row, levels| {
        while ends.get(step).is_some_and(|&(end_ns, _)| end_ns < event.time_ns) {
            step += 1;
            let held = total(&now);
            raise(&mut peaks, step, held);
        }
        now[row] = *levels;
        raise(&mut peaks, step, total(&now));
    });
    let held = total(&now);
    (step + 1..ends.len()).for_each(|later| raise(&mut peaks, later, held));
    let begins_inside = profile.history.dropped_events == 0;
    let whole = ends.iter().zip(peaks).skip(usize::from(!begins_inside));
    whole.map(|(&(_, number), peak)| (number, peak)).collect()
}

fn raise(peaks: &mut [u64], step: usize, held: u64) {
    if let Some(peak) = peaks.get_mut(step) {
        *peak = held.max(*peak);
    }
}

fn total(levels: &[Levels]) -> u64 {
    levels.iter().map(|levels| levels.requested_bytes).fold(0, u64::saturating_add)
}

/// The steps that all processes have, those with the largest differences.
fn push_steps(text: &mut String, processes: &[(String, Profile)]) {
    let of_each: Vec<BTreeMap<u64, u64>> =
        processes.iter().map(|(_, profile)| steps(profile)).collect();
    let Some((first, others)) = of_each.split_first() else { return };
    let mut common: Vec<(u64, Vec<u64>)> = Vec::new();
    for (&number, &peak) in first {
        let rest = others.iter().map(|steps| steps.get(&number).copied());
        let held: Option<Vec<u64>> = std::iter::once(Some(peak)).chain(rest).collect();
        common.extend(held.map(|held| (number, held)));
    }
    if common.is_empty() {
        return;
    }
    let count = common.len();
    let spread = |held: &[u64]| held.iter().max().unwrap_or(&0) - held.iter().min().unwrap_or(&0);
    common.sort_by_key(|(number, held)| (std::cmp::Reverse(spread(held)), *number));
    common.truncate(MOST_ROWS);
    common.sort_by_key(|(number, _)| *number);
    push(text, format_args!("\nThe live peak of the same step, where they differ most"));
    let names: Vec<&str> = processes.iter().map(|(name, _)| name.as_str()).collect();
    let has_columns = names.len() <= MOST_COLUMNS;
    let titles: String = match has_columns {
        true => names.iter().map(|name| format!("{:>11}", short(name))).collect(),
        false => format!("{:>11}{:>24}", "median", "lowest"),
    };
    push(text, format_args!("  {:>8}{titles}{:>24}{:>11}", "step", "highest", "apart"));
    for (number, held) in &common {
        let [lowest, highest] = [false, true].map(|is_highest| extreme(&names, held, is_highest));
        let columns: String = match has_columns {
            true => held.iter().map(|&held| format!("{:>11}", bytes(held))).collect(),
            false => format!("{:>11}{lowest:>24}", bytes(median(held.clone()))),
        };
        push(text, format_args!("  {number:>8}{columns}{highest:>24}{:>11}", bytes(spread(held))));
    }
    push_rest(text, count);
}

/// `1.5 GiB (rank 3)`: of those that hold least or most, the first.
fn extreme(names: &[&str], held: &[u64], is_highest: bool) -> String {
    let order =
        |&(row, &held): &(usize, &u64)| (if is_highest { u64::MAX - held } else { held }, row);
    let found = held.iter().enumerate().min_by_key(order);
    found
        .map_or_else(String::new, |(row, held)| format!("{} ({})", bytes(*held), short(names[row])))
}
