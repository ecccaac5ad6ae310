//! What a description of the heap consists of: devices, streams, regions and blocks, as plain data.

use std::sync::Arc;

use super::lane::Lane;
use super::pools::PoolId;
use crate::base::DeviceOrdinal;
use crate::base::size::SizeClass;
use crate::config::PoolType;
use crate::memory::Block;
use crate::observe::Statistics;
use crate::order::StreamName;

/// A live block, described for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The pointer handed out.
    pub address: u64,
    /// What was asked for, in bytes.
    pub requested_bytes: u64,
    /// The size of the block, in bytes.
    pub allocated_bytes: u64,
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream it was allocated on.
    pub stream: StreamName,
}

/// One device in use.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// The device.
    pub ordinal: DeviceOrdinal,
    /// Its name.
    pub name: String,
    /// The strategy in force on it.
    pub pool_type: PoolType,
    /// Its physical memory, in bytes.
    pub total_bytes: u64,
    /// The most that may be reserved of it, in bytes.
    pub usable_bytes: u64,
    /// Its statistics.
    pub statistics: Statistics,
}

/// What one stream holds on one device, its private pools included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamDescription {
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream.
    pub stream: StreamName,
    /// Live bytes, as asked for.
    pub requested_bytes: u64,
    /// Bytes of live blocks.
    pub allocated_bytes: u64,
    /// Bytes of live and pending blocks.
    pub active_bytes: u64,
}

/// Contiguous addresses of one lane: a segment or an area.
#[derive(Clone, Debug)]
pub struct Region {
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream.
    pub stream: StreamName,
    /// Whether it belongs to a private pool.
    pub is_private: bool,
    /// The name of that pool, unless it has been released.
    pub pool: Option<PoolId>,
    /// Whether its memory was allocated as a whole: a segment, not an area.
    pub is_whole: bool,
    /// The tag of the live blocks in it.
    pub tag: Option<Arc<str>>,
    /// The size class of its blocks.
    pub class: SizeClass,
    /// Its parts in address order, without gaps; never empty.
    pub parts: Vec<Part>,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// Bytes asked for if it is live; what a part of it was last asked for if it is free, or 0.
    pub requested_bytes: u64,
    /// What it is.
    pub state: PartState,
}

/// What a part of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// Handed out.
    Live,
    /// Freed, but other streams may still use it.
    Pending,
    /// Cached.
    Free,
    /// Handed out, with its memory away until its tag is resumed.
    Paused,
    /// Addresses without memory of their own.
    Unmapped,
}

impl PartState {
    /// Returns true if it is handed out.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Live | Self::Paused)
    }
}

impl LiveBlock {
    /// `block` of `lane`.
    pub(super) fn of(lane: &Lane, block: &Block) -> Self {
        Self {
            address: block.address,
            requested_bytes: block.requested_bytes,
            allocated_bytes: block.bytes,
            device: lane.device,
            stream: lane.name(),
        }
    }
}
