//! Best fit in segments, cut and joined: the policy of PyTorch's `CUDACachingAllocator` on faster
//! structures. It takes blocks of equal size in another order (see [`BestFit`]); on the recorded
//! programs that holds as much memory as PyTorch's order or less.
//!
//! A block larger than the request is cut when the rest is worth keeping: at least 512 bytes
//! among small blocks, more than 1 MiB among large ones.

use super::best_fit::BestFit;
use super::joined::{CutRule, Joined};
use super::sizing::COMMON_SEGMENT_BYTES;
use crate::base::size::{ALIGNMENT_BYTES, SMALL_BLOCK_LIMIT_BYTES, SizeClass};

/// The free blocks of one lane.
pub type Caching = Joined<BestFit, BestFit, CachingRule>;

/// When PyTorch's allocator cuts a block.
#[derive(Debug, PartialEq, Eq)]
pub struct CachingRule {
    /// Free blocks of at least this are neither cut nor given to smaller requests; 0: no block is
    /// cut, not even a small one.
    max_split_bytes: u64,
}

impl Caching {
    /// No free block. `max_split_bytes`: see `Settings::max_split_size_bytes`.
    pub fn new(max_split_bytes: Option<u64>) -> Self {
        Self::with_rule(CachingRule::new(max_split_bytes))
    }

    /// Returns true if blocks are cut as [`Self::new`] would have them cut.
    pub fn cuts_by(&self, max_split_bytes: Option<u64>) -> bool {
        *self.rule() == CachingRule::new(max_split_bytes)
    }
}

impl CachingRule {
    fn new(max_split_bytes: Option<u64>) -> Self {
        Self { max_split_bytes: max_split_bytes.unwrap_or(u64::MAX) }
    }
}

impl CutRule for CachingRule {
    /// An oversize block serves oversize requests only, and those only if little is wasted.
    #[inline]
    fn serves(&self, free_bytes: u64, block_bytes: u64) -> bool {
        free_bytes < self.max_split_bytes
            || (block_bytes >= self.max_split_bytes
                && free_bytes - block_bytes < COMMON_SEGMENT_BYTES)
    }

    #[inline]
    fn keeps_rest(&self, class: SizeClass, block_bytes: u64, rest_bytes: u64) -> bool {
        match class {
            SizeClass::Small => rest_bytes >= ALIGNMENT_BYTES && self.max_split_bytes > 0,
            SizeClass::Large => {
                rest_bytes > SMALL_BLOCK_LIMIT_BYTES && block_bytes < self.max_split_bytes
            }
        }
    }
}
