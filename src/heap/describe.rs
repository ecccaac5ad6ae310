//! Describes what the heap holds: devices, streams, the address space block by block, and what lies
//! at an address. It makes no driver call, so it can run while the process ends. It locks each lane
//! while walking it, so it is not for the hot path.

use std::ops::Range;

use super::description::{
    DeviceDescription, LiveBlock, Part, PartState, Region, StreamDescription,
};
use super::lane::{Lane, LaneState};
use super::state::Heap;
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use crate::memory::{NO_SLOT, Slot, State};
use crate::observe::{Action, Beginning, Event, Held};

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
                PartState::Live | PartState::Paused | PartState::Free => block.requested_bytes,
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
        let device = self.opened(lane.device);
        let has_extents = device.is_some_and(|device| device.backing.extents().is_some());
        let has_own = device.is_some_and(|device| device.pools.own(pool).is_some());
        Region {
            device: lane.device,
            stream: lane.name(),
            is_private: pool.is_private(),
            pool: device.and_then(|device| device.pools.name(pool)),
            is_whole: !has_extents || has_own,
            tag: self.tags.name(pool),
            class: state.blocks.get(first).class,
            parts,
        }
    }

    /// The live block that contains `address`. Linear in the number of blocks unless `address` is
    /// its start. `DoubleFree` if the heap holds memory there, but no live block.
    pub fn block_containing(&self, address: u64) -> Result<LiveBlock> {
        match self.locate(address) {
            Some((State::Live | State::Paused, block)) => Ok(block),
            Some(_) => Err(Error::new(Status::DoubleFree, format!("{address:#x} is free"))),
            None => Err(Error::new(
                Status::ForeignPointer,
                format!("{address:#x} is not in memory that genesis has handed out"),
            )),
        }
    }

    /// The addresses of the driver's allocation that holds the live block containing `address`.
    /// Linear in the number of its blocks; otherwise like [`Self::block_containing`].
    pub fn segment_containing(&self, address: u64) -> Result<Range<u64>> {
        let address = self.block_containing(address)?.address;
        let Some((lane, slot)) = self.find(address) else {
            return Err(self.not_live(address));
        };
        let state = lane.lock();
        // Since the first look the block may have been freed, and its slot reused.
        let Some(block) = state.blocks.find(slot, address) else {
            drop(state);
            return Err(self.not_live(address));
        };
        let (mut first, mut last) = (block, block);
        while first.before != NO_SLOT && state.blocks.get(first.before).state.is_backed() {
            first = state.blocks.get(first.before);
        }
        while last.after != NO_SLOT && state.blocks.get(last.after).state.is_backed() {
            last = state.blocks.get(last.after);
        }
        Ok(first.address..last.address + last.bytes)
    }

    /// The block of any state that contains `address`.
    fn locate(&self, address: u64) -> Option<(State, LiveBlock)> {
        if let Some((lane, slot)) = self.find(address)
            && let Some(block) = lane.lock().blocks.find(slot, address)
        {
            return Some((block.state, LiveBlock::of(lane, block)));
        }
        self.lanes.iter().find_map(|lane| {
            let state = lane.lock();
            let blocks = state.blocks.iter().map(|(_, block)| block);
            let mut blocks = blocks.filter(|block| block.state != State::Unmapped);
            let found = blocks
                .find(|block| (block.address..block.address + block.bytes).contains(&address));
            found.map(|block| (block.state, LiveBlock::of(lane, block)))
        })
    }

    /// Logs and returns why `address` is not the start of a live block.
    #[cold]
    pub(super) fn not_live(&self, address: u64) -> Error {
        let located = self.locate(address);
        let around = located.and_then(|(state, block)| {
            matches!(state, State::Live | State::Paused).then_some(block.address)
        });
        let mut error = match located {
            None => Error::new(
                Status::ForeignPointer,
                format!(
                    "{address:#x} was not allocated by genesis, or its memory has been released"
                ),
            ),
            Some((State::Live | State::Paused, block)) => Error::new(
                Status::ForeignPointer,
                format!(
                    "{address:#x} points into the block at {:#x}, not to its start",
                    block.address
                ),
            ),
            Some(_) => Error::new(Status::DoubleFree, format!("{address:#x} is already free")),
        };
        if self.policy.is_debugging() {
            self.add_history(&mut error, address, around);
        }
        self.log.write(LogLevel::Error, &error);
        error
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
