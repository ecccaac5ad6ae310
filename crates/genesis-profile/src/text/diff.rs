//! The growth between two profiles of one run or of two runs of a program.
//!
//! Call sites have different numbers in each profile; they are the same if all their frames are.
//! Live blocks are compared and not sums over the run, so two profiles of one run show a leak.

use std::collections::BTreeMap;

use super::{MOST_ROWS, frames_of, heading, levels_of, push, push_rest, short};
use crate::model::{Device, Frame, Levels, Profile};
use crate::units::{self, bytes, count, signed_bytes};

type LevelsOf = fn(&Device) -> Levels;

/// Live bytes and blocks, before and after.
#[derive(Clone, Copy, Default)]
struct Change {
    bytes: [u64; 2],
    blocks: [u64; 2],
}

/// The changes from `before` to `after`: levels by device, and live bytes by call site and by size,
/// those that grew most first.
pub fn diff(before: &Profile, after: &Profile) -> String {
    let mut text = String::new();
    push(&mut text, format_args!("Before\n{}\nAfter\n{}", heading(before), heading(after)));
    push_levels(&mut text, before, after);
    if before.has_sites() && after.has_sites() {
        let mut sites: BTreeMap<&[Frame], Change> = BTreeMap::new();
        for (side, profile) in [before, after].into_iter().enumerate() {
            for block in &profile.live {
                let change = sites.entry(frames_of(profile, block.site)).or_default();
                add(change, side, block.block_bytes);
            }
        }
        push_changes(&mut text, "call site", sites.into_iter().map(|(f, c)| (units::stack(f), c)));
    }
    let mut sizes: BTreeMap<u64, Change> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for block in &profile.live {
            add(sizes.entry(block.block_bytes).or_default(), side, block.block_bytes);
        }
    }
    push_changes(&mut text, "block size", sizes.into_iter().map(|(key, c)| (bytes(key), c)));
    text
}

fn add(change: &mut Change, side: usize, block_bytes: u64) {
    change.bytes[side] = change.bytes[side].saturating_add(block_bytes);
    change.blocks[side] += 1;
}

fn growth(change: &Change) -> i128 {
    i128::from(change.bytes[1]) - i128::from(change.bytes[0])
}

fn push_levels(text: &mut String, before: &Profile, after: &Profile) {
    let mut ordinals: Vec<u32> =
        before.devices.iter().chain(&after.devices).map(|device| device.ordinal).collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    for ordinal in ordinals {
        let of = |profile: &Profile, levels: LevelsOf| {
            let row = profile.device_row(ordinal);
            row.map_or_else(Levels::default, |row| levels(&profile.devices[row]))
        };
        push(text, format_args!("\nDevice {ordinal}"));
        push(text, format_args!("  {:<16}{:>12}{:>12}{:>14}", "", "before", "after", "change"));
        let kinds: [(&str, LevelsOf); 2] =
            [("", |device| device.now), ("peak ", |device| device.peak)];
        for (kind, levels) in kinds {
            for (level, a, b) in levels_of(&of(before, levels), &of(after, levels)) {
                let change = signed_bytes(i128::from(b) - i128::from(a));
                let name = format!("{kind}{level}");
                push(
                    text,
                    format_args!("  {name:<16}{:>12}{:>12}{change:>14}", bytes(a), bytes(b)),
                );
            }
        }
    }
}

fn push_changes(text: &mut String, what: &str, rows: impl Iterator<Item = (String, Change)>) {
    let mut rows: Vec<(String, Change)> = rows.filter(|(_, change)| growth(change) != 0).collect();
    rows.sort_by_key(|(_, change)| std::cmp::Reverse(growth(change)));
    push(text, format_args!("\nLive bytes by {what}"));
    if rows.is_empty() {
        return push(text, format_args!("  no change"));
    }
    push(
        text,
        format_args!("  {:>12}{:>12}{:>12}{:>18}  {what}", "change", "before", "after", "blocks"),
    );
    for (name, change) in rows.iter().take(MOST_ROWS) {
        let blocks = format!("{} → {}", count(change.blocks[0]), count(change.blocks[1]));
        let [a, b] = change.bytes.map(bytes);
        let by = signed_bytes(growth(change));
        push(text, format_args!("  {by:>12}{a:>12}{b:>12}{blocks:>18}  {}", short(name)));
    }
    push_rest(text, rows.len());
}
