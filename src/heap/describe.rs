//! What the heap says of each device in use, to whoever describes the whole: no driver is asked,
//! so this can be done when the process ends.

use super::Heap;
use crate::base::DeviceOrdinal;
use crate::config::PoolType;
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

/// What one stream has of one device, its private pools included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamDescription {
    /// The device.
    pub device: DeviceOrdinal,
    /// The stream.
    pub stream: StreamName,
    /// Live bytes, as asked for.
    pub requested_bytes: u64,
    /// Live bytes, of blocks.
    pub allocated_bytes: u64,
    /// Those, and freed ones that are still in use.
    pub active_bytes: u64,
}

impl Heap {
    /// Every device in use.
    pub fn devices_in_use(&self) -> Vec<DeviceDescription> {
        let opened = self.devices.iter().filter_map(|slot| slot.heap.get());
        let described = opened.map(|device| DeviceDescription {
            ordinal: device.ordinal,
            name: device.name.clone(),
            pool_type: device.pool_type,
            total_bytes: device.supply.total_bytes(),
            usable_bytes: device.usable_bytes(),
            statistics: self.statistics_of(device),
        });
        described.collect()
    }

    /// Every stream that has blocks live or pending, by device and stream. No lock is taken.
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
