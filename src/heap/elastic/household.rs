//! Whose memory a request may use: that of all lanes, or of its *household*.
//!
//! Lanes whose streams one thread drives lend each other memory, and soon it moves in the same way in
//! each cycle, by remembered views. Lanes that no thread has in common are *strangers*. How their
//! cycles overlap differs each time, so memory that strangers lend each other moves for ever, and
//! breaks up the layouts of both. Where threads really run at once, more is often held in the end than if
//! nobody lent (docs/benchmarks/elastic.md).
//!
//! So a request takes nothing of strangers, and its household grows like a program of its own, while
//! memory was never short, and
//!
//! ```text
//! sum of the lanes' own live peaks ≤ MOST_APART × live peak
//! ```
//!
//! Otherwise, and for a request that the device has no room for, every lane lends: many threads that
//! need their most in turns, or few on a device that they fill.

use std::sync::atomic::Ordering::Relaxed;

use super::super::lane::Lane;
use super::super::state::{Climb, Extents};
use super::ablation::Part;

/// Households are kept apart if that takes at most so many times the live peak. So up to four lanes are
/// always apart where there is room.
const MOST_APART: u64 = 4;

/// Whose memory a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// That of all lanes.
    Device,
    /// That of its household.
    Household(Household),
}

/// The lanes that may have a thread in common with the request's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Household {
    /// The sum of their live peaks.
    pub(super) peak_bytes: u64,
    /// What they hold.
    held_bytes: u64,
}

impl Extents {
    /// Whose memory the request may use.
    pub(super) fn reach(&self, climb: &Climb<'_>) -> Reach {
        if self.is_short.load(Relaxed) || climb.lane.pool().is_private() || !Part::Apart.is_in() {
            return Reach::Device;
        }
        let lenders = climb.lenders();
        if !lenders.clone().any(|lane| climb.is_stranger(lane)) {
            return Reach::Device;
        }
        // This brings the lanes' own peaks up to date.
        climb.device.refresh_peaks();
        let live_peak_bytes = climb.device.most_live_bytes(climb.block_bytes);
        let own = &climb.lane.counters;
        let own_peak_bytes = own.live_peak().max(own.allocated_bytes() + climb.block_bytes);
        let mut all_peaks_bytes = own_peak_bytes;
        let mut household = Household { peak_bytes: own_peak_bytes, held_bytes: own.held_bytes() };
        for lane in lenders {
            let peak_bytes = lane.counters.live_peak();
            all_peaks_bytes += peak_bytes;
            if !climb.is_stranger(lane) {
                household.peak_bytes += peak_bytes;
                household.held_bytes += lane.counters.held_bytes();
            }
        }
        if all_peaks_bytes <= live_peak_bytes.saturating_mul(MOST_APART) {
            Reach::Household(household)
        } else {
            Reach::Device
        }
    }
}

impl Household {
    /// How much more it may hold, with this slack.
    pub(super) fn room_bytes(self, slack_bytes: u64) -> u64 {
        (self.peak_bytes + slack_bytes).saturating_sub(self.held_bytes)
    }
}

impl Reach {
    /// Returns true if the request may use free memory of `lane`, another one.
    pub(super) fn includes(self, climb: &Climb<'_>, lane: &Lane) -> bool {
        climb.is_in_household(lane) || self == Self::Device && climb.is_sibling(lane)
    }
}

impl Climb<'_> {
    /// The other lanes that hold memory which may be lent to the request's lane. Those whose streams
    /// have ended are none of them: what they hold is anybody's.
    pub(super) fn lenders(&self) -> impl Iterator<Item = &Lane> + Clone {
        let lends = |lane: &&Lane| {
            lane.counters.held_bytes() > 0 && self.is_sibling(lane) && !lane.is_left()
        };
        self.device.lanes().filter(lends)
    }

    /// Returns true if the request raises the live peak: that of the device, or, in a household apart,
    /// that of its lane. Whether such a request raises the device's depends on what strangers happen to
    /// need just then.
    pub(super) fn raises_live_peak(&self, reach: Reach) -> bool {
        match reach {
            Reach::Device => {
                self.device.most_live_bytes(self.block_bytes) > self.device.most_live_bytes(0)
            }
            Reach::Household(_) => {
                let own = &self.lane.counters;
                own.allocated_bytes() + self.block_bytes > own.live_peak()
            }
        }
    }

    /// Returns true if the request may use free memory of `lane`, another one, wherever it may look.
    pub(super) fn is_in_household(&self, lane: &Lane) -> bool {
        self.is_sibling(lane) && (lane.is_left() || !self.is_stranger(lane))
    }

    /// Returns true if no thread calls both `lane` and the request's.
    fn is_stranger(&self, lane: &Lane) -> bool {
        !self.lane.callers.may_share_with(&lane.callers)
    }
}

#[cfg(test)]
mod tests {
    use super::Household;

    #[test]
    fn a_household_may_hold_its_peak_and_its_slack() {
        let household = Household { peak_bytes: 100, held_bytes: 90 };
        assert_eq!(household.room_bytes(5), 15);
        assert_eq!(Household { held_bytes: 200, ..household }.room_bytes(5), 0);
    }
}
