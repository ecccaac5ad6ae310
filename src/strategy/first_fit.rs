//! Free blocks in the order of their addresses. A search finds the lowest one that fits.
//!
//! First fit by address: Wilson, Johnstone, Neely, Boles, "Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995. Elastic takes new memory so ([`wilderness`](super::wilderness)).
//!
//! The blocks lie in *leaves* of up to 16, a B+ tree of two levels. A search compares sizes of four
//! bytes, 16 at a time ([`sizes`](super::sizes)): first one bound for each leaf, then the sizes in a
//! leaf. So it is linear, but over little memory. A tree with a node in every block takes a cache
//! line for each step, and is slower up to some ten thousand blocks.
//!
//! ```text
//! blocks are in the order of their addresses, across leaves and within each
//! leaves[i].sizes[k] = the size of its k-th block;   beyond its end NO_SIZE, and NO_ADDRESS
//! starts[i] ≤ every address in leaves[i] < starts[i + 1];   bounds[i] ≥ every size in leaves[i]
//! bounds are filled up with NO_SIZE to a multiple of 16
//! no leaf is empty, except an only one
//! ```
//!
//! A bound may be too high after its largest block has gone; the search that it misleads corrects
//! it. A block that shrinks or grows in place, or is replaced by its neighbour, keeps its position.

use std::ops::RangeInclusive;

use super::joined::FreeList;
use super::sizes::{GROUP, MOST_SIZE, NO_SIZE, at_least, first_at_least, index_of, size_of};
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The most blocks of a leaf.
const LEAF_BLOCKS: usize = GROUP;
/// Above every block's address.
const NO_ADDRESS: u64 = u64::MAX;

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct FirstFit {
    starts: Vec<u64>,
    bounds: Vec<i32>,
    #[expect(clippy::vec_box, reason = "a leaf is 264 bytes, and moves when one comes before it")]
    leaves: Vec<Box<Leaf>>,
    /// Where the last search ended, or what was before the block that left last.
    found: Position,
}

/// Up to 16 blocks, by address.
#[derive(Clone, Debug)]
struct Leaf {
    count: usize,
    sizes: [i32; LEAF_BLOCKS],
    addresses: [u64; LEAF_BLOCKS],
    slots: [Slot; LEAF_BLOCKS],
}

/// A leaf, and a block in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    leaf: usize,
    index: usize,
}

impl FreeList for FirstFit {
    fn new() -> Self {
        let leaves = vec![Box::new(Leaf::empty())];
        let bounds = vec![NO_SIZE; GROUP];
        Self { starts: vec![0], bounds, leaves, found: Position::default() }
    }

    /// The lowest block of at least `bytes`.
    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let least = size_of(bytes);
        if least == MOST_SIZE {
            return self.find_exactly(blocks, bytes);
        }
        let mut next = 0;
        loop {
            let leaf = first_at_least(&self.bounds, next, least)?;
            let fitting = at_least(&self.leaves[leaf].sizes, least);
            if fitting != 0 {
                let index = fitting.trailing_zeros() as usize;
                self.found = Position { leaf, index };
                return Some(self.leaves[leaf].slots[index]);
            }
            self.bounds[leaf] = self.leaves[leaf].largest();
            next = leaf + 1;
        }
    }

    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { address, bytes, .. } = *blocks.get(slot);
        let mut leaf = self.leaf_of(address);
        if self.leaves[leaf].count == LEAF_BLOCKS {
            self.divide(leaf);
            leaf = self.leaf_of(address);
        }
        let index = self.leaves[leaf].index_of(address);
        self.leaves[leaf].insert(index, slot, address);
        self.resize(Position { leaf, index }, bytes);
    }

    #[inline]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Position { leaf, index } = self.position(blocks.get(slot).address, slot);
        self.leaves[leaf].remove(index);
        self.found = Position { leaf, index: index.saturating_sub(1) };
        if self.leaves[leaf].count < LEAF_BLOCKS / 4 && self.leaves.len() > 1 {
            self.shrink(leaf);
        }
    }

    #[inline]
    fn keeps_place(&self, _blocks: &BlockTable, _slot: Slot) -> bool {
        true
    }

    #[inline]
    fn replace(&mut self, blocks: &mut BlockTable, (slot, address): (Slot, u64), by: Slot) {
        let position = self.position(address, slot);
        let Block { address, bytes, .. } = *blocks.get(by);
        let leaf = &mut self.leaves[position.leaf];
        leaf.slots[position.index] = by;
        leaf.addresses[position.index] = address;
        // Its bytes may begin before the leaf did; the leaf before ends before them. Or they begin
        // behind what was the next leaf's first block, which was joined with this one and cut off.
        let start = &mut self.starts[position.leaf];
        *start = (*start).min(address);
        let next = position.leaf + 1;
        if self.starts.get(next).is_some_and(|&start| start <= address) {
            self.starts[next] = self.leaves[next].addresses[0];
        }
        self.resize(position, bytes);
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let least = size_of((*bytes.start()).max(1));
        for (leaf, _) in self.leaves.iter().zip(&self.bounds).filter(|(_, bound)| **bound >= least)
        {
            let mut fitting = at_least(&leaf.sizes, least);
            while fitting != 0 {
                let slot = leaf.slots[fitting.trailing_zeros() as usize];
                fitting &= fitting - 1;
                let block = blocks.get(slot);
                if bytes.contains(&block.bytes) {
                    visit(slot, block);
                }
            }
        }
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.slots().map(|slot| blocks.get(slot).bytes).max().unwrap_or(0)
    }

    /// Checks the module's equations and that each block is free.
    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut end = 0;
        for (leaf, (held, &start)) in self.leaves.iter().zip(&self.starts).enumerate() {
            let is_empty = held.count == 0 && self.leaves.len() > 1;
            let (sizes, addresses) = (&held.sizes[held.count..], &held.addresses[held.count..]);
            let is_blank = sizes.iter().all(|&size| size == NO_SIZE)
                && addresses.iter().all(|&address| address == NO_ADDRESS);
            if is_empty || !is_blank {
                return Err(format!("leaf {leaf} has {} blocks, and sizes beyond", held.count));
            }
            for index in 0..held.count {
                let block = blocks.get(held.slots[index]);
                let is_known = held.addresses[index] == block.address
                    && held.sizes[index] == size_of(block.bytes);
                let is_in_order = block.address >= end.max(start);
                let last = block.address + block.bytes - 1;
                let is_found = [block.address, last]
                    .iter()
                    .all(|&byte| self.around(blocks, byte, 1) == Some(held.slots[index]));
                if !is_known || !is_in_order || !is_found || block.state != State::Free {
                    return Err(format!("leaf {leaf}, block {index}: {block:?}"));
                }
                end = block.address + block.bytes;
            }
            if held.largest() > self.bounds[leaf] {
                return Err(format!("leaf {leaf} has more than size {}", self.bounds[leaf]));
            }
        }
        Ok(self.slots().count())
    }
}

impl FirstFit {
    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.leaves.iter().flat_map(|leaf| leaf.slots[..leaf.count].iter().copied())
    }

    /// The block that `[address, address + bytes)` lies in.
    pub(super) fn around(&self, blocks: &BlockTable, address: u64, bytes: u64) -> Option<Slot> {
        let mut leaf = self.leaf_of(address);
        let mut after = self.leaves[leaf].addresses.partition_point(|&start| start <= address);
        if after == 0 {
            leaf = leaf.checked_sub(1)?;
            after = self.leaves[leaf].count;
        }
        let slot = self.leaves[leaf].slots[after.checked_sub(1)?];
        let block = blocks.get(slot);
        (address + bytes <= block.address + block.bytes).then_some(slot)
    }

    /// [`FreeList::find`] among sizes that are equal here, because four bytes cannot tell them
    /// apart.
    #[cold]
    fn find_exactly(&self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        self.slots().find(|&slot| blocks.get(slot).bytes >= bytes)
    }

    /// The leaf that `address` belongs to.
    #[inline]
    fn leaf_of(&self, address: u64) -> usize {
        if self.starts.len() == 1 {
            return 0;
        }
        self.starts.partition_point(|&start| start <= address) - 1
    }

    /// Where the block in `slot` is, which was at `address` when it came.
    #[inline]
    fn position(&self, address: u64, slot: Slot) -> Position {
        let Position { leaf, index } = self.found;
        let is_found = |leaf: &Leaf| leaf.slots[index] == slot && index < leaf.count;
        if self.leaves.get(leaf).is_some_and(|leaf| is_found(leaf)) {
            return self.found;
        }
        self.position_by_address(address, slot)
    }

    fn position_by_address(&self, address: u64, slot: Slot) -> Position {
        let leaf = self.leaf_of(address);
        // Slots beyond the last block are old ones, and come after it.
        let index = index_of(&self.leaves[leaf].slots, slot).unwrap_or_default();
        debug_assert_eq!(self.leaves[leaf].addresses[index], address);
        Position { leaf, index }
    }

    #[inline]
    fn resize(&mut self, position: Position, bytes: u64) {
        let size = size_of(bytes);
        self.leaves[position.leaf].sizes[position.index] = size;
        let bound = &mut self.bounds[position.leaf];
        *bound = (*bound).max(size);
    }

    /// Removes an empty leaf, or joins one that is a quarter full with the one before.
    #[cold]
    fn shrink(&mut self, leaf: usize) {
        if self.leaves[leaf].count == 0 {
            self.remove_leaf(leaf);
        } else if leaf > 0 {
            self.join_with_before(leaf);
        }
    }

    fn remove_leaf(&mut self, leaf: usize) -> Box<Leaf> {
        self.starts.remove(leaf);
        self.bounds.remove(leaf);
        self.bounds.truncate(self.starts.len());
        self.fill_bounds();
        let removed = self.leaves.remove(leaf);
        if let Some(first) = self.starts.first_mut() {
            *first = 0;
        }
        removed
    }

    /// Moves the blocks of a leaf into the one before, unless that would be half full.
    fn join_with_before(&mut self, leaf: usize) {
        if self.leaves[leaf - 1].count + self.leaves[leaf].count > LEAF_BLOCKS / 2 {
            return;
        }
        let bound = self.bounds[leaf];
        let joined = self.remove_leaf(leaf);
        self.leaves[leaf - 1].append(&joined);
        self.bounds[leaf - 1] = self.bounds[leaf - 1].max(bound);
    }

    /// Makes two leaves of a full one.
    #[cold]
    fn divide(&mut self, leaf: usize) {
        let upper = self.leaves[leaf].cut(LEAF_BLOCKS / 2);
        self.starts.insert(leaf + 1, upper.addresses[0]);
        self.bounds.insert(leaf + 1, self.bounds[leaf]);
        self.leaves.insert(leaf + 1, Box::new(upper));
        self.bounds.truncate(self.leaves.len());
        self.fill_bounds();
    }

    fn fill_bounds(&mut self) {
        self.bounds.resize(self.bounds.len().next_multiple_of(GROUP), NO_SIZE);
    }
}

impl Leaf {
    fn empty() -> Self {
        Self {
            count: 0,
            sizes: [NO_SIZE; LEAF_BLOCKS],
            addresses: [NO_ADDRESS; LEAF_BLOCKS],
            slots: [NO_SLOT; LEAF_BLOCKS],
        }
    }

    /// How many blocks lie below `address`.
    #[inline]
    fn index_of(&self, address: u64) -> usize {
        self.addresses[..self.count].partition_point(|&other| other < address)
    }

    /// Puts a block without a size in at `index`.
    #[inline]
    fn insert(&mut self, index: usize, slot: Slot, address: u64) {
        for place in (index..self.count.min(LEAF_BLOCKS - 1)).rev() {
            self.put(place + 1, self.at(place));
        }
        self.put(index, (NO_SIZE, address, slot));
        self.count += 1;
    }

    #[inline]
    fn remove(&mut self, index: usize) {
        let last = (self.count - 1).min(LEAF_BLOCKS - 1);
        for place in index..last {
            self.put(place, self.at(place + 1));
        }
        self.put(last, (NO_SIZE, NO_ADDRESS, NO_SLOT));
        self.count = last;
    }

    /// The size, the address and the slot at `place`. Few are moved at a time, so they are moved one by one:
    /// to call memmove for each of the three takes longer.
    #[inline(always)]
    fn at(&self, place: usize) -> (i32, u64, Slot) {
        (self.sizes[place], self.addresses[place], self.slots[place])
    }

    #[inline(always)]
    fn put(&mut self, place: usize, (size, address, slot): (i32, u64, Slot)) {
        self.sizes[place] = size;
        self.addresses[place] = address;
        self.slots[place] = slot;
    }

    fn append(&mut self, other: &Self) {
        let joined = self.count..self.count + other.count;
        self.sizes[joined.clone()].copy_from_slice(&other.sizes[..other.count]);
        self.addresses[joined.clone()].copy_from_slice(&other.addresses[..other.count]);
        self.slots[joined.clone()].copy_from_slice(&other.slots[..other.count]);
        self.count = joined.end;
    }

    /// Cuts off the blocks from `index` on.
    fn cut(&mut self, index: usize) -> Self {
        let mut upper = Self::empty();
        upper.count = self.count - index;
        upper.sizes[..upper.count].copy_from_slice(&self.sizes[index..self.count]);
        upper.addresses[..upper.count].copy_from_slice(&self.addresses[index..self.count]);
        upper.slots[..upper.count].copy_from_slice(&self.slots[index..self.count]);
        self.sizes[index..].fill(NO_SIZE);
        self.addresses[index..].fill(NO_ADDRESS);
        self.count = index;
        upper
    }

    #[cold]
    fn largest(&self) -> i32 {
        self.sizes.iter().copied().max().unwrap_or(NO_SIZE)
    }
}
