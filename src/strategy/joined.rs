//! Free blocks that are joined with their free neighbours: what Caching, Arena and Elastic share.
//!
//! Small and large blocks live in segments or areas of their own kind ([`SizeClass`]), and each
//! class has a [`FreeList`] of its own. A block that is larger than the request is cut where the
//! [`CutRule`] says that the rest is worth keeping. A freed block is joined with its free
//! neighbours at once.
//!
//! ```text
//! no two free blocks of a segment or an area are neighbours
//! classes[c].split = the free blocks of class c that are not whole segments; what one call does to
//!                    them counts as one change, as in PyTorch's statistic
//! ```
//!
//! Used under its lane's lock. The list and the rule are types, so the calls are inlined.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::base::Gauge;
use crate::base::size::SizeClass;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

/// Free blocks that are searched by size, all of less than 2^48 bytes. Joins and cuts nothing.
pub trait FreeList: Debug {
    /// No free block.
    fn new() -> Self;

    /// A free block of at least `bytes`, if there is one; it stays here.
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot>;

    /// Takes in a free block.
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot);

    /// Takes out a block that is here.
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot);

    /// Returns true if the block in `slot`, which is here, keeps its place when it is cut, or joined
    /// with a neighbour: then [`Self::replace`] is cheap.
    #[inline]
    fn keeps_place(&self, _blocks: &BlockTable, _slot: Slot) -> bool {
        false
    }

    /// The block `slot`, which was at `address` here and keeps its place, has become `by`: cut, or
    /// joined with a neighbour.
    fn replace(&mut self, _blocks: &mut BlockTable, (_slot, _address): (Slot, u64), _by: Slot) {}

    /// Calls `visit` with the free blocks of sizes in `bytes`, in no order.
    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    );

    /// The largest free block, in bytes; 0 when there is none.
    fn largest_bytes(&self, blocks: &BlockTable) -> u64;

    /// The number of blocks here, after checking the structure.
    fn validate(&self, blocks: &BlockTable) -> Result<usize, String>;
}

/// Which free blocks serve a request, and which rests become blocks.
pub trait CutRule: Debug {
    /// Returns true if a free block of `free_bytes` may serve `block_bytes`, which are no more.
    fn serves(&self, free_bytes: u64, block_bytes: u64) -> bool;

    /// Returns true if `rest_bytes` become a free block when `block_bytes` of `class` are cut off.
    fn keeps_rest(&self, class: SizeClass, block_bytes: u64, rest_bytes: u64) -> bool;
}

/// Free blocks that are parts of segments: cached, but not to be given back. PyTorch's statistic
/// of inactive split blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SplitFree {
    /// How many.
    pub blocks: Gauge,
    /// How large together.
    pub bytes: Gauge,
}

impl SplitFree {
    #[inline]
    fn add(&mut self, block_bytes: u64) {
        self.blocks.add(1);
        self.bytes.add(block_bytes);
    }

    #[inline]
    fn take(&mut self, block_bytes: u64) {
        self.blocks.take(1);
        self.bytes.take(block_bytes);
    }
}

/// The free blocks of one lane: the small ones in a list `S`, the large ones in a list `L`.
#[derive(Debug)]
pub struct Joined<S, L, R> {
    small: Class<S>,
    large: Class<L>,
    rule: R,
}

/// The free blocks of one size class.
#[derive(Debug)]
struct Class<F> {
    list: F,
    split: SplitFree,
}

impl<S: FreeList, L: FreeList, R: CutRule> Joined<S, L, R> {
    /// No free block; the blocks will be cut by `rule`.
    pub fn with_rule(rule: R) -> Self {
        Self { small: Class::new(), large: Class::new(), rule }
    }

    /// The small and the large free blocks.
    pub(super) fn lists(&self) -> (&S, &L) {
        (&self.small.list, &self.large.list)
    }

    /// The large free blocks.
    pub(super) fn large_list(&mut self) -> &mut L {
        &mut self.large.list
    }

    /// The rule by which blocks are cut.
    pub(super) fn rule(&self) -> &R {
        &self.rule
    }

    /// Takes out a block of at least `block_bytes`, cut to size.
    #[inline]
    pub fn take(&mut self, blocks: &mut BlockTable, block_bytes: u64) -> Option<Slot> {
        match SizeClass::of(block_bytes) {
            SizeClass::Small => self.small.take(&self.rule, blocks, block_bytes),
            SizeClass::Large => self.large.take(&self.rule, blocks, block_bytes),
        }
    }

    /// Cuts a block that is not here to `block_bytes`, and takes in the rest if it is worth it.
    pub fn cut(&mut self, blocks: &mut BlockTable, slot: Slot, block_bytes: u64) {
        match blocks.get(slot).class {
            SizeClass::Small => self.small.cut(&self.rule, blocks, slot, block_bytes),
            SizeClass::Large => self.large.cut(&self.rule, blocks, slot, block_bytes),
        }
    }

    /// Takes in a free block, joined with its free neighbours.
    #[inline]
    pub fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.give_of(blocks.get(slot).class, blocks, slot);
    }

    /// [`Self::give`] of a block of `class`.
    #[inline(always)]
    pub fn give_of(&mut self, class: SizeClass, blocks: &mut BlockTable, slot: Slot) {
        match class {
            SizeClass::Small => self.small.give(blocks, slot),
            SizeClass::Large => self.large.give(blocks, slot),
        }
    }

    /// Takes out a particular free block.
    pub fn withdraw(&mut self, blocks: &mut BlockTable, slot: Slot) {
        match blocks.get(slot).class {
            SizeClass::Small => self.small.remove(blocks, slot),
            SizeClass::Large => self.large.remove(blocks, slot),
        }
    }

    /// Calls `visit` with the free blocks of `classes` that have `bytes`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        classes: &[SizeClass],
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        for class in classes {
            match class {
                SizeClass::Small => self.small.list.visit(blocks, bytes, visit),
                SizeClass::Large => self.large.list.visit(blocks, bytes, visit),
            }
        }
    }

    /// The largest free block, in bytes.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.small.list.largest_bytes(blocks).max(self.large.list.largest_bytes(blocks))
    }

    /// The free blocks of `class` that are parts of segments or areas.
    pub fn split(&self, class: SizeClass) -> SplitFree {
        match class {
            SizeClass::Small => self.small.split,
            SizeClass::Large => self.large.split,
        }
    }

    /// Makes the peaks of [`Self::split`] the current values.
    pub fn reset_peaks(&mut self) {
        for split in [&mut self.small.split, &mut self.large.split] {
            split.blocks.reset_peak();
            split.bytes.reset_peak();
        }
    }

    /// The number of free blocks here, after checking the lists and the module's equations.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let mut parts = [(0, 0); 2];
        for (slot, block) in blocks.iter().filter(|(_, block)| block.state == State::Free) {
            if block.after != NO_SLOT && blocks.get(block.after).state == State::Free {
                return Err(format!("free blocks {slot} and {} are not joined", block.after));
            }
            if !blocks.is_whole_segment(slot) {
                let (count, bytes) = &mut parts[block.class.index()];
                (*count, *bytes) = (*count + 1, *bytes + block.bytes);
            }
        }
        for (class, parts) in SizeClass::ALL.into_iter().zip(parts) {
            let split = self.split(class);
            if parts != (split.blocks.current, split.bytes.current) {
                return Err(format!("{parts:?} blocks and bytes of parts, counted {split:?}"));
            }
        }
        Ok(self.small.list.validate(blocks)? + self.large.list.validate(blocks)?)
    }
}

impl<F: FreeList> Class<F> {
    fn new() -> Self {
        Self { list: F::new(), split: SplitFree::default() }
    }

    #[inline]
    fn take(
        &mut self,
        rule: &impl CutRule,
        blocks: &mut BlockTable,
        block_bytes: u64,
    ) -> Option<Slot> {
        let slot = self.list.find(blocks, block_bytes)?;
        let Block { bytes, address, class, .. } = *blocks.get(slot);
        if !rule.serves(bytes, block_bytes) {
            return None;
        }
        let rest_bytes = bytes - block_bytes;
        if !rule.keeps_rest(class, block_bytes, rest_bytes) {
            self.remove(blocks, slot);
            return Some(slot);
        }
        if blocks.is_whole_segment(slot) {
            self.split.add(rest_bytes);
        } else {
            self.split.bytes.take(block_bytes);
        }
        if self.list.keeps_place(blocks, slot) {
            let rest = blocks.split(slot, block_bytes);
            self.list.replace(blocks, (slot, address), rest);
        } else {
            self.list.remove(blocks, slot);
            let rest = blocks.split(slot, block_bytes);
            self.list.insert(blocks, rest);
        }
        Some(slot)
    }

    #[inline]
    fn give(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { before, after, bytes, .. } = *blocks.get(slot);
        let is_free = |slot: Slot| slot != NO_SLOT && blocks.get(slot).state == State::Free;
        let (joins_before, joins_after) = (is_free(before), is_free(after));
        if !joins_before && !joins_after {
            return self.insert(blocks, slot);
        }
        if joins_before && joins_after {
            self.split.blocks.take(1);
            self.list.remove(blocks, after);
            blocks.merge_with_after(slot);
        }
        let (known, joined) = if joins_before { (before, before) } else { (after, slot) };
        let known_address = blocks.get(known).address;
        if self.list.keeps_place(blocks, known) {
            blocks.merge_with_after(joined);
            self.list.replace(blocks, (known, known_address), joined);
        } else {
            self.list.remove(blocks, known);
            blocks.merge_with_after(joined);
            self.list.insert(blocks, joined);
        }
        if blocks.is_whole_segment(joined) {
            self.split.take(blocks.get(joined).bytes - bytes);
        } else {
            self.split.bytes.add(bytes);
        }
    }

    #[inline]
    fn cut(&mut self, rule: &impl CutRule, blocks: &mut BlockTable, slot: Slot, block_bytes: u64) {
        let Block { bytes, class, .. } = *blocks.get(slot);
        if rule.keeps_rest(class, block_bytes, bytes - block_bytes) {
            let rest = blocks.split(slot, block_bytes);
            self.insert(blocks, rest);
        }
    }

    #[inline(always)]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bytes = blocks.get(slot).bytes;
        if !blocks.is_whole_segment(slot) {
            self.split.add(bytes);
        }
        self.list.insert(blocks, slot);
    }

    #[inline(always)]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bytes = blocks.get(slot).bytes;
        if !blocks.is_whole_segment(slot) {
            self.split.take(bytes);
        }
        self.list.remove(blocks, slot);
    }
}
