//! Whether a lane is in its program's first cycle, so that nobody knows yet how much it will need.
//!
//! In its first cycle (`heap::trough`) a program keeps ever more: weights, then what each layer leaves
//! for the way back. So its lows rise. The first cycle has ended with the first low that is hardly
//! higher than the one before it. What came before may have been a small beginning: if much more
//! becomes live than ever, a first cycle begins anew.
//!
//! Live bytes of large blocks are followed as a zigzag:
//!
//! ```text
//! swing  = max(highest peak / SWING_PART, LEAST_SWING_BYTES)
//! a low  = the least live between a fall and a rise of more than a swing
//! over   when a low ≤ the low before it + highest peak / RISE_PART;
//!        until live > NEW_BEGINNING × highest peak then
//! ```
//!
//! With larger swings, programs whose live memory hardly falls (frozen weights, small batches) would
//! be in their first cycle for ever; with smaller ones, each layer of some programs would be a cycle.

use crate::base::size::MIB;

/// A swing is this part of the highest peak, …
const SWING_PART: u64 = 6;
/// … and at least so many bytes.
const LEAST_SWING_BYTES: u64 = 32 * MIB;
/// Highs are followed in steps of this part of a swing. Lows are compared, so they are exact.
const STEP_PART: u64 = 8;
/// A low is hardly higher than another if it is by at most this part of the highest peak. Programs
/// that keep a little more in each step would else be in their first cycle for ever; one of a hundred
/// layers keeps more at each.
const RISE_PART: u64 = 256;
/// So many times the highest peak is a new beginning.
const NEW_BEGINNING: u64 = 2;

/// A lane's first cycle, in bytes.
#[derive(Debug, Default)]
pub(super) struct FirstCycle {
    is_over: bool,
    is_falling: bool,
    peak: u64,
    high: u64,
    low: u64,
    /// The low before the present swing.
    low_before: Option<u64>,
}

impl FirstCycle {
    /// Returns true once it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What the program needs is known, with a peak of `peak` bytes.
    pub(super) fn end(&mut self, peak: u64) {
        *self = Self { is_over: true, peak, ..Self::default() };
    }

    /// There is nothing to follow while live memory stays within these bounds.
    pub(super) fn bounds(&self) -> (u64, u64) {
        if self.is_over {
            (0, self.peak.saturating_mul(NEW_BEGINNING))
        } else if self.is_falling {
            (self.low, self.low.saturating_add(self.swing()))
        } else {
            let swing = self.swing();
            (self.high.saturating_sub(swing), self.high.saturating_add(swing / STEP_PART))
        }
    }

    /// Follows live memory, which is outside the bounds.
    pub(super) fn follow(&mut self, live: u64) {
        let (below, above) = self.bounds();
        if live >= below && live <= above {
            return;
        }
        if live < below {
            self.is_falling = true;
            self.low = live;
        } else if self.is_over {
            *self = Self { peak: live, high: live, ..Self::default() };
        } else {
            if self.is_falling {
                let rise = self.peak / RISE_PART;
                self.is_over = self.low_before.is_some_and(|before| self.low <= before + rise);
                self.low_before = Some(self.low);
            }
            self.is_falling = false;
            self.high = live;
            self.peak = self.peak.max(live);
        }
    }

    fn swing(&self) -> u64 {
        (self.peak / SWING_PART).max(LEAST_SWING_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows `levels`, in MiB, in steps of one; returns whether the first cycle was over after each.
    fn follow(levels: &[u64]) -> Vec<bool> {
        let (mut cycle, mut live) = (FirstCycle::default(), 0);
        let mut overs = Vec::new();
        for &level in levels {
            while live != level {
                live = if live < level { live + 1 } else { live - 1 };
                cycle.follow(live * MIB);
            }
            overs.push(cycle.is_over());
        }
        overs
    }

    #[test]
    fn it_ends_with_a_low_that_is_hardly_higher_than_the_one_before() {
        // Each layer keeps something on the way there; on the way back, everything goes.
        let overs = follow(&[1000, 500, 1100, 510, 1200, 520, 1300, 400, 1300, 0, 1300]);
        assert_eq!(overs.iter().position(|over| *over), Some(8), "{overs:?}");
        // A program that keeps a little of each step.
        let overs = follow(&[1000, 500, 1002, 502, 1004, 504, 1006]);
        assert_eq!(overs.iter().position(|over| *over), Some(4), "{overs:?}");
    }

    #[test]
    fn small_swings_are_no_cycles() {
        assert!(!follow(&[1000, 900, 1000, 900, 1000, 900, 1100]).contains(&true));
        assert!(!follow(&[60, 40, 60, 40, 60]).contains(&true));
    }

    #[test]
    fn a_program_that_needs_much_more_than_before_begins_anew() {
        let overs = follow(&[100, 0, 100, 0, 100, 0, 150, 0, 500, 300, 600, 310, 700]);
        assert_eq!(overs[4..8], [true; 4], "{overs:?}");
        assert_eq!(overs[8..], [false; 5], "{overs:?}");
    }

    #[test]
    fn what_is_known_is_over_until_twice_as_much_is_live() {
        let mut cycle = FirstCycle::default();
        cycle.end(1000 * MIB);
        cycle.follow(2000 * MIB);
        assert!(cycle.is_over());
        cycle.follow(2001 * MIB);
        assert!(!cycle.is_over());
    }
}
