//! The consumer of events: everything that the events so far add up to.
//!
//! A free has only an address, so each live block is kept in a table by address: one look-up for an
//! event. A free of an address that is not in the table is not a block's, or of a block from before
//! the profile of which the profile was not told; it is ignored. An allocation at the address of a
//! live block shows that a free is missing, which only a program that frees twice can cause; the
//! free is then added.

use std::collections::HashSet;
use std::time::Duration;

use genesis_profile::model::{self, Action as Kept, Counts, Levels, LiveBlock, SizeSummary};

use super::history::History;
use super::series::{Series, raise};
use super::{Held, Keeping};
use crate::base::{Error, Result};
use crate::observe::addresses::{AddressMap, NumberMap};
use crate::observe::{Action, Consumer, Event};

/// There is nothing to write, so calls may be rare.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The sums of the events so far.
#[derive(Debug)]
pub(super) struct Seen {
    /// The time when the profile began, that of the first event.
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    live: AddressMap<Live>,
    devices: Vec<OfDevice>,
    streams: Vec<model::Stream>,
    stream_numbers: NumberMap<(u32, u64), u32>,
    sizes: NumberMap<u64, Counts>,
    sites: Vec<Counts>,
    history: History,
    /// The streams of memory by its address, while it is held; with `has_own_sites` only.
    held_for: AddressMap<u32>,
    /// See [`Keeping::has_own_sites`].
    has_own_sites: bool,
    /// Unknown addresses freed before [`Self::adopt`].
    freed_early: Option<HashSet<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    requested_bytes: u64,
    bytes: u64,
    /// `None` if allocated before the profile.
    time_ns: Option<u64>,
    device: u32,
    stream: u32,
    site: u32,
}

#[derive(Debug)]
struct OfDevice {
    ordinal: u32,
    now: Levels,
    peak: Levels,
    series: Series,
    allocations: u64,
    frees: u64,
    hits: u64,
    out_of_memory_events: u64,
}

impl Seen {
    /// No events yet; devices hold what `held` says.
    pub(super) fn new(keeping: Keeping, held: Vec<Held>) -> Self {
        let mut seen = Self {
            start_ns: None,
            end_ns: None,
            live: AddressMap::default(),
            devices: Vec::new(),
            streams: Vec::new(),
            stream_numbers: NumberMap::default(),
            sizes: NumberMap::default(),
            sites: Vec::new(),
            history: History::new(keeping.history_events),
            held_for: AddressMap::default(),
            has_own_sites: keeping.has_own_sites,
            freed_early: Some(HashSet::new()),
        };
        for held in held {
            let index = seen.device(held.device);
            let device = &mut seen.devices[index];
            device.now.reserved_bytes = held.reserved_bytes;
            device.now.active_bytes = held.pending_bytes;
            device.peak = device.now;
            device.series = Series::new(device.now);
        }
        seen
    }

    /// Adds the blocks that were live when the profile began, each as the event of an allocation
    /// (device, stream, address, amount, bytes). Time 0 is now, unless events have come before.
    pub(super) fn adopt(&mut self, live: &[Event], now_ns: u64) {
        self.start_ns.get_or_insert(now_ns);
        let freed = self.freed_early.take().unwrap_or_default();
        for block in live {
            if freed.contains(&block.address) || self.live.contains_key(&block.address) {
                continue;
            }
            let live = Live {
                requested_bytes: block.amount,
                bytes: block.bytes,
                time_ns: None,
                device: block.device.0,
                stream: self.stream(block.device.0, block.stream),
                site: 0,
            };
            self.live.insert(block.address, live);
            self.count_in(live, None);
            let device = self.device(live.device);
            let device = &mut self.devices[device];
            // The block was live from the beginning.
            device.series = Series::new(device.now);
        }
    }

    /// Keeps what `keeping` says from now on, and nothing of the history before if `clears`.
    pub(super) fn keep(&mut self, keeping: Keeping, clears: bool) {
        if clears {
            self.history.clear();
        }
        self.history.set_capacity(keeping.history_events);
        self.has_own_sites = keeping.has_own_sites;
    }

    /// Ends the profile at `now_ns`.
    pub(super) fn end(&mut self, now_ns: u64) {
        self.end_ns = Some(now_ns);
    }

    fn device(&mut self, ordinal: u32) -> usize {
        let known = self.devices.iter().position(|device| device.ordinal == ordinal);
        known.unwrap_or_else(|| {
            self.devices.push(OfDevice {
                ordinal,
                now: Levels::default(),
                peak: Levels::default(),
                series: Series::new(Levels::default()),
                allocations: 0,
                frees: 0,
                hits: 0,
                out_of_memory_events: 0,
            });
            self.devices.len() - 1
        })
    }

    fn stream(&mut self, device: u32, key: u64) -> u32 {
        *self.stream_numbers.entry((device, key)).or_insert_with(|| {
            self.streams.push(model::Stream { device, key, ..model::Stream::default() });
            self.streams.len() as u32 - 1
        })
    }

    /// Changes the counts of the size and of the call site of `live`.
    fn counts(&mut self, live: Live, mut count: impl FnMut(&mut Counts)) {
        count(self.sizes.entry(live.bytes).or_default());
        let site = live.site as usize;
        if site >= self.sites.len() {
            self.sites.resize(site + 1, Counts::default());
        }
        count(&mut self.sites[site]);
    }

    /// Counts a block that is live from now on. `hit` is true if its allocation was a hit, and
    /// `None` if that was before the profile.
    fn count_in(&mut self, live: Live, hit: Option<bool>) {
        self.counts(live, |counts| {
            if let Some(hit) = hit {
                counts.allocations += 1;
                counts.hits += u64::from(hit);
                counts.requested_bytes += live.requested_bytes;
            }
            counts.live_bytes += live.bytes;
            counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
        });
        self.change(live.device, live.stream, |levels| {
            levels.requested_bytes += live.requested_bytes;
            levels.allocated_bytes += live.bytes;
            levels.active_bytes += live.bytes;
        });
    }

    fn count_out(&mut self, live: Live, time_ns: u64) {
        let lifetime_ns = live.time_ns.map_or(0, |since| time_ns.saturating_sub(since));
        self.counts(live, |counts| {
            counts.frees += 1;
            counts.live_bytes -= live.bytes;
            // A million blocks that live for five hours each are 570 years: nearly all that fits.
            counts.lifetime_ns = counts.lifetime_ns.saturating_add(lifetime_ns);
        });
        self.change(live.device, live.stream, |levels| {
            levels.requested_bytes -= live.requested_bytes;
            levels.allocated_bytes -= live.bytes;
            levels.active_bytes -= live.bytes;
        });
    }

    /// Changes the levels of a device and of one of its streams.
    fn change(&mut self, device: u32, stream: u32, change: impl Fn(&mut Levels)) {
        let device = self.device(device);
        let device = &mut self.devices[device];
        change(&mut device.now);
        raise(&mut device.peak, device.now);
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            change(&mut stream.now);
            raise(&mut stream.peak, stream.now);
        }
    }

    fn allocate(&mut self, event: &Event, time_ns: u64) {
        if event.address == 0 {
            return;
        }
        let (device, is_hit) = (event.device.0, !event.is_miss);
        let live = Live {
            requested_bytes: event.amount,
            bytes: event.bytes,
            time_ns: Some(time_ns),
            device,
            stream: self.stream(device, event.stream),
            site: event.site,
        };
        if let Some(missed) = self.live.insert(event.address, live) {
            self.freed(event, missed, time_ns);
        }
        self.count_in(live, Some(is_hit));
        let index = self.device(device);
        let of_device = &mut self.devices[index];
        of_device.allocations += 1;
        of_device.hits += u64::from(is_hit);
        of_device.series.set(time_ns, of_device.now);
        let action = if is_hit { Kept::Allocate } else { Kept::AllocateMiss };
        self.keep_block(action, event, live, time_ns);
    }

    fn free(&mut self, event: &Event, time_ns: u64) {
        match self.live.remove(&event.address) {
            Some(live) => self.freed(event, live, time_ns),
            None => {
                if let Some(freed) = &mut self.freed_early {
                    freed.insert(event.address);
                }
            }
        }
    }

    fn freed(&mut self, event: &Event, live: Live, time_ns: u64) {
        self.count_out(live, time_ns);
        let index = self.device(live.device);
        let of_device = &mut self.devices[index];
        of_device.frees += 1;
        of_device.series.set(time_ns, of_device.now);
        self.keep_block(Kept::Free, event, live, time_ns);
    }

    fn keep_block(&mut self, action: Kept, event: &Event, live: Live, time_ns: u64) {
        let (site, name) = match self.has_own_sites {
            true if event.site != 0 => (event.site, event.name),
            true => (live.site, event.name),
            false => (live.site, 0),
        };
        self.history.push(model::Event {
            time_ns,
            action,
            device: live.device,
            stream: live.stream,
            address: event.address,
            requested_bytes: live.requested_bytes,
            block_bytes: live.bytes,
            site,
            name,
        });
    }

    /// An event of a device or a stream, which may change the levels.
    fn other(
        &mut self,
        action: Kept,
        event: &Event,
        time_ns: u64,
        change: impl Fn(&mut Levels, u64),
    ) {
        let ordinal = event.device.0;
        let stream = match action {
            Kept::Pending | Kept::Ready | Kept::OutOfMemory => self.stream(ordinal, event.stream),
            _ if self.has_own_sites => self.stream_of_memory(action, event),
            _ => u32::MAX,
        };
        self.change(ordinal, stream, |levels| change(levels, event.bytes));
        let index = self.device(ordinal);
        let device = &mut self.devices[index];
        device.out_of_memory_events += u64::from(action == Kept::OutOfMemory);
        device.series.set(time_ns, device.now);
        self.history.push(model::Event {
            time_ns,
            action,
            device: ordinal,
            stream: if stream == u32::MAX { 0 } else { stream },
            address: event.address,
            requested_bytes: event.amount,
            block_bytes: event.bytes,
            site: event.site,
            name: if self.has_own_sites { event.name } else { 0 },
        });
    }

    /// The stream that memory comes for, or came for.
    fn stream_of_memory(&mut self, action: Kept, event: &Event) -> u32 {
        match action {
            Kept::Reserve | Kept::Map if event.address != 0 => {
                let stream = self.stream(event.device.0, event.stream);
                self.held_for.insert(event.address, stream);
                stream
            }
            Kept::Release | Kept::Unmap => self.held_for.remove(&event.address).unwrap_or(u32::MAX),
            _ => u32::MAX,
        }
    }

    /// Keeps an annotation.
    fn annotate(&mut self, action: Kept, event: &Event, time_ns: u64) {
        self.history.push(model::Event {
            time_ns,
            action,
            // The thread's number.
            address: event.stream,
            requested_bytes: event.amount,
            name: event.name,
            ..model::Event::default()
        });
    }

    /// The call sites with the most live bytes, largest first, without the unknown one.
    pub(super) fn biggest_sites(&self, most_sites: usize) -> Vec<(u32, Counts)> {
        let counted = (0..).zip(&self.sites).skip(1);
        let holding = counted.filter(|(_, counts)| counts.live_bytes > 0);
        let mut sites: Vec<(u32, Counts)> = holding.map(|(site, &counts)| (site, counts)).collect();
        sites.sort_by_key(|(site, counts)| (std::cmp::Reverse(counts.live_bytes), *site));
        sites.truncate(most_sites);
        sites
    }

    /// The profile at `now_ns`.
    pub(super) fn describe(&self, now_ns: u64) -> model::Profile {
        let start_ns = self.start_ns.unwrap_or(now_ns);
        let end_ns = self.end_ns.unwrap_or(now_ns).saturating_sub(start_ns);
        let mut live: AddressMap<LiveBlock> = AddressMap::default();
        live.extend(self.live.iter().map(|(&address, block)| {
            let block = LiveBlock {
                device: block.device,
                stream: block.stream,
                address,
                requested_bytes: block.requested_bytes,
                block_bytes: block.bytes,
                age_ns: block.time_ns.map(|since| end_ns.saturating_sub(since)),
                site: block.site,
                tag: None,
            };
            (address, block)
        }));
        let now = sorted(live.values().cloned().collect());
        let mut levels: Vec<_> = self.devices.iter().map(|of| (of.ordinal, of.now)).collect();
        self.history.take_back(&mut levels, &mut live);
        let mut sizes: Vec<_> = self.sizes.iter().collect();
        sizes.sort_by_key(|(bytes, _)| **bytes);
        let summary = |(&block_bytes, &counts)| SizeSummary { block_bytes, counts };
        let of_sites = (0..).zip(&self.sites).filter(|(_, counts)| **counts != Counts::default());
        let has_sites = self.sites.len() > 1;
        model::Profile {
            format: model::FORMAT.to_owned(),
            duration_ns: end_ns,
            devices: self.devices.iter().map(OfDevice::describe).collect(),
            streams: self.streams.clone(),
            timelines: self
                .devices
                .iter()
                .map(|device| device.series.describe(device.ordinal, end_ns))
                .collect(),
            sizes: sizes.into_iter().map(summary).collect(),
            call_sites: of_sites
                .filter(|_| has_sites)
                .map(|(site, &counts)| model::SiteSummary { site, counts })
                .collect(),
            live: now,
            history: model::History {
                dropped_events: self.history.dropped(),
                start: levels.into_iter().map(|(_, levels)| levels).collect(),
                start_live: sorted(live.into_values().collect()),
                events: self.history.events().copied().collect(),
            },
            ..model::Profile::default()
        }
    }
}

impl Consumer for Seen {
    fn take(&mut self, event: &Event) {
        let start_ns = *self.start_ns.get_or_insert(event.time);
        let time_ns = event.time.saturating_sub(start_ns);
        match event.action {
            Action::Allocate => self.allocate(event, time_ns),
            Action::Free => self.free(event, time_ns),
            Action::Pending => {
                self.other(Kept::Pending, event, time_ns, |now, bytes| now.active_bytes += bytes);
            }
            Action::Ready => self.other(Kept::Ready, event, time_ns, |now, bytes| {
                // The stream may not know of it: it may be pending since before the profile.
                let pending_bytes = now.active_bytes.saturating_sub(now.allocated_bytes);
                now.active_bytes -= bytes.min(pending_bytes);
            }),
            Action::Reserve => {
                self.other(Kept::Reserve, event, time_ns, |now, bytes| now.reserved_bytes += bytes);
            }
            Action::Release => self.other(Kept::Release, event, time_ns, |now, bytes| {
                now.reserved_bytes = now.reserved_bytes.saturating_sub(bytes);
            }),
            Action::Map => self.other(Kept::Map, event, time_ns, |_, _| ()),
            Action::Unmap => self.other(Kept::Unmap, event, time_ns, |_, _| ()),
            Action::Trim => self.other(Kept::Trim, event, time_ns, |_, _| ()),
            Action::OutOfMemory => self.other(Kept::OutOfMemory, event, time_ns, |_, _| ()),
            Action::Pause => self.annotate(Kept::Pause, event, time_ns),
            Action::Resume => self.annotate(Kept::Resume, event, time_ns),
            Action::RangePush => self.annotate(Kept::RangePush, event, time_ns),
            Action::RangePop => self.annotate(Kept::RangePop, event, time_ns),
            Action::Mark => self.annotate(Kept::Mark, event, time_ns),
            Action::EndIteration => self.annotate(Kept::Iteration, event, time_ns),
            // Their effects are events of their own.
            Action::RecordStream | Action::EmptyCache => {}
        }
    }

    fn settle(&mut self, _is_asked: bool) -> Result<Duration> {
        Ok(PATIENCE)
    }

    fn fail(&mut self, _error: &Error) {
        // Describing the profile returns the error.
    }
}

impl OfDevice {
    fn describe(&self) -> model::Device {
        model::Device {
            ordinal: self.ordinal,
            now: self.now,
            peak: self.peak,
            allocations: self.allocations,
            frees: self.frees,
            hits: self.hits,
            out_of_memory_events: self.out_of_memory_events,
            ..model::Device::default()
        }
    }
}

/// Largest first.
fn sorted(mut live: Vec<LiveBlock>) -> Vec<LiveBlock> {
    live.sort_by_key(|block| (std::cmp::Reverse(block.block_bytes), block.device, block.address));
    live
}
