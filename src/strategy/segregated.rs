//! Free blocks by class of size: find one that fits well, in constant time.
//!
//! This is the structure of TLSF (see [`bins`]), with a look into the request's own bin added. In
//! the words of Wilson, Johnstone, Neely and Boles ("Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995) it is a segregated fit with good fit instead of best fit.
//!
//! 1. **Bins** of sizes ([`bins`]): every block of a later bin is larger than every block of an
//!    earlier one, and the next bin that holds a block is found in constant time.
//! 2. **Lists.** The blocks of a bin form a list through their links. Parts of segments enter
//!    at its head and whole segments, which can still be given back or serve another stream,
//!    at its tail, so a search meets parts first, and of those the one freed last.
//!
//! [`Segregated::find`] takes the smallest block that fits of the first few in the request's
//! own bin, otherwise the first of the next bin in use. What that wastes against best fit is
//! below the width of a bin, 1/32 of the size, unless the own bin holds more blocks than are
//! looked at. Only when no larger bin is in use is the own bin searched to its end, because a
//! miss costs far more. So a search finds nothing only if nothing fits.
//!
//! ```text
//! links = [previous, next]
//! previous of the first = the last;  next of the last = NO_SLOT
//! ```
//!
//! It is used under its lane's lock, and allocates nothing after it has been made. It does not
//! keep a bin in order: [`BestFit`] does, whose searches take O(log n).
//!
//! [`bins`]: super::bins
//! [`BestFit`]: super::best_fit::BestFit

use std::ops::RangeInclusive;

use super::bins::{Bins, bin_of};
use super::joined::FreeList;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

const PREVIOUS: usize = 0;
const NEXT: usize = 1;
/// How many blocks of its own bin a search looks at.
const OWN_BIN_LOOKS: usize = 8;

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct Segregated {
    /// The head of a bin is the first of its list.
    bins: Box<Bins>,
}

impl FreeList for Segregated {
    fn new() -> Self {
        Self { bins: Bins::new() }
    }

    /// A free block of at least `bytes`, mostly little larger than the smallest such.
    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let bin = bin_of(bytes);
        let first = self.bins.head(bin);
        if first != NO_SLOT {
            let slot = smallest(blocks, first, bytes, OWN_BIN_LOOKS);
            if slot != NO_SLOT {
                return Some(slot);
            }
        }
        match self.bins.next_in_use(bin + 1) {
            Some(larger) => Some(self.bins.head(larger)),
            None => find_in_all(blocks, first, bytes),
        }
    }

    #[inline]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bin = bin_of(blocks.get(slot).bytes);
        let first = self.bins.head(bin);
        if first == NO_SLOT {
            blocks.get_mut(slot).links = [slot, NO_SLOT];
            self.bins.fill(bin, slot);
            return;
        }
        let is_part = !blocks.is_whole_segment(slot);
        let last = std::mem::replace(&mut blocks.get_mut(first).links[PREVIOUS], slot);
        if is_part {
            blocks.get_mut(slot).links = [last, first];
            self.bins.set_head(bin, slot);
        } else {
            blocks.get_mut(slot).links = [last, NO_SLOT];
            blocks.get_mut(last).links[NEXT] = slot;
        }
    }

    #[inline]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { bytes, links: [previous, next], .. } = *blocks.get(slot);
        let bin = bin_of(bytes);
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

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let in_bins = self.bins.heads_for(bytes).flat_map(|first| list(blocks, first));
        for (slot, block) in in_bins.filter(|(_, block)| bytes.contains(&block.bytes)) {
            visit(slot, block);
        }
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let sizes = |first: Slot| list(blocks, first).map(|(_, block)| block.bytes);
        self.bins.last_head().and_then(|first| sizes(first).max()).unwrap_or(0)
    }

    /// Checks the module's equations and that each block is free and in its bin.
    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut count = 0;
        for (bin, first) in self.bins.validate()? {
            let mut last = NO_SLOT;
            for (slot, block) in list(blocks, first) {
                if block.state != State::Free || bin_of(block.bytes) != bin {
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

/// The smallest of all blocks from `first` on with at least `bytes`.
#[cold]
fn find_in_all(blocks: &BlockTable, first: Slot, bytes: u64) -> Option<Slot> {
    let slot = smallest(blocks, first, bytes, usize::MAX);
    (slot != NO_SLOT).then_some(slot)
}

/// The smallest block of at least `bytes` among the first `looks` of the list from `first`,
/// and the earliest of its size.
#[inline]
fn smallest(blocks: &BlockTable, first: Slot, bytes: u64, looks: usize) -> Slot {
    let (mut found, mut found_bytes) = (NO_SLOT, u64::MAX);
    for (slot, block) in list(blocks, first).take(looks) {
        if block.bytes >= bytes && block.bytes < found_bytes {
            (found, found_bytes) = (slot, block.bytes);
            if found_bytes == bytes {
                break;
            }
        }
    }
    found
}

/// The blocks from `slot` on in its list.
#[inline]
fn list(blocks: &BlockTable, slot: Slot) -> impl Iterator<Item = (Slot, &Block)> {
    let present = |slot: Slot| (slot != NO_SLOT).then(|| (slot, blocks.get(slot)));
    std::iter::successors(present(slot), move |(_, block)| present(block.links[NEXT]))
}
