//! Pools of fixed sizes: the free small blocks of the strategy Arena.
//!
//! A segment has blocks of one size only, as long as one of them is in use: its *pool size*. A
//! request takes the block of its size that was freed last, cut from where that was joined with its
//! neighbours, or else begins a segment that is wholly free. So no size disturbs another, and a
//! segment whose blocks are all free serves any size again.
//!
//! ```text
//! pool size of a free part = the size of a neighbour (which is in use) = `requested_bytes`
//! pool size of a whole segment = its own size, larger than any small block
//! parts too small for their size, such as what is left at a segment's end, are last in their list
//! ```
//!
//! Used under its lane's lock; nothing is allocated.

use std::ops::RangeInclusive;

use super::bins::bin_of;
use super::joined::FreeList;
use super::lists::{Lists, OWN_BIN_LOOKS, list};
use crate::base::size::SMALL_BLOCK_LIMIT_BYTES;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

/// The free small blocks of one lane.
#[derive(Debug)]
pub struct SizePools {
    lists: Lists,
}

impl FreeList for SizePools {
    fn new() -> Self {
        Self { lists: Lists::new() }
    }

    /// A block of the pool of `bytes`, or a whole segment.
    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let first = self.lists.bins.head(bin_of(bytes));
        let serves = |block: &Block| block.requested_bytes == bytes && block.bytes >= bytes;
        let mut looks = list(blocks, first).take(OWN_BIN_LOOKS);
        if let Some((slot, _)) = looks.find(|(_, block)| serves(block)) {
            return Some(slot);
        }
        let whole = self.lists.bins.next_in_use(bin_of(SMALL_BLOCK_LIMIT_BYTES) + 1)?;
        Some(self.lists.bins.head(whole))
    }

    #[inline]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bytes = blocks.get(slot).bytes;
        let pool_bytes = pool_bytes(blocks, slot);
        blocks.get_mut(slot).requested_bytes = pool_bytes;
        self.lists.push(blocks, bin_of(pool_bytes), slot, bytes >= pool_bytes);
    }

    #[inline]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.lists.remove(blocks, slot);
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        for (slot, block) in self.all(blocks).filter(|(_, block)| bytes.contains(&block.bytes)) {
            visit(slot, block);
        }
    }

    /// Linear in the number of free blocks.
    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.all(blocks).map(|(_, block)| block.bytes).max().unwrap_or(0)
    }

    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        self.lists.validate(blocks, |block| bin_of(block.requested_bytes))
    }
}

impl SizePools {
    fn all<'a>(&'a self, blocks: &'a BlockTable) -> impl Iterator<Item = (Slot, &'a Block)> {
        let heads = self.lists.bins.heads_for(&(0..=u64::MAX));
        heads.flat_map(|first| list(blocks, first))
    }
}

/// The pool size of a block that becomes free.
#[inline]
fn pool_bytes(blocks: &BlockTable, slot: Slot) -> u64 {
    let Block { before, after, bytes, .. } = *blocks.get(slot);
    match (before, after) {
        (NO_SLOT, NO_SLOT) => bytes,
        (NO_SLOT, after) => blocks.get(after).bytes,
        (before, _) => blocks.get(before).bytes,
    }
}
