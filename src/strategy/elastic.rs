//! The free blocks of Elastic, cut and joined, over memory that comes and goes: small ones by size
//! ([`Segregated`]), large ones where they fit best, new memory last ([`WildernessLast`]).
//!
//! A block is cut exactly to size, so the rest of a page serves its neighbour. A freed block is
//! joined at once. Joining later, so that the next request of the same size finds it, was measured
//! and is worse: each iteration of a program then leaves its free memory cut up differently, so its
//! blocks drift, into more memory and colder cache lines.
//!
//! This module does not know which memory lies under the addresses: `heap::elastic` changes it,
//! taking parts of free blocks out and putting others in.

use std::ops::RangeInclusive;

use super::joined::{CutRule, FreeList, Joined};
use super::segregated::Segregated;
use super::wilderness::WildernessLast;
use crate::base::size::SizeClass;
use crate::memory::{Block, BlockTable, Slot};

/// The free blocks of one lane.
pub type Elastic = Joined<Segregated, WildernessLast, ExactCut>;

/// Cuts a block to the very size of the request.
#[derive(Debug)]
pub struct ExactCut;

impl Elastic {
    /// No free block.
    pub fn new() -> Self {
        Self::with_rule(ExactCut)
    }

    /// See [`super::Strategy::expect_views`].
    pub fn expect_views(&mut self, do_return: bool) {
        self.large_list().expect_views(do_return);
    }

    /// See [`super::Strategy::wild_around`].
    pub fn wild_around(&self, blocks: &BlockTable, address: u64, bytes: u64) -> Option<Slot> {
        self.lists().1.wild_around(blocks, address, bytes)
    }

    /// See [`super::Strategy::visit_rest`].
    pub fn visit_rest(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let (small, large) = self.lists();
        small.visit(blocks, bytes, visit);
        large.visit_rest(blocks, bytes, visit);
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
