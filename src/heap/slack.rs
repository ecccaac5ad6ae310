//! Slack: how much more than the live peak a device may hold before memory is moved instead.
//!
//! slack = `max(peak / PART, least)` + added, least = `min(LEAST_BYTES, device / LEAST_PART)`.
//! Every MOVES moves at one peak add `peak / MOVES_PART`, or `moved / MOVED_PART` if greater, up to
//! `peak / MOST_PART`: a program that keeps moving blocks has too little room. The first serves
//! many small moves, the second a few huge ones, each of which costs a driver call per extent. A
//! new peak starts over, so a program that grows gets no addition.
//!
//! Under the policy `tight` nothing is added for moves.
//!
//! Approximate under concurrency: a move may be counted for the previous peak.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::size::MIB;
use crate::config::ElasticPolicy;

/// Held memory may exceed the live peak by this part of it, …
const PART: u64 = 128;
/// … but at least by this many bytes, or by this part of the device if that is less; …
const LEAST_BYTES: u64 = 50 * MIB;
const LEAST_PART: u64 = 256;
/// … every `MOVES` moves at the same peak add `peak / MOVES_PART`, …
const MOVES: u64 = 4;
const MOVES_PART: u64 = 128;
/// … or `moved / MOVED_PART` if that is more, …
const MOVED_PART: u64 = 16;
/// … but at most this part of the peak.
const MOST_PART: u64 = 5;
/// A peak is a new one when it is higher by this part.
const NEW_PEAK_PART: u64 = 1000;

/// The slack of one device.
#[derive(Debug)]
pub(super) struct Slack {
    /// Whether something is added for moves.
    is_added: bool,
    peak_bytes: AtomicU64,
    /// Moves, and bytes moved, at that peak.
    moves: AtomicU64,
    moved_bytes: AtomicU64,
}

impl Slack {
    /// The slack of a device on which nothing has been live yet.
    pub(super) fn new(policy: ElasticPolicy) -> Self {
        let is_added = policy == ElasticPolicy::Balanced;
        let nothing = || AtomicU64::new(0);
        Self { is_added, peak_bytes: nothing(), moves: nothing(), moved_bytes: nothing() }
    }

    /// How much more than `peak_bytes`, live at the peak, a device of `usable_bytes` may hold.
    pub(super) fn bytes(&self, peak_bytes: u64, usable_bytes: u64) -> u64 {
        self.see(peak_bytes);
        let least_bytes = LEAST_BYTES.min(usable_bytes / LEAST_PART);
        (peak_bytes / PART).max(least_bytes) + self.bytes_for_moves(peak_bytes)
    }

    fn bytes_for_moves(&self, peak_bytes: u64) -> u64 {
        if !self.is_added {
            return 0;
        }
        let by_number = self.moves.load(Relaxed) / MOVES * (peak_bytes / MOVES_PART);
        let by_bytes = self.moved_bytes.load(Relaxed) / MOVED_PART;
        by_number.max(by_bytes).min(peak_bytes / MOST_PART)
    }

    /// The driver moved `moved_bytes` for a request at a peak of `peak_bytes`.
    pub(super) fn note_move(&self, peak_bytes: u64, moved_bytes: u64) {
        self.see(peak_bytes);
        self.moves.fetch_add(1, Relaxed);
        self.moved_bytes.fetch_add(moved_bytes, Relaxed);
    }

    fn see(&self, peak_bytes: u64) {
        if peak_bytes > self.peak_bytes.load(Relaxed) + peak_bytes / NEW_PEAK_PART {
            self.peak_bytes.store(peak_bytes, Relaxed);
            self.moves.store(0, Relaxed);
            self.moved_bytes.store(0, Relaxed);
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
        let least = peak / PART;
        for _ in 0..MOVES {
            slack.note_move(peak + peak / 2000, GIB / 512);
        }
        assert_eq!(slack.bytes(peak, 80 * GIB), least + peak / MOVES_PART, "small moves");
        slack.note_move(peak, 4 * GIB);
        let moved_bytes = MOVES * GIB / 512 + 4 * GIB;
        assert_eq!(slack.bytes(peak, 80 * GIB), least + moved_bytes / MOVED_PART, "a large one");
        for _ in 0..1000 {
            slack.note_move(peak, GIB);
        }
        assert_eq!(slack.bytes(peak, 80 * GIB), peak / PART + peak / MOST_PART);
        assert_eq!(slack.bytes(2 * peak, 80 * GIB), 2 * peak / PART);
        assert_eq!(slack.bytes(GIB, 80 * GIB), LEAST_BYTES);
        assert_eq!(slack.bytes(GIB / 64, GIB), GIB / LEAST_PART, "on a small device");
        let tight = Slack::new(ElasticPolicy::Tight);
        (0..1000).for_each(|_| tight.note_move(peak, GIB));
        assert_eq!(tight.bytes(peak, 80 * GIB), peak / PART);
    }
}
