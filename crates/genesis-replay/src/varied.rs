//! Recorded programs with other sizes.
//!
//! How much an allocator holds of a program depends on how its blocks happen to fit: one recording is
//! one draw. A policy that is good for the recording alone was fitted to it. So each size is changed
//! at random, the same size always in the same way: a program's equal blocks stay equal, and only how
//! they fit changes.
//!
//! Many programs have round sizes, so that free memory consists of whole extents. Every second draw
//! leaves round sizes round.

use crate::program::ALIGNMENT_BYTES;
use crate::record::{Action, Record};

/// Smaller blocks stay as they are: their sizes hardly matter.
const LEAST_BYTES: u64 = 1 << 20;
/// The most that a size changes by, in parts of 1024: 15 %.
const MOST_CHANGE: u64 = 154;

/// A round size stays a multiple of a power of two, but of one that is at most this part of it.
const ROUND_PART: u64 = 16;

/// `records` with other sizes; different ones for each `seed`, and always the same for one. With an
/// even `seed`, round sizes stay round.
pub fn varied(records: &[Record], seed: u64) -> Vec<Record> {
    let vary = |record: &Record| match record.action {
        Action::Allocate => {
            Record { requested_bytes: varied_bytes(record.requested_bytes, seed), ..*record }
        }
        _ => *record,
    };
    records.iter().map(vary).collect()
}

fn varied_bytes(bytes: u64, seed: u64) -> u64 {
    if bytes < LEAST_BYTES {
        return bytes;
    }
    let unit_bytes = if seed.is_multiple_of(2) { roundness(bytes) } else { ALIGNMENT_BYTES };
    let units = bytes / unit_bytes;
    let most = (u128::from(units) * u128::from(MOST_CHANGE) / 1024) as u64;
    // From units − most to units + most.
    let changed = (units - most).saturating_add(hash(bytes ^ hash(seed)) % (2 * most + 1));
    changed.saturating_mul(unit_bytes)
}

/// The largest power of two that divides `bytes`, within bounds.
fn roundness(bytes: u64) -> u64 {
    let divisor = 1 << bytes.trailing_zeros();
    let most = 1 << (bytes / ROUND_PART).ilog2();
    divisor.min(most).max(ALIGNMENT_BYTES)
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn hash(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(action: Action, requested_bytes: u64) -> Record {
        Record { action, device: 0, stream: 0, id: 1, requested_bytes }
    }

    #[test]
    fn equal_sizes_stay_equal_and_others_change_by_little() {
        let sizes = [3 << 20, 3 << 20, 100 << 20, 1 << 40, u64::MAX];
        let records = sizes.map(|bytes| record(Action::Allocate, bytes));
        for seed in [1, 2] {
            let changed = varied(&records, seed);
            assert_eq!(changed[0], changed[1]);
            for (before, after) in records.iter().zip(&changed) {
                let part = after.requested_bytes as f64 / before.requested_bytes as f64;
                assert!((0.84..1.16).contains(&part), "{before:?}: {after:?}");
            }
            assert_eq!(varied(&records, seed), changed);
            assert_ne!(varied(&records, seed + 2), changed);
        }
    }

    #[test]
    fn round_sizes_stay_round_in_every_second_draw() {
        let changed_of = |bytes, seed| varied(&[record(Action::Allocate, bytes)], seed)[0];
        for seed in (2..100).step_by(2) {
            assert!(changed_of(128 << 20, seed).requested_bytes.is_multiple_of(8 << 20));
            assert!(changed_of(3 << 20, seed).requested_bytes.is_multiple_of(128 << 10));
            assert!(changed_of(100 << 20, seed).requested_bytes.is_multiple_of(4 << 20));
        }
        assert!(!changed_of(128 << 20, 1).requested_bytes.is_multiple_of(8 << 20));
    }

    #[test]
    fn small_blocks_and_other_records_stay() {
        let records = [
            record(Action::Allocate, 4096),
            record(Action::Free, 0),
            record(Action::EmptyCache, 0),
        ];
        assert_eq!(varied(&records, 1), records);
    }
}
