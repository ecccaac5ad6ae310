//! Free blocks in order of size: find the smallest that fits.
//!
//! The order is that of the [`Key`] `(bytes, whole segment?, address)`. Among blocks of equal
//! size a part of a segment goes before a whole segment, which can still be given back or
//! serve another stream, and then the lowest address goes first, which keeps long-lived
//! blocks together. Two steps lead to the order:
//!
//! 1. **Bins** of sizes ([`bins`]): every block of a later bin is larger than every block of an
//!    earlier one.
//! 2. **Trees.** The blocks of a bin form a treap by key (Seidel and Aragon, "Randomized Search
//!    Trees", 1996): binary search tree by key, heap by a priority hashed from the slot. Most
//!    bins hold one or two blocks; a bin with thousands still costs O(log n).
//!
//! Nothing is allocated: the trees run through the blocks' links.
//!
//! [`bins`]: super::bins

use std::ops::RangeInclusive;

use super::bins::{Bins, bin_of};
use super::joined::FreeList;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// The free blocks of one size class of one lane.
#[derive(Debug)]
pub struct BestFit {
    /// The head of a bin is the root of its tree.
    bins: Box<Bins>,
}

/// Where a link to a node is kept.
#[derive(Clone, Copy)]
enum Place {
    Root(usize),
    Child(Slot, usize),
}

impl FreeList for BestFit {
    fn new() -> Self {
        Self { bins: Bins::new() }
    }

    /// The smallest free block of at least `bytes`.
    #[inline(always)]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let bin = bin_of(bytes);
        let root = self.bins.head(bin);
        if root != NO_SLOT {
            let slot = first_at_least(blocks, root, bytes);
            if slot != NO_SLOT {
                return Some(slot);
            }
        }
        self.bins.next_in_use(bin + 1).map(|bin| leftmost(blocks, self.bins.head(bin)))
    }

    #[inline(always)]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let block = blocks.get_mut(slot);
        let bin = bin_of(block.bytes);
        block.bin = bin as u16;
        if self.bins.head(bin) == NO_SLOT {
            block.links = [NO_SLOT; 2];
            self.bins.fill(bin, slot);
        } else {
            self.insert_below(blocks, Place::Root(bin), slot);
        }
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { links, bin, .. } = *blocks.get(slot);
        let bin = usize::from(bin);
        let root = self.bins.head(bin);
        if root == slot && links == [NO_SLOT; 2] {
            return self.bins.clear(bin);
        }
        let place = if root == slot { Place::Root(bin) } else { parent_place(blocks, root, slot) };
        if links[LEFT] == NO_SLOT || links[RIGHT] == NO_SLOT {
            let only = if links[LEFT] == NO_SLOT { links[RIGHT] } else { links[LEFT] };
            self.set(blocks, place, only);
        } else {
            self.join(blocks, place, links[LEFT], links[RIGHT]);
        }
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.bins.heads_for(bytes).for_each(|root| visit_tree(blocks, root, bytes, visit));
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let rightmost = |mut slot: Slot| {
            while blocks.get(slot).links[RIGHT] != NO_SLOT {
                slot = blocks.get(slot).links[RIGHT];
            }
            blocks.get(slot).bytes
        };
        self.bins.last_head().map_or(0, rightmost)
    }

    /// Checks order, priorities and bins.
    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut count = 0;
        for (bin, root) in self.bins.validate()? {
            let mut in_order = Vec::new();
            collect(blocks, root, &mut in_order)?;
            for pair in in_order.windows(2) {
                if key_of(blocks, pair[0]) >= key_of(blocks, pair[1]) {
                    return Err(format!("bin {bin}: blocks {pair:?} are out of order"));
                }
            }
            let is_wrong =
                |block: &Block| (bin_of(block.bytes), usize::from(block.bin)) != (bin, bin);
            if let Some(slot) = in_order.iter().find(|&&slot| is_wrong(blocks.get(slot))) {
                return Err(format!("block {slot} is in bin {bin}"));
            }
            count += in_order.len();
        }
        Ok(count)
    }
}

impl BestFit {
    /// Descends to where `slot`'s priority belongs and parts the nodes below by its key.
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
            Place::Root(bin) => self.bins.head(bin),
            Place::Child(slot, side) => blocks.get(slot).links[side],
        }
    }

    #[inline]
    fn set(&mut self, blocks: &mut BlockTable, place: Place, slot: Slot) {
        match place {
            Place::Root(bin) => self.bins.set_head(bin, slot),
            Place::Child(parent, side) => blocks.get_mut(parent).links[side] = slot,
        }
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

/// Calls `visit` with the blocks of the tree of `node` that have sizes in `bytes`.
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

/// Scatters slots, so that the order of arrival does not shape the trees.
#[inline]
fn priority(slot: Slot) -> u32 {
    slot.wrapping_add(1).wrapping_mul(0x9E37_79B1)
}

/// What blocks are ordered by. Whether a block is a whole segment does not change while it is
/// here: its neighbours are live, and to be joined with one it is taken out first.
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

/// The link that leads to `slot`, which is below `node`.
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
