//! The free blocks of Elastic, cut and joined, over memory that comes and goes: small ones by size
//! ([`Segregated`]), large ones by one of two placements:
//!
//! | placement | a request gets | good while |
//! |---|---|---|
//! | [`WildernessLast`] | the smallest block that fits, the wilderness last | sizes come again and nothing has to move |
//! | [`FirstFit`] | the lowest block that fits | memory is moved: free memory gathers |
//!
//! Best fit leaves the smallest rests, but scatters free memory over all extents. A lane begins
//! with it, and changes once, when its device has moved much memory (`heap::elastic`).
//!
//! A block is cut exactly to size, so the rest of a page serves its neighbour. A freed block is
//! joined at once. Joining later, so that the next request of the same size finds it, was measured
//! and is worse: each iteration of a program then leaves its free memory cut up differently, so its
//! blocks drift, into more memory and colder cache lines.
//!
//! This module does not know which memory lies under the addresses: `heap::elastic` changes it,
//! taking parts of free blocks out and putting others in.

use std::ops::RangeInclusive;

use super::first_fit::FirstFit;
use super::joined::{CutRule, FreeList, Joined};
use super::segregated::Segregated;
use super::wilderness::WildernessLast;
use crate::base::size::SizeClass;
use crate::memory::{Block, BlockTable, Slot};

/// The free blocks of one lane.
pub type Elastic = Joined<Segregated, Placement, ExactCut>;

/// Cuts a block to the very size of the request.
#[derive(Debug)]
pub struct ExactCut;

impl Elastic {
    /// No free block.
    pub fn new() -> Self {
        Self::with_rule(ExactCut)
    }

    /// From now on, large requests get the lowest block that fits.
    /// Linear in the number of free blocks the first time.
    pub fn use_first_fit(&mut self, blocks: &mut BlockTable) {
        self.large_list_mut().use_first_fit(blocks);
    }

    /// Returns true if large requests get the lowest block that fits.
    pub fn has_first_fit(&self) -> bool {
        matches!(self.large_list(), Placement::FirstFit(_))
    }
}

impl CutRule for ExactCut {
    #[inline]
    fn serves(&self, _free_bytes: u64, _block_bytes: u64) -> bool {
        true
    }

    #[inline]
    fn keeps_rest(&self, _class: SizeClass, _block_bytes: u64, rest_bytes: u64) -> bool {
        rest_bytes > 0
    }
}

/// The free large blocks.
#[derive(Debug)]
pub enum Placement {
    BestFit(WildernessLast),
    FirstFit(FirstFit),
}

impl Placement {
    fn use_first_fit(&mut self, blocks: &mut BlockTable) {
        if let Self::BestFit(by_size) = self {
            let by_size = std::mem::replace(by_size, WildernessLast::new());
            *self = Self::FirstFit(by_size.by_address(blocks));
        }
    }
}

impl FreeList for Placement {
    fn new() -> Self {
        Self::BestFit(WildernessLast::new())
    }

    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        match self {
            Self::BestFit(list) => list.find(blocks, bytes),
            Self::FirstFit(list) => list.find(blocks, bytes),
        }
    }

    #[inline]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        match self {
            Self::BestFit(list) => list.insert(blocks, slot),
            Self::FirstFit(list) => list.insert(blocks, slot),
        }
    }

    #[inline]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        match self {
            Self::BestFit(list) => list.remove(blocks, slot),
            Self::FirstFit(list) => list.remove(blocks, slot),
        }
    }

    #[inline]
    fn keeps_place(&self, blocks: &BlockTable, slot: Slot) -> bool {
        match self {
            Self::BestFit(list) => list.keeps_place(blocks, slot),
            Self::FirstFit(list) => list.keeps_place(blocks, slot),
        }
    }

    #[inline]
    fn replace(&mut self, blocks: &mut BlockTable, was: (Slot, u64), by: Slot) {
        match self {
            Self::BestFit(list) => list.replace(blocks, was, by),
            Self::FirstFit(list) => list.replace(blocks, was, by),
        }
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        match self {
            Self::BestFit(list) => list.visit(blocks, bytes, visit),
            Self::FirstFit(list) => list.visit(blocks, bytes, visit),
        }
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        match self {
            Self::BestFit(list) => list.largest_bytes(blocks),
            Self::FirstFit(list) => list.largest_bytes(blocks),
        }
    }

    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        match self {
            Self::BestFit(list) => list.validate(blocks),
            Self::FirstFit(list) => list.validate(blocks),
        }
    }
}
