//! Waiting for a device before it grows, for free memory that only an idle device makes usable:
//!
//! - free memory of a stream that makes no more calls, because it is destroyed or quiet. Others can
//!   use it only after an event, which is recorded at a call of that stream, or if it can be seen that
//!   the stream has nothing to do;
//! - freed blocks that were recorded for another thread's default stream, or for a stream that was
//!   being captured: they have no event.
//!
//! Otherwise programs that make and drop streams would leave more and more of it behind. So a
//! request waits first if `held > live + left` and the wait brings back at least `left`. A stream
//! not asked for an event before is asked now; its memory counts only if `held > live + 1.5 left`,
//! because the stream may well call again. That is one wait for each `left` bytes freed, by a
//! request that would take the driver longer, and no wait in a program whose streams keep calling.

use super::lane::Lane;
use super::state::Climb;
use crate::base::size::MIB;
use crate::memory::{Block, Slot};
use crate::order::Readiness;

/// `left` is this part of what was live at the peak, …
const LEFT_PART: u64 = 8;
/// … but at least this many bytes, …
const LEAST_LEFT_BYTES: u64 = 256 * MIB;
/// … or a part of the device if that is less.
const LEAST_LEFT_PART: u64 = 4;

/// Free memory in the lanes that the request could use.
#[derive(Clone, Copy, Debug, Default)]
struct Free {
    /// Usable now or after an event, in bytes.
    ready_bytes: u64,
    /// Usable once the device has been idle, in bytes.
    stuck_bytes: u64,
    /// The same, but of streams that have not been asked for an event before.
    unasked_bytes: u64,
}

impl Climb<'_> {
    /// Waits for the device if the request would make it hold much more than is live and the wait
    /// brings back as much. Returns true if it has waited.
    pub(super) fn wait_before_growing(&self) -> bool {
        let Climb { device, block_bytes, .. } = *self;
        let live_bytes = device.most_live_bytes(block_bytes);
        let least_bytes = LEAST_LEFT_BYTES.min(device.usable_bytes() / LEAST_LEFT_PART);
        let left_bytes = (live_bytes / LEFT_PART).max(least_bytes);
        let held_bytes = device.ledger.reserved_bytes().saturating_add(block_bytes);
        if held_bytes <= live_bytes.saturating_add(left_bytes) || device.may_capture() {
            return false;
        }
        let free = self.look_for_free();
        let is_far_too_much = held_bytes > live_bytes.saturating_add(left_bytes / 2 * 3);
        let unasked_bytes = if is_far_too_much { free.unasked_bytes } else { 0 };
        free.ready_bytes < block_bytes
            && free.stuck_bytes + unasked_bytes >= left_bytes
            && device.wait_for_device()
    }

    fn look_for_free(&self) -> Free {
        let mut free = Free::default();
        for lane in self.device.lanes() {
            let is_own = lane.index == self.lane.index;
            if is_own || self.is_sibling(lane) {
                add_free(self, lane, is_own, &mut free);
            }
        }
        free
    }
}

/// Adds what `lane` has: under Elastic every byte, because memory is gathered; otherwise the
/// segments that can serve the request.
fn add_free(climb: &Climb<'_>, lane: &Lane, is_own: bool, free: &mut Free) {
    let state = lane.lock();
    let bytes_of = |slot: Slot| state.blocks.get(slot).bytes;
    free.stuck_bytes += state.pending.waiting_for_idle().map(bytes_of).sum::<u64>();
    let Climb { device, block_bytes, .. } = *climb;
    let is_gathered = device.backing.gathers();
    if is_own {
        free.ready_bytes += if is_gathered { lane.counters.inactive_bytes() } else { 0 };
        return;
    }
    let usable_bytes = if is_gathered {
        0..=u64::MAX
    } else {
        block_bytes..=device.sizing.largest_usable_bytes(block_bytes)
    };
    let mut unfenced_bytes = 0;
    state.strategy.visit(&state.blocks, &usable_bytes, &mut |slot, block: &Block| {
        if is_gathered || state.blocks.is_whole_segment(slot) {
            match state.fence.readiness(block.freed_epoch) {
                Readiness::NotYet => unfenced_bytes += block.bytes,
                Readiness::Ready | Readiness::After(_) => free.ready_bytes += block.bytes,
            }
        }
    });
    drop(state);
    if unfenced_bytes > 0 {
        let is_ready = device.see_idle(lane);
        let sum = if is_ready { &mut free.ready_bytes } else { stuck_bytes(climb, lane, free) };
        *sum += unfenced_bytes;
    }
}

/// Asks `lane` for an event; returns the sum in which its memory counts until there is one.
fn stuck_bytes<'a>(climb: &Climb<'_>, lane: &Lane, free: &'a mut Free) -> &'a mut u64 {
    if lane.want_fence(climb.number) { &mut free.stuck_bytes } else { &mut free.unasked_bytes }
}
