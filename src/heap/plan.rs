//! What a device held, as plain data. The *plan* of a run is one for each device; the next run of
//! the program has the same made ready beforehand (`super::ready`).
//!
//! Streams have no names that last beyond a process, so lanes are kept in the order in which they
//! came. Addresses are kept as offsets in the areas of a lane.
//!
//! ```text
//! lanes      those of no private pool, whose memory would belong to its graphs
//! extents    where each lies, and where else it is mapped; only under Elastic
//! segments   by address; under all other strategies
//! ```

use super::trough::Levels;
use crate::base::DeviceOrdinal;
use crate::base::size::{ALIGNMENT_BYTES, SizeClass};
use crate::config::PoolType;

/// What one device held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlan {
    /// Which device of the process it was.
    pub device: DeviceOrdinal,
    /// What it was.
    pub model: DeviceModel,
    /// The most bytes that were live.
    pub peak_bytes: u64,
    /// Whether the next run's extents are to be as small as they can be, because a request was refused
    /// although as much was free, in pieces.
    pub needs_finer: bool,
    /// Its lanes, in the order of their streams' first requests.
    pub lanes: Vec<LanePlan>,
    /// Its extents; what was freed last comes last.
    pub extents: Vec<ExtentPlan>,
}

/// What decides which memory a device can hold and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub total_bytes: u64,
    /// The strategy in force.
    pub pool_type: PoolType,
    /// What sizes of extents are multiples of, in bytes; 1 without extents.
    pub granule_bytes: u64,
}

/// One lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePlan {
    /// The levels of live bytes in large blocks.
    pub levels: Levels,
    /// Its areas: how many bytes of each were used, from the start.
    pub areas: Vec<(SizeClass, u64)>,
    /// Its segments, by address.
    pub segments: Vec<(SizeClass, u64)>,
}

/// One extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentPlan {
    /// Its size in bytes.
    pub bytes: u64,
    /// Where it is to be mapped: at least one view, and first the one in which it is made.
    pub views: Vec<ViewPlan>,
    /// The one in which its blocks are to lie.
    pub home_view: usize,
}

/// One mapping of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewPlan {
    /// The lane, among those of the plan.
    pub lane: usize,
    /// The area, among those of the lane.
    pub area: usize,
    /// Its first byte, from the start of the area.
    pub offset_bytes: u64,
}

/// A plan names at most so many lanes, areas of a lane, and views of an extent.
const MOST_PARTS: usize = 256;
/// An area is at most so many bytes.
const MOST_AREA_BYTES: u64 = 1 << 41;

impl DevicePlan {
    /// Checks that it may be made ready: that it names nothing which is not there, and that no sum of
    /// its numbers is too large. The error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let DeviceModel { total_bytes, granule_bytes, pool_type, .. } = self.model;
        let is_size = |bytes: u64| {
            (1..=total_bytes).contains(&bytes) && bytes.checked_rem(granule_bytes) == Some(0)
        };
        // Blocks are cut from it at multiples of the alignment, or it is one block.
        let is_segment = |&(class, bytes): &(SizeClass, u64)| {
            let suits = if pool_type.cuts_blocks() {
                bytes.is_multiple_of(ALIGNMENT_BYTES)
            } else {
                class == SizeClass::of(bytes)
            };
            is_size(bytes) && suits
        };
        let is_area = |&(_, bytes): &(SizeClass, u64)| {
            bytes <= MOST_AREA_BYTES && bytes.checked_rem(granule_bytes) == Some(0)
        };
        let is_lane = |lane: &LanePlan| {
            let Levels { peak, high, low, usual, .. } = lane.levels;
            [peak, high, low, usual].iter().all(|level| *level <= total_bytes)
                && lane.areas.len() <= MOST_PARTS
                && lane.areas.iter().all(is_area)
                && lane.segments.iter().all(is_segment)
        };
        let is_view = |extent: &ExtentPlan, view: &ViewPlan| {
            let area = self.lanes.get(view.lane).and_then(|lane| lane.areas.get(view.area));
            let end_bytes = view.offset_bytes.checked_add(extent.bytes);
            view.offset_bytes.checked_rem(granule_bytes) == Some(0)
                && area.zip(end_bytes).is_some_and(|(&(_, bytes), end_bytes)| end_bytes <= bytes)
        };
        let is_extent = |extent: &ExtentPlan| {
            is_size(extent.bytes)
                && extent.home_view < extent.views.len()
                && extent.views.len() <= MOST_PARTS
                && extent.views.iter().all(|view| is_view(extent, view))
        };
        let wrong = |what: &str| Err(format!("{what} that this device cannot have had"));
        if self.lanes.len() > MOST_PARTS || !self.lanes.iter().all(is_lane) {
            return wrong("a lane");
        }
        if !self.extents.iter().all(is_extent) {
            return wrong("an extent");
        }
        if self.held_bytes() > total_bytes || self.peak_bytes > total_bytes {
            return wrong("more memory");
        }
        Ok(())
    }

    /// The sum of its extents and segments, in bytes.
    pub fn held_bytes(&self) -> u64 {
        let segments = self.lanes.iter().flat_map(|lane| &lane.segments).map(|&(_, bytes)| bytes);
        let extents = self.extents.iter().map(|extent| extent.bytes);
        extents.chain(segments).fold(0, u64::saturating_add)
    }
}
