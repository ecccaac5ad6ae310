//! Free blocks in order of size: find the smallest that fits.
//!
//! The order is that of the [`Key`] `(bytes, whole segment?, address)`. Among blocks of equal
//! size a part of a segment goes before a whole segment, which can still be given back or
//! serve another stream, and then the lowest address goes first, which keeps long-lived
//! blocks together. Two steps lead to the order:
//!
//! 1. **Bins.** Sizes are counted in units of 512 bytes. Up to 32 units each size has a bin;
//!    above, each doubling is cut into 32 bins of equal width, so that every block of a later
//!    bin is larger than every block of an earlier one (the mapping of TLSF: Masmano, Ripoll,
//!    Crespo, Real, "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", 2004). A bit
//!    per bin tells which are not empty.
//! 2. **Trees.** The blocks of a bin form a treap by key (Seidel and Aragon, "Randomized Search
//!    Trees", 1996): binary search tree by key, heap by a priority hashed from the slot. Most
//!    bins hold one or two blocks; a bin with thousands still costs O(log n).
//!
//! Nothing is allocated: the trees run through the blocks' links.

use std::ops::RangeInclusive;

use crate::base::Gauge;
use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

const LEFT: usize = 0;
const RIGHT: usize = 1;
/// Bins per doubling, as an exponent.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
/// Enough for sizes up to 2^48 bytes, i.e. 2^39 units.
const BINS: usize = STEPS * (39 - STEP_BITS as usize + 1);
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = BINS.div_ceil(WORD_BITS);

/// The free blocks of one pool of one lane.
#[derive(Debug)]
pub struct BestFit {
    /// Bit `b` of word `w`: bin `w * 64 + b` is not empty.
    occupied: Box<[u64; WORDS]>,
    roots: Box<[Slot; BINS]>,
    split: SplitFree,
}

/// Free blocks that are parts of segments: cached, but not to be given back.
#[derive(Clone, Copy, Debug, Default)]
pub struct SplitFree {
    /// How many.
    pub blocks: Gauge,
    /// How large together.
    pub bytes: Gauge,
}

/// Where a link to a node is kept.
#[derive(Clone, Copy)]
enum Place {
    Root(usize),
    Child(Slot, usize),
}

impl BestFit {
    /// No free block.
    pub fn new() -> Self {
        Self {
            occupied: Box::new([0; WORDS]),
            roots: Box::new([NO_SLOT; BINS]),
            split: SplitFree::default(),
        }
    }

    /// The smallest free block of at least `bytes`; it stays here.
    #[inline]
    pub fn find(&self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let bin = bin_of(bytes);
        if self.roots[bin] != NO_SLOT {
            let slot = first_at_least(blocks, self.roots[bin], bytes);
            if slot != NO_SLOT {
                return Some(slot);
            }
        }
        self.next_occupied(bin + 1).map(|bin| leftmost(blocks, self.roots[bin]))
    }

    /// Shows `visit` the free blocks with sizes in `bytes`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let last_bin = if *bytes.end() >> 48 == 0 { bin_of(*bytes.end()) } else { BINS - 1 };
        let mut next = bin_of(*bytes.start());
        while let Some(bin) = self.next_occupied(next).filter(|&bin| bin <= last_bin) {
            visit_tree(blocks, self.roots[bin], bytes, visit);
            next = bin + 1;
        }
    }

    /// The largest free block, in bytes; 0 when there is none.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let Some(word) = (0..WORDS).rev().find(|&word| self.occupied[word] != 0) else {
            return 0;
        };
        let bin = word * WORD_BITS + self.occupied[word].ilog2() as usize;
        let mut slot = self.roots[bin];
        while blocks.get(slot).links[RIGHT] != NO_SLOT {
            slot = blocks.get(slot).links[RIGHT];
        }
        blocks.get(slot).bytes
    }

    /// Takes in a free block.
    #[inline]
    pub fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bytes = blocks.get(slot).bytes;
        if !blocks.is_whole_segment(slot) {
            self.split.blocks.add(1);
            self.split.bytes.add(bytes);
        }
        let bin = bin_of(bytes);
        let root = self.roots[bin];
        if root == NO_SLOT {
            blocks.get_mut(slot).links = [NO_SLOT; 2];
            self.roots[bin] = slot;
            self.occupied[bin / WORD_BITS] |= 1 << (bin % WORD_BITS);
            return;
        }
        self.insert_below(blocks, Place::Root(bin), slot);
    }

    /// Takes out a block that is here.
    #[inline]
    pub fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { bytes, links, .. } = *blocks.get(slot);
        if !blocks.is_whole_segment(slot) {
            self.split.blocks.take(1);
            self.split.bytes.take(bytes);
        }
        let bin = bin_of(bytes);
        let place = if self.roots[bin] == slot {
            Place::Root(bin)
        } else {
            parent_place(blocks, self.roots[bin], slot)
        };
        if links[LEFT] == NO_SLOT || links[RIGHT] == NO_SLOT {
            let only = if links[LEFT] == NO_SLOT { links[RIGHT] } else { links[LEFT] };
            self.set(blocks, place, only);
        } else {
            self.join(blocks, place, links[LEFT], links[RIGHT]);
        }
        if self.roots[bin] == NO_SLOT {
            self.occupied[bin / WORD_BITS] &= !(1 << (bin % WORD_BITS));
        }
    }

    /// The free blocks here that are parts of segments.
    pub fn split(&self) -> SplitFree {
        self.split
    }

    /// Makes the peaks of [`Self::split`] what is there now.
    pub fn reset_peaks(&mut self) {
        self.split.blocks.reset_peak();
        self.split.bytes.reset_peak();
    }

    /// Descends to where `slot`'s priority belongs and splits what is below around its key.
    fn insert_below(&mut self, blocks: &mut BlockTable, mut place: Place, slot: Slot) {
        let key = key_of(blocks, slot);
        let mut node = self.link(blocks, place);
        while node != NO_SLOT && priority(node) >= priority(slot) {
            let side = if key < key_of(blocks, node) { LEFT } else { RIGHT };
            place = Place::Child(node, side);
            node = self.link(blocks, place);
        }
        self.set(blocks, place, slot);
        let mut smaller = Place::Child(slot, LEFT);
        let mut larger = Place::Child(slot, RIGHT);
        while node != NO_SLOT {
            if key < key_of(blocks, node) {
                self.set(blocks, larger, node);
                larger = Place::Child(node, LEFT);
                node = blocks.get(node).links[LEFT];
            } else {
                self.set(blocks, smaller, node);
                smaller = Place::Child(node, RIGHT);
                node = blocks.get(node).links[RIGHT];
            }
        }
        self.set(blocks, smaller, NO_SLOT);
        self.set(blocks, larger, NO_SLOT);
    }

    /// Puts at `place` the one tree of `left` and `right`, all of `left` before all of `right`.
    fn join(&mut self, blocks: &mut BlockTable, mut place: Place, left: Slot, right: Slot) {
        let (mut left, mut right) = (left, right);
        while left != NO_SLOT && right != NO_SLOT {
            if priority(left) >= priority(right) {
                self.set(blocks, place, left);
                place = Place::Child(left, RIGHT);
                left = blocks.get(left).links[RIGHT];
            } else {
                self.set(blocks, place, right);
                place = Place::Child(right, LEFT);
                right = blocks.get(right).links[LEFT];
            }
        }
        self.set(blocks, place, if left == NO_SLOT { right } else { left });
    }

    #[inline]
    fn link(&self, blocks: &BlockTable, place: Place) -> Slot {
        match place {
            Place::Root(bin) => self.roots[bin],
            Place::Child(slot, side) => blocks.get(slot).links[side],
        }
    }

    #[inline]
    fn set(&mut self, blocks: &mut BlockTable, place: Place, slot: Slot) {
        match place {
            Place::Root(bin) => self.roots[bin] = slot,
            Place::Child(parent, side) => blocks.get_mut(parent).links[side] = slot,
        }
    }

    /// The first bin from `bin` on that is not empty.
    #[inline]
    fn next_occupied(&self, bin: usize) -> Option<usize> {
        let mut word = bin / WORD_BITS;
        let mut bits = *self.occupied.get(word)? & (u64::MAX << (bin % WORD_BITS));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * WORD_BITS + bits.trailing_zeros() as usize)
    }

    /// The number of blocks here, after checking order, priorities, bins and bits.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut count = 0;
        for (bin, &root) in self.roots.iter().enumerate() {
            let bit = self.occupied[bin / WORD_BITS] >> (bin % WORD_BITS) & 1 == 1;
            if bit != (root != NO_SLOT) {
                return Err(format!("bin {bin}: its bit says {bit}"));
            }
            let mut in_order = Vec::new();
            collect(blocks, root, &mut in_order)?;
            for pair in in_order.windows(2) {
                if key_of(blocks, pair[0]) >= key_of(blocks, pair[1]) {
                    return Err(format!("bin {bin}: blocks {pair:?} are out of order"));
                }
            }
            if let Some(slot) = in_order.iter().find(|&&slot| bin_of(blocks.get(slot).bytes) != bin)
            {
                return Err(format!("block {slot} is in bin {bin}"));
            }
            count += in_order.len();
        }
        Ok(count)
    }
}

/// Depth first, checking the heap order on the way.
fn collect(blocks: &BlockTable, slot: Slot, in_order: &mut Vec<Slot>) -> Result<(), String> {
    if slot == NO_SLOT {
        return Ok(());
    }
    let links = blocks.get(slot).links;
    for child in links.into_iter().filter(|&child| child != NO_SLOT) {
        if priority(child) > priority(slot) {
            return Err(format!("block {child} is below block {slot}"));
        }
    }
    collect(blocks, links[LEFT], in_order)?;
    in_order.push(slot);
    collect(blocks, links[RIGHT], in_order)
}

/// Shows `visit` the blocks of the tree of `node` with sizes in `bytes`.
fn visit_tree(
    blocks: &BlockTable,
    node: Slot,
    bytes: &RangeInclusive<u64>,
    visit: &mut impl FnMut(Slot, &Block),
) {
    if node == NO_SLOT {
        return;
    }
    let block = blocks.get(node);
    if block.bytes >= *bytes.start() {
        visit_tree(blocks, block.links[LEFT], bytes, visit);
    }
    if bytes.contains(&block.bytes) {
        visit(node, block);
    }
    if block.bytes <= *bytes.end() {
        visit_tree(blocks, block.links[RIGHT], bytes, visit);
    }
}

/// The bin of blocks of `bytes`, which is below 2^48.
#[inline]
fn bin_of(bytes: u64) -> usize {
    let units = (bytes / ALIGNMENT_BYTES).max(1);
    let doublings = units.ilog2().saturating_sub(STEP_BITS);
    (doublings as usize) * STEPS + (units >> doublings) as usize
}

/// Scatters slots, so that the order of arrival does not shape the trees.
#[inline]
fn priority(slot: Slot) -> u32 {
    slot.wrapping_add(1).wrapping_mul(0x9E37_79B1)
}

/// What blocks are ordered by. A block is whole, or not, as long as it is here: its
/// neighbours, being live, cannot go before it has been taken out to be joined with them.
type Key = (u64, bool, u64);

#[inline]
fn key_of(blocks: &BlockTable, slot: Slot) -> Key {
    let block = blocks.get(slot);
    (block.bytes, blocks.is_whole_segment(slot), block.address)
}

/// The first block in order with at least `bytes`, in the tree of `node`.
#[inline]
fn first_at_least(blocks: &BlockTable, mut node: Slot, bytes: u64) -> Slot {
    let mut best = NO_SLOT;
    while node != NO_SLOT {
        let block = blocks.get(node);
        if block.bytes >= bytes {
            best = node;
            node = block.links[LEFT];
        } else {
            node = block.links[RIGHT];
        }
    }
    best
}

#[inline]
fn leftmost(blocks: &BlockTable, mut node: Slot) -> Slot {
    loop {
        let left = blocks.get(node).links[LEFT];
        if left == NO_SLOT {
            return node;
        }
        node = left;
    }
}

/// The link that leads to `slot`, which is below `node` and has `key`.
#[inline]
fn parent_place(blocks: &BlockTable, mut node: Slot, slot: Slot) -> Place {
    let key = key_of(blocks, slot);
    loop {
        let side = if key < key_of(blocks, node) { LEFT } else { RIGHT };
        let child = blocks.get(node).links[side];
        if child == slot {
            return Place::Child(node, side);
        }
        node = child;
    }
}
