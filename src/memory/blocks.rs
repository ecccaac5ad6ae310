//! The table of blocks of one lane.
//!
//! A *segment* is one allocation of the driver, an *area* one reservation of address space; a
//! *block* is a contiguous part of either. The blocks of a segment or an area partition it:
//! they form a list in address order (`before`, `after`), without gaps. A segment is whole
//! when it is a single block, and only a whole segment can leave the table. Physical memory is
//! mapped into an area and unmapped again (see `memory::extents`): blocks that have memory of
//! their own are *backed*, the others only take up addresses.
//!
//! Invariants, checked by [`BlockTable::validate`]:
//!
//! ```text
//! block.after  = b  ⇔  b.before = block,  and  block.address + block.bytes = b.address
//! address is a multiple of 512, bytes > 0; bytes also is, unless the block is a whole segment
//! directory[block.address] = (this lane, slot of block)    live, pending, shadow, paused
//! backed_bytes = Σ block.bytes of the backed blocks;  paused_bytes, of the paused ones
//! ```
//!
//! A block is listed in the directory when it is handed out or becomes a shadow; its entry stays
//! when the block is gone. So an entry is a hint, which [`BlockTable::find`] checks; in return,
//! cutting and joining blocks touch no line of the directory.
//!
//! A block keeps its slot while it exists; the slot is reused afterwards. The two `links` of a
//! block belong to the list or tree in which the strategy keeps it. The table is used under
//! its lane's lock only.

use std::sync::Arc;

use super::directory::{Directory, Entry, NO_SLOT, Slot};
use super::extents::ExtentId;
use crate::base::size::{ALIGNMENT_BYTES, SizeClass};

/// What a block is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Handed out to the caller.
    Live,
    /// Freed by the caller, but streams named by `record_stream` may still use it.
    Pending,
    /// Free, and kept by the strategy.
    Free,
    /// Addresses of an area whose memory is in use at other addresses; still mapped.
    Shadow,
    /// Addresses of a part of an extent that is used through its other view: see
    /// [`Loan`](super::Loan).
    Lent,
    /// Addresses of an area with nothing mapped.
    Unmapped,
    /// Addresses of an area at which a thread is mapping or unmapping, without the lock.
    Claimed,
    /// Handed out, but its memory is away until its tag is resumed (see `heap::pause`).
    Paused,
    /// Addresses of a paused extent where no paused block lies; their memory returns with it.
    Absent,
    /// No block: the slot can be reused.
    Vacant,
}

impl State {
    /// Returns true if a block in this state has memory of its own.
    #[inline]
    pub fn is_backed(self) -> bool {
        matches!(self, Self::Live | Self::Pending | Self::Free)
    }

    /// Its bit in a set of states.
    #[inline]
    pub const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// One block. Exactly a cache line, because each operation touches one or two of them.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Block {
    /// First byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The size that was asked for, in bytes; of a free block, when a part of it was last live.
    pub requested_bytes: u64,
    /// The neighbour that ends where this block starts.
    pub before: Slot,
    /// The neighbour that starts where this block ends.
    pub after: Slot,
    /// While free, links of the strategy's structure. The first of a shadow that blocks have left
    /// is its extent.
    pub links: [Slot; 2],
    /// The lane's epoch when the block was last freed (see `order::fence`).
    pub freed_epoch: u32,
    /// The lane's count of allocations, modulo 2^32, when the block was last freed.
    pub freed_tick: u32,
    /// Seconds since the heap's start, when the block was last freed.
    pub freed_second: u32,
    /// First of the streams named by `record_stream` (see `order::recorded`).
    pub recorded: u32,
    /// How many events a pending block still waits for.
    pub outstanding: u32,
    /// The size class of the segment.
    pub class: SizeClass,
    /// What the block is at the moment.
    pub state: State,
    /// While free, the bin of the strategy that it is in (see `strategy::bins`).
    pub bin: u16,
}

impl Block {
    /// What is in a slot that holds no block.
    const VACANT: Self = Self {
        address: 0,
        bytes: 0,
        requested_bytes: 0,
        before: NO_SLOT,
        after: NO_SLOT,
        links: [NO_SLOT; 2],
        freed_epoch: 0,
        freed_tick: 0,
        freed_second: 0,
        recorded: u32::MAX,
        outstanding: 0,
        class: SizeClass::Small,
        state: State::Vacant,
        bin: 0,
    };

    /// Returns true if it is free, and `[address, address + bytes)` lies in it.
    #[inline]
    pub fn is_free_around(&self, address: u64, bytes: u64) -> bool {
        self.state == State::Free
            && self.address <= address
            && address + bytes <= self.address + self.bytes
    }
}

/// One allocation of the driver, or one reservation of address space, while it is in no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte, as the driver returned it.
    pub address: u64,
    /// Size in bytes, as asked of the driver.
    pub bytes: u64,
    /// The size class of its blocks.
    pub class: SizeClass,
}

/// The blocks of one lane.
#[derive(Debug)]
pub struct BlockTable {
    blocks: Vec<Block>,
    vacant: Slot,
    count: usize,
    backed_bytes: u64,
    paused_bytes: u64,
    lane: u32,
    directory: Arc<Directory>,
}

impl BlockTable {
    /// An empty table for the lane of index `lane`; its blocks are listed in `directory`.
    pub fn new(lane: u32, directory: Arc<Directory>) -> Self {
        let (blocks, vacant) = (Vec::new(), NO_SLOT);
        Self { blocks, vacant, count: 0, backed_bytes: 0, paused_bytes: 0, lane, directory }
    }

    /// Returns true if nothing is mapped: all blocks, if any, are unmapped addresses.
    pub fn is_empty(&self) -> bool {
        self.iter().all(|(_, block)| block.state == State::Unmapped)
    }

    /// The sum of all backed blocks, in bytes.
    pub fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    /// The sum of all paused blocks, in bytes.
    pub fn paused_bytes(&self) -> u64 {
        self.paused_bytes
    }

    /// The block in `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> &Block {
        &self.blocks[slot as usize]
    }

    /// The block in `slot`.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Block {
        &mut self.blocks[slot as usize]
    }

    /// The block in `slot` if it starts at `address`; `slot` may be out of date.
    #[inline]
    pub fn find(&self, slot: Slot, address: u64) -> Option<&Block> {
        self.blocks.get(slot as usize).filter(|b| b.state != State::Vacant && b.address == address)
    }

    /// The block in `slot`, which may be out of date.
    pub fn find_slot(&self, slot: Slot) -> Option<&Block> {
        self.blocks.get(slot as usize).filter(|block| block.state != State::Vacant)
    }

    /// The listed block that starts at `address`, if it is in this table.
    pub fn slot_at(&self, address: u64) -> Option<Slot> {
        let entry = self.directory.get(address).filter(|entry| entry.lane == self.lane)?;
        self.find(entry.slot, address).map(|_| entry.slot)
    }

    /// All blocks with their slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Block)> {
        (0..).zip(&self.blocks).filter(|(_, block)| block.state != State::Vacant)
    }

    /// Returns true if the block in `slot` is a whole segment or area.
    #[inline]
    pub fn is_whole_segment(&self, slot: Slot) -> bool {
        let block = self.get(slot);
        block.before == NO_SLOT && block.after == NO_SLOT
    }

    /// Adds a segment as one free block.
    pub fn insert(&mut self, segment: Segment) -> Slot {
        self.backed_bytes += segment.bytes;
        self.insert_as(segment, State::Free)
    }

    /// Adds an area as one block of unmapped addresses.
    pub fn insert_area(&mut self, area: Segment) -> Slot {
        self.insert_as(area, State::Unmapped)
    }

    fn insert_as(&mut self, segment: Segment, state: State) -> Slot {
        let range = segment.address..segment.address + segment.bytes;
        self.directory.expect(&range, segment.class);
        let slot = self.occupy();
        let Segment { address, bytes, class } = segment;
        *self.get_mut(slot) = Block { address, bytes, class, state, ..Block::VACANT };
        slot
    }

    /// Removes a whole segment or area; the slot is vacant afterwards.
    pub fn remove(&mut self, slot: Slot) -> Segment {
        debug_assert!(self.is_whole_segment(slot));
        let Block { address, bytes, class, state, .. } = *self.get(slot);
        if state.is_backed() {
            self.backed_bytes -= bytes;
        }
        self.vacate(slot);
        self.directory.forget(address..address + bytes, class);
        Segment { address, bytes, class }
    }

    /// Changes the state of the block in `slot`, which may make it backed or no longer backed.
    pub fn turn(&mut self, slot: Slot, state: State) {
        let block = &mut self.blocks[slot as usize];
        let before = std::mem::replace(&mut block.state, state);
        match (before.is_backed(), state.is_backed()) {
            (false, true) => self.backed_bytes += block.bytes,
            (true, false) => self.backed_bytes -= block.bytes,
            _ => {}
        }
        match (before == State::Paused, state == State::Paused) {
            (false, true) => self.paused_bytes += block.bytes,
            (true, false) => self.paused_bytes -= block.bytes,
            _ => {}
        }
    }

    /// Makes the block in `slot` a shadow, left by the blocks of an extent or new.
    pub fn turn_into_shadow(&mut self, slot: Slot, left: Option<ExtentId>) {
        self.turn(slot, State::Shadow);
        self.get_mut(slot).links = [left.unwrap_or(NO_SLOT), NO_SLOT];
        self.list(slot);
    }

    /// Cuts the block in `slot` after `bytes`; returns the slot of the rest, which is in the
    /// same state.
    #[inline(always)]
    pub fn split(&mut self, slot: Slot, bytes: u64) -> Slot {
        let rest_slot = self.occupy();
        let whole = self.get_mut(slot);
        debug_assert!(bytes > 0 && bytes < whole.bytes && bytes.is_multiple_of(ALIGNMENT_BYTES));
        let Block { address, after, freed_epoch, freed_tick, freed_second, class, state, .. } =
            *whole;
        let rest_bytes = whole.bytes - bytes;
        whole.bytes = bytes;
        whole.after = rest_slot;
        // Field by field: a block made elsewhere and copied here would be read, in wider pieces, before
        // it has been written, which stalls the processor.
        let rest = self.get_mut(rest_slot);
        rest.address = address + bytes;
        rest.bytes = rest_bytes;
        rest.requested_bytes = 0;
        rest.before = slot;
        rest.after = after;
        rest.freed_epoch = freed_epoch;
        rest.freed_tick = freed_tick;
        rest.freed_second = freed_second;
        rest.recorded = u32::MAX;
        rest.outstanding = 0;
        rest.class = class;
        rest.state = state;
        if after != NO_SLOT {
            self.get_mut(after).before = rest_slot;
        }
        rest_slot
    }

    /// Lists the block in `slot` in the directory.
    pub fn list(&mut self, slot: Slot) {
        let Block { address, class, .. } = *self.get(slot);
        self.list_at(address, class, slot);
    }

    /// [`Self::list`] of a block of `class` at `address`.
    #[inline(always)]
    pub fn list_at(&mut self, address: u64, class: SizeClass, slot: Slot) {
        self.directory.set(address, class, Entry { lane: self.lane, slot });
    }

    /// Joins the block in `slot` with the one after it, whose slot becomes vacant. The joined
    /// block counts as freed at the later of the two times.
    #[inline]
    pub fn merge_with_after(&mut self, slot: Slot) {
        let absorbed_slot = self.get(slot).after;
        let Block { bytes, requested_bytes, after, freed_epoch, freed_tick, freed_second, .. } =
            *self.get(absorbed_slot);
        self.vacate(absorbed_slot);
        let block = self.get_mut(slot);
        block.bytes += bytes;
        block.after = after;
        block.freed_epoch = block.freed_epoch.max(freed_epoch);
        block.freed_second = block.freed_second.max(freed_second);
        if freed_tick.wrapping_sub(block.freed_tick) as i32 > 0 {
            block.freed_tick = freed_tick;
            block.requested_bytes = requested_bytes;
        }
        if after != NO_SLOT {
            self.get_mut(after).before = slot;
        }
    }

    /// A vacant slot for a new block, which the caller fills in.
    #[inline(always)]
    fn occupy(&mut self) -> Slot {
        self.count += 1;
        if self.vacant == NO_SLOT {
            return self.add_slot();
        }
        let slot = self.vacant;
        self.vacant = self.get(slot).links[0];
        slot
    }

    #[cold]
    fn add_slot(&mut self) -> Slot {
        self.blocks.push(Block::VACANT);
        self.blocks.len() as Slot - 1
    }

    #[inline]
    fn vacate(&mut self, slot: Slot) {
        let vacant = self.vacant;
        let block = self.get_mut(slot);
        block.state = State::Vacant;
        block.links[0] = vacant;
        self.vacant = slot;
        self.count -= 1;
    }

    /// Checks every invariant of the module's note; the error names the one that is broken.
    pub fn validate(&self) -> Result<(), String> {
        let mut count = 0;
        let (mut bytes, mut paused_bytes) = (0, 0);
        for (slot, block) in self.iter() {
            count += 1;
            bytes += if block.state.is_backed() { block.bytes } else { 0 };
            paused_bytes += if block.state == State::Paused { block.bytes } else { 0 };
            let entry = Entry { lane: self.lane, slot };
            let is_found = self.directory.get(block.address) == Some(entry);
            let is_listed =
                matches!(block.state, State::Live | State::Pending | State::Shadow | State::Paused);
            if is_listed && !is_found {
                return Err(format!("block {slot} is not in the directory"));
            }
            let is_cut = block.before != NO_SLOT || block.after != NO_SLOT;
            let aligned = if is_cut { block.address | block.bytes } else { block.address };
            if block.bytes == 0 || aligned % ALIGNMENT_BYTES != 0 {
                return Err(format!("block {slot} is empty or misaligned: {block:?}"));
            }
            if block.after != NO_SLOT {
                let after = self.get(block.after);
                if after.state == State::Vacant
                    || after.before != slot
                    || after.address != block.address + block.bytes
                    || after.class != block.class
                {
                    return Err(format!("blocks {slot} and {} are no neighbours", block.after));
                }
            }
            if block.before != NO_SLOT && self.get(block.before).after != slot {
                return Err(format!("block {slot} is not after block {}", block.before));
            }
        }
        if count != self.count || bytes != self.backed_bytes {
            return Err(format!(
                "{count} blocks of {bytes} bytes counted, {} of {} recorded",
                self.count, self.backed_bytes
            ));
        }
        if paused_bytes != self.paused_bytes {
            return Err(format!("{paused_bytes} bytes paused, {} recorded", self.paused_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
