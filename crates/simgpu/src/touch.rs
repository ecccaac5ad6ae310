//! Touches: what work does to memory.
//!
//! A touch is judged when it is enqueued, by happens-before and never by how far queues have
//! come. It must lie in mapped memory its device may access; it is compared with earlier
//! touches of the same *physical* bytes, so aliases conflict; and its mapping must stay until
//! the host knows that it is complete. All of this only while the race detector is on.

use std::sync::Arc;

use crate::Result;
use crate::address_space::Mapping;
use crate::machine::{Machine, State};
use crate::race::Detector;
use crate::violation::{Touch, Violation};

/// What a touch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes, or reads and writes.
    Write,
}

/// Whose access a touch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// That of the device of the stream.
    Own,
    /// Anybody's: copies between devices go through the owner.
    Any,
}

/// A touch about to be enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) rights: Rights,
    pub(crate) label: &'a str,
}

/// The part of a touch that lies in one mapping.
#[derive(Clone, Copy, Debug)]
struct Part {
    mapping_address: u64,
    memory: u64,
    address: u64,
    offset_bytes: u64,
    bytes: u64,
}

impl Machine {
    /// Enqueues work on `stream` that touches `[address, address + bytes)`.
    ///
    /// A bad touch is a violation and not an error: a real device answers at once and fails
    /// later. On a capturing stream the touch goes into the capture.
    pub fn touch(
        &self,
        device: u32,
        stream: usize,
        address: u64,
        bytes: u64,
        access: Access,
        label: &str,
    ) -> Result<()> {
        let work = Work { address, bytes, access, rights: Rights::Own, label };
        self.lock().enqueue_touch(device, stream, work)
    }

    /// [`Self::touch`] by a copy, which may reach memory of devices that are not peers.
    pub fn copy_touch(
        &self,
        device: u32,
        stream: usize,
        address: u64,
        bytes: u64,
        access: Access,
        label: &str,
    ) -> Result<()> {
        let work = Work { address, bytes, access, rights: Rights::Any, label };
        self.lock().enqueue_touch(device, stream, work)
    }

    /// The host itself touches `[address, address + bytes)`, here and now: all conflicting work
    /// must be known to it to be complete. Work enqueued later comes after it.
    pub fn host_touch(&self, address: u64, bytes: u64, access: Access, label: &str) {
        let mut state = self.lock();
        let (label, slot) = (label.to_owned(), u32::MAX);
        let touch =
            Touch { device: 0, stream: None, sequence: 0, address, bytes, access, label, slot };
        state.judge(&Arc::new(touch), Rights::Any);
    }

    /// How many ranges of memory the race detector remembers touches of; 0 when it is off.
    pub fn shadow_segments(&self) -> usize {
        self.lock().detector.as_ref().map_or(0, Detector::segments)
    }

    /// Switches the race detector. Switched on, it knows nothing of what was before.
    pub fn detect_races(&self, on: bool) {
        let mut state = self.lock();
        state.detector = on.then(Detector::default);
        for stream in &mut state.streams.slots {
            stream.clock = Default::default();
            stream.host_version = 0;
        }
        state.space.forget_touches();
    }
}

impl State {
    /// Enqueues a touch, or puts it into the capture of its stream. Without a capture and with
    /// the detector off it costs what any operation does: nothing is looked up or allocated.
    pub(crate) fn enqueue_touch(
        &mut self,
        device: u32,
        stream: usize,
        work: Work<'_>,
    ) -> Result<()> {
        self.device(device)?;
        let slot = self.stream(device, stream, None)?;
        if let Some(capture) = self.streams.slots[slot as usize].capture {
            self.capture_touch(capture, work.into());
            return Ok(());
        }
        let sequence = self.enqueue(slot, Vec::new(), 0)?;
        if self.detector.is_some() {
            let device = self.streams.slots[slot as usize].device;
            let Work { address, bytes, access, rights, label } = work;
            let (stream, label) = (Some(stream), label.to_owned());
            let touch = Touch { device, stream, sequence, address, bytes, access, label, slot };
            self.judge(&Arc::new(touch), rights);
        }
        Ok(())
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
            if touch.stream.is_some() && !self.may_access(touch.device, part, rights) {
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
            && let Some(mapping) = self.space.get_mut(part.mapping_address)
        {
            mapping.touched.retain(|earlier| earlier.slot != touch.slot);
            mapping.touched.push(touch.clone());
        }
    }

    fn part_at(&self, address: u64, bytes: u64) -> Option<Part> {
        let (start, mapping) = self.space.containing(address)?;
        let offset_bytes = address - start;
        let bytes = bytes.min(mapping.bytes - offset_bytes);
        let memory = mapping.memory;
        Some(Part { mapping_address: start, memory, address, offset_bytes, bytes })
    }

    fn may_access(&self, device: u32, part: Part, rights: Rights) -> bool {
        let Some(mapping) = self.space.get(part.mapping_address) else { return false };
        if rights == Rights::Any {
            return mapping.access != 0;
        }
        let peers = match self.device(device) {
            Ok(entry) if mapping.is_allocation() => entry.peers,
            _ => 0,
        };
        (mapping.access & (1 << device | peers)) != 0
    }

    /// Reports touches through a mapping that is going away while they may still run.
    pub(crate) fn check_untouched(&mut self, address: u64, mapping: &Mapping) {
        let Some(detector) = &self.detector else { return };
        let is_open = |touch: &&Arc<Touch>| detector.host.get(touch.slot) < touch.sequence;
        let open: Vec<_> = mapping.touched.iter().filter(is_open).cloned().collect();
        for touch in open {
            self.report(Violation::GoneWhileInUse { touch, address, bytes: mapping.bytes });
        }
    }

    /// The host knows that all work enqueued on a stream so far is complete.
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
