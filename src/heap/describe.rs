//! Describes what the heap holds: devices, streams, and the address space block by block. It makes
//! no driver call, so it can run while the process ends. It locks each lane while walking it, so it
//! is not for the hot path.

use std::sync::Arc;

use super::lane::{Lane, LaneState};
use super::pools::PoolId;
use super::state::Heap;
use crate::base::DeviceOrdinal;
use crate::base::size::SizeClass;
use crate::config::PoolType;
use crate::memory::{NO_SLOT, Slot, State};
use crate::observe::{Action, Beginning, Event, Held, Statistics};
use crate::order::StreamName;

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
    /// Bytes asked for if it is live, otherwise 0.
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

impl Heap {
    /// Every device in use.
    pub fn devices_in_use(&self) -> Vec<DeviceDescription> {
        let opened = self.opened_devices();
        let described = opened.map(|device| DeviceDescription {
            ordinal: device.ordinal,
            name: device.name.clone(),
            pool_type: device.pool_type,
            total_bytes: device.ledger.total_bytes(),
            usable_bytes: device.usable_bytes(),
            statistics: device.statistics(),
        });
        described.collect()
    }

    /// Every stream with live or pending blocks, sorted by device and stream. Takes no lock.
    pub fn streams_in_use(&self) -> Vec<StreamDescription> {
        let mut streams: Vec<StreamDescription> = self
            .lanes
            .iter()
            .map(|lane| {
                let now = lane.counters.snapshot().all;
                StreamDescription {
                    device: lane.device,
                    stream: lane.name(),
                    requested_bytes: now.requested,
                    allocated_bytes: now.allocated,
                    active_bytes: now.active,
                }
            })
            .filter(|stream| stream.active_bytes > 0)
            .collect();
        streams.sort_by_key(|stream| (stream.device, stream.stream.0));
        streams.dedup_by(|other, first| {
            let is_same = (other.device, other.stream) == (first.device, first.stream);
            if is_same {
                first.requested_bytes += other.requested_bytes;
                first.allocated_bytes += other.allocated_bytes;
                first.active_bytes += other.active_bytes;
            }
            is_same
        });
        streams
    }

    /// Everything that devices in use hold, sorted by device and address. Lanes are read one after
    /// the other: memory that changes lanes meanwhile may appear twice or not at all.
    pub fn regions(&self) -> Vec<Region> {
        let mut regions = Vec::new();
        for lane in self.lanes.iter() {
            self.add_regions(lane, &mut regions);
        }
        regions.sort_by_key(|region| (region.device, region.parts[0].address));
        regions
    }

    /// Adds what `lane` holds, in no order.
    pub(super) fn add_regions(&self, lane: &Lane, regions: &mut Vec<Region>) {
        let state = lane.lock();
        let firsts = state.blocks.iter().filter(|(_, block)| block.before == NO_SLOT);
        regions.extend(firsts.map(|(slot, _)| self.region(lane, &state, slot)));
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
            pool: self.opened(lane.device).and_then(|device| device.pools.name(pool)),
            tag: self.tags.name(pool),
            class: state.blocks.get(first).class,
            parts,
        }
    }
}

impl Beginning for Heap {
    fn held(&self) -> Vec<Held> {
        let held = self.devices_in_use().into_iter().map(|device| {
            let statistics = &device.statistics;
            let active_bytes = statistics.active_bytes.current;
            Held {
                device: device.ordinal.0,
                reserved_bytes: statistics.reserved_bytes.current,
                pending_bytes: active_bytes.saturating_sub(statistics.allocated_bytes.current),
            }
        });
        held.collect()
    }

    fn live(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for region in self.regions() {
            let live = region.parts.iter().filter(|part| part.state.is_live());
            events.extend(live.map(|part| Event {
                stream: region.stream.0,
                address: part.address,
                amount: part.requested_bytes,
                bytes: part.bytes,
                ..Event::new(Action::Allocate, region.device)
            }));
        }
        events
    }
}
