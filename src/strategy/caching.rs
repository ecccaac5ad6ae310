//! Best fit in segments, with splitting and coalescing: the policy of PyTorch's
//! `CUDACachingAllocator` on faster structures. It takes blocks of equal size in another order
//! (see [`BestFit`]), which on the recorded programs holds as much memory as PyTorch's or less.
//!
//! Small and large blocks live in segments of their own kind (`Sizing::pool`). A block larger
//! than the request is split when the rest is worth keeping: at least 512 bytes among small
//! blocks, more than 1 MiB among large ones. A freed block is joined with its free neighbours
//! at once, so no two free blocks of a segment are ever neighbours.

use std::ops::RangeInclusive;

use super::best_fit::BestFit;
use super::sizing::{COMMON_SEGMENT_BYTES, LARGE_POOL, SMALL_BLOCK_LIMIT_BYTES, SMALL_POOL};
use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The free blocks of one lane, by pool.
#[derive(Debug)]
pub struct Caching {
    pools: [BestFit; 2],
    /// Free blocks of at least this are neither split nor given to smaller requests.
    max_split_bytes: u64,
}

impl Caching {
    /// No free block. `max_split_bytes`: see `Settings::max_split_size_bytes`.
    pub fn new(max_split_bytes: Option<u64>) -> Self {
        Self {
            pools: [BestFit::new(), BestFit::new()],
            max_split_bytes: max_split_bytes.unwrap_or(u64::MAX),
        }
    }

    /// Takes out a block of at least `block_bytes`, cut to size.
    #[inline]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        let pool = pool_of(block_bytes);
        let slot = self.pools[pool].find(blocks, block_bytes)?;
        if self.is_kept_for_larger(blocks.get(slot).bytes, block_bytes) {
            return None;
        }
        self.pools[pool].remove(blocks, slot);
        self.cut(blocks, slot, block_bytes);
        Some(slot)
    }

    /// Cuts a block that is not here to `block_bytes`, and takes in the rest if it is worth it.
    #[inline]
    pub fn cut(&mut self, blocks: &mut BlockTable, slot: Slot, block_bytes: u64) {
        let Block { bytes, pool, .. } = *blocks.get(slot);
        let rest_bytes = bytes - block_bytes;
        let worth_it = if pool == SMALL_POOL {
            rest_bytes >= ALIGNMENT_BYTES
        } else {
            rest_bytes > SMALL_BLOCK_LIMIT_BYTES && block_bytes < self.max_split_bytes
        };
        if worth_it {
            let rest = blocks.split(slot, block_bytes);
            self.pools[pool as usize].insert(blocks, rest);
        }
    }

    /// Takes in a freed block, joined with its free neighbours.
    #[inline]
    pub fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { before, after, pool, .. } = *blocks.get(slot);
        let pool = &mut self.pools[pool as usize];
        if after != NO_SLOT && blocks.get(after).state == State::Free {
            pool.remove(blocks, after);
            blocks.merge_with_after(slot);
        }
        let mut joined = slot;
        if before != NO_SLOT && blocks.get(before).state == State::Free {
            pool.remove(blocks, before);
            blocks.merge_with_after(before);
            joined = before;
        }
        pool.insert(blocks, joined);
    }

    /// Takes out a particular free block.
    pub fn withdraw(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let pool = blocks.get(slot).pool;
        self.pools[pool as usize].remove(blocks, slot);
    }

    /// Shows `visit` the free blocks that could serve `bytes.start()` and have at most
    /// `bytes.end()`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.pools[pool_of(*bytes.start())].visit(blocks, bytes, visit);
    }

    /// The largest free block, in bytes.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.pools.iter().map(|pool| pool.largest_bytes(blocks)).max().unwrap_or(0)
    }

    /// The number of free blocks here, after checking the pools and that neighbours are joined.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        for (slot, block) in blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if block.after != NO_SLOT && blocks.get(block.after).state == State::Free {
                return Err(format!("free blocks {slot} and {} are not joined", block.after));
            }
        }
        Ok(self.pools[0].validate(blocks)? + self.pools[1].validate(blocks)?)
    }

    /// Whether a free block of `bytes` is withheld from a request for `block_bytes`: an
    /// oversize block serves oversize requests only, and those only if little is wasted.
    fn is_kept_for_larger(&self, bytes: u64, block_bytes: u64) -> bool {
        bytes >= self.max_split_bytes
            && (block_bytes < self.max_split_bytes || bytes - block_bytes >= COMMON_SEGMENT_BYTES)
    }
}

fn pool_of(block_bytes: u64) -> usize {
    usize::from(if block_bytes > SMALL_BLOCK_LIMIT_BYTES { LARGE_POOL } else { SMALL_POOL })
}
