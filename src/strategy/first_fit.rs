//! Free blocks in the order of their addresses: find the lowest one that fits well, or else fits.
//!
//! A block that is at most a quarter larger than the request is cut without much of a rest; the
//! lowest such block is taken if there is one among the first thousand blocks that are large enough.
//! Otherwise the lowest block of any size is.
//!
//! First fit by address (Wilson, Johnstone, Neely, Boles: "Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995) keeps live blocks together at low addresses, so that the free memory is
//! in few large pieces. Of all placements measured it leaves the most extents wholly free
//! (docs/elastic.md).
//!
//! The blocks lie in *leaves* of up to 64, a B+ tree of two levels. A search compares sizes of four
//! bytes side by side in memory, many in one instruction: first one bound for each leaf, then the
//! sizes of one leaf. A tree with a node in every block takes a cache line for each step, and is
//! slower up to some hundred thousand blocks.
//!
//! ```text
//! blocks are in the order of their addresses, across leaves and within each
//! leaves[i].units[k] = ⌈size⌉ in units of 512 bytes, at most u32::MAX; 0 beyond its end
//! starts[i] ≤ every address in leaves[i] < starts[i + 1];   bounds[i] ≥ every size in leaves[i]
//! no leaf is empty
//! ```
//!
//! A bound may be too high after its largest block has gone; the search that it misleads corrects
//! it. A block that shrinks or grows in place, or is replaced by its neighbour, keeps its position.

use std::ops::RangeInclusive;

use super::joined::FreeList;
use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// The most blocks of a leaf.
const LEAF_BLOCKS: usize = 64;
/// A block is little larger than a request if it is by at most the request / this.
const NEAR_PART: u32 = 4;
/// Only so many leaves are searched for such a block.
const NEAR_LEAVES: usize = 16;
/// So many sizes are compared at once.
const LANES: usize = 16;

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct FirstFit {
    starts: Vec<u64>,
    bounds: Vec<u32>,
    leaves: Vec<Box<Leaf>>,
    /// Where the last search ended.
    found: Position,
}

/// Up to 64 blocks, by address.
#[derive(Clone, Debug)]
struct Leaf {
    count: usize,
    units: [u32; LEAF_BLOCKS],
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
    const IS_BY_ADDRESS: bool = true;

    fn new() -> Self {
        let (starts, bounds, leaves) = (Vec::new(), Vec::new(), Vec::new());
        Self { starts, bounds, leaves, found: Position::default() }
    }

    /// Of the free blocks that are little larger than `bytes`, the one at the lowest address; if
    /// there is none, of all that are large enough.
    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let wanted = units_of(bytes);
        let near = Range { least: wanted, spread: (wanted / NEAR_PART).min(u32::MAX - wanted) };
        let any = Range::from(wanted);
        let first = self.leaf_at_least(0, wanted)?;
        let mut leaf = Some(first);
        for _ in 0..NEAR_LEAVES {
            let Some(at) = leaf else { break };
            if let Some(index) = self.leaves[at].find(blocks, bytes, near) {
                return Some(self.found(at, index));
            }
            leaf = self.leaf_at_least(at + 1, wanted);
        }
        let mut leaf = first;
        loop {
            if let Some(index) = self.leaves[leaf].find(blocks, bytes, any) {
                return Some(self.found(leaf, index));
            }
            leaf = self.leaf_at_least(leaf + 1, wanted)?;
        }
    }

    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { address, bytes, .. } = *blocks.get(slot);
        if self.leaves.is_empty() {
            self.starts.push(0);
            self.bounds.push(0);
            self.leaves.push(Box::new(Leaf::empty()));
        }
        let mut leaf = self.leaf_of(address);
        if self.leaves[leaf].count == LEAF_BLOCKS {
            self.divide(leaf);
            leaf = self.leaf_of(address);
        }
        let index = self.leaves[leaf].index_of(address);
        self.leaves[leaf].insert(index, slot, address);
        self.resize(Position { leaf, index }, bytes);
    }

    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Position { leaf, index } = self.position(blocks.get(slot).address, slot);
        self.leaves[leaf].remove(index);
        let count = self.leaves[leaf].count;
        if count == 0 {
            self.remove_leaf(leaf);
        } else if count < LEAF_BLOCKS / 4 && leaf > 0 {
            self.join_with_before(leaf);
        }
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
        for slot in self.slots() {
            let block = blocks.get(slot);
            if bytes.contains(&block.bytes) {
                visit(slot, block);
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
            if held.count == 0 || held.units[held.count..].iter().any(|&units| units != 0) {
                return Err(format!("leaf {leaf} has {} blocks, and sizes beyond", held.count));
            }
            for index in 0..held.count {
                let block = blocks.get(held.slots[index]);
                let is_known = held.addresses[index] == block.address
                    && held.units[index] == units_of(block.bytes);
                let is_in_order = block.address >= end.max(start);
                if !is_known || !is_in_order || block.state != State::Free {
                    return Err(format!("leaf {leaf}, block {index}: {block:?}"));
                }
                end = block.address + block.bytes;
            }
            if held.largest() > self.bounds[leaf] {
                return Err(format!("leaf {leaf} has more than {} units", self.bounds[leaf]));
            }
        }
        Ok(self.slots().count())
    }
}

impl FirstFit {
    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.leaves.iter().flat_map(|leaf| leaf.slots[..leaf.count].iter().copied())
    }

    /// Remembers where a search ended; returns the block.
    #[inline]
    fn found(&mut self, leaf: usize, index: usize) -> Slot {
        self.found = Position { leaf, index };
        self.leaves[leaf].slots[index]
    }

    /// The first leaf from `first` on that has a block of at least `wanted` units. Corrects the
    /// bounds that it passes.
    #[inline]
    fn leaf_at_least(&mut self, first: usize, wanted: u32) -> Option<usize> {
        let any = Range::from(wanted);
        let mut first = first;
        loop {
            let leaf = first_within(self.bounds.get(first..)?, any)? + first;
            if first_within(&self.leaves[leaf].units, any).is_some() {
                return Some(leaf);
            }
            self.bounds[leaf] = self.leaves[leaf].largest();
            first = leaf + 1;
        }
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
        if self.leaves.get(leaf).is_some_and(|leaf| leaf.slots[index] == slot && index < leaf.count)
        {
            return self.found;
        }
        let leaf = self.leaf_of(address);
        let index = self.leaves[leaf].index_of(address);
        debug_assert_eq!(self.leaves[leaf].slots[index], slot);
        Position { leaf, index }
    }

    #[inline]
    fn resize(&mut self, position: Position, bytes: u64) {
        let units = units_of(bytes);
        self.leaves[position.leaf].units[position.index] = units;
        let bound = &mut self.bounds[position.leaf];
        *bound = (*bound).max(units);
    }

    #[cold]
    fn remove_leaf(&mut self, leaf: usize) -> Box<Leaf> {
        self.starts.remove(leaf);
        self.bounds.remove(leaf);
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
    }
}

impl Leaf {
    fn empty() -> Self {
        Self {
            count: 0,
            units: [0; LEAF_BLOCKS],
            addresses: [0; LEAF_BLOCKS],
            slots: [NO_SLOT; LEAF_BLOCKS],
        }
    }

    /// The first block with units in `range` and at least `bytes`.
    #[inline]
    fn find(&self, blocks: &BlockTable, bytes: u64, range: Range) -> Option<usize> {
        let mut index = first_within(&self.units, range)?;
        // Sizes that four bytes cannot tell apart.
        while range.least == u32::MAX && blocks.get(self.slots[index]).bytes < bytes {
            index += 1 + first_within(&self.units[index + 1..], range)?;
        }
        Some(index)
    }

    /// How many blocks lie below `address`.
    #[inline]
    fn index_of(&self, address: u64) -> usize {
        self.addresses[..self.count].partition_point(|&other| other < address)
    }

    fn insert(&mut self, index: usize, slot: Slot, address: u64) {
        let count = self.count;
        self.units.copy_within(index..count, index + 1);
        self.addresses.copy_within(index..count, index + 1);
        self.slots.copy_within(index..count, index + 1);
        self.slots[index] = slot;
        self.addresses[index] = address;
        self.count += 1;
    }

    fn remove(&mut self, index: usize) {
        let count = self.count;
        self.units.copy_within(index + 1..count, index);
        self.addresses.copy_within(index + 1..count, index);
        self.slots.copy_within(index + 1..count, index);
        self.count -= 1;
        self.units[self.count] = 0;
    }

    fn append(&mut self, other: &Self) {
        let joined = self.count..self.count + other.count;
        self.units[joined.clone()].copy_from_slice(&other.units[..other.count]);
        self.addresses[joined.clone()].copy_from_slice(&other.addresses[..other.count]);
        self.slots[joined.clone()].copy_from_slice(&other.slots[..other.count]);
        self.count = joined.end;
    }

    /// Cuts off the blocks from `index` on.
    fn cut(&mut self, index: usize) -> Self {
        let mut upper = Self::empty();
        upper.count = self.count - index;
        upper.units[..upper.count].copy_from_slice(&self.units[index..self.count]);
        upper.addresses[..upper.count].copy_from_slice(&self.addresses[index..self.count]);
        upper.slots[..upper.count].copy_from_slice(&self.slots[index..self.count]);
        self.units[index..].fill(0);
        self.count = index;
        upper
    }

    fn largest(&self) -> u32 {
        self.units.iter().copied().max().unwrap_or(0)
    }
}

/// A size in units, as far as four bytes count.
#[inline]
fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ALIGNMENT_BYTES)).unwrap_or(u32::MAX)
}

/// Units from `least` to `least + spread`.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: u32,
    spread: u32,
}

impl Range {
    /// All from `least` on.
    #[inline]
    fn from(least: u32) -> Self {
        Self { least, spread: u32::MAX - least }
    }

    #[inline]
    fn contains(self, units: u32) -> bool {
        units.wrapping_sub(self.least) <= self.spread
    }
}

/// The first of `sizes` within `range`.
#[inline]
fn first_within(sizes: &[u32], range: Range) -> Option<usize> {
    let mut start = 0;
    // Without a branch for each size, so that many are compared in one instruction.
    for lanes in sizes.chunks_exact(LANES) {
        if lanes.iter().fold(false, |any, &size| any | range.contains(size)) {
            break;
        }
        start += LANES;
    }
    let found = sizes[start..].iter().position(|&size| range.contains(size))?;
    Some(start + found)
}
