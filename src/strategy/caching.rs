//! Best fit in segments, with splitting and coalescing: the policy of PyTorch's
//! `CUDACachingAllocator` on faster structures. It takes blocks of equal size in another order
//! (see [`BestFit`]), which on the recorded programs holds as much memory as PyTorch's or less.
//!
//! Small and large blocks live in segments of their own kind ([`SizeClass`]). A block larger
//! than the request is split when the rest is worth keeping: at least 512 bytes among small
//! blocks, more than 1 MiB among large ones. A freed block is joined with its free neighbours
//! at once, so no two free blocks of a segment are ever neighbours.

use std::ops::RangeInclusive;

use super::best_fit::{BestFit, SplitFree};
use super::sizing::COMMON_SEGMENT_BYTES;
use crate::base::size::{ALIGNMENT_BYTES, SMALL_BLOCK_LIMIT_BYTES, SizeClass};
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The free blocks of one lane, by size class.
#[derive(Debug)]
pub struct Caching {
    classes: [BestFit; 2],
    /// Free blocks of at least this are neither split nor given to smaller requests.
    max_split_bytes: u64,
}

impl Caching {
    /// No free block. `max_split_bytes`: see `Settings::max_split_size_bytes`.
    pub fn new(max_split_bytes: Option<u64>) -> Self {
        Self {
            classes: [BestFit::new(), BestFit::new()],
            max_split_bytes: max_split_bytes.unwrap_or(u64::MAX),
        }
    }

    /// Takes out a block of at least `block_bytes`, cut to size.
    #[inline]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        let class = SizeClass::of(block_bytes);
        let slot = self.classes[class.index()].find(blocks, block_bytes)?;
        if self.is_kept_for_larger(blocks.get(slot).bytes, block_bytes) {
            return None;
        }
        self.classes[class.index()].remove(blocks, slot);
        self.cut(blocks, slot, block_bytes);
        Some(slot)
    }

    /// Cuts a block that is not here to `block_bytes`, and takes in the rest if it is worth it.
    #[inline]
    pub fn cut(&mut self, blocks: &mut BlockTable, slot: Slot, block_bytes: u64) {
        let Block { bytes, class, .. } = *blocks.get(slot);
        let rest_bytes = bytes - block_bytes;
        let worth_it = if class == SizeClass::Small {
            rest_bytes >= ALIGNMENT_BYTES
        } else {
            rest_bytes > SMALL_BLOCK_LIMIT_BYTES && block_bytes < self.max_split_bytes
        };
        if worth_it {
            let rest = blocks.split(slot, block_bytes);
            self.classes[class.index()].insert(blocks, rest);
        }
    }

    /// Takes in a freed block, joined with its free neighbours.
    #[inline]
    pub fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { before, after, class, .. } = *blocks.get(slot);
        let free = &mut self.classes[class.index()];
        if after != NO_SLOT && blocks.get(after).state == State::Free {
            free.remove(blocks, after);
            blocks.merge_with_after(slot);
        }
        let mut joined = slot;
        if before != NO_SLOT && blocks.get(before).state == State::Free {
            free.remove(blocks, before);
            blocks.merge_with_after(before);
            joined = before;
        }
        free.insert(blocks, joined);
    }

    /// Takes out a particular free block.
    pub fn withdraw(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let class = blocks.get(slot).class;
        self.classes[class.index()].remove(blocks, slot);
    }

    /// Shows `visit` the free blocks that could serve `bytes.start()` and have at most
    /// `bytes.end()`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.classes[SizeClass::of(*bytes.start()).index()].visit(blocks, bytes, visit);
    }

    /// The largest free block, in bytes.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.classes.iter().map(|free| free.largest_bytes(blocks)).max().unwrap_or(0)
    }

    /// The free blocks of `class` that are parts of segments.
    pub fn split(&self, class: SizeClass) -> SplitFree {
        self.classes[class.index()].split()
    }

    /// Makes the peaks of [`Self::split`] what is there now.
    pub fn reset_peaks(&mut self) {
        self.classes.iter_mut().for_each(BestFit::reset_peaks);
    }

    /// The number of free blocks here, after checking the pools and that neighbours are joined.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        for (slot, block) in blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if block.after != NO_SLOT && blocks.get(block.after).state == State::Free {
                return Err(format!("free blocks {slot} and {} are not joined", block.after));
            }
        }
        Ok(self.classes[0].validate(blocks)? + self.classes[1].validate(blocks)?)
    }

    /// Whether a free block of `bytes` is withheld from a request for `block_bytes`: an
    /// oversize block serves oversize requests only, and those only if little is wasted.
    fn is_kept_for_larger(&self, bytes: u64, block_bytes: u64) -> bool {
        bytes >= self.max_split_bytes
            && (block_bytes < self.max_split_bytes || bytes - block_bytes >= COMMON_SEGMENT_BYTES)
    }
}
