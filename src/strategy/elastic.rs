//! Segregated fit with coalescing, over memory that comes and goes: the free blocks of Elastic.
//!
//! Small and large blocks live in areas of their own kind ([`SizeClass`]), and a block is cut
//! exactly to size, so the rest of a page serves its neighbour. A freed block is joined with its
//! free neighbours at once and takes its place among the free blocks by size ([`Segregated`]).
//! To put the joining off, for the next request of the same size, was measured and is worse: a
//! program's iterations then end with its free memory cut up differently each time, so its
//! blocks drift, into more memory and colder cache lines.
//!
//! Which memory lies under the addresses is none of this module's business: it is changed
//! underneath by `heap::elastic`, which takes parts of free blocks out and puts others in.

use std::ops::RangeInclusive;

use super::SplitFree;
use super::segregated::Segregated;
use crate::base::size::SizeClass;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The free blocks of one lane.
#[derive(Debug)]
pub struct Elastic {
    classes: [Segregated; 2],
}

impl Elastic {
    /// No free block.
    pub fn new() -> Self {
        Self { classes: [Segregated::new(), Segregated::new()] }
    }

    /// Takes out a block of `block_bytes`.
    #[inline]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        let class = SizeClass::of(block_bytes).index();
        let slot = self.classes[class].find(blocks, block_bytes)?;
        self.classes[class].remove(blocks, slot);
        if blocks.get(slot).bytes > block_bytes {
            let rest = blocks.split(slot, block_bytes);
            self.classes[class].insert(blocks, rest);
        }
        Some(slot)
    }

    /// Takes in a free block, joined with its free neighbours.
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

    /// Shows `visit` the free blocks of both classes that have `bytes`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        for free in &self.classes {
            free.visit(blocks, bytes, visit);
        }
    }

    /// The largest free block, in bytes.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.classes.iter().map(|free| free.largest_bytes(blocks)).max().unwrap_or(0)
    }

    /// The free blocks of `class` that are parts of areas.
    pub fn split(&self, class: SizeClass) -> SplitFree {
        self.classes[class.index()].split()
    }

    /// Makes the peaks of [`Self::split`] what is there now.
    pub fn reset_peaks(&mut self) {
        self.classes.iter_mut().for_each(Segregated::reset_peaks);
    }

    /// The number of free blocks here, after checking both structures and that neighbours are
    /// joined.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        for (slot, block) in blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if block.after != NO_SLOT && blocks.get(block.after).state == State::Free {
                return Err(format!("free blocks {slot} and {} are not joined", block.after));
            }
        }
        Ok(self.classes[0].validate(blocks)? + self.classes[1].validate(blocks)?)
    }
}
