//! Lists of free blocks, one for each bin of sizes ([`bins`]): push at either end and take out
//! anywhere in constant time.
//!
//! ```text
//! links = [previous, next]
//! previous of the first = the last;  next of the last = NO_SLOT
//! ```
//!
//! Which bin a block is in, and which block of a bin serves, is the free list's choice:
//! [`segregated`], [`size_pools`].
//!
//! [`bins`]: super::bins
//! [`segregated`]: super::segregated
//! [`size_pools`]: super::size_pools

use super::bins::Bins;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// How many blocks of its own bin a search looks at. Of the sizes of the strategy Arena no two have
/// a bin in common.
pub(super) const OWN_BIN_LOOKS: usize = 8;

const PREVIOUS: usize = 0;
const NEXT: usize = 1;

/// The lists. The head of a bin is the first of its list.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) bins: Box<Bins>,
}

impl Lists {
    pub(super) fn new() -> Self {
        Self { bins: Bins::new() }
    }

    /// Adds a block to the list of `bin`, at its head or at its tail.
    #[inline(always)]
    pub(super) fn push(&mut self, blocks: &mut BlockTable, bin: usize, slot: Slot, is_first: bool) {
        let first = self.bins.head(bin);
        let block = blocks.get_mut(slot);
        block.bin = bin as u16;
        if first == NO_SLOT {
            block.links = [slot, NO_SLOT];
            self.bins.fill(bin, slot);
            return;
        }
        let last = std::mem::replace(&mut blocks.get_mut(first).links[PREVIOUS], slot);
        if is_first {
            blocks.get_mut(slot).links = [last, first];
            self.bins.set_head(bin, slot);
        } else {
            blocks.get_mut(slot).links = [last, NO_SLOT];
            blocks.get_mut(last).links[NEXT] = slot;
        }
    }

    /// Takes a block out of its list.
    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { links: [previous, next], bin, .. } = *blocks.get(slot);
        let bin = usize::from(bin);
        let first = self.bins.head(bin);
        if first != slot {
            blocks.get_mut(previous).links[NEXT] = next;
            let after = if next == NO_SLOT { first } else { next };
            blocks.get_mut(after).links[PREVIOUS] = previous;
        } else if next == NO_SLOT {
            self.bins.clear(bin);
        } else {
            self.bins.set_head(bin, next);
            blocks.get_mut(next).links[PREVIOUS] = previous;
        }
    }

    /// The number of blocks, after checking that each is free and in the bin that `bin_of` says.
    pub(super) fn validate(
        &self,
        blocks: &BlockTable,
        bin_of: impl Fn(&Block) -> usize,
    ) -> Result<usize, String> {
        let mut count = 0;
        for (bin, first) in self.bins.validate()? {
            let mut last = NO_SLOT;
            for (slot, block) in list(blocks, first) {
                if block.state != State::Free
                    || (bin_of(block), usize::from(block.bin)) != (bin, bin)
                {
                    return Err(format!("block {slot} is in bin {bin}: {block:?}"));
                }
                if slot != first && block.links[PREVIOUS] != last {
                    return Err(format!("block {slot} does not follow block {last}"));
                }
                last = slot;
                count += 1;
            }
            if blocks.get(first).links[PREVIOUS] != last {
                return Err(format!("bin {bin}: its first block does not know its last, {last}"));
            }
        }
        Ok(count)
    }
}

/// The blocks from `slot` on in its list.
#[inline]
pub(super) fn list(blocks: &BlockTable, slot: Slot) -> impl Iterator<Item = (Slot, &Block)> {
    let present = |slot: Slot| (slot != NO_SLOT).then(|| (slot, blocks.get(slot)));
    std::iter::successors(present(slot), move |(_, block)| present(block.links[NEXT]))
}
