//! A trace prepared for replay.
//!
//! The ids of a trace name every block that the program ever had; a replay needs a place for each
//! block that is live. So ids are renumbered to *slots*. A slot is used again as soon as its block
//! is freed, the last freed first, which also uses the processor's cache best. So the table of
//! pointers is as small as the largest live set. Streams are numbered densely in order of
//! appearance, stream 0 first.
//!
//! Invariants, checked while preparing and relied upon by the measured loop:
//! - slot < [`Program::slot_count`], stream < [`Program::stream_count`],
//!   device < [`Program::device_count`] in every call;
//! - a slot is allocated only when it is empty, and freed or recorded only when it is not;
//! - a free repeats the size, device and stream of its allocation, as frameworks do;
//! - freeing [`Program::leftovers`] after [`Program::calls`] leaves every slot empty.
//!
//! A trace that frees, or records a stream for, a block that is not live is refused with the
//! number of the record. Ends of iterations are noted and unknown operations counted; neither is a
//! call.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::gtr::{Action, Record};

/// Blocks are handed out in multiples of this many bytes.
pub(crate) const ALIGNMENT_BYTES: u64 = 512;

/// Which function a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `genesis_malloc`.
    Allocate,
    /// `genesis_free`.
    Free,
    /// `genesis_block_record_stream`.
    RecordStream,
    /// `genesis_cache_empty`.
    EmptyCache,
}

/// One call of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which function.
    pub kind: Kind,
    /// The device.
    pub device: u8,
    /// The stream, by its dense number.
    pub stream: u16,
    /// The index of the block's pointer.
    pub slot: u32,
    /// The size of the request, in bytes; of the block's request for a free or a record.
    pub requested_bytes: u64,
}

/// The program ended an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationEnd {
    /// How many calls had been made by then.
    pub calls: usize,
    /// The number that the program gave it.
    pub number: u32,
}

/// A trace prepared for replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What the program called, in order.
    pub calls: Vec<Call>,
    /// Frees of the blocks that the trace leaves live.
    pub leftovers: Vec<Call>,
    /// How many slots there are: the most blocks live at once.
    pub slot_count: usize,
    /// How many streams the calls name; at least 1.
    pub stream_count: usize,
    /// How many devices: the highest ordinal named plus one; at least 1.
    pub device_count: usize,
    /// The ends of iterations, in order.
    pub iteration_ends: Vec<IterationEnd>,
    /// How many records hold an operation unknown to this reader.
    pub unknown_records: u64,
    /// The most bytes live at once as requested: the sum of the devices' own peaks.
    pub live_peak_bytes: u64,
    /// The same with every request rounded up to a multiple of 512 bytes.
    pub live_peak_rounded_bytes: u64,
    /// The highest of the devices' own rounded peaks: less memory on each device cannot do.
    pub largest_device_peak_bytes: u64,
    /// How many calls have been made at the live peak of all devices together.
    pub calls_to_live_peak: usize,
}

impl Program {
    /// Prepares `records` for replay.
    pub fn prepare(records: &[Record]) -> Result<Self> {
        let mut builder = Builder::default();
        builder.number_stream(0);
        for (number, record) in records.iter().enumerate() {
            builder
                .add(record)
                .map_err(|error| Error::usage(format!("record {number}: {}", error.message)))?;
        }
        Ok(builder.finish())
    }

    /// How many calls are of `kind`.
    pub fn count(&self, kind: Kind) -> usize {
        self.calls.iter().filter(|call| call.kind == kind).count()
    }
}

/// Bytes live now and at most.
#[derive(Clone, Copy, Debug, Default)]
struct Live {
    current_bytes: u64,
    peak_bytes: u64,
}

impl Live {
    fn add(&mut self, bytes: u64) {
        self.current_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.current_bytes);
    }

    fn remove(&mut self, bytes: u64) {
        self.current_bytes -= bytes;
    }
}

#[derive(Debug, Default)]
struct Builder {
    program: Program,
    /// The allocation of each live block, by the trace's id.
    live: HashMap<u32, Call>,
    empty_slots: Vec<u32>,
    stream_numbers: HashMap<u16, u16>,
    /// On all devices together, which bounds every other count of bytes.
    live_rounded_bytes: u64,
    most_live_rounded_bytes: u64,
    /// Per device: as requested, and rounded.
    live_bytes: Vec<(Live, Live)>,
}

impl Builder {
    fn add(&mut self, record: &Record) -> Result<()> {
        match record.action {
            Action::Allocate => self.allocate(record),
            Action::Free => self.free(record.id),
            Action::RecordStream => self.record_stream(record),
            Action::EmptyCache => {
                self.empty_cache(record.device);
                Ok(())
            }
            Action::IterationEnd => {
                let calls = self.program.calls.len();
                self.program.iteration_ends.push(IterationEnd { calls, number: record.id });
                Ok(())
            }
            Action::Unknown(_) => {
                self.program.unknown_records += 1;
                Ok(())
            }
        }
    }

    fn allocate(&mut self, record: &Record) -> Result<()> {
        if self.live.contains_key(&record.id) {
            return Err(Error::usage(format!("block {} is allocated while live", record.id)));
        }
        let requested_bytes = record.requested_bytes;
        self.add_live(record.device, requested_bytes)
            .ok_or_else(|| Error::usage("more bytes are live than 64 bits can count"))?;
        let stream = self.number_stream(record.stream);
        let slot = self.take_slot();
        let call =
            Call { kind: Kind::Allocate, device: record.device, stream, slot, requested_bytes };
        self.live.insert(record.id, call);
        self.program.calls.push(call);
        Ok(())
    }

    /// Counts a block; `None` if the bytes of all devices exceed 64 bits.
    fn add_live(&mut self, device: u8, requested_bytes: u64) -> Option<()> {
        let rounded_bytes = rounded(requested_bytes)?;
        self.live_rounded_bytes = self.live_rounded_bytes.checked_add(rounded_bytes)?;
        if self.live_rounded_bytes > self.most_live_rounded_bytes {
            self.most_live_rounded_bytes = self.live_rounded_bytes;
            self.program.calls_to_live_peak = self.program.calls.len() + 1;
        }
        let (as_requested, as_rounded) = self.device(device);
        as_requested.add(requested_bytes);
        as_rounded.add(rounded_bytes);
        Some(())
    }

    fn free(&mut self, id: u32) -> Result<()> {
        let allocation = self.live.remove(&id).ok_or_else(|| not_live("freed", id))?;
        let requested_bytes = allocation.requested_bytes;
        let rounded_bytes = rounded(requested_bytes).unwrap_or(0);
        self.live_rounded_bytes -= rounded_bytes;
        let (as_requested, as_rounded) = self.device(allocation.device);
        as_requested.remove(requested_bytes);
        as_rounded.remove(rounded_bytes);
        self.empty_slots.push(allocation.slot);
        self.program.calls.push(Call { kind: Kind::Free, ..allocation });
        Ok(())
    }

    fn record_stream(&mut self, record: &Record) -> Result<()> {
        let stream = self.number_stream(record.stream);
        let allocation =
            self.live.get(&record.id).ok_or_else(|| not_live("used on a stream", record.id))?;
        self.program.calls.push(Call { kind: Kind::RecordStream, stream, ..*allocation });
        Ok(())
    }

    fn empty_cache(&mut self, device: u8) {
        self.device(device);
        let kind = Kind::EmptyCache;
        self.program.calls.push(Call { kind, device, stream: 0, slot: 0, requested_bytes: 0 });
    }

    fn take_slot(&mut self) -> u32 {
        self.empty_slots.pop().unwrap_or_else(|| {
            // Live blocks have distinct 32-bit ids, so their slots fit as well.
            let slot = self.program.slot_count as u32;
            self.program.slot_count += 1;
            slot
        })
    }

    fn number_stream(&mut self, stream: u16) -> u16 {
        // A stream not yet numbered leaves at most 65,535 that are.
        let next = self.stream_numbers.len() as u16;
        *self.stream_numbers.entry(stream).or_insert(next)
    }

    fn device(&mut self, device: u8) -> &mut (Live, Live) {
        let index = usize::from(device);
        if self.live_bytes.len() <= index {
            self.live_bytes.resize(index + 1, Default::default());
        }
        &mut self.live_bytes[index]
    }

    fn finish(self) -> Program {
        let mut leftovers: Vec<_> =
            self.live.into_values().map(|call| Call { kind: Kind::Free, ..call }).collect();
        leftovers.sort_by_key(|call| call.slot);
        let rounded_peaks = self.live_bytes.iter().map(|live| live.1.peak_bytes);
        Program {
            leftovers,
            largest_device_peak_bytes: rounded_peaks.max().unwrap_or(0),
            stream_count: self.stream_numbers.len(),
            device_count: self.live_bytes.len().max(1),
            live_peak_bytes: sum(self.live_bytes.iter().map(|live| live.0.peak_bytes)),
            live_peak_rounded_bytes: sum(self.live_bytes.iter().map(|live| live.1.peak_bytes)),
            ..self.program
        }
    }
}

fn rounded(requested_bytes: u64) -> Option<u64> {
    requested_bytes.checked_next_multiple_of(ALIGNMENT_BYTES)
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn not_live(what: &str, id: u32) -> Error {
    Error::usage(format!("block {id} is {what} while not live"))
}
