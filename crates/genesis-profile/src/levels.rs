//! The levels of each device, event by event.
//!
//! The history has the levels when it begins and the events that change them, so a walk returns
//! every level at every moment exactly. A freed block that other streams still use has two events,
//! `Free` and `Pending`; if the second directly follows, the block does not leave the active bytes
//! in between. The page does the same walk (`page/history.js`).

use crate::model::{Action, Event, Levels, Profile};

/// Calls `visit(event, row, levels)` for each event that changes the levels of a device of the
/// profile, with the device's row and its levels after the event.
pub fn walk<'p>(profile: &'p Profile, mut visit: impl FnMut(&'p Event, usize, &Levels)) {
    let events = &profile.history.events;
    let mut levels: Vec<Levels> = profile.history.start.clone();
    levels.resize(profile.devices.len(), Levels::default());
    for (index, event) in events.iter().enumerate() {
        let Some(row) = profile.device_row(event.device) else {
            continue;
        };
        let is_pending_next = events
            .get(index + 1)
            .is_some_and(|next| next.action == Action::Pending && next.address == event.address);
        let follows_free = index.checked_sub(1).is_some_and(|before| {
            events[before].action == Action::Free && events[before].address == event.address
        });
        if apply(event, &mut levels[row], is_pending_next, follows_free) {
            visit(event, row, &levels[row]);
        }
    }
}

/// Changes `levels` as `event` did; returns true if it is an event that changes levels.
fn apply(event: &Event, levels: &mut Levels, is_pending_next: bool, follows_free: bool) -> bool {
    let bytes = event.block_bytes;
    match event.action {
        Action::Allocate | Action::AllocateMiss => {
            add(&mut levels.requested_bytes, event.requested_bytes);
            add(&mut levels.allocated_bytes, bytes);
            add(&mut levels.active_bytes, bytes);
        }
        Action::Free => {
            subtract(&mut levels.requested_bytes, event.requested_bytes);
            subtract(&mut levels.allocated_bytes, bytes);
            if !is_pending_next {
                subtract(&mut levels.active_bytes, bytes);
            }
        }
        Action::Pending if !follows_free => add(&mut levels.active_bytes, bytes),
        Action::Ready => subtract(&mut levels.active_bytes, bytes),
        Action::Reserve => add(&mut levels.reserved_bytes, bytes),
        Action::Release => subtract(&mut levels.reserved_bytes, bytes),
        _ => return false,
    }
    true
}

// Documents are not trusted, so sums saturate.

fn add(level: &mut u64, bytes: u64) {
    *level = level.saturating_add(bytes);
}

fn subtract(level: &mut u64, bytes: u64) {
    *level = level.saturating_sub(bytes);
}
