//! Free blocks by class of size: find one that fits well, in constant time.
//!
//! This is the structure of TLSF (see [`bins`]), with a look into the request's own bin added. In
//! the words of Wilson, Johnstone, Neely and Boles ("Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995) it is a segregated fit with good fit instead of best fit.
//!
//! 1. **Bins** of sizes ([`bins`]): every block of a later bin is larger than every block of an
//!    earlier one, and the next bin that holds a block is found in constant time.
//! 2. **Lists.** The blocks of a bin form a list ([`lists`]). Parts of segments enter
//!    at its head and whole segments, which can still be given back or serve another stream,
//!    at its tail, so a search meets parts first, and of those the one freed last.
//!
//! [`Segregated::find`] takes the smallest block that fits of the first few in the request's
//! own bin, otherwise the first of the next bin in use. What that wastes against best fit is
//! below the width of a bin, 1/32 of the size, unless the own bin holds more blocks than are
//! looked at. Only when no larger bin is in use is the own bin searched to its end, because a
//! miss costs far more. So a search finds nothing only if nothing fits.
//!
//! It is used under its lane's lock, and allocates nothing after it has been made. It does not
//! keep a bin in order: [`BestFit`] does, whose searches take O(log n).
//!
//! [`bins`]: super::bins
//! [`lists`]: super::lists
//! [`BestFit`]: super::best_fit::BestFit

use std::ops::RangeInclusive;

use super::bins::bin_of;
use super::joined::FreeList;
use super::lists::{Lists, OWN_BIN_LOOKS, list};
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct Segregated {
    lists: Lists,
}

impl FreeList for Segregated {
    fn new() -> Self {
        Self { lists: Lists::new() }
    }

    /// A free block of at least `bytes`, mostly little larger than the smallest such.
    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let bin = bin_of(bytes);
        let first = self.lists.bins.head(bin);
        if first != NO_SLOT {
            let slot = smallest(blocks, first, bytes, OWN_BIN_LOOKS);
            if slot != NO_SLOT {
                return Some(slot);
            }
        }
        match self.lists.bins.next_in_use(bin + 1) {
            Some(larger) => Some(self.lists.bins.head(larger)),
            None => find_in_all(blocks, first, bytes),
        }
    }

    #[inline(always)]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let is_part = !blocks.is_whole_segment(slot);
        let bin = bin_of(blocks.get(slot).bytes);
        self.lists.push(blocks, bin, slot, is_part);
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.lists.remove(blocks, slot);
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let in_bins = self.lists.bins.heads_for(bytes).flat_map(|first| list(blocks, first));
        for (slot, block) in in_bins.filter(|(_, block)| bytes.contains(&block.bytes)) {
            visit(slot, block);
        }
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let sizes = |first: Slot| list(blocks, first).map(|(_, block)| block.bytes);
        self.lists.bins.last_head().and_then(|first| sizes(first).max()).unwrap_or(0)
    }

    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        self.lists.validate(blocks, |block| bin_of(block.bytes))
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
