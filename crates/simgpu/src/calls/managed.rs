//! Managed memory: `cuMemAllocManaged`, `cuMemAdvise`, `cuMemPrefetchAsync`, and pages that move.
//!
//! The rules are those of CUDA's driver API manual (sections on these three calls) and of its
//! programming guide, "unified memory":
//!
//! - where all devices have concurrent managed access, an allocation takes no memory; each page
//!   does when it is first touched or prefetched, where that happens or where it is preferred;
//! - a device that touches a page elsewhere faults, and the page moves there, unless its
//!   preferred place is where it is, or it was advised that the device accesses it: then it stays
//!   and is reached over the bus;
//! - a device that is full evicts the page that was used longest ago to the host, for another
//!   page and also for `cuMemAlloc` and `cuMemCreate`, whose own memory is never evicted;
//! - a prefetch is work on its stream; its device and the destination must have concurrent
//!   access (`INVALID_DEVICE`), the range must be managed memory (`INVALID_VALUE`);
//! - a device without concurrent access (Windows, WSL, Tegra) has the memory of an allocation at
//!   once, and cannot have more than it has; one without managed memory answers `NOT_SUPPORTED`;
//! - `cuMemFree` frees it, and waits; there are no handles for other processes
//!   (`cuIpcGetMemHandle`: `INVALID_VALUE`).
//!
//! An allocation may be larger than all memory together: `cuMemAllocManaged` of 1 TB succeeds
//! (rapidsai/rmm#14). Pages on the host for which it has no memory are a violation, because the
//! kernel would end some process then.
//!
//! Stricter than the manual: a range lies in one allocation; a prefetch on a capturing stream is
//! refused and invalidates the capture; advice counts for the whole granules that it touches;
//! small allocations take a granule each. Simplified: pages move when work is enqueued; what is
//! read mostly is not doubled but moves; the host's own accesses are seen only as
//! [`Machine::host_touch`].
//!
//! **Prices.** A page of 2 MiB that is missed costs six faults of 50 µs: the driver fetches 64 KiB
//! and then doubles it whenever half of a block is there (the tree-based prefetcher, described in
//! "Forest: access-aware GPU UVM management"), and a fault takes 20 to 50 µs (Zheng et al.,
//! "Towards high performance paged memory for GPUs", HPCA 2016). Its way over the bus is priced
//! as a copy between pinned memory and the device. Both are time of the stream, and dearer than on
//! an H200 (docs/benchmarks/nvidia_h200), where 256 MiB were prefetched in 5.5 ms and touched in 32.7 ms:
//! here 7 and 45. What an allocation evicts is time of the call.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::config::ManagedAccess;
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Advised, Location, Mapping, Memory, Origin, Sharing, pages_of};
use crate::violation::Violation;

/// How often a device faults until a page that it misses is there.
const FAULTS_PER_PAGE: u64 = 6;
/// What one fault takes, in nanoseconds.
const FAULT_NS: u64 = 50_000;

/// What `cuMemAdvise` can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Mostly read.
    ReadMostly(bool),
    /// The place of the call is where it should be; `false`: no place is.
    PreferredLocation(bool),
    /// The processor of the call will access it, so should have it mapped wherever it is.
    AccessedBy(bool),
}

impl Machine {
    /// `bytes` (not 0) of managed memory of the device of `context`.
    pub fn allocate_managed(&self, context: u32, bytes: u64) -> Result<u64> {
        let mut state = self.enter(context, Call::AllocateManaged)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        if state.device(device)?.config.managed == ManagedAccess::None {
            return Err(Code::NOT_SUPPORTED);
        }
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = state.allocate_managed(context, device, bytes)?;
        state.charge_size(device, Call::AllocateManaged, bytes, 0);
        Ok(address)
    }

    /// Advises on `[address, address + bytes)`; `device` is `None` for the host.
    pub fn advise(
        &self,
        context: u32,
        (address, bytes): (u64, u64),
        advice: Advice,
        device: Option<u32>,
    ) -> Result<()> {
        let mut state = self.enter(context, Call::Advise)?;
        state.forbid_in_capture()?;
        let page_bytes = state.managed_page_bytes(address, bytes)?;
        // Who reads mostly, and what is no longer preferred, need no place.
        if matches!(advice, Advice::PreferredLocation(true) | Advice::AccessedBy(_)) {
            state.require_concurrent(device)?;
        }
        let place = device.map_or(Location::Host, Location::Device);
        let bit = device.map_or(0, |device| 1 << device);
        let change = |advised: &mut Advised| match advice {
            Advice::ReadMostly(on) => advised.read_mostly = on,
            Advice::PreferredLocation(on) => advised.preferred = on.then_some(place),
            Advice::AccessedBy(true) => advised.accessed_by |= bit,
            Advice::AccessedBy(false) => advised.accessed_by &= !bit,
        };
        for page in pages_of(address..address + bytes, page_bytes) {
            state.managed.advise(page, &change);
        }
        let owner = state.context_device(context)?;
        state.charge_size(owner, Call::Advise, bytes, 0);
        Ok(())
    }

    /// Brings `[address, address + bytes)` to `device`, or to the host (`None`): work on `stream`.
    pub fn prefetch(
        &self,
        context: u32,
        (address, bytes): (u64, u64),
        device: Option<u32>,
        stream: usize,
    ) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, Some(Call::Prefetch))?;
        let page_bytes = state.managed_page_bytes(address, bytes)?;
        let owner = state.streams.slots[slot as usize].device;
        state.require_concurrent(device)?;
        state.require_concurrent(Some(owner))?;
        state.forbid_on_capturing(slot)?;
        let place = device.map_or(Location::Host, Location::Device);
        let mut moved_ns = 0u64;
        for page in pages_of(address..address + bytes, page_bytes) {
            moved_ns = moved_ns.saturating_add(state.move_page(page, place, page_bytes));
        }
        state.charge_size(owner, Call::Prefetch, bytes, 0);
        state.note_paging(owner, 0, moved_ns);
        state.enqueue(slot, Vec::new(), moved_ns)?;
        Ok(())
    }

    /// Returns true if `address` is in managed memory. Not a call of its own.
    pub fn is_managed(&self, address: u64) -> bool {
        let state = self.lock();
        let found = state.space.containing(address);
        found.is_some_and(|(_, mapping)| matches!(mapping.origin, Origin::Managed { .. }))
    }

    /// How many bytes of managed memory are on `device`; `None`: on the host. Not a call of its own.
    pub fn managed_bytes(&self, device: Option<u32>) -> u64 {
        let state = self.lock();
        let page_bytes = state.largest_granule();
        page_bytes * device.map_or(state.managed.count_on_host(), |one| state.managed.count_on(one))
    }
}

impl State {
    fn allocate_managed(&mut self, context: u32, device: u32, bytes: u64) -> Result<u64> {
        let page_bytes = self.largest_granule();
        let range_bytes = bytes.checked_next_multiple_of(page_bytes).ok_or(Code::OUT_OF_MEMORY)?;
        let is_exclusive = self.device(device)?.config.managed == ManagedAccess::Exclusive;
        if is_exclusive {
            self.take_physical(device, range_bytes)?;
        }
        let (address, extent) = self
            .place_pages(device, range_bytes)
            .inspect_err(|_| self.give_exclusive(device, is_exclusive, range_bytes))?;
        self.managed.add(pages_of(address..address + range_bytes, page_bytes));
        if is_exclusive {
            for page in pages_of(address..address + range_bytes, page_bytes) {
                self.managed.put(page, Location::Device(device));
            }
        }
        let memory = self.physical.insert(Memory {
            device,
            context: Some(context),
            bytes: range_bytes,
            extent: Some(extent),
            mappings: 1,
            released: true,
            piece: None,
            sharing: Sharing::Managed,
        });
        let has_managed =
            |device: &&crate::tables::Device| device.config.managed != ManagedAccess::None;
        let access = (0..).zip(&self.devices).filter(|(_, device)| has_managed(device));
        let access = access.fold(0, |bits, (ordinal, _)| bits | 1u64 << ordinal);
        let origin = Origin::Managed { range_bytes };
        let touched = Vec::new();
        self.space.insert(address, Mapping { bytes: range_bytes, memory, access, origin, touched });
        Ok(address)
    }

    fn give_exclusive(&mut self, device: u32, is_exclusive: bool, bytes: u64) {
        if is_exclusive {
            self.give_physical(device, bytes);
        }
    }

    /// All devices' pages are of one size.
    pub(crate) fn largest_granule(&self) -> u64 {
        let granules = self.devices.iter().map(|device| device.config.granularity_bytes);
        granules.max().unwrap_or(1)
    }

    /// The size of pages, if the range lies in one managed allocation.
    fn managed_page_bytes(&self, address: u64, bytes: u64) -> Result<u64> {
        let found = self.space.containing(address);
        let (start, mapping) = found.ok_or(Code::INVALID_VALUE)?;
        let is_within = address.checked_add(bytes).is_some_and(|end| end <= start + mapping.bytes);
        let is_managed = matches!(mapping.origin, Origin::Managed { .. });
        if bytes == 0 || !is_within || !is_managed {
            return Err(Code::INVALID_VALUE);
        }
        Ok(self.largest_granule())
    }

    /// `INVALID_DEVICE` unless it is the host or a device with concurrent managed access.
    fn require_concurrent(&self, device: Option<u32>) -> Result<()> {
        let Some(device) = device else { return Ok(()) };
        match self.device(device)?.config.managed {
            ManagedAccess::Concurrent => Ok(()),
            ManagedAccess::None | ManagedAccess::Exclusive => Err(Code::INVALID_DEVICE),
        }
    }

    /// Ends the pages of a managed allocation.
    pub(crate) fn free_pages(&mut self, address: u64, bytes: u64) {
        let page_bytes = self.largest_granule();
        for page in pages_of(address..address + bytes, page_bytes) {
            if let Some(Location::Device(device)) = self.managed.remove(page) {
                self.give_physical(device, page_bytes);
            }
        }
    }

    /// Work of a stream of `device` is about to touch `[address, address + bytes)`: what it misses
    /// comes. Returns how long the device waits for it, in nanoseconds.
    pub(crate) fn page_in(&mut self, device: u32, address: u64, bytes: u64) -> u64 {
        if self.managed.is_empty() {
            return 0;
        }
        let page_bytes = self.largest_granule();
        let (mut faults, mut waited_ns) = (0, 0u64);
        for page in pages_of(address..address.saturating_add(bytes), page_bytes) {
            let Some(known) = self.managed.get(page) else { continue };
            let stays = known.place.is_some_and(|place| {
                place == Location::Device(device)
                    || known.advised.preferred == Some(place)
                    || known.advised.accessed_by >> device & 1 == 1
            });
            let first = known.advised.preferred.unwrap_or(Location::Device(device));
            match known.place {
                // It was used now.
                Some(place) if stays => self.managed.put(page, place),
                Some(_) => {
                    faults += FAULTS_PER_PAGE;
                    let moved_ns = self.move_page(page, Location::Device(device), page_bytes);
                    waited_ns = waited_ns.saturating_add(moved_ns);
                }
                None => {
                    faults += FAULTS_PER_PAGE;
                    waited_ns = waited_ns.saturating_add(self.move_page(page, first, page_bytes));
                }
            }
        }
        waited_ns = waited_ns.saturating_add(faults * FAULT_NS);
        self.note_paging(device, faults, waited_ns);
        waited_ns
    }

    /// The host touches `[address, address + bytes)`: what is on a device moves. What is preferred
    /// there does too, because over PCIe the host cannot reach it.
    pub(crate) fn page_out(&mut self, address: u64, bytes: u64) {
        let page_bytes = self.largest_granule();
        for page in pages_of(address..address.saturating_add(bytes), page_bytes) {
            if self.managed.get(page).is_some() {
                self.move_page(page, Location::Host, page_bytes);
            }
        }
    }

    /// Moves a page; returns how long that takes. It stays on the host, and is reached there, if a
    /// device has no memory that can be evicted.
    fn move_page(&mut self, page: u64, to: Location, page_bytes: u64) -> u64 {
        let Some(known) = self.managed.get(page) else { return 0 };
        if known.place == Some(to) {
            self.managed.put(page, to);
            return 0;
        }
        let mut nanoseconds = 0;
        let mut place = to;
        if let Location::Device(device) = to {
            nanoseconds += self.make_room(device, page_bytes);
            if self.take_physical(device, page_bytes).is_err() {
                place = Location::Host;
            }
        }
        if let Some(Location::Device(from)) = known.place {
            self.give_physical(from, page_bytes);
        }
        self.managed.put(page, place);
        if place == Location::Host {
            self.check_host_room(page_bytes);
        }
        // A page that was nowhere has no bytes to move.
        if known.place.is_some() && known.place != Some(place) {
            nanoseconds += self.bus_ns(place, page_bytes);
            if let Location::Device(device) = place
                && let Ok(entry) = self.device_mut(device)
            {
                entry.usage.paging.arrived_bytes += page_bytes;
            }
        }
        nanoseconds
    }

    /// Evicts pages of `device` until `bytes` are free there, or none is left; returns how long it
    /// takes.
    pub(crate) fn make_room(&mut self, device: u32, bytes: u64) -> u64 {
        let mut nanoseconds = 0u64;
        let is_concurrent = |state: &Self| {
            state.device(device).is_ok_and(|one| one.config.managed == ManagedAccess::Concurrent)
        };
        if self.managed.is_empty() || !is_concurrent(self) {
            return 0;
        }
        let page_bytes = self.largest_granule();
        while self.free_bytes(device).is_ok_and(|free_bytes| free_bytes < bytes)
            && let Some(page) = self.managed.oldest(device)
        {
            self.give_physical(device, page_bytes);
            self.managed.put(page, Location::Host);
            self.check_host_room(page_bytes);
            nanoseconds = nanoseconds.saturating_add(self.bus_ns(Location::Host, page_bytes));
            if let Ok(entry) = self.device_mut(device) {
                entry.usage.paging.evicted_bytes += page_bytes;
            }
        }
        nanoseconds
    }

    fn check_host_room(&mut self, page_bytes: u64) {
        let held_bytes = self.managed.count_on_host() * page_bytes;
        let pinned_bytes = self.host_memory.bytes() + self.registered.bytes();
        if held_bytes + pinned_bytes > self.config.host_memory_bytes {
            self.report(Violation::HostMemoryUsedUp { bytes: held_bytes + pinned_bytes });
        }
    }

    /// What it takes to bring a page over the bus.
    fn bus_ns(&self, to: Location, page_bytes: u64) -> u64 {
        let call = if to == Location::Host { Call::CopyToHost } else { Call::CopyToDevice };
        let cost = self.config.costs.get(call);
        cost.price_ns(page_bytes, 0).saturating_sub(cost.base_ns())
    }

    fn note_paging(&mut self, device: u32, faults: u64, nanoseconds: u64) {
        if let Ok(entry) = self.device_mut(device) {
            let paging = &mut entry.usage.paging;
            paging.faults += faults;
            paging.nanoseconds = paging.nanoseconds.saturating_add(nanoseconds);
        }
    }
}
