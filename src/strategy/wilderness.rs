//! Best fit that takes the *wilderness* last, from its start.
//!
//! The wilderness are the free blocks behind which there is no memory: bare addresses, or views of
//! extents that are elsewhere. It can be made larger, so its size says nothing (Korn and Vo, "In Search
//! of a Better Malloc", 1985). While a program grows it is small, and would often be the best fit; in
//! the next cycle all that memory is there, and it is the largest. Taken last, it serves the same
//! requests each time.
//!
//! Where memory is packed (`heap::moves`) nobody waits for views to come back. A free block before one is a
//! hole there, like all others.
//!
//! ```text
//! a block with the bin WILD    is in the wilderness, by address     (FirstFit)
//! every other                  is among the rest, by size           (BestFit)
//! ```
//!
//! What a block is, is decided when it comes here. While it stays, that hardly changes: memory that
//! comes behind a free block is joined with it.

use std::ops::RangeInclusive;

use super::best_fit::BestFit;
use super::first_fit::FirstFit;
use super::joined::FreeList;
use crate::base::left_out::LeftOut;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The bin of the blocks in the wilderness, which is none of [`super::bins`].
const WILD: u16 = u16::MAX;

/// Whether the wilderness is like other blocks, to measure what it is worth that it is not.
static LIKE_OTHERS: LeftOut = LeftOut::none();

/// From now on, the wilderness is like other blocks for every heap of the process, or not.
#[cfg(feature = "ablations")]
pub fn forget_wilderness(is_forgotten: bool) {
    LIKE_OTHERS.set(is_forgotten.then_some(0));
}

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct WildernessLast {
    rest: BestFit,
    wilderness: FirstFit,
    /// The states of what may stand behind the wilderness, a bit for each: branches on them would often be
    /// mispredicted.
    may_grow: u16,
}

/// Bare addresses; views that blocks have left, if their memory comes back to them.
const fn may_grow(do_views_return: bool) -> u16 {
    let views = if do_views_return { State::Shadow.bit() } else { 0 };
    State::Unmapped.bit() | State::Claimed.bit() | views
}

impl WildernessLast {
    /// See [`super::Strategy::expect_views`].
    pub(super) fn expect_views(&mut self, do_return: bool) {
        self.may_grow = may_grow(do_return);
    }

    /// The block of the wilderness that `[address, address + bytes)` lies in.
    pub(super) fn wild_around(
        &self,
        blocks: &BlockTable,
        address: u64,
        bytes: u64,
    ) -> Option<Slot> {
        self.wilderness.around(blocks, address, bytes)
    }

    /// [`FreeList::visit`] of those outside of the wilderness.
    pub(super) fn visit_rest(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.rest.visit(blocks, bytes, visit);
    }

    /// Returns true if the block in `slot`, which comes here, is in the wilderness.
    #[inline(always)]
    fn is_wild(&self, blocks: &BlockTable, slot: Slot) -> bool {
        let after = blocks.get(slot).after;
        after != NO_SLOT && blocks.get(after).state.bit() & self.may_grow != 0 && !LIKE_OTHERS.is(0)
    }
}

impl FreeList for WildernessLast {
    fn new() -> Self {
        Self { rest: BestFit::new(), wilderness: FirstFit::new(), may_grow: may_grow(true) }
    }

    /// The smallest block of at least `bytes` outside of the wilderness, or else the lowest in it.
    #[inline(always)]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        self.rest.find(blocks, bytes).or_else(|| self.wilderness.find(blocks, bytes))
    }

    #[inline(always)]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        if self.is_wild(blocks, slot) {
            blocks.get_mut(slot).bin = WILD;
            self.wilderness.insert(blocks, slot);
        } else {
            self.rest.insert(blocks, slot);
        }
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        if blocks.get(slot).bin == WILD {
            self.wilderness.remove(blocks, slot);
        } else {
            self.rest.remove(blocks, slot);
        }
    }

    /// Cut at its start, or joined with what was freed before it, the wilderness stays one.
    #[inline(always)]
    fn keeps_place(&self, blocks: &BlockTable, slot: Slot) -> bool {
        blocks.get(slot).bin == WILD
    }

    #[inline(always)]
    fn replace(&mut self, blocks: &mut BlockTable, was: (Slot, u64), by: Slot) {
        self.wilderness.replace(blocks, was, by);
        blocks.get_mut(by).bin = WILD;
        if !self.is_wild(blocks, by) {
            // New memory has filled the bare addresses behind it.
            self.remove(blocks, by);
            self.insert(blocks, by);
        }
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.rest.visit(blocks, bytes, visit);
        self.wilderness.visit(blocks, bytes, visit);
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.rest.largest_bytes(blocks).max(self.wilderness.largest_bytes(blocks))
    }

    /// Checks both parts, and that each block is in the right one.
    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut wrong = None;
        let all = &(0..=u64::MAX);
        self.rest.visit(blocks, all, &mut |slot, block| {
            wrong = wrong.or((block.bin == WILD).then_some(slot));
        });
        self.wilderness.visit(blocks, all, &mut |slot, block| {
            wrong = wrong.or((block.bin != WILD).then_some(slot));
        });
        if let Some(slot) = wrong {
            return Err(format!("block {slot} is in the wrong part: {:?}", blocks.get(slot)));
        }
        Ok(self.rest.validate(blocks)? + self.wilderness.validate(blocks)?)
    }
}
