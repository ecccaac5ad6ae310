//! The address space as it is: who lies where, in every segment and area. For whoever looks, not
//! for the hot path: each lane is locked while it is walked.

use std::sync::Arc;

use super::Heap;
use super::lane::{Lane, LaneState};
use crate::base::DeviceOrdinal;
use crate::base::size::SizeClass;
use crate::memory::{NO_SLOT, Slot, State};
use crate::order::StreamName;

/// Addresses next to each other, all of one lane: a segment, or an area.
#[derive(Clone, Debug)]
pub struct Region {
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream.
    pub stream: StreamName,
    /// Whether it is a private pool's.
    pub is_private: bool,
    /// The tag of what is live in it.
    pub tag: Option<Arc<str>>,
    /// Which blocks it is for.
    pub class: SizeClass,
    /// What it consists of, in order of address and without holes; never empty.
    pub parts: Vec<Part>,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte.
    pub address: u64,
    /// Extent, in bytes.
    pub bytes: u64,
    /// What was asked for, in bytes, while live.
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
    /// Whether somebody holds it.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Live | Self::Paused)
    }
}

impl Heap {
    /// Everything that every device in use holds, by device and address. Lanes are looked at one
    /// after the other: what moves between them meanwhile may be in both or in neither.
    pub fn regions(&self) -> Vec<Region> {
        let mut regions = Vec::new();
        for lane in self.lanes.iter() {
            let state = lane.lock();
            let firsts = state.blocks.iter().filter(|(_, block)| block.before == NO_SLOT);
            regions.extend(firsts.map(|(slot, _)| self.region(lane, &state, slot)));
        }
        regions.sort_by_key(|region| (region.device, region.parts[0].address));
        regions
    }

    fn region(&self, lane: &Lane, state: &LaneState, first: Slot) -> Region {
        let mut parts: Vec<Part> = Vec::new();
        let mut slot = first;
        while slot != NO_SLOT {
            let block = state.blocks.get(slot);
            let (address, bytes) = (block.address, block.bytes);
            let state = match block.state {
                State::Live => PartState::Live,
                State::Pending => PartState::Pending,
                State::Free => PartState::Free,
                State::Paused => PartState::Paused,
                _ => PartState::Unmapped,
            };
            let requested_bytes = match state {
                PartState::Live | PartState::Paused => block.requested_bytes,
                _ => 0,
            };
            slot = block.after;
            match parts.last_mut() {
                Some(last) if state == PartState::Unmapped && last.state == state => {
                    last.bytes += bytes;
                }
                _ => parts.push(Part { address, bytes, requested_bytes, state }),
            }
        }
        let pool = lane.pool();
        Region {
            device: lane.device,
            stream: lane.name(),
            is_private: pool.is_private(),
            tag: self.tags.name(pool),
            class: state.blocks.get(first).class,
            parts,
        }
    }
}
