//! A lane's *areas*: reservations of addresses, into which extents are mapped.
//!
//! The blocks of an area lie side by side (`memory::blocks`). Some have memory; others are *bare*
//! (unmapped), *claimed* (set aside for mapping) or *shadows* (views that their extent has left).
//! These functions change the states, under the lane's lock; they never call the driver.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::ops::Range;

use super::super::lane::{Lane, LaneState};
use crate::base::lock::{Guard, rank};
use crate::base::size::SizeClass;
use crate::memory::{
    Block, Edge, Extent, ExtentId, ExtentTable, Ledger, NO_SLOT, Segment, Slot, State, View,
};

/// An extent that is mapped at new addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laid {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    /// The lane's epoch (see `order::fence`) in which its bytes count as freed.
    pub(super) epoch: u32,
    /// What of it is to be used here, if it keeps its home, and the block that stands for it there.
    pub(super) edge: Option<(Edge, Slot)>,
}

/// An extent that is to leave its home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) id: ExtentId,
    pub(super) bytes: u64,
    /// Where its home begins.
    pub(super) address: u64,
    /// The free block around it.
    pub(super) slot: Slot,
    /// The lane's epoch (see `order::fence`) in which its bytes were freed.
    pub(super) epoch: u32,
    /// The view that is to be its home, if it is to be recalled.
    pub(super) to: Option<Shadow>,
}

/// A view that an extent has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    pub(super) address: u64,
    /// The block that stands for it, if it is known; it may be out of date.
    pub(super) slot: Slot,
}

/// An extent that comes home to a shadow of it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Coming {
    pub(in super::super) id: ExtentId,
    /// Where the shadow begins.
    pub(in super::super) address: u64,
    /// The shadow.
    pub(in super::super) slot: Slot,
    /// The lane's epoch (see `order::fence`) in which its bytes count as freed.
    pub(in super::super) epoch: u32,
}

/// The free blocks of a lane as they are now, to find those around many extents.
#[derive(Debug)]
pub(super) struct FreeBlocks<'a> {
    state: &'a LaneState,
    least_bytes: u64,
    /// Those outside of the wilderness, by address, listed once one is looked for.
    rest: OnceCell<Vec<(Range<u64>, Slot)>>,
    /// The one to be looked at first, which may be out of date: that which was found last, because the next
    /// extent mostly lies beside the last.
    last: Cell<Slot>,
}

/// The device's table of extents, locked.
type Table<'a> = Guard<'a, ExtentTable, { rank::DEVICE }>;

/// The device's table of extents, locked, and its ledger: both change with the lanes.
pub(in super::super) struct Books<'a> {
    pub(in super::super) table: Table<'a>,
    pub(in super::super) ledger: &'a Ledger,
}

impl LaneState {
    /// Claims `[address, address + bytes)` for memory that will be mapped, if it is bare.
    pub(super) fn claim_at(&mut self, class: SizeClass, address: u64, bytes: u64) -> Option<Slot> {
        let covers = |block: &Block| {
            block.address <= address && address + bytes <= block.address + block.bytes
        };
        let mut bare = self.bare(class);
        let slot = bare.find(|&(_, block)| covers(block)).map(|(slot, _)| slot)?;
        drop(bare);
        Some(self.claim_part(slot, address, bytes))
    }

    /// Claims `bytes` of bare addresses: the smallest place that is large enough.
    pub(super) fn claim(&mut self, class: SizeClass, bytes: u64) -> Option<(Slot, u64)> {
        let (slot, address) = self.bare_place(class, bytes)?;
        Some((self.claim_part(slot, address, bytes), address))
    }

    /// The smallest place of at least `bytes` bare addresses.
    pub(super) fn bare_place(&self, class: SizeClass, bytes: u64) -> Option<(Slot, u64)> {
        let fitting = self.bare(class).filter(|(_, block)| block.bytes >= bytes);
        let smallest = fitting.min_by_key(|(_, block)| (block.bytes, block.address));
        smallest.map(|(slot, block)| (slot, block.address))
    }

    /// Claims a part of the bare addresses in `slot`.
    fn claim_part(&mut self, slot: Slot, address: u64, bytes: u64) -> Slot {
        let before_bytes = address - self.blocks.get(slot).address;
        let claimed = if before_bytes > 0 { self.blocks.split(slot, before_bytes) } else { slot };
        if self.blocks.get(claimed).bytes > bytes {
            self.blocks.split(claimed, bytes);
        }
        self.blocks.turn(claimed, State::Claimed);
        claimed
    }

    /// Returns true if there are `bytes` bare addresses side by side.
    pub(super) fn has_bare(&self, class: SizeClass, bytes: u64) -> bool {
        self.bare(class).any(|(_, block)| block.bytes >= bytes)
    }

    /// The bare addresses in the areas for blocks of `class`.
    fn bare(&self, class: SizeClass) -> impl Iterator<Item = (Slot, &Block)> {
        let of_class = self.areas.iter().filter(move |&&h| self.blocks.get(h).class == class);
        let blocks = of_class.flat_map(|&head| {
            let present = |slot: Slot| (slot != NO_SLOT).then(|| (slot, self.blocks.get(slot)));
            std::iter::successors(present(head), move |(_, block)| present(block.after))
        });
        blocks.filter(|(_, block)| block.state == State::Unmapped)
    }

    /// The sum of all areas for blocks of `class`, in bytes.
    pub(super) fn area_bytes(&self, class: SizeClass) -> u64 {
        let blocks = self.blocks.iter().filter(|(_, block)| block.class == class);
        blocks.map(|(_, block)| block.bytes).sum()
    }

    /// Adds a reservation, as bare addresses.
    pub(super) fn add_area(&mut self, area: Segment) {
        // A block keeps its slot when one behind it is joined to it or cut off: the first block of
        // an area always has this slot.
        let head = self.blocks.insert_area(area);
        self.areas.push(head);
    }

    /// Removes and returns the areas in which nothing is mapped.
    pub(super) fn remove_bare_areas(&mut self) -> Vec<Segment> {
        let is_bare = |&head: &Slot| {
            self.blocks.is_whole_segment(head) && self.blocks.get(head).state == State::Unmapped
        };
        let (bare, used): (Vec<Slot>, Vec<Slot>) =
            self.areas.iter().partition(|&head| is_bare(head));
        self.areas = used;
        bare.into_iter().map(|head| self.blocks.remove(head)).collect()
    }

    /// Nothing is mapped at the addresses in `slot`: makes them bare and joins bare neighbours.
    pub(in super::super) fn make_bare(&mut self, slot: Slot) {
        self.blocks.turn(slot, State::Unmapped);
        let Block { before, after, .. } = *self.blocks.get(slot);
        if after != NO_SLOT && self.blocks.get(after).state == State::Unmapped {
            self.blocks.merge_with_after(slot);
        }
        if before != NO_SLOT && self.blocks.get(before).state == State::Unmapped {
            self.blocks.merge_with_after(before);
        }
    }

    /// The block that starts at `address`, if it is in `state`.
    pub(in super::super) fn block_at(&self, address: u64, state: State) -> Option<Slot> {
        let slot = self.blocks.slot_at(address)?;
        (self.blocks.get(slot).state == state).then_some(slot)
    }

    /// The shadows, with their extents, that overlap `range`. Linear in the number of blocks.
    pub(super) fn shadows_in(
        &self,
        extents: &ExtentTable,
        range: Range<u64>,
    ) -> Vec<(ExtentId, View)> {
        let overlaps = |block: &Block| {
            block.state == State::Shadow
                && block.address < range.end
                && block.address + block.bytes > range.start
        };
        let shadows = self.blocks.iter().filter(|(_, block)| overlaps(block));
        let view = |(_, block): (Slot, &Block)| {
            let id = extents.at(block.address)?;
            let mut views = extents.get(id)?.shadows.iter();
            views.find(|view| view.address == block.address).map(|&view| (id, view))
        };
        shadows.filter_map(view).collect()
    }

    /// The shadow of the extent `id` at `address`, if it is there.
    pub(in super::super) fn shadow_of(
        &self,
        extents: &ExtentTable,
        id: ExtentId,
        address: u64,
    ) -> Option<Slot> {
        let mut shadows = extents.get(id)?.shadows.iter();
        let is_there = shadows.any(|shadow| shadow.address == address);
        self.block_at(address, State::Shadow).filter(|_| is_there)
    }

    /// Returns true if the view of `extent` at `address` is made up of backed blocks, and of the part
    /// `lent` if there is one. Linear in the number of blocks.
    pub(super) fn has_blocks(&self, address: u64, extent: &Extent, lent: Option<Edge>) -> bool {
        let lent = lent.unwrap_or(Edge { start: 0, end: 0 });
        let lent = address + lent.start..address + lent.end;
        let end = address + extent.bytes;
        let inside = self
            .blocks
            .iter()
            .filter(|(_, block)| block.address < end && block.address + block.bytes > address);
        let common =
            |block: &Block| (block.address + block.bytes).min(end) - block.address.max(address);
        let mut bytes = 0;
        for (_, block) in inside {
            let is_lent =
                block.state == State::Lent && (block.address..block.address + block.bytes) == lent;
            if !is_lent && !block.state.is_backed() || block.class != extent.class {
                return false;
            }
            bytes += common(block);
        }
        bytes == extent.bytes
    }

    /// The free block that `[address, address + bytes)` lies in; probably the one in `slot`.
    pub(super) fn free_block_around(&self, address: u64, bytes: u64, slot: Slot) -> Option<Slot> {
        let free = FreeBlocks { last: Cell::new(slot), ..self.free_blocks(bytes) };
        free.around(address, bytes)
    }

    /// The free blocks of at least `least_bytes`.
    pub(super) fn free_blocks(&self, least_bytes: u64) -> FreeBlocks<'_> {
        FreeBlocks { state: self, least_bytes, rest: OnceCell::new(), last: Cell::new(NO_SLOT) }
    }

    /// Takes `[address, address + bytes)` out of the free block in `slot`: it is in no list any more.
    pub(super) fn take_out(&mut self, slot: Slot, address: u64, bytes: u64) -> Slot {
        let (strategy, blocks) = (&mut self.strategy, &mut self.blocks);
        strategy.withdraw(blocks, slot);
        let Block { address: start, bytes: free_bytes, .. } = *blocks.get(slot);
        let head_bytes = address - start;
        let taken = if head_bytes > 0 { blocks.split(slot, head_bytes) } else { slot };
        let rest = (free_bytes > head_bytes + bytes).then(|| blocks.split(taken, bytes));
        // No longer free, or its neighbours would be joined with it.
        blocks.turn(taken, State::Live);
        for part in rest.into_iter().chain((head_bytes > 0).then_some(slot)) {
            strategy.give(blocks, part);
        }
        taken
    }

    /// Calls `visit` with every extent whose bytes are all free: slot of the free block around
    /// it, address, extent.
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

impl FreeBlocks<'_> {
    /// The block that `[address, address + bytes)` lies in.
    pub(super) fn around(&self, address: u64, bytes: u64) -> Option<Slot> {
        let LaneState { strategy, blocks, .. } = self.state;
        let last = self.last.get();
        if blocks.find_slot(last).is_some_and(|block| block.is_free_around(address, bytes)) {
            return Some(last);
        }
        let found = strategy.wild_around(blocks, address, bytes).or_else(|| {
            let rest = self.rest.get_or_init(|| self.list_rest());
            let after = rest.partition_point(|(range, _)| range.start <= address);
            let (range, slot) = rest.get(after.checked_sub(1)?)?;
            (address + bytes <= range.end).then_some(*slot)
        });
        self.last.set(found.unwrap_or(last));
        found
    }

    fn list_rest(&self) -> Vec<(Range<u64>, Slot)> {
        let LaneState { strategy, blocks, .. } = self.state;
        let mut rest = Vec::new();
        strategy.visit_rest(blocks, &(self.least_bytes..=u64::MAX), &mut |slot, block| {
            rest.push((block.address..block.address + block.bytes, slot));
        });
        rest.sort_unstable_by_key(|(range, _)| range.start);
        rest
    }
}

impl Lane {
    /// Takes extents out of the free blocks around them: their views become shadows. Sorts `leaving`.
    /// The table, which all lanes share, is let go before the blocks change.
    pub(super) fn detach(
        &self,
        state: &mut LaneState,
        mut extents: Table<'_>,
        leaving: &mut [Leaving],
    ) {
        leaving.iter().for_each(|leaving| extents.leave_home(leaving.id, leaving.epoch));
        drop(extents);
        self.cut_out(state, leaving);
    }

    /// [`Self::detach`], without what the table has of it.
    pub(super) fn cut_out(&self, state: &mut LaneState, leaving: &mut [Leaving]) {
        // What is left of a block before an extent keeps the block's slot: the last goes first.
        leaving.sort_unstable_by_key(|leaving| Reverse(leaving.address));
        let LaneState { blocks, strategy, .. } = state;
        for of_block in leaving.chunk_by(|one, other| one.slot == other.slot) {
            let slot = of_block[0].slot;
            strategy.withdraw(blocks, slot);
            let mut is_left = true;
            for &Leaving { id, bytes, address, .. } in of_block {
                let Block { address: start, bytes: left_bytes, .. } = *blocks.get(slot);
                let head_bytes = address - start;
                is_left = head_bytes > 0;
                let middle = if is_left { blocks.split(slot, head_bytes) } else { slot };
                let has_rest = left_bytes > head_bytes + bytes;
                let rest = has_rest.then(|| blocks.split(middle, bytes));
                blocks.turn_into_shadow(middle, Some(id));
                if let Some(rest) = rest {
                    strategy.give(blocks, rest);
                }
            }
            if is_left {
                strategy.give(blocks, slot);
            }
        }
        self.count_held(blocks);
    }

    /// Shadows become the homes of their extents, and free blocks: those side by side are one block.
    /// The lowest comes last, so small blocks are taken from it first. Sorts `coming`. The table, which
    /// all lanes share, is let go before the blocks change.
    pub(in super::super) fn adopt(
        &self,
        state: &mut LaneState,
        mut books: Books<'_>,
        coming: &mut [Coming],
    ) {
        for &Coming { id, address, slot, .. } in &*coming {
            let block = state.blocks.get(slot);
            let before = books.table.come_home(id, address, block.class);
            books.ledger.reclassify(block.bytes, before, block.class);
        }
        drop(books);
        self.put_in(state, coming);
    }

    /// [`Self::adopt`], without what the books have of it.
    pub(super) fn put_in(&self, state: &mut LaneState, coming: &mut [Coming]) {
        coming.sort_unstable_by_key(|coming| Reverse(coming.address));
        let LaneState { blocks, strategy, .. } = state;
        let mut joined = NO_SLOT;
        for &Coming { slot, epoch, .. } in &*coming {
            blocks.turn(slot, State::Free);
            blocks.get_mut(slot).freed_epoch = epoch;
            if joined != NO_SLOT && blocks.get(slot).after == joined {
                blocks.merge_with_after(slot);
            } else if joined != NO_SLOT {
                strategy.give(blocks, joined);
            }
            joined = slot;
        }
        if joined != NO_SLOT {
            strategy.give(blocks, joined);
        }
        self.count_held(blocks);
    }

    /// Ends a claim: views of `laid` now lie side by side at the claimed addresses from `slot`. Each
    /// becomes a home if accessible, or, of a part of an extent, where that is used; where a view is
    /// missing the addresses are bare again.
    pub(super) fn settle_claim(
        &self,
        state: &mut LaneState,
        mut books: Books<'_>,
        laid: &[Laid],
        slot: Slot,
        is_accessible: bool,
    ) {
        let mut rest = Some(slot);
        let mut coming = Vec::with_capacity(laid.len());
        for &Laid { id, bytes, epoch, edge } in laid {
            let Some(part) = rest else { break };
            let Block { address, bytes: claimed_bytes, .. } = *state.blocks.get(part);
            rest = (claimed_bytes > bytes).then(|| state.blocks.split(part, bytes));
            match books.table.at(address) {
                Some(mapped) if mapped == id => {
                    state.blocks.turn_into_shadow(part, None);
                    state.blocks.get_mut(part).freed_tick = state.tick;
                    match edge {
                        None if is_accessible => {
                            coming.push(Coming { id, address, slot: part, epoch });
                        }
                        Some(lent) if is_accessible => {
                            books.table.lend(id, address, lent);
                            state.take_in_edge(part, lent.0, epoch);
                        }
                        None | Some(_) => {}
                    }
                }
                _ => state.make_bare(part),
            }
        }
        if let Some(rest) = rest {
            state.make_bare(rest);
        }
        self.adopt(state, books, &mut coming);
    }
}
