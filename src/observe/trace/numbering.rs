//! From events to the records of a trace: addresses become ids, streams become numbers.
//!
//! This runs on the collecting thread and costs the program's threads nothing. A block has an id
//! from its allocation to its free; a map from live addresses to ids is all that is kept. Ids count
//! up and, after 2^32 blocks, start again, skipping those of live blocks. Streams are numbered in
//! order of appearance, so the first one used is 0.
//!
//! An address that is not in the map is not in the trace: a block allocated before the recording
//! began, a pointer that never was a block, a second free. They are left out and counted. An
//! allocation at the address of a live block shows that a free is missing, which happens only if a
//! program frees a block twice; the free is then added and counted.
//!
//! A request for 0 bytes returns NULL, which is never freed, so its record is followed by its free.

use std::collections::{HashMap, HashSet};

use crate::observe::addresses::AddressMap;
use crate::observe::events::{Action, Event};

/// The size of a record, in bytes.
pub(super) const RECORD_BYTES: usize = 16;

/// A record of a trace. `traces/README.md` describes its layout.
pub(super) type Record = [u8; RECORD_BYTES];

/// The state of the recording so far.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    live: AddressMap<Block>,
    stream_numbers: HashMap<u64, u16>,
    next_id: u32,
    /// The ids of live blocks, once ids have started again.
    ids_in_use: Option<HashSet<u32>>,
    /// The number of records.
    pub(super) records: u64,
    /// Frees and recorded streams left out, because their block is not in the trace.
    pub(super) left_out: u64,
    /// Frees added.
    pub(super) put_in: u64,
    /// Streams that share the last number.
    pub(super) streams_folded: u64,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
struct Block {
    id: u32,
    stream: u16,
    device: u8,
}

impl Numbering {
    /// Passes the records of `event`, at most two, to `write`.
    #[inline]
    pub(super) fn add(&mut self, event: &Event, mut write: impl FnMut(Record)) {
        match event.action {
            Action::Allocate => self.allocate(event, &mut write),
            Action::Free => match self.live.remove(&event.address) {
                Some(block) => self.free(block, &mut write),
                None => self.left_out += 1,
            },
            Action::RecordStream => match self.live.get(&event.address).copied() {
                Some(block) => {
                    let stream = self.number(event.stream);
                    self.record(Action::RecordStream, Block { stream, ..block }, 0, &mut write);
                }
                None => self.left_out += 1,
            },
            Action::EmptyCache => {
                let device = Block { id: 0, stream: 0, device: event.device.0 as u8 };
                self.record(Action::EmptyCache, device, 0, &mut write);
            }
            Action::EndIteration => {
                let iteration = Block { id: event.amount as u32, stream: 0, device: 0 };
                self.record(Action::EndIteration, iteration, 0, &mut write);
            }
            // A trace has only what a program requested.
            _ => {}
        }
    }

    fn allocate(&mut self, event: &Event, write: &mut impl FnMut(Record)) {
        let stream = self.number(event.stream);
        let block = Block { id: self.fresh_id(), stream, device: event.device.0 as u8 };
        if event.address == 0 {
            self.record(Action::Allocate, block, event.amount, write);
            self.free(block, write);
            return;
        }
        if let Some(missed) = self.live.insert(event.address, block) {
            self.put_in += 1;
            self.free(missed, write);
        }
        self.record(Action::Allocate, block, event.amount, write);
    }

    fn free(&mut self, block: Block, write: &mut impl FnMut(Record)) {
        if let Some(ids) = &mut self.ids_in_use {
            ids.remove(&block.id);
        }
        self.record(Action::Free, block, 0, write);
    }

    /// An id that no live block has.
    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            let is_free = self.ids_in_use.as_mut().is_none_or(|ids| ids.insert(id));
            self.next_id = id.wrapping_add(1);
            if self.next_id == 0 && self.ids_in_use.is_none() {
                let live = self.live.values().map(|block| block.id);
                self.ids_in_use = Some(live.chain([id]).collect());
            }
            if is_free {
                return id;
            }
        }
    }

    fn number(&mut self, stream: u64) -> u16 {
        let next = self.stream_numbers.len();
        if let Some(number) = self.stream_numbers.get(&stream) {
            return *number;
        }
        let number = u16::try_from(next).unwrap_or_else(|_| {
            self.streams_folded += 1;
            u16::MAX
        });
        self.stream_numbers.insert(stream, number);
        number
    }

    fn record(&mut self, action: Action, of: Block, size: u64, write: &mut impl FnMut(Record)) {
        let mut record = [0; RECORD_BYTES];
        record[0] = action as u8;
        record[1] = of.device;
        record[2..4].copy_from_slice(&of.stream.to_le_bytes());
        record[4..8].copy_from_slice(&of.id.to_le_bytes());
        record[8..].copy_from_slice(&size.to_le_bytes());
        self.records += 1;
        write(record);
    }
}

#[cfg(test)]
#[path = "numbering_tests.rs"]
mod tests;
