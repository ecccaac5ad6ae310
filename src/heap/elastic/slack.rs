//! How much more a device may hold than what was ever live, before memory is moved instead.
//!
//! A part of the live peak to begin with. A program whose blocks move on and on at the same peak
//! lives too close to it: every few moves it is allowed a little more, up to a bound, until it
//! comes to rest. A new peak starts over, so a program that grows is held to the small part.
//!
//! Under the policy `tight` nothing is added for moves.
//!
//! Approximate where threads meet: a move may be counted for the peak before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::size::MIB;
use crate::config::ElasticPolicy;

/// What is held may exceed what was live at the peak by this part …
const PART: u64 = 128;
/// … and by this many bytes in any case, or by this part of the device if that is less …
const LEAST_BYTES: u64 = 50 * MIB;
const LEAST_PART: u64 = 256;
/// … and by a part more for every so many moves at the same peak …
const MOVES: u64 = 4;
const MOVES_PART: u64 = 128;
/// … up to this one.
const MOST_PART: u64 = 5;
/// A peak is a new one when it is higher by this part.
const NEW_PEAK_PART: u64 = 1000;

/// The slack of one device.
#[derive(Debug)]
pub(in super::super) struct Slack {
    /// Whether something is added for moves.
    is_added: bool,
    peak_bytes: AtomicU64,
    moves: AtomicU64,
}

impl Slack {
    /// That of a device on which nothing was live yet.
    pub(in super::super) fn new(policy: ElasticPolicy) -> Self {
        let is_added = policy == ElasticPolicy::Balanced;
        Self { is_added, peak_bytes: AtomicU64::new(0), moves: AtomicU64::new(0) }
    }

    /// How much more than `peak_bytes`, live at the peak, a device of `usable_bytes` may hold.
    pub(super) fn bytes(&self, peak_bytes: u64, usable_bytes: u64) -> u64 {
        self.see(peak_bytes);
        let least_bytes = LEAST_BYTES.min(usable_bytes / LEAST_PART);
        let for_moves = peak_bytes / MOVES_PART * (self.moves.load(Relaxed) / MOVES);
        let for_moves = if self.is_added { for_moves.min(peak_bytes / MOST_PART) } else { 0 };
        (peak_bytes / PART).max(least_bytes) + for_moves
    }

    /// Memory was moved by the driver for a request at a peak of `peak_bytes`.
    pub(super) fn note_move(&self, peak_bytes: u64) {
        self.see(peak_bytes);
        self.moves.fetch_add(1, Relaxed);
    }

    fn see(&self, peak_bytes: u64) {
        if peak_bytes > self.peak_bytes.load(Relaxed) + peak_bytes / NEW_PEAK_PART {
            self.peak_bytes.store(peak_bytes, Relaxed);
            self.moves.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::GIB;

    #[test]
    fn moves_at_one_peak_add_up_and_a_new_peak_starts_over() {
        let slack = Slack::new(ElasticPolicy::Balanced);
        let peak = 16 * GIB;
        assert_eq!(slack.bytes(peak, 80 * GIB), peak / PART);
        for _ in 0..MOVES {
            slack.note_move(peak + peak / 2000);
        }
        assert_eq!(slack.bytes(peak, 80 * GIB), peak / PART + peak / MOVES_PART);
        for _ in 0..1000 {
            slack.note_move(peak);
        }
        assert_eq!(slack.bytes(peak, 80 * GIB), peak / PART + peak / MOST_PART);
        assert_eq!(slack.bytes(2 * peak, 80 * GIB), 2 * peak / PART);
        assert_eq!(slack.bytes(GIB, 80 * GIB), LEAST_BYTES);
        assert_eq!(slack.bytes(GIB / 64, GIB), GIB / LEAST_PART, "on a small device");
        let tight = Slack::new(ElasticPolicy::Tight);
        (0..1000).for_each(|_| tight.note_move(peak));
        assert_eq!(tight.bytes(peak, 80 * GIB), peak / PART);
    }
}
