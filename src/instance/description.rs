//! The heap in the terms of a profile: devices, the address space, and live blocks.

use std::collections::HashMap;

use genesis_profile::model;

use super::forecast;
use crate::base::Gauge;
use crate::base::size::SizeClass;
use crate::callsite;
use crate::heap::{DeviceDescription, Heap, Part, PartState, Region};
use crate::process;

/// Completes a profile made from events: the program, names, call sites and the address space.
pub(super) fn complete(mut profile: model::Profile, heap: &Heap) -> model::Profile {
    let settings = heap.settings();
    profile.genesis_version = env!("CARGO_PKG_VERSION").to_owned();
    profile.program = process::command_line();
    profile.process_id = std::process::id();
    profile.rank = settings.global_rank;
    profile.strategy = settings.strategy.pool_type.name().to_owned();
    profile.backend = heap.backend().name().to_owned();
    profile.sites = callsite::sites();
    describe_devices(&mut profile, heap);
    let mut filling = Filling::new(&mut profile);
    let segments: Vec<_> = heap.regions().iter().map(|region| filling.segment(region)).collect();
    profile.segments = segments;
    profile
}

fn describe_devices(profile: &mut model::Profile, heap: &Heap) {
    for described in heap.devices_in_use() {
        // A device without virtual memory management may have another strategy than the settings.
        profile.strategy = described.pool_type.name().to_owned();
        let new = device(described);
        match profile.devices.iter_mut().find(|device| device.ordinal == new.ordinal) {
            Some(known) => {
                known.name = new.name;
                known.total_bytes = new.total_bytes;
                known.usable_bytes = new.usable_bytes;
                known.fragmentation_index = new.fragmentation_index;
                known.forecast = new.forecast;
            }
            None => {
                profile.history.start.push(new.now);
                // Its counts are of another time than the profile's.
                profile.devices.push(model::Device {
                    allocations: 0,
                    frees: 0,
                    hits: 0,
                    out_of_memory_events: 0,
                    ..new
                });
            }
        }
    }
}

/// A device in the terms of a profile, with counts since the process began.
pub(super) fn device(device: DeviceDescription) -> model::Device {
    let statistics = device.statistics;
    let levels = |level: fn(Gauge) -> u64| model::Levels {
        requested_bytes: level(statistics.requested_bytes),
        allocated_bytes: level(statistics.allocated_bytes),
        active_bytes: level(statistics.active_bytes),
        reserved_bytes: level(statistics.reserved_bytes),
    };
    model::Device {
        ordinal: device.ordinal.0,
        name: device.name,
        total_bytes: device.total_bytes,
        usable_bytes: device.usable_bytes,
        now: levels(|gauge| gauge.current),
        peak: levels(|gauge| gauge.peak),
        allocations: statistics.allocations,
        frees: statistics.frees,
        hits: statistics.hits,
        out_of_memory_events: statistics.out_of_memory_events,
        fragmentation_index: statistics.fragmentation_index,
        forecast: forecast_of(forecast::last(device.ordinal)),
    }
}

fn forecast_of(known: forecast::Forecast) -> Option<model::Forecast> {
    known.outlook.map(|outlook| model::Forecast {
        steps: known.steps,
        bytes_per_step: outlook.bytes_per_step,
        steps_left: outlook.steps_left,
        fewest_steps_left: outlook.fewest_steps_left,
        is_leak: outlook.is_leak,
    })
}

/// Describes the address space.
struct Filling<'a> {
    profile: &'a mut model::Profile,
    streams: HashMap<(u32, u64), u32>,
    /// The rows of live blocks in the profile, by address.
    live: HashMap<u64, usize>,
    tags: HashMap<String, u32>,
}

impl<'a> Filling<'a> {
    fn new(profile: &'a mut model::Profile) -> Self {
        let streams = (0..).zip(&profile.streams);
        let streams = streams.map(|(n, stream)| ((stream.device, stream.key), n)).collect();
        let live = profile.live.iter().enumerate().map(|(n, block)| (block.address, n)).collect();
        Self { profile, streams, live, tags: HashMap::new() }
    }

    fn stream(&mut self, device: u32, key: u64) -> u32 {
        *self.streams.entry((device, key)).or_insert_with(|| {
            let stream = model::Stream { device, key, ..Default::default() };
            self.profile.streams.push(stream);
            self.profile.streams.len() as u32 - 1
        })
    }

    fn tag(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.tags.get(name) {
            return number;
        }
        let names = &mut self.profile.names;
        let known = names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.tags.insert(name.to_owned(), number as u32);
        number as u32
    }

    fn segment(&mut self, region: &Region) -> model::Segment {
        let device = region.device.0;
        let stream = self.stream(device, region.stream.0);
        let tag = region.tag.as_deref().map(|name| self.tag(name));
        let of = model::LiveBlock { device, stream, tag, ..Default::default() };
        let blocks: Vec<_> = region
            .parts
            .iter()
            .map(|part| {
                let site = if part.state.is_live() { self.live_block(part, &of) } else { 0 };
                model::Block {
                    address: part.address,
                    bytes: part.bytes,
                    requested_bytes: part.requested_bytes,
                    state: state_of(part.state),
                    site,
                }
            })
            .collect();
        model::Segment {
            device,
            stream,
            address: region.parts[0].address,
            bytes: region.parts.iter().map(|part| part.bytes).sum(),
            is_private: region.is_private,
            pool_id: region.pool.map_or((0, 0), |id| (id.0, id.1)),
            is_small: region.class == SizeClass::Small,
            is_whole: region.is_whole,
            blocks,
        }
    }

    /// Adds the live block `part`, unless events have told of it, with the device, stream and tag
    /// of `of`; returns its call site.
    fn live_block(&mut self, part: &Part, of: &model::LiveBlock) -> u32 {
        let live = &mut self.profile.live;
        let index = *self.live.entry(part.address).or_insert_with(|| {
            live.push(model::LiveBlock {
                address: part.address,
                requested_bytes: part.requested_bytes,
                block_bytes: part.bytes,
                ..of.clone()
            });
            live.len() - 1
        });
        live[index].tag = of.tag;
        live[index].site
    }
}

fn state_of(state: PartState) -> model::BlockState {
    match state {
        PartState::Live => model::BlockState::Live,
        PartState::Pending => model::BlockState::Pending,
        PartState::Free => model::BlockState::Free,
        PartState::Paused => model::BlockState::Paused,
        PartState::Unmapped => model::BlockState::Unmapped,
    }
}
