//! How touches are judged: what work does to memory, and what it may not do.
//!
//! A touch is judged when it is enqueued, by happens-before and never by how far queues have
//! come. It must lie in mapped memory that its device may access. It is compared with earlier
//! touches of the same *physical* bytes, so aliases conflict. Its mapping must stay until the
//! host knows that it is complete. All of this only while the race detector is on.
//!
//! **Rights.** A kernel and a plain copy (`cuMemcpyDtoDAsync`, `cudaMemcpyAsync`) need access for
//! the device they run on: to a mapping by `cuMemSetAccess`, to a plain allocation of another
//! device by `cuCtxEnablePeerAccess`, which does nothing for mappings. Only a peer copy
//! (`cuMemcpyPeerAsync`) needs none. PyTorch's `CUDACachingAllocator::memcpyAsync` makes a peer
//! copy wherever memory is not mapped for both devices, because a plain one fails there. The same
//! function lets plain copies of plain allocations go through the host without peer access; here
//! they need it too, so that no program relies on it. A kernel fails late, so its bad touch is a
//! violation only. A copy is checked when it is made, with and without the detector, and refused.
//!
//! **Host memory** that is page-locked can be reached by every device, and is judged as device memory
//! is; freeing or unregistering it while a touch may still run is a violation. Other memory of the
//! host is not the machine's: copies are done with it when their call returns.
//!
//! A kernel's stream belongs to the current context, a copy's to any (CUDA's programming guide,
//! "stream and event behavior").

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Detector, HostMemory, HostPiece, Mapping};
use crate::touch::{Access, Rights, Touch, Work};
use crate::violation::Violation;

/// The part of a touch that lies in one mapping, or in one piece of page-locked host memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    home: Home,
    memory: u64,
    address: u64,
    offset_bytes: u64,
    bytes: u64,
}

/// Where memory is, by its start.
#[derive(Clone, Copy, Debug)]
enum Home {
    Mapping(u64),
    /// Allocated by the machine.
    Allocated(u64),
    /// The program's own.
    Registered(u64),
}

impl Machine {
    /// Enqueues work on `stream`.
    ///
    /// A bad touch is a violation and not an error: a real launch returns at once and fails
    /// later. On a capturing stream the touch goes into the capture.
    pub fn touch(&self, context: u32, stream: usize, work: Work<'_>) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, None)?;
        if state.streams.slots[slot as usize].context != context {
            return Err(Code::INVALID_HANDLE);
        }
        state.enqueue_touch(slot, stream, work)
    }

    /// [`Self::touch`] by a plain copy: `INVALID_VALUE` and a violation if the stream's device
    /// has no access.
    pub fn copy_touch(&self, context: u32, stream: usize, work: Work<'_>) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, None)?;
        state.enqueue_copy(slot, stream, work)
    }

    /// [`Self::copy_touch`] by a peer copy, which may reach memory of any device.
    pub fn peer_copy_touch(&self, context: u32, stream: usize, work: Work<'_>) -> Result<()> {
        self.copy_touch(context, stream, Work { rights: Rights::Peer, ..work })
    }

    /// The host itself touches `[address, address + bytes)` now. It must know all conflicting
    /// work to be complete. Work enqueued later comes after it.
    pub fn host_touch(&self, address: u64, bytes: u64, access: Access, label: &str) {
        let mut state = self.lock();
        if !state.managed.is_empty() {
            state.page_out(address, bytes);
        }
        let (label, slot) = (label.to_owned(), u32::MAX);
        let touch =
            Touch { device: 0, stream: None, sequence: 0, address, bytes, access, label, slot };
        state.judge(&Arc::new(touch), Rights::Peer);
    }

    /// In how many ranges of memory the race detector remembers touches; 0 when it is off.
    pub fn shadow_segments(&self) -> usize {
        self.lock().detector.as_ref().map_or(0, Detector::segments)
    }

    /// Switches the race detector on or off. Switched on, it knows nothing of earlier work.
    pub fn detect_races(&self, on: bool) {
        let mut state = self.lock();
        state.detector = on.then(Detector::default);
        for stream in &mut state.streams.slots {
            stream.clock = Default::default();
            stream.host_version = 0;
        }
        state.space.forget_touches();
        state.host_memory.forget_touches();
        state.registered.forget_touches();
    }
}

impl Machine {
    /// Returns true if [`Self::take_violations`] may return some. Takes no lock.
    #[inline]
    pub fn has_violations(&self) -> bool {
        self.quiet.has_violations.load(Ordering::Acquire)
    }

    /// The violations found since they were last taken, in order. Cheap where there are none.
    pub fn take_violations(&self) -> Vec<Violation> {
        if !self.has_violations() {
            return Vec::new();
        }
        self.quiet.has_violations.store(false, Ordering::Release);
        std::mem::take(&mut self.lock().violations)
    }
}

impl State {
    /// Enqueues a touch, or puts it into the capture of its stream. Without a capture and with
    /// the detector off it costs what any operation costs: nothing is looked up or allocated.
    pub(crate) fn enqueue_touch(&mut self, slot: u32, stream: usize, work: Work<'_>) -> Result<()> {
        if let Some(capture) = self.streams.slots[slot as usize].capture {
            return self.capture_touch(capture, work.into());
        }
        let device = self.streams.slots[slot as usize].device;
        let paged_ns = self.page_in(device, work.address, work.bytes);
        let sequence = self.enqueue(slot, Vec::new(), paged_ns)?;
        if self.detector.is_some() {
            let Work { address, bytes, access, rights, label } = work;
            let (stream, label) = (Some(stream), label.to_owned());
            let touch = Touch { device, stream, sequence, address, bytes, access, label, slot };
            self.judge(&Arc::new(touch), rights);
        }
        Ok(())
    }

    /// Enqueues the touch of a copy or a fill, after checking it.
    pub(crate) fn enqueue_copy(&mut self, slot: u32, stream: usize, work: Work<'_>) -> Result<()> {
        let (mut address, mut left) = (work.address, work.bytes);
        // The caller, or the detector, finds what is not mapped.
        while left > 0
            && let Some(part) = self.part_at(address, left)
        {
            if !self.may_access(slot, part, work.rights) {
                let Work { address: start, bytes, access, label, .. } = work;
                let entry = &self.streams.slots[slot as usize];
                let (device, sequence) = (entry.device, entry.enqueued + 1);
                let (stream, label) = (Some(stream), label.to_owned());
                let touch =
                    Touch { device, stream, sequence, address: start, bytes, access, label, slot };
                self.report(Violation::TouchWithoutAccess { touch: Arc::new(touch), address });
                return Err(Code::INVALID_VALUE);
            }
            address += part.bytes;
            left -= part.bytes;
        }
        self.enqueue_touch(slot, stream, work)
    }

    /// Judges one touch, part by part, and remembers it.
    fn judge(&mut self, touch: &Arc<Touch>, rights: Rights) {
        if self.detector.is_none() {
            return;
        }
        let (mut address, mut left) = (touch.address, touch.bytes);
        while left > 0 {
            let Some(part) = self.part_at(address, left) else {
                let touch = touch.clone();
                return self.report(Violation::TouchUnmapped { touch, address });
            };
            if touch.stream.is_some() && !self.may_access(touch.slot, part, rights) {
                let touch = touch.clone();
                return self.report(Violation::TouchWithoutAccess { touch, address });
            }
            self.judge_part(touch, part);
            address += part.bytes;
            left -= part.bytes;
        }
    }

    fn judge_part(&mut self, touch: &Arc<Touch>, part: Part) {
        let Some(detector) = &mut self.detector else { return };
        let no_clock = Default::default();
        let clock = match touch.stream {
            Some(_) => &self.streams.slots[touch.slot as usize].clock,
            None => &no_clock,
        };
        for conflict in detector.touch(part.memory, part.offset_bytes, part.bytes, touch, clock) {
            let address = part.address + (conflict.offset_bytes - part.offset_bytes);
            let (first, second, bytes) = (conflict.earlier, touch.clone(), conflict.bytes);
            self.report(Violation::Race { first, second, address, bytes });
        }
        if touch.stream.is_some()
            && let Some(touched) = self.touched_mut(part.home)
        {
            touched.retain(|earlier| earlier.slot != touch.slot);
            touched.push(touch.clone());
        }
    }

    /// The last touches of what is at `home`.
    fn touched_mut(&mut self, home: Home) -> Option<&mut Vec<Arc<Touch>>> {
        match home {
            Home::Mapping(start) => self.space.get_mut(start).map(|one| &mut one.touched),
            Home::Allocated(start) => self.host_memory.get_mut(start).map(|one| &mut one.touched),
            Home::Registered(start) => self.registered.get_mut(start).map(|one| &mut one.touched),
        }
    }

    fn part_at(&self, address: u64, bytes: u64) -> Option<Part> {
        let of_device = self
            .space
            .containing(address)
            .map(|(start, one)| (Home::Mapping(start), start, one.memory, one.bytes));
        let on_host = |memory: &HostMemory, home: fn(u64) -> Home| {
            let (start, one) = memory.containing(address)?;
            Some((home(start), start, HostMemory::key(start), one.bytes))
        };
        let (home, start, memory, whole_bytes) = of_device
            .or_else(|| on_host(&self.host_memory, Home::Allocated))
            .or_else(|| on_host(&self.registered, Home::Registered))?;
        let offset_bytes = address - start;
        let bytes = bytes.min(whole_bytes - offset_bytes);
        Some(Part { home, memory, address, offset_bytes, bytes })
    }

    fn may_access(&self, slot: u32, part: Part, rights: Rights) -> bool {
        let Home::Mapping(start) = part.home else { return true };
        let Some(mapping) = self.space.get(start) else { return false };
        if rights == Rights::Peer {
            return mapping.access != 0;
        }
        let stream = &self.streams.slots[slot as usize];
        let (device, context) = (stream.device, &self.contexts[stream.context as usize]);
        let peers = if mapping.is_allocation() { context.peers } else { 0 };
        (mapping.access & (1 << device | peers)) != 0
    }

    /// Reports touches that may still run through a mapping that is going away.
    pub(crate) fn check_untouched(&mut self, address: u64, mapping: &Mapping) {
        self.check_complete(address, mapping.bytes, &mapping.touched);
    }

    /// Reports touches that may still use pinned memory that is going away, and forgets it.
    pub(crate) fn let_host_memory_go(&mut self, address: u64, piece: &HostPiece) {
        self.check_complete(address, piece.bytes, &piece.touched);
        if let Some(detector) = &mut self.detector {
            detector.forget(HostMemory::key(address));
        }
    }

    fn check_complete(&mut self, address: u64, bytes: u64, touched: &[Arc<Touch>]) {
        let Some(detector) = &self.detector else { return };
        let is_open = |touch: &&Arc<Touch>| detector.host.get(touch.slot) < touch.sequence;
        let open: Vec<_> = touched.iter().filter(is_open).cloned().collect();
        for touch in open {
            self.report(Violation::GoneWhileInUse { touch, address, bytes });
        }
    }

    /// The host learns that all work enqueued on a stream so far is complete.
    pub(crate) fn observe_stream(&mut self, slot: u32) {
        let Some(detector) = &mut self.detector else { return };
        let stream = &self.streams.slots[slot as usize];
        detector.observe(slot, stream.enqueued, Some(&stream.clock));
    }

    /// Adds to a stream's clock what the host knows: work enqueued now comes after that.
    pub(crate) fn refresh_clock(&mut self, slot: u32) {
        let Some(detector) = &self.detector else { return };
        let stream = &mut self.streams.slots[slot as usize];
        if stream.host_version != detector.host_version {
            stream.clock.join(&detector.host);
            stream.host_version = detector.host_version;
        }
    }
}
