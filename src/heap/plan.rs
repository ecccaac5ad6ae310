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
use crate::base::size::SizeClass;
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
    /// Whether large requests got the lowest block that fits.
    pub has_first_fit: bool,
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
    /// Where it is mapped: at least one view, and first the one in which it is made.
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

impl DevicePlan {
    /// The sum of its extents and segments, in bytes.
    pub fn held_bytes(&self) -> u64 {
        let segments = self.lanes.iter().flat_map(|lane| &lane.segments).map(|&(_, bytes)| bytes);
        let extents = self.extents.iter().map(|extent| extent.bytes);
        extents.chain(segments).fold(0, u64::saturating_add)
    }
}
