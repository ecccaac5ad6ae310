//! The heap of the sample: best fit in segments, with cutting and joining, and a list of events.
//!
//! It is the simplest allocator that makes a believable picture, not Genesis's. Every event goes
//! through `push`, which refuses events once there are enough; the profile shows what is live then.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use genesis_profile::levels;
use genesis_profile::model::{
    Action, Block, BlockState, Counts, Device, Event, History, Levels, LiveBlock, Profile, Segment,
    SiteSummary, SizeSummary, Stream, Timeline,
};

const MIB: u64 = 1 << 20;
const STREAMS: u32 = 2;
const INTERVALS: u64 = 512;

/// A live block, by its address.
pub struct Call(u64);

/// A part of a segment. Free ones are also in `Heap::free`.
#[derive(Clone, Copy)]
struct Part {
    bytes: u64,
    /// Where its segment begins.
    segment: u64,
    state: BlockState,
    requested_bytes: u64,
    site: u32,
    born_ns: u64,
}

struct Whole {
    bytes: u64,
    device: u32,
    stream: u32,
}

/// Every device of the sample.
pub struct Heap {
    devices: u32,
    most_events: usize,
    events: Vec<Event>,
    now_ns: u64,
    next_address: u64,
    parts: BTreeMap<u64, Part>,
    segments: BTreeMap<u64, Whole>,
    /// By (stream, is small, bytes, address).
    free: BTreeSet<(u32, bool, u64, u64)>,
    pending: Vec<u64>,
}

impl Heap {
    pub fn new(devices: u32, most_events: usize) -> Self {
        Self {
            devices,
            most_events,
            events: Vec::with_capacity(most_events),
            now_ns: 1_000_000,
            next_address: 0x7f20_0000_0000,
            parts: BTreeMap::new(),
            segments: BTreeMap::new(),
            free: BTreeSet::new(),
            pending: Vec::new(),
        }
    }

    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// Returns true once no more events are taken.
    pub fn is_full(&self) -> bool {
        self.events.len() >= self.most_events
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    pub fn allocate(&mut self, device: u32, stream: u32, bytes: u64, site: u32) -> Call {
        let stream = device * STREAMS + stream;
        if self.pending.len() > 6 {
            self.make_ready();
        }
        let block_bytes = bytes.next_multiple_of(512);
        let is_small = block_bytes <= MIB;
        let first = (stream, is_small, block_bytes, 0);
        let found = self.free.range(first..).next().copied();
        let found = found.filter(|&(of, small, ..)| (of, small) == (stream, is_small));
        let action = if found.is_some() { Action::Allocate } else { Action::AllocateMiss };
        let address = match found {
            Some((.., address)) => address,
            None => self.reserve(device, stream, block_bytes),
        };
        let event = Event {
            requested_bytes: bytes,
            block_bytes,
            site,
            ..self.event(action, stream, address)
        };
        if !self.push(event) {
            return Call(0);
        }
        let part = self.parts[&address];
        self.free.remove(&(stream, is_small, part.bytes, address));
        let rest = part.bytes - block_bytes;
        let state = BlockState::Live;
        let live = Part { bytes: block_bytes, state, requested_bytes: bytes, site, ..part };
        self.parts.insert(address, Part { born_ns: self.now_ns, ..live });
        if rest > 0 {
            let state = BlockState::Free;
            self.parts.insert(address + block_bytes, Part { bytes: rest, state, ..part });
            self.free.insert((stream, is_small, rest, address + block_bytes));
        }
        Call(address)
    }

    pub fn free(&mut self, call: Call, is_used_elsewhere: bool) {
        let Some(&part) = self.parts.get(&call.0) else {
            return;
        };
        let stream = self.segments[&part.segment].stream;
        self.pass(300);
        let Part { requested_bytes, bytes, site, .. } = part;
        let event = Event { block_bytes: bytes, ..self.event(Action::Free, stream, call.0) };
        if !self.push(Event { requested_bytes, site, ..event }) {
            return;
        }
        let pending = Event { action: Action::Pending, ..event };
        if is_used_elsewhere && self.push(pending) {
            let state = BlockState::Pending;
            self.parts.insert(call.0, Part { state, requested_bytes: 0, site: 0, ..part });
            self.pending.push(call.0);
        } else {
            self.join(call.0);
        }
    }

    /// An annotation. A range belongs to the calling thread, of which each device has one.
    pub fn note(&mut self, action: Action, device: u32, name: u32, number: u64) {
        self.pass(2_000);
        let thread = 100 + u64::from(device);
        let address = match action {
            Action::RangePush | Action::RangePop => thread,
            _ => 0,
        };
        let event = self.event(action, device * STREAMS, address);
        self.push(Event { requested_bytes: number, name, ..event });
    }

    /// A request that fails.
    pub fn fail(&mut self, device: u32, bytes: u64) {
        let event = self.event(Action::OutOfMemory, device * STREAMS, 0);
        self.push(Event { requested_bytes: bytes, ..event });
    }

    /// Releases every segment that is wholly free.
    pub fn trim(&mut self, device: u32) {
        self.push(self.event(Action::Trim, device * STREAMS, 0));
        let whole = |(&address, segment): (&u64, &Whole)| {
            let part = self.parts[&address];
            let is_free = part.state == BlockState::Free && part.bytes == segment.bytes;
            (segment.device == device && is_free).then_some((address, segment.stream, part.bytes))
        };
        let unused: Vec<_> = self.segments.iter().filter_map(whole).collect();
        for (address, stream, bytes) in unused {
            self.pass(40_000);
            let event = self.event(Action::Release, stream, address);
            if self.push(Event { block_bytes: bytes, ..event }) {
                self.free.retain(|&(.., of)| of != address);
                self.parts.remove(&address);
                self.segments.remove(&address);
            }
        }
    }

    fn reserve(&mut self, device: u32, stream: u32, block_bytes: u64) -> u64 {
        let bytes = match block_bytes {
            0..=0x10_0000 => 2 * MIB,
            0x10_0001..0xa0_0000 => 20 * MIB,
            _ => block_bytes.next_multiple_of(2 * MIB),
        };
        let address = self.next_address;
        self.pass(90_000);
        let event = self.event(Action::Reserve, stream, address);
        if self.push(Event { block_bytes: bytes, ..event }) {
            self.next_address += bytes.next_multiple_of(32 * MIB);
            self.segments.insert(address, Whole { bytes, device, stream });
            let state = BlockState::Free;
            let part =
                Part { bytes, segment: address, state, requested_bytes: 0, site: 0, born_ns: 0 };
            self.parts.insert(address, part);
            self.free.insert((stream, block_bytes <= MIB, bytes, address));
        }
        address
    }

    fn make_ready(&mut self) {
        for address in std::mem::take(&mut self.pending) {
            let part = self.parts[&address];
            let stream = self.segments[&part.segment].stream;
            let event = self.event(Action::Ready, stream, address);
            if self.push(Event { block_bytes: part.bytes, ..event }) {
                self.join(address);
            }
        }
    }

    /// Makes the part at `address` free, and one with free neighbours.
    fn join(&mut self, mut address: u64) {
        let mut part = self.parts[&address];
        let whole = &self.segments[&part.segment];
        let (stream, is_small) = (whole.stream, whole.bytes == 2 * MIB);
        let next = self.parts.range(address + 1..).next().map(|(&at, &next)| (at, next));
        if let Some((at, next)) = next
            && (next.segment, next.state) == (part.segment, BlockState::Free)
        {
            self.free.remove(&(stream, is_small, next.bytes, at));
            self.parts.remove(&at);
            part.bytes += next.bytes;
        }
        let before = self.parts.range(..address).next_back().map(|(&at, &before)| (at, before));
        if let Some((at, before)) = before
            && (before.segment, before.state) == (part.segment, BlockState::Free)
        {
            self.free.remove(&(stream, is_small, before.bytes, at));
            self.parts.remove(&address);
            part.bytes += before.bytes;
            address = at;
        }
        let state = BlockState::Free;
        self.parts.insert(address, Part { state, requested_bytes: 0, site: 0, ..part });
        self.free.insert((stream, is_small, part.bytes, address));
    }

    /// An event on `stream` now, with no bytes.
    fn event(&self, action: Action, stream: u32, address: u64) -> Event {
        let device = stream / STREAMS;
        Event { time_ns: self.now_ns, action, device, stream, address, ..Event::default() }
    }

    /// Appends `event` unless there are enough; returns true if it did.
    fn push(&mut self, event: Event) -> bool {
        let has_room = !self.is_full();
        if has_room {
            self.events.push(event);
        }
        has_room
    }

    /// The profile, without what has no part in the sums.
    pub fn into_profile(self, has_sites: bool) -> Profile {
        let mut profile = Profile {
            duration_ns: self.now_ns + 5_000_000,
            live: self.live(),
            segments: self.segments(),
            history: History {
                start: vec![Levels::default(); self.devices as usize],
                events: self.events,
                ..History::default()
            },
            ..Profile::default()
        };
        let stream = |index: u32| Stream {
            device: index / STREAMS,
            key: if index.is_multiple_of(STREAMS) {
                0
            } else {
                0x5563_0000_0000 + u64::from(index)
            },
            ..Stream::default()
        };
        profile.streams = (0..self.devices * STREAMS).map(stream).collect();
        let device = |ordinal| Device {
            ordinal,
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            total_bytes: 80 << 30,
            usable_bytes: 76 << 30,
            fragmentation_index: fragmentation(&profile.segments, ordinal),
            ..Device::default()
        };
        profile.devices = (0..self.devices).map(device).collect();
        add_levels(&mut profile);
        add_summaries(&mut profile, has_sites);
        profile
    }

    fn live(&self) -> Vec<LiveBlock> {
        let live = self.parts.iter().filter(|(_, part)| part.state == BlockState::Live);
        let mut live: Vec<LiveBlock> = live
            .map(|(&address, part)| LiveBlock {
                device: self.segments[&part.segment].device,
                stream: self.segments[&part.segment].stream,
                address,
                requested_bytes: part.requested_bytes,
                block_bytes: part.bytes,
                age_ns: Some(self.now_ns + 5_000_000 - part.born_ns),
                site: part.site,
                tag: None,
            })
            .collect();
        live.sort_by_key(|block| std::cmp::Reverse(block.block_bytes));
        live
    }

    fn segments(&self) -> Vec<Segment> {
        let segment = |(&address, whole): (&u64, &Whole)| Segment {
            device: whole.device,
            stream: whole.stream,
            address,
            bytes: whole.bytes,
            is_private: false,
            pool_id: (0, 0),
            is_small: whole.bytes == 2 * MIB,
            is_whole: true,
            blocks: (self.parts.range(address..address + whole.bytes))
                .map(|(&address, part)| Block {
                    address,
                    bytes: part.bytes,
                    requested_bytes: part.requested_bytes,
                    state: part.state,
                    site: part.site,
                })
                .collect(),
        };
        let mut segments: Vec<Segment> = self.segments.iter().map(segment).collect();
        segments.sort_by_key(|segment| (segment.device, segment.address));
        segments
    }
}

fn fragmentation(segments: &[Segment], device: u32) -> f64 {
    let of_device = segments.iter().filter(|segment| segment.device == device);
    let blocks = of_device.flat_map(|segment| &segment.blocks);
    let free: Vec<u64> = blocks.filter(|b| b.state == BlockState::Free).map(|b| b.bytes).collect();
    let all: u64 = free.iter().sum();
    let largest = free.iter().max().copied().unwrap_or(0);
    if all == 0 { 0.0 } else { 1.0 - largest as f64 / all as f64 }
}

/// Levels, peaks and counts of devices, and their timelines.
fn add_levels(profile: &mut Profile) {
    let interval_ns = profile.duration_ns.div_ceil(INTERVALS);
    let mut devices = profile.devices.clone();
    let row = |device: &Device| Timeline {
        device: device.ordinal,
        interval_ns,
        peaks: Vec::with_capacity(INTERVALS as usize),
    };
    let mut timelines: Vec<Timeline> = devices.iter().map(row).collect();
    levels::walk(profile, |event, row, levels| {
        let device = &mut devices[row];
        fill(&mut timelines[row].peaks, event.time_ns / interval_ns, device.now);
        device.now = *levels;
        raise(&mut device.peak, *levels);
        if let Some(peak) = timelines[row].peaks.last_mut() {
            raise(peak, *levels);
        }
        device.allocations += u64::from(event.action.is_allocation());
        device.hits += u64::from(event.action == Action::Allocate);
        device.frees += u64::from(event.action == Action::Free);
    });
    for (device, timeline) in devices.iter_mut().zip(&mut timelines) {
        fill(&mut timeline.peaks, (profile.duration_ns - 1) / interval_ns, device.now);
        let events = profile.history.events.iter();
        let failed = events
            .filter(|e| e.action == Action::OutOfMemory && e.device == device.ordinal)
            .count();
        device.out_of_memory_events = failed as u64;
    }
    profile.devices = devices;
    profile.timelines = timelines;
}

/// Adds intervals up to and with number `last`, at the level since then.
fn fill(peaks: &mut Vec<Levels>, last: u64, level: Levels) {
    if (peaks.len() as u64) <= last {
        peaks.resize(last as usize + 1, level);
    }
}

fn raise(peak: &mut Levels, to: Levels) {
    peak.requested_bytes = peak.requested_bytes.max(to.requested_bytes);
    peak.allocated_bytes = peak.allocated_bytes.max(to.allocated_bytes);
    peak.active_bytes = peak.active_bytes.max(to.active_bytes);
    peak.reserved_bytes = peak.reserved_bytes.max(to.reserved_bytes);
}

fn add_summaries(profile: &mut Profile, has_sites: bool) {
    let mut sizes: BTreeMap<u64, Counts> = BTreeMap::new();
    let mut sites: BTreeMap<u32, Counts> = BTreeMap::new();
    let mut born = HashMap::new();
    for event in &profile.history.events {
        let is_free = event.action == Action::Free;
        if !is_free && !event.action.is_allocation() {
            continue;
        }
        if !is_free {
            born.insert(event.address, (event.time_ns, event.site));
        }
        let (born_ns, site) = born[&event.address];
        let of_size = sizes.entry(event.block_bytes).or_default();
        for counts in [of_size, sites.entry(site).or_default()] {
            if is_free {
                counts.frees += 1;
                counts.live_bytes -= event.block_bytes;
                counts.lifetime_ns += event.time_ns - born_ns;
            } else {
                counts.allocations += 1;
                counts.hits += u64::from(event.action == Action::Allocate);
                counts.requested_bytes += event.requested_bytes;
                counts.live_bytes += event.block_bytes;
                counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
            }
        }
    }
    let size = |(block_bytes, counts)| SizeSummary { block_bytes, counts };
    profile.sizes = sizes.into_iter().map(size).collect();
    if has_sites {
        let site = |(site, counts)| SiteSummary { site, counts };
        profile.call_sites = sites.into_iter().map(site).collect();
    }
}

/// Cuts the history down to its latest `kept` events.
pub fn forget_oldest(profile: &mut Profile, kept: usize) {
    let Some(dropped) = profile.history.events.len().checked_sub(kept).filter(|&n| n > 0) else {
        return;
    };
    let latest = profile.history.events.split_off(dropped);
    let mut start = profile.history.start.clone();
    levels::walk(profile, |_, row, levels| start[row] = *levels);
    let mut live = BTreeMap::new();
    for event in &profile.history.events {
        if event.action.is_allocation() {
            live.insert(event.address, *event);
        } else if event.action == Action::Free {
            live.remove(&event.address);
        }
    }
    let begin_ns = latest.first().map_or(profile.duration_ns, |event| event.time_ns);
    let block = |event: &Event| LiveBlock {
        device: event.device,
        stream: event.stream,
        address: event.address,
        requested_bytes: event.requested_bytes,
        block_bytes: event.block_bytes,
        age_ns: Some(begin_ns - event.time_ns),
        site: event.site,
        tag: None,
    };
    let start_live = live.values().map(block).collect();
    profile.history = History { dropped_events: dropped as u64, start, start_live, events: latest };
}
