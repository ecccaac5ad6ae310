//! A lane's areas: where in its address space memory comes and goes.
//!
//! An area is a reservation. Its blocks lie side by side, backed or not (`memory::blocks`);
//! these functions change which are. All run under the lane's lock and ask nothing of the
//! driver.

use std::cmp::Reverse;

use super::super::lane::{Lane, LaneState};
use crate::base::lock::{Guard, rank};
use crate::base::size::SizeClass;
use crate::memory::{Block, ExtentId, ExtentTable, Ledger, NO_SLOT, Segment, Slot, State};

/// Where memory for a request would best go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Start of the free block that the new memory would continue, if there is one.
    pub(super) continued: Option<u64>,
    /// How much memory is needed there, in bytes.
    pub(super) missing_bytes: u64,
    /// How many bare addresses there are, in bytes; less than is missing: nowhere enough.
    pub(super) room_bytes: u64,
}

/// An extent to be laid at new addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laid {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    /// The epoch of the lane in which its bytes count as freed.
    pub(super) epoch: u32,
}

/// An extent that is to leave its home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) id: ExtentId,
    /// Where its home begins.
    pub(super) address: u64,
    /// The free block around it.
    pub(super) slot: Slot,
}

/// What the device knows of extents and of memory, while lanes change both.
pub(in super::super) struct Books<'a> {
    pub(in super::super) table: Guard<'a, ExtentTable, { rank::DEVICE }>,
    pub(in super::super) ledger: &'a Ledger,
}

impl LaneState {
    /// Where the least memory would be needed for a block of `block_bytes`; the smallest such
    /// place, so that large ones stay.
    pub(super) fn find_site(&self, class: SizeClass, block_bytes: u64, granule: u64) -> Site {
        let afresh_bytes = block_bytes.next_multiple_of(granule);
        let mut best = Site { continued: None, missing_bytes: afresh_bytes, room_bytes: 0 };
        for bare in self.bare.iter().map(|&slot| self.blocks.get(slot)) {
            if bare.class != class {
                continue;
            }
            let before = (bare.before != NO_SLOT).then(|| self.blocks.get(bare.before));
            let continued = before.filter(|before| before.state == State::Free);
            let held_bytes = continued.map_or(0, |before| before.bytes.min(block_bytes));
            let missing_bytes = (block_bytes - held_bytes).next_multiple_of(granule);
            let better = (missing_bytes, bare.bytes) < (best.missing_bytes, best.room_bytes)
                || best.room_bytes == 0 && missing_bytes == best.missing_bytes;
            if bare.bytes >= missing_bytes && better {
                let continued = continued.map(|before| before.address);
                best = Site { continued, missing_bytes, room_bytes: bare.bytes };
            }
        }
        best
    }

    /// Sets `bytes` of bare addresses aside for memory on its way: behind the free block that
    /// starts at `continued` if they are there, else the smallest place that will do.
    pub(super) fn claim(
        &mut self,
        class: SizeClass,
        continued: Option<u64>,
        bytes: u64,
    ) -> Option<(Slot, u64)> {
        let mut found: Option<(Slot, u64)> = None;
        for &slot in &self.bare {
            let bare = self.blocks.get(slot);
            if bare.class != class || bare.bytes < bytes {
                continue;
            }
            if bare.before != NO_SLOT && Some(self.blocks.get(bare.before).address) == continued {
                found = Some((slot, bare.bytes));
                break;
            }
            if found.is_none_or(|(_, least)| bare.bytes < least) {
                found = Some((slot, bare.bytes));
            }
        }
        let (slot, room_bytes) = found?;
        self.bare.retain(|&other| other != slot);
        if room_bytes > bytes {
            let rest = self.blocks.split(slot, bytes);
            self.bare.push(rest);
        }
        self.blocks.turn(slot, State::Claimed);
        Some((slot, self.blocks.get(slot).address))
    }

    /// Whether there is a place of `bytes` bare addresses.
    pub(super) fn has_bare(&self, class: SizeClass, bytes: u64) -> bool {
        let mut bare = self.bare.iter().map(|&slot| self.blocks.get(slot));
        bare.any(|bare| bare.class == class && bare.bytes >= bytes)
    }

    /// All areas for blocks of `class` together, in bytes.
    pub(super) fn area_bytes(&self, class: SizeClass) -> u64 {
        let blocks = self.blocks.iter().filter(|(_, block)| block.class == class);
        blocks.map(|(_, block)| block.bytes).sum()
    }

    /// Takes in a reservation as bare addresses.
    pub(super) fn add_area(&mut self, area: Segment) {
        let slot = self.blocks.insert_area(area);
        self.bare.push(slot);
    }

    /// Takes out the areas with nothing mapped in them, to be given back.
    pub(super) fn remove_bare_areas(&mut self) -> Vec<Segment> {
        let mut bare = Vec::new();
        self.bare.retain(|&slot| {
            let is_area = self.blocks.is_whole_segment(slot);
            if is_area {
                bare.push(slot);
            }
            !is_area
        });
        bare.into_iter().map(|slot| self.blocks.remove(slot)).collect()
    }

    /// The claimed addresses in `slot` have nothing mapped: bare again, joined with others.
    pub(in super::super) fn make_bare(&mut self, slot: Slot) {
        self.blocks.turn(slot, State::Unmapped);
        let Block { before, after, .. } = *self.blocks.get(slot);
        if after != NO_SLOT && self.blocks.get(after).state == State::Unmapped {
            self.bare.retain(|&other| other != after);
            self.blocks.merge_with_after(slot);
        }
        if before != NO_SLOT && self.blocks.get(before).state == State::Unmapped {
            self.blocks.merge_with_after(before);
        } else {
            self.bare.push(slot);
        }
    }

    /// The block that starts at `address` if it is in `state`.
    pub(in super::super) fn block_at(&self, address: u64, state: State) -> Option<Slot> {
        let slot = self.blocks.slot_at(address)?;
        (self.blocks.get(slot).state == state).then_some(slot)
    }

    /// The shadow of the extent `id` at `address`, if it is there.
    pub(in super::super) fn shadow_of(
        &self,
        extents: &ExtentTable,
        id: ExtentId,
        address: u64,
    ) -> Option<Slot> {
        let is_there = extents.at(address) == Some(id);
        self.block_at(address, State::Shadow).filter(|_| is_there)
    }

    /// Whether `[address, end)` is made up of backed blocks of `class`. Linear in the number
    /// of blocks.
    pub(super) fn is_backed(&self, address: u64, end: u64, class: SizeClass) -> bool {
        let inside = self
            .blocks
            .iter()
            .filter(|(_, block)| block.address < end && block.address + block.bytes > address);
        let common =
            |block: &Block| (block.address + block.bytes).min(end) - block.address.max(address);
        let mut bytes = 0;
        for (_, block) in inside {
            if !block.state.is_backed() || block.class != class {
                return false;
            }
            bytes += common(block);
        }
        bytes == end - address
    }

    /// The free block that `[address, address + bytes)` lies in.
    pub(super) fn free_block_around(&self, address: u64, bytes: u64) -> Option<Slot> {
        let mut found = None;
        self.strategy.visit(&self.blocks, &(bytes..=u64::MAX), &mut |slot, block| {
            if block.address <= address && address + bytes <= block.address + block.bytes {
                found = Some(slot);
            }
        });
        found
    }

    /// Shows `visit` every extent whose bytes are all free, with the slot of the block they lie
    /// in.
    pub(in super::super) fn visit_free_extents(
        &self,
        extents: &ExtentTable,
        granule: u64,
        mut visit: impl FnMut(Slot, u64, ExtentId),
    ) {
        let mut visit_block = |slot, block: &Block| {
            for (address, id) in extents.within(block.address..block.address + block.bytes) {
                visit(slot, address, id);
            }
        };
        self.strategy.visit(&self.blocks, &(granule..=u64::MAX), &mut visit_block);
    }
}

impl Lane {
    /// The free bytes of an extent at `address`, in the free block in `slot`, leave for another
    /// place: a shadow stays. Gives the epoch they were freed in. What is left of the block
    /// before `address` keeps the slot, so several extents of a block can leave from its end on.
    pub(super) fn detach(
        &self,
        state: &mut LaneState,
        extents: &mut ExtentTable,
        leaving: Leaving,
    ) -> u32 {
        let Leaving { id, address, slot } = leaving;
        let bytes = extents.get(id).map_or(0, |extent| extent.bytes);
        let LaneState { blocks, strategy, .. } = state;
        strategy.withdraw(blocks, slot);
        let Block { address: start, bytes: free_bytes, freed_epoch, .. } = *blocks.get(slot);
        let head_bytes = address - start;
        let middle = if head_bytes > 0 { blocks.split(slot, head_bytes) } else { slot };
        let rest = (free_bytes > head_bytes + bytes).then(|| blocks.split(middle, bytes));
        blocks.turn(middle, State::Shadow);
        blocks.list(middle);
        for part in rest.into_iter().chain((head_bytes > 0).then_some(slot)) {
            strategy.give(blocks, part);
        }
        extents.leave_home(id, freed_epoch);
        self.count_held(blocks);
        freed_epoch
    }

    /// Several extents leave at once: see [`Self::detach`]. Gives the epochs, in the order in
    /// which `leaving` is afterwards.
    pub(super) fn detach_all(
        &self,
        state: &mut LaneState,
        extents: &mut ExtentTable,
        leaving: &mut [Leaving],
    ) -> Vec<u32> {
        leaving.sort_unstable_by_key(|leaving| (leaving.slot, Reverse(leaving.address)));
        leaving.iter().map(|&leaving| self.detach(state, extents, leaving)).collect()
    }

    /// The shadow in `slot` becomes the home of its extent, and a free block: one that counts
    /// as freed in `epoch`.
    pub(in super::super) fn adopt(
        &self,
        state: &mut LaneState,
        books: &mut Books<'_>,
        id: ExtentId,
        slot: Slot,
        epoch: u32,
    ) {
        let LaneState { blocks, strategy, .. } = state;
        blocks.turn(slot, State::Free);
        let block = blocks.get_mut(slot);
        block.freed_epoch = epoch;
        let before = books.table.come_home(id, block.address, block.class);
        books.ledger.reclassify(block.bytes, before, block.class);
        strategy.give(blocks, slot);
        self.count_held(blocks);
    }

    /// The claimed addresses from `slot` on carry views of `laid` now, side by side: each is
    /// made a home if it can be accessed. Where a view is missing the addresses are bare again.
    pub(super) fn settle_claim(
        &self,
        state: &mut LaneState,
        books: &mut Books<'_>,
        laid: &[Laid],
        slot: Slot,
        is_accessible: bool,
    ) {
        let mut rest = Some(slot);
        for &Laid { id, bytes, epoch } in laid {
            let Some(part) = rest else { break };
            let Block { address, bytes: claimed_bytes, .. } = *state.blocks.get(part);
            rest = (claimed_bytes > bytes).then(|| state.blocks.split(part, bytes));
            match books.table.at(address) {
                Some(mapped) if mapped == id => {
                    state.blocks.turn(part, State::Shadow);
                    state.blocks.list(part);
                    state.blocks.get_mut(part).freed_tick = state.tick;
                    if is_accessible {
                        self.adopt(state, books, id, part, epoch);
                    }
                }
                _ => state.make_bare(part),
            }
        }
        if let Some(rest) = rest {
            state.make_bare(rest);
        }
    }
}
