//! The call sites that hold most: at the peak, when memory runs out, and now, when leaks show.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::{MOST_ROWS, push, push_rest, short};
use crate::model::{Action, Profile};
use crate::units::{self, bytes, count, percent};

/// The call site and the bytes of a live block.
type Held = (u32, u64);

/// Both lists, or one if the peak is now.
pub(super) fn push_holders(text: &mut String, profile: &Profile) {
    if let Some(at_peak) = held_at_peak(profile) {
        let title = match profile.history.dropped_events {
            0 => "Biggest holders at the peak",
            _ => "Biggest holders at the highest moment of the latest events",
        };
        push_list(text, profile, title, &at_peak);
    }
    let now: Vec<Held> = profile.live.iter().map(|block| (block.site, block.block_bytes)).collect();
    push_list(text, profile, "Biggest holders now", &now);
}

/// The live blocks at the peak of all devices together; `None` if the peak is now.
fn held_at_peak(profile: &Profile) -> Option<Vec<Held>> {
    let history = &profile.history;
    let start: u64 = history.start_live.iter().map(|block| block.block_bytes).sum();
    let (mut total, mut highest, mut until) = (start, start, 0);
    for (index, event) in history.events.iter().enumerate() {
        match event.action {
            Action::Free => total = total.saturating_sub(event.block_bytes),
            action if action.is_allocation() => total = total.saturating_add(event.block_bytes),
            _ => continue,
        }
        if total > highest {
            (highest, until) = (total, index + 1);
        }
    }
    if total == highest {
        return None;
    }
    let mut live: HashMap<u64, Held> = HashMap::new();
    let before = history.start_live.iter();
    live.extend(before.map(|block| (block.address, (block.site, block.block_bytes))));
    for event in &history.events[..until] {
        match event.action {
            Action::Free => drop(live.remove(&event.address)),
            action if action.is_allocation() => {
                live.insert(event.address, (event.site, event.block_bytes));
            }
            _ => {}
        }
    }
    Some(live.into_values().collect())
}

fn push_list(text: &mut String, profile: &Profile, title: &str, held: &[Held]) {
    let has_sites = profile.has_sites();
    let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for &(site, block_bytes) in held {
        let key = if has_sites { site.into() } else { block_bytes };
        let (sum, blocks) = sums.entry(key).or_default();
        *sum = sum.saturating_add(block_bytes);
        *blocks += 1;
    }
    let mut holders: Vec<(u64, u64, u64)> =
        sums.into_iter().map(|(key, (sum, blocks))| (sum, blocks, key)).collect();
    holders.sort_by_key(|&(sum, _, key)| (Reverse(sum), key));
    let total = holders.iter().fold(0_u64, |all, &(sum, ..)| all.saturating_add(sum));
    push(text, format_args!("\n{title}"));
    if holders.is_empty() {
        return push(text, format_args!("  nothing is live"));
    }
    let what = if has_sites { "call site" } else { "block size" };
    push(text, format_args!("  {:>12}{:>9}{:>10}  {what}", "bytes", "share", "blocks"));
    for &(sum, blocks, key) in holders.iter().take(MOST_ROWS) {
        let name = match u32::try_from(key) {
            Ok(site) if has_sites => short(&units::site(profile.site(site))),
            _ => bytes(key),
        };
        let (size, share) = (bytes(sum), percent(sum, total));
        push(text, format_args!("  {size:>12}{share:>9}{:>10}  {name}", count(blocks)));
    }
    push_rest(text, holders.len());
}
