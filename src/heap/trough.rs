//! Troughs: moments at which a lane's live memory is at its usual low. Its extents return to their
//! first homes then.
//!
//! A program works in cycles (steps, batches, requests). Between them only what it keeps is live:
//! weights, for example. Within a cycle Elastic's extents move. If each cycle began with the layout
//! that the last one left, layouts would break each other up, and memory would creep up. At a
//! trough most extents are wholly free. They return as one layout, by bookkeeping alone
//! (`elastic::gather`).
//!
//! Live bytes of large blocks are followed as a zigzag. They *fall* once they are a swing below the
//! last high, and *rise* once they are a swing above the last low:
//!
//! ```text
//! swing   = max(highest peak / SWING_PART, least swing)
//! high, low: the extremes of the present swing
//! falling → rising   at live > low + swing        the low is a trough: usual moves toward it
//! rising → falling   at live < high − swing
//! reached            at live ≤ usual + (high − usual) / NEAR_PART, once in each fall
//! ```
//!
//! Blocks that another stream still uses then are not free yet. Once all events have come that they
//! waited for, extents return once more.
//!
//! The least swing keeps a program of few large blocks from a trough at each of them.
//!
//! When a lane's first cycle has ended is followed beside it ([`first_cycle`](super::first_cycle)), and
//! whether its live peak still rises from trough to trough ([`rising_peak`](super::rising_peak)).
//!
//! A lower trough becomes the usual one at once. Toward a higher one, usual moves half the way. So
//! it follows a program that comes to keep more. Extremes are followed in steps of an eighth of a
//! swing: an operation costs one comparison, and only a few in each swing cost more (in the first
//! cycle, each free that leaves less live than any since the last high).

use super::first_cycle::FirstCycle;
use super::rising_peak::RisingPeak;
use crate::base::size::MIB;
use crate::config::PoolType;

/// A swing is this part of the highest peak.
const SWING_PART: u64 = 4;
/// … and at least so many bytes.
const LEAST_SWING_BYTES: u64 = 128 * MIB;
/// Extremes are followed in steps of this part of a swing.
const STEP_PART: u64 = 8;
/// The trough is reached within this part of the way down from the high.
const NEAR_PART: u64 = 20;

/// The live memory of a lane, followed through its cycles, in bytes.
#[derive(Debug)]
pub(super) struct Trough {
    /// An allocation that leaves more live than this, or a free that leaves less, is looked at.
    above: u64,
    below: u64,
    /// The same for this zigzag, without the first cycle's.
    turn_above: u64,
    turn_below: u64,
    first_cycle: FirstCycle,
    rising_peak: RisingPeak,
    least_swing: u64,
    /// Whether extents are to return at the next call.
    is_due: bool,
    /// Whether that is because the trough was reached.
    is_reached: bool,
    /// They return once more when so many events have come.
    late_events: usize,
    is_falling: bool,
    /// Whether the present fall has not reached the trough yet.
    is_ahead: bool,
    peak: u64,
    high: u64,
    low: u64,
    usual: u64,
    /// The trough of the present fall is reached once at most so much is live.
    near: u64,
}

/// What a lane has learned of its program, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The highest peak.
    pub peak: u64,
    /// The last high.
    pub high: u64,
    /// The last low.
    pub low: u64,
    /// The usual low.
    pub usual: u64,
    /// Whether the level was falling.
    pub is_falling: bool,
    /// Whether that fall had not reached the trough.
    pub is_ahead: bool,
}

/// What a free was for the zigzag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Within the bounds.
    None,
    /// A step further down.
    Down,
}

impl Trough {
    /// Of a lane of the strategy, with nothing live yet. Only Elastic's memory moves; the others'
    /// troughs are never reached.
    pub(super) fn of(pool_type: PoolType) -> Self {
        let above = if pool_type == PoolType::Elastic { 0 } else { u64::MAX };
        Self {
            least_swing: LEAST_SWING_BYTES,
            above,
            below: 0,
            turn_above: above,
            turn_below: 0,
            first_cycle: FirstCycle::default(),
            rising_peak: RisingPeak::default(),
            is_due: false,
            is_reached: false,
            late_events: 0,
            is_falling: false,
            is_ahead: false,
            peak: 0,
            high: 0,
            low: 0,
            usual: 0,
            near: 0,
        }
    }

    /// What was learned of the program.
    pub(super) fn levels(&self) -> Levels {
        let Self { peak, high, low, usual, is_falling, is_ahead, .. } = *self;
        Levels { peak, high, low, usual, is_falling, is_ahead }
    }

    /// Takes over what an earlier run of the program has learned, unless something was live here: so
    /// a swing that is small beside those to come is no cycle.
    pub(super) fn expect(&mut self, levels: Levels) {
        if self.peak == 0 && self.above != u64::MAX {
            let Levels { peak, high, low, usual, is_falling, is_ahead } = levels;
            self.first_cycle.end(peak);
            (self.peak, self.high, self.low, self.usual) = (peak, high, low, usual);
            (self.is_falling, self.is_ahead) = (is_falling, is_ahead);
            self.near = self.near_bytes();
            self.watch();
        }
    }

    /// Returns true if the lane's first cycle has not ended.
    pub(super) fn is_first_cycle(&self) -> bool {
        !self.first_cycle.is_over()
    }

    /// Returns true while the device's live peak rises from cycle to cycle.
    pub(super) fn is_peak_rising(&self) -> bool {
        self.rising_peak.is_rising()
    }

    /// Follows an allocation, after which `live_bytes` of large blocks are live.
    #[inline]
    pub(super) fn rise(&mut self, live_bytes: u64) {
        if live_bytes > self.above {
            self.risen(live_bytes);
        }
    }

    /// Follows a free, after which `live_bytes` of large blocks are live.
    #[inline]
    pub(super) fn fall(&mut self, live_bytes: u64) -> Step {
        if live_bytes < self.below { self.fallen(live_bytes) } else { Step::None }
    }

    /// Returns true if the trough was reached since the last call of [`Self::take`].
    pub(super) fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Returns true if extents are to return: the trough was reached, or what was pending there is
    /// free now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// The lane's extents are about to return. Returns true if they do so because the trough was reached;
    /// only then is `peak` called, for the lane's live peak in bytes.
    pub(super) fn take(&mut self, peak: impl FnOnce() -> u64) -> bool {
        self.is_due = false;
        let is_reached = std::mem::take(&mut self.is_reached);
        if is_reached {
            self.rising_peak.end_cycle(peak());
        }
        is_reached
    }

    /// Extents return once more when so many of the lane's events have come.
    pub(super) fn wait_for(&mut self, events: usize) {
        self.late_events = events;
    }

    /// So many events have come.
    pub(super) fn events_came(&mut self, events: usize) {
        if self.late_events > 0 {
            self.late_events = self.late_events.saturating_sub(events);
            self.is_due |= self.late_events == 0;
        }
    }

    #[cold]
    fn risen(&mut self, live_bytes: u64) {
        self.first_cycle.follow(live_bytes);
        if live_bytes > self.turn_above {
            self.turn_up(live_bytes);
        }
        self.watch();
    }

    #[cold]
    fn fallen(&mut self, live_bytes: u64) -> Step {
        self.first_cycle.follow(live_bytes);
        let is_down = live_bytes < self.turn_below;
        if is_down {
            self.turn_down(live_bytes);
        }
        self.watch();
        if is_down { Step::Down } else { Step::None }
    }

    fn turn_up(&mut self, live_bytes: u64) {
        if self.is_falling {
            self.is_falling = false;
            self.usual = match self.low.checked_sub(self.usual) {
                Some(higher_bytes) => self.usual + higher_bytes / 2,
                None => self.low,
            };
        }
        self.high = live_bytes;
        self.peak = self.peak.max(live_bytes);
    }

    fn turn_down(&mut self, live_bytes: u64) {
        if !self.is_falling {
            self.is_falling = true;
            self.is_ahead = true;
            self.near = self.near_bytes();
        }
        self.low = live_bytes;
        if self.is_ahead && live_bytes <= self.near {
            self.is_ahead = false;
            self.is_reached = true;
            self.is_due = true;
        }
    }

    /// At most so much is live at the trough of a fall from the present high.
    fn near_bytes(&self) -> u64 {
        self.usual + self.high.saturating_sub(self.usual) / NEAR_PART
    }

    /// Sets the bounds within which nothing is to be done.
    fn watch(&mut self) {
        let swing = (self.peak / SWING_PART).max(self.least_swing);
        let step = (swing / STEP_PART).max(1);
        if self.is_falling {
            self.turn_above = self.low.saturating_add(swing);
            self.turn_below = self.low.saturating_sub(step);
            if self.is_ahead {
                self.turn_below = self.turn_below.max(self.near + 1).min(self.low);
            }
        } else {
            self.turn_above = self.high.saturating_add(step);
            self.turn_below = self.high.saturating_sub(swing);
        }
        let (below, above) = self.first_cycle.bounds();
        self.above = self.turn_above.min(above);
        self.below = self.turn_below.max(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows `levels`, and returns those after which the trough was reached.
    fn reached(levels: &[u64]) -> Vec<u64> {
        let mut trough = Trough { least_swing: 0, ..Trough::of(PoolType::Elastic) };
        let (mut live, mut reached) = (0, Vec::new());
        for &level in levels {
            while live != level {
                if live < level {
                    live += 1;
                    trough.rise(live);
                } else {
                    live -= 1;
                    trough.fall(live);
                }
                if trough.is_reached() {
                    trough.take(|| 0);
                    reached.push(live);
                }
            }
        }
        reached
    }

    #[test]
    fn a_trough_is_reached_once_in_each_cycle() {
        let levels = reached(&[1000, 0, 1000, 0, 1000, 0]);
        assert!(levels.len() == 3 && levels.iter().all(|level| *level < 80), "{levels:?}");
    }

    #[test]
    fn extents_return_once_more_when_the_events_have_come() {
        let mut trough = Trough { least_swing: 0, ..Trough::of(PoolType::Elastic) };
        trough.rise(1000);
        trough.fall(0);
        assert!(trough.is_due() && trough.take(|| 1000) && !trough.is_due());
        trough.wait_for(3);
        trough.events_came(2);
        assert!(!trough.is_due());
        trough.events_came(2);
        assert!(trough.is_due() && !trough.is_reached(), "not because of a trough");
        assert!(!trough.take(|| 1000));
        trough.events_came(1);
        assert!(!trough.is_due(), "once");
    }

    #[test]
    fn small_swings_are_no_cycles() {
        assert!(reached(&[1000, 800, 1000, 780, 900, 760, 1000]).is_empty());
    }

    #[test]
    fn a_program_that_is_known_has_no_first_cycle() {
        let mut trough = Trough::of(PoolType::Elastic);
        assert!(trough.is_first_cycle());
        trough.expect(Levels { peak: 100, ..Levels::default() });
        assert!(!trough.is_first_cycle());
    }

    #[test]
    fn what_stays_live_raises_the_trough() {
        // A program loads 600 and keeps them; each step goes up to 1000.
        let steps = [1000, 600].repeat(8);
        let levels = reached(&steps);
        assert!(levels.len() >= 3, "{levels:?}");
        assert!(levels.iter().all(|level| (600..=660).contains(level)), "{levels:?}");
        // A deeper one becomes usual at once.
        let levels = reached(&[&steps[..], &[1000, 100, 1000, 100]].concat());
        assert!(levels[levels.len() - 1] <= 180, "{levels:?}");
    }
}
