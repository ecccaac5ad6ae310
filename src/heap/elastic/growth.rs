//! How much a device may hold, and how large new extents are.
//!
//! ```text
//! live peak = the most that was ever live on the device, whatever statistics were reset; of a household
//!                 apart (`household`) its lanes' own live peaks, together
//! limit     = live peak + slack                  above it, memory is moved before more is made
//! slack     = a part of the live peak: the policy's; 1 / WHOLE_BLOCKS_PART while the live peak rises
//!                 from cycle to cycle; 1 / RESTLESS_PART once the lane's program is restless;
//!                 at least min(LEAST_SLACK_BYTES, device / LEAST_SLACK_PART)
//! early     = in a lane's first cycle, for requests that raise the live peak (in a household apart,
//!                 the lane's): live peak + live peak / WHOLE_BLOCKS_PART
//!                 up to it, extents are moved only if they make up whole free blocks, and new ones
//!                 are made instead of the others
//! extent    = large blocks: the power of two below live peak / EXTENT_PART, within the policy's
//!                 bounds; while the program starts, below live peak / LOADING_PART; while it loads
//!                 again, below live peak / LOADING_AGAIN_PART
//!             small blocks: max(SMALL_EXTENT_BYTES, live small bytes / SMALL_EXTENT_PART)
//!             both: at most min(left² / device, device / MOST_DEVICE_PART), where left is what may still
//!                 be created; while the program starts, MOST_LOADING_DEVICE_PART takes the place of
//!                 MOST_DEVICE_PART; but at least device / DEVICE_PART; smaller once memory is scarce
//!                 (`scarcity`)
//! growth    = what is missing, rounded up to whole extents; to whole granules for large blocks of a
//!                 program that never held YOUNG_BYTES, once it has freed something
//! ```
//!
//! An extent can move only while no block lies in it, so it should be a small part of what is held.
//! But each costs driver calls of the same price at any size, so there should be few. What a program
//! loads it keeps (`heap::loading`), so those extents are large.
//!
//! If an extent leaves a larger free block, rests of the block stay, which only smaller blocks can use.
//! That is worth it at the highest live peak, but not below: blocks to come could have used the whole.
//! How high the peak will be, nobody knows in a lane's first cycle (`heap::first_cycle`). Where it rises
//! from cycle to cycle (`heap::rising_peak`), layouts do not come again, and extents would move in each, as
//! in a program that never comes to rest (`heap::moves`).
//!
//! The sizes are those for an H100. What this driver charges scales them by a power of two
//! ([`crate::driver::Prices`]), but not the slack, because another one gained nothing at any published
//! price list, nor the extents while a program loads.

use super::super::lane::LaneState;
use super::super::loading::Phase;
use super::super::state::{Climb, DeviceHeap, Extents};
use super::ablation::Part;
use super::household::Reach;
use crate::base::size::{Bytes, GIB, MIB, SizeClass};
use crate::config::{ElasticPolicy, LogLevel};

/// The slack is at least so many bytes, or this part of the device if that is less: with less than a
/// few granules, small programs would move memory at each miss.
const LEAST_SLACK_BYTES: u64 = 32 * MIB;
const LEAST_SLACK_PART: u64 = 256;
/// A program fills a device, or will, that has room for less than so many times the live peak.
const FILLED_PEAKS: u64 = 2;
/// Small blocks: the least that memory grows by, in bytes.
const SMALL_EXTENT_BYTES: u64 = 2 * MIB;
/// … or this part of the lane's live small bytes.
const SMALL_EXTENT_PART: u64 = 32;
/// An extent is about this part of the live peak, …
const EXTENT_PART: u64 = 200;
/// … or about this one while the program starts, …
const LOADING_PART: u64 = 80;
/// … and this one while it loads again, if it held so many bytes: of a smaller program a few large
/// extents are too much, if it does free what it seemed to load.
const LOADING_AGAIN_PART: u64 = 128;
const LEAST_LOADING_AGAIN_BYTES: u64 = 4 * GIB;
/// A program that never held so many bytes has probably just begun, so its extents are not so small.
const YOUNG_BYTES: u64 = 2 * GIB;
/// Where an extent costs more or less than on an H100 (`driver::Prices`), extents are as much larger
/// or smaller. But not larger than this part of the live peak and this part of the device, or
/// little room would cost more than they save, …
const COARSEST_PART: u64 = 128;
const COARSEST_DEVICE_PART: u64 = 512;
/// … and not smaller for programs that never held so many bytes: they would move more often and
/// hold no less.
const LEAST_FINER_BYTES: u64 = GIB;
/// One live block should not keep much of a device's memory from moving, in particular where little
/// is left: an extent is at most this part of the device, …
const MOST_DEVICE_PART: u64 = 896;
/// … or this part while the program starts.
const MOST_LOADING_DEVICE_PART: u64 = 512;
/// But it is always at least this part of the device's memory.
const DEVICE_PART: u64 = 4096;

/// In a lane's first cycle this part of the live peak may be held more before extents are taken out of
/// larger free blocks, and while the live peak rises, before any is moved.
const WHOLE_BLOCKS_PART: u64 = 12;
/// Of a restless program this part of the live peak may be held more, before any is moved.
const RESTLESS_PART: u64 = 4;

/// What the policy chooses.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The slack is the live peak / this.
    slack_part: u64,
    /// In a lane's first cycle only whole free blocks give extents up to the live peak / this, which is
    /// the slack while the live peak rises.
    whole_blocks_part: u64,
    /// The slack of a restless program is the live peak / this.
    restless_part: u64,
    least_extent_bytes: u64,
    most_extent_bytes: u64,
    /// The least of a young program.
    least_young_bytes: u64,
    /// The most while the program loads.
    most_loading_bytes: u64,
}

/// The policies: driver calls against memory.
const BALANCED: Bounds = Bounds {
    slack_part: 50,
    whole_blocks_part: WHOLE_BLOCKS_PART,
    restless_part: RESTLESS_PART,
    least_extent_bytes: 8 * MIB,
    most_extent_bytes: 32 * MIB,
    least_young_bytes: 16 * MIB,
    most_loading_bytes: 64 * MIB,
};
const FINE: Bounds = Bounds {
    least_extent_bytes: 2 * MIB,
    most_extent_bytes: 2 * MIB,
    least_young_bytes: 2 * MIB,
    most_loading_bytes: 2 * MIB,
    ..BALANCED
};
const TIGHT: Bounds =
    Bounds { slack_part: 200, whole_blocks_part: 200, restless_part: 200, ..FINE };

/// How memory grows for one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Whose memory the request may use.
    pub(super) reach: Reach,
    /// How much may be created before memory is moved, in bytes.
    pub(super) room_bytes: u64,
    /// … before extents are taken out of larger free blocks; in a first cycle this is more.
    pub(super) early_room_bytes: u64,
    /// How much may be created at all.
    pub(super) usable_bytes: u64,
    /// Whether the lane's memory is packed, because its program fills the device and has no cycles
    /// (`heap::moves`).
    pub(super) is_packing: bool,
    cut: Cut,
    granule_bytes: u64,
}

/// How what is created is cut into extents.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// About the size of an extent.
    extent_bytes: u64,
    /// What is created is a multiple of this, …
    unit_bytes: u64,
    /// … and above the room of this, if possible.
    step_bytes: u64,
}

/// What may be held beyond the live peak, in bytes.
struct Slack {
    /// Before memory is moved.
    bytes: u64,
    /// Before extents are taken out of larger free blocks.
    early_bytes: u64,
    /// Whether the lane is restless, and whether its memory is packed.
    is_restless: bool,
    is_packing: bool,
}

/// What may still be created.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: u64,
    /// The most bytes of an extent, if memory is scarce.
    most_extent_bytes: Option<u64>,
}

/// The least and the most bytes of large extents, of programs that hold much, where an extent costs
/// 2^`dearness` times as much as on an H100.
pub fn extent_sizes(dearness: i8) -> [u64; 2] {
    [BALANCED.least_extent_bytes, BALANCED.most_extent_bytes].map(|bytes| scaled(bytes, dearness))
}

impl Extents {
    /// How dear the driver's extents are, where the policy asks; the log is told once.
    fn dearness(&self, device: DeviceHeap<'_>) -> i8 {
        let prices = self.store.prices();
        let dearness = prices.dearness();
        if prices.is_news() {
            let [least, most] = extent_sizes(dearness).map(Bytes);
            device.heap.log.write(
                LogLevel::Info,
                &format_args!("device {}: {prices}; extents of {least} to {most}", device.ordinal),
            );
        }
        match self.policy {
            ElasticPolicy::Balanced if Part::KnownPrices.is_in() => dearness,
            ElasticPolicy::Balanced | ElasticPolicy::Fine | ElasticPolicy::Tight => 0,
        }
    }

    /// The size of an extent of usually `bytes` at this driver's prices, for a program with that
    /// live peak.
    fn priced(&self, bytes: u64, device: DeviceHeap<'_>, peak_bytes: u64) -> u64 {
        let dearness = self.dearness(device);
        if dearness < 0 && peak_bytes < LEAST_FINER_BYTES {
            return bytes;
        }
        let coarsest_bytes =
            (peak_bytes / COARSEST_PART).min(device.usable_bytes() / COARSEST_DEVICE_PART);
        scaled(bytes, dearness).min(power_below(coarsest_bytes).max(bytes))
    }

    /// How memory grows now, for the request of `climb`. Also follows how much is moved for the lane.
    pub(super) fn growth(&self, climb: &Climb<'_>, reach: Reach) -> Growth {
        let device = climb.device;
        // A household apart is like a program of its own.
        let peak_bytes = match reach {
            Reach::Device => device.most_live_bytes(climb.block_bytes),
            Reach::Household(household) => household.peak_bytes,
        };
        let usable_bytes = device.left_bytes().min(climb.pool_room_bytes());
        let slack = self.slack(climb, reach, peak_bytes);
        let room_bytes = |slack_bytes: u64| match reach {
            Reach::Device => {
                (peak_bytes + slack_bytes).saturating_sub(device.ledger.reserved_bytes())
            }
            Reach::Household(household) => household.room_bytes(slack_bytes),
        };
        let most_extent_bytes = self.most_if_scarce(device, slack.is_restless);
        let room = Room { bytes: usable_bytes, most_extent_bytes };
        let granule_bytes = self.store.granule_bytes();
        let usable = |bytes: u64| bytes.min(usable_bytes) / granule_bytes * granule_bytes;
        Growth {
            reach,
            room_bytes: usable(room_bytes(slack.bytes)),
            early_room_bytes: usable(room_bytes(slack.early_bytes)),
            usable_bytes: usable(usable_bytes),
            is_packing: slack.is_packing,
            cut: match SizeClass::of(climb.block_bytes) {
                SizeClass::Small => self.small_cut(climb, room),
                SizeClass::Large => self.large_cut(device, room, peak_bytes),
            },
            granule_bytes,
        }
    }

    fn bounds(&self) -> Bounds {
        match self.policy {
            ElasticPolicy::Balanced => BALANCED,
            ElasticPolicy::Fine => FINE,
            ElasticPolicy::Tight => TIGHT,
        }
    }

    fn slack(&self, climb: &Climb<'_>, reach: Reach, peak_bytes: u64) -> Slack {
        let bounds = self.bounds();
        let least_bytes = LEAST_SLACK_BYTES.min(climb.device.usable_bytes() / LEAST_SLACK_PART);
        let at_least = |part: u64| least_bytes.max(peak_bytes / part);
        let usual_bytes = at_least(bounds.slack_part);
        let is_filled = climb.device.usable_bytes() < peak_bytes.saturating_mul(FILLED_PEAKS);
        let (is_first_cycle, is_peak_rising, is_restless, is_packing) = {
            let LaneState { trough, moves, strategy, .. } = &mut *climb.lane.lock();
            if Part::Restless.is_in() {
                moves.miss(climb.lane.counters.allocated_total(), peak_bytes);
            }
            let is_packing = is_filled && moves.are_without_cycles() && Part::Packing.is_in();
            strategy.expect_views(!is_packing);
            (trough.is_first_cycle(), trough.is_peak_rising(), moves.are_restless(), is_packing)
        };
        let is_early = Part::FirstCycle.is_in() && is_first_cycle && climb.raises_live_peak(reach);
        let early_bytes = if is_restless {
            at_least(bounds.restless_part)
        } else if is_early || is_peak_rising {
            at_least(bounds.whole_blocks_part)
        } else {
            usual_bytes
        };
        let bytes = if is_peak_rising || is_restless { early_bytes } else { usual_bytes };
        Slack { bytes, early_bytes, is_restless, is_packing }
    }

    /// How memory for small blocks is cut, where there is `room`.
    fn small_cut(&self, climb: &Climb<'_>, room: Room) -> Cut {
        let live_bytes = climb.lane.counters.snapshot().classes[0].active;
        let granule_bytes = self.store.granule_bytes();
        let share_bytes = live_bytes / SMALL_EXTENT_PART / granule_bytes * granule_bytes;
        let bytes = share_bytes.max(SMALL_EXTENT_BYTES);
        Cut::whole(self.limited(bytes, climb.device, room, MOST_DEVICE_PART))
    }

    /// How memory for large blocks is cut, where there is `room`.
    fn large_cut(&self, device: DeviceHeap<'_>, room: Room, peak_bytes: u64) -> Cut {
        let bounds = self.bounds();
        let is_young = peak_bytes < YOUNG_BYTES;
        let least_bytes =
            if is_young { bounds.least_young_bytes } else { bounds.least_extent_bytes };
        let part_bytes = power_below(peak_bytes / EXTENT_PART);
        let usual_bytes = part_bytes.clamp(least_bytes, bounds.most_extent_bytes);
        let priced_bytes = self.priced(usual_bytes, device, peak_bytes);
        let steady_bytes = self.limited(priced_bytes, device, room, MOST_DEVICE_PART);
        let load = match self.phase(device) {
            Phase::Start => Some((LOADING_PART, MOST_LOADING_DEVICE_PART)),
            Phase::Again if peak_bytes >= LEAST_LOADING_AGAIN_BYTES => {
                Some((LOADING_AGAIN_PART, MOST_DEVICE_PART))
            }
            Phase::Again | Phase::Steady => None,
        };
        if let Some((peak_part, device_part)) = load {
            let part_bytes = power_below(peak_bytes / peak_part);
            let bytes = part_bytes.clamp(bounds.least_young_bytes, bounds.most_loading_bytes);
            let bytes = self.limited(bytes, device, room, device_part);
            Cut { step_bytes: steady_bytes, ..Cut::whole(bytes.max(steady_bytes)) }
        } else if is_young && Part::Exact.is_in() {
            let granule_bytes = self.store.granule_bytes();
            Cut { extent_bytes: steady_bytes, ..Cut::whole(granule_bytes) }
        } else {
            Cut::whole(steady_bytes)
        }
    }

    /// Whether the program loads what it keeps.
    fn phase(&self, device: DeviceHeap<'_>) -> Phase {
        let (reserved, freed) = (device.ledger.reserved_bytes(), device.freed_bytes());
        let phase = self.loading.lock().follow(reserved, freed);
        if Part::CoarseLoading.is_in() { phase } else { Phase::Steady }
    }

    /// An extent of `bytes`, in whole granules, where there is `room`; of the whole device at most
    /// 1 / `device_part`.
    fn limited(&self, bytes: u64, device: DeviceHeap<'_>, room: Room, device_part: u64) -> u64 {
        let (device_bytes, granule_bytes) = (device.usable_bytes(), self.store.granule_bytes());
        let left_part = u128::from(room.bytes).pow(2) / u128::from(device_bytes.max(1));
        let left_part_bytes = u64::try_from(left_part).unwrap_or(u64::MAX);
        let most_bytes = left_part_bytes.min(device_bytes / device_part);
        let most_bytes = most_bytes.max(device_bytes / DEVICE_PART);
        let most_bytes = room.most_extent_bytes.unwrap_or(most_bytes);
        bytes.min(most_bytes).max(granule_bytes).next_multiple_of(granule_bytes)
    }
}

impl Cut {
    /// Whole extents of `bytes`.
    const fn whole(bytes: u64) -> Self {
        Self { extent_bytes: bytes, unit_bytes: bytes, step_bytes: bytes }
    }
}

impl Growth {
    /// How much to create where `missing_bytes` are missing and `place_bytes` of addresses are
    /// bare; some is for the next requests.
    pub(super) fn bytes(&self, missing_bytes: u64, place_bytes: u64) -> u64 {
        let mut bytes = missing_bytes.next_multiple_of(self.cut.unit_bytes);
        if bytes > self.room_bytes {
            let step = self.cut.step_bytes;
            let least_bytes = missing_bytes.next_multiple_of(step);
            bytes = least_bytes.max(bytes.min(self.room_bytes / step * step));
        }
        bytes.min(place_bytes).min(self.usable_bytes).max(missing_bytes)
    }

    /// Cuts `bytes`, whole granules, evenly into extents.
    pub(super) fn extents(&self, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let Self { cut: Cut { extent_bytes, .. }, granule_bytes, .. } = *self;
        debug_assert!(bytes.is_multiple_of(granule_bytes));
        let granules = bytes / granule_bytes;
        let count = ((bytes + extent_bytes / 2) / extent_bytes).max(1).min(granules);
        let before = move |index: u64| index * granules / count;
        (0..count).map(move |index| (before(index + 1) - before(index)) * granule_bytes)
    }
}

/// `bytes` × 2^`exponent`.
const fn scaled(bytes: u64, exponent: i8) -> u64 {
    if exponent < 0 { bytes >> -exponent } else { bytes << exponent }
}

/// The power of two that `bytes` reaches.
fn power_below(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2()
}
