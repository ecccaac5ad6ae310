//! [`FirstFit`] and [`WildernessLast`] as lists of large blocks in a lane that cuts and joins, against the
//! free ranges in a sorted map.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::elastic::ExactCut;
use super::first_fit::FirstFit;
use super::joined::{FreeList, Joined};
use super::segregated::Segregated;
use super::wilderness::WildernessLast;
use crate::base::size::{ALIGNMENT_BYTES, GIB, KIB, MIB, SizeClass};
use crate::memory::{Block, BlockTable, Directory, NO_SLOT, Segment, Slot, State};

const START: u64 = 1 << 40;
const TIB: u64 = 1 << 40;

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// A free range: address and bytes.
type Free = (u64, u64);

/// Which of two free ranges that are large enough is to be taken, as the smaller key; with whether
/// the range is in the wilderness.
type Order = fn(Free, bool) -> (bool, u64, u64);

/// Large blocks of one lane, beside the free ranges that there should be.
struct Pair<L> {
    blocks: BlockTable,
    tested: Joined<Segregated, L, ExactCut>,
    order: Order,
    free: BTreeMap<u64, u64>,
    /// Where each range without memory starts.
    bare: BTreeMap<u64, Slot>,
    live: Vec<Slot>,
    random: Random,
}

fn first_fit() -> Pair<FirstFit> {
    Pair::new(|(address, _), _| (false, address, 0))
}

fn wilderness_last() -> Pair<WildernessLast> {
    Pair::new(|(address, bytes), is_wild| (is_wild, if is_wild { 0 } else { bytes }, address))
}

impl<L: FreeList> Pair<L> {
    fn new(order: Order) -> Self {
        let blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let (free, bare, live) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let tested = Joined::with_rule(ExactCut);
        Self { blocks, tested, order, free, bare, live, random: Random(1) }
    }

    /// A segment of its own.
    fn add_segment(&mut self, address: u64, bytes: u64) {
        let slot = self.blocks.insert(Segment { address, bytes, class: SizeClass::Large });
        self.tested.give(&mut self.blocks, slot);
        self.add_free(address, bytes);
    }

    /// An area with no memory yet.
    fn add_area(&mut self, bytes: u64) {
        let area = Segment { address: START, bytes, class: SizeClass::Large };
        self.bare.insert(START, self.blocks.insert_area(area));
    }

    /// Memory comes to `bytes` of the bare range at `start`, behind `gap_bytes`.
    fn fill(&mut self, start: u64, gap_bytes: u64, bytes: u64) {
        let slot = self.bare[&start];
        let bare_bytes = self.blocks.get(slot).bytes;
        let filled = if gap_bytes > 0 { self.blocks.split(slot, gap_bytes) } else { slot };
        if gap_bytes == 0 {
            self.bare.remove(&start);
        }
        if gap_bytes + bytes < bare_bytes {
            let rest = self.blocks.split(filled, bytes);
            self.bare.insert(self.blocks.get(rest).address, rest);
        }
        self.blocks.turn(filled, State::Free);
        self.tested.give(&mut self.blocks, filled);
        self.add_free(start + gap_bytes, bytes);
    }

    /// Memory comes to a part of a bare range, mostly to its start.
    fn grow(&mut self) {
        let index = self.random.below(4) as usize;
        let Some((&start, &slot)) = self.bare.iter().nth(index) else { return };
        let bare_bytes = self.blocks.get(slot).bytes;
        let bytes = (1 + self.random.below(40)) * 2 * MIB;
        let gap_bytes = if self.random.below(8) == 0 { 64 * MIB } else { 0 };
        let fits = gap_bytes + bytes < bare_bytes;
        let (gap_bytes, bytes) = if fits { (gap_bytes, bytes) } else { (0, bare_bytes) };
        self.fill(start, gap_bytes, bytes);
    }

    /// The end of a free block leaves it, as when an extent moves.
    fn shrink_some(&mut self) {
        let Some((address, slot)) = self.some_free() else { return };
        self.tested.withdraw(&mut self.blocks, slot);
        let left_bytes = self.free[&address] / 2 / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        if left_bytes == 0 {
            return self.tested.give(&mut self.blocks, slot);
        }
        let gone = self.blocks.split(slot, left_bytes);
        self.blocks.turn(gone, State::Unmapped);
        self.tested.give(&mut self.blocks, slot);
        self.free.insert(address, left_bytes);
        let after = self.blocks.get(gone).after;
        if after != NO_SLOT && self.blocks.get(after).state == State::Unmapped {
            self.bare.remove(&self.blocks.get(after).address);
            self.blocks.merge_with_after(gone);
        }
        self.bare.insert(address + left_bytes, gone);
    }

    /// A free block leaves and comes back.
    fn withdraw_some(&mut self) {
        let Some((_, slot)) = self.some_free() else { return };
        self.tested.withdraw(&mut self.blocks, slot);
        self.tested.give(&mut self.blocks, slot);
    }

    fn some_free(&mut self) -> Option<(u64, Slot)> {
        let count = self.free.len().max(1) as u64;
        let (&address, _) = self.free.iter().nth(self.random.below(count) as usize)?;
        let found = self.blocks.iter().find(|(_, block)| block.address == address);
        let Some((slot, _)) = found else { panic!("no block at {address:#x}") };
        Some((address, slot))
    }

    fn allocate(&mut self, bytes: u64) {
        let fitting = self.free.iter().map(|(&a, &b)| (a, b)).filter(|&(_, free)| free >= bytes);
        let is_wild = |(address, free): Free| self.bare.contains_key(&(address + free));
        let wanted = fitting.min_by_key(|&free| (self.order)(free, is_wild(free)));
        let taken = self.tested.take(&mut self.blocks, bytes);
        let found = taken.map(|slot| self.blocks.get(slot).address);
        assert_eq!(found, wanted.map(|(address, _)| address));
        let (Some(slot), Some((address, free_bytes))) = (taken, wanted) else { return };
        self.blocks.list(slot);
        self.blocks.get_mut(slot).state = State::Live;
        assert_eq!(self.blocks.get(slot).bytes, bytes);
        self.free.remove(&address);
        if free_bytes > bytes {
            self.free.insert(address + bytes, free_bytes - bytes);
        }
        self.live.push(slot);
    }

    fn free_some(&mut self) {
        let index = self.random.below(self.live.len() as u64) as usize;
        let slot = self.live.swap_remove(index);
        self.free(slot);
    }

    fn free(&mut self, slot: Slot) {
        let block = self.blocks.get_mut(slot);
        block.state = State::Free;
        let (address, bytes) = (block.address, block.bytes);
        self.tested.give(&mut self.blocks, slot);
        self.add_free(address, bytes);
    }

    fn add_free(&mut self, address: u64, bytes: u64) {
        let (mut start, mut end) = (address, address + bytes);
        if let Some(bytes) = self.free.remove(&end) {
            end += bytes;
        }
        if let Some((&before, &bytes)) = self.free.range(..start).next_back()
            && before + bytes == start
        {
            start = before;
        }
        self.free.insert(start, end - start);
    }

    /// Allocates and frees, with about `most_live` blocks live; now and then does something else too.
    fn run(&mut self, steps: u32, most_live: u64, mut also: impl FnMut(&mut Self, u32)) {
        for step in 0..steps {
            let grows = self.random.below(most_live) >= self.live.len() as u64;
            if grows || self.live.is_empty() {
                let magnitude = self.random.below(16);
                let units = 1 + self.random.below(1 << magnitude);
                self.allocate(MIB + units * ALIGNMENT_BYTES);
            } else {
                self.free_some();
            }
            also(self, step);
            if step % 97 == 0 {
                self.check();
            }
        }
        while !self.live.is_empty() {
            self.free_some();
        }
        self.check();
    }

    fn check(&self) {
        self.blocks.validate().unwrap();
        assert_eq!(self.tested.validate(&self.blocks), Ok(self.free.len()));
        let largest_bytes = self.free.values().copied().max().unwrap_or(0);
        assert_eq!(self.tested.largest_bytes(&self.blocks), largest_bytes);
        for sizes in [0..=u64::MAX, largest_bytes / 2..=largest_bytes - largest_bytes / 8] {
            let mut visited = Vec::new();
            let mut visit = |_, block: &Block| visited.push((block.address, block.bytes));
            self.tested.visit(&self.blocks, &[SizeClass::Large], &sizes, &mut visit);
            visited.sort_unstable();
            let of_sizes = self.free.iter().filter(|(_, bytes)| sizes.contains(bytes));
            assert!(of_sizes.map(|(&address, &bytes)| (address, bytes)).eq(visited));
        }
    }
}

#[test]
fn first_fit_takes_the_lowest() {
    for (segments, most_live) in [(1, 40), (3, 1000)] {
        let mut pair = first_fit();
        for segment in (1..=segments).rev() {
            pair.add_segment(segment << 40, 64 * GIB);
        }
        pair.run(20_000, most_live, |pair, step| {
            if step % 7 == 0 {
                pair.withdraw_some();
            }
        });
    }
}

#[test]
fn the_wilderness_is_taken_last_and_from_its_start() {
    for (most_live, grows_each) in [(40, 50), (400, 5)] {
        let mut pair = wilderness_last();
        pair.add_area(512 * GIB);
        pair.run(20_000, most_live, |pair, step| {
            if step % grows_each == 0 {
                pair.grow();
            }
            if step % 31 == 0 {
                pair.shrink_some();
            }
            if step % 7 == 0 {
                pair.withdraw_some();
            }
        });
        assert!(pair.free.len() > 1 && pair.bare.len() > 1, "something was tested");
    }
}

/// Also where the rest of the new memory would fit better: in the next cycle it would not.
#[test]
fn a_hole_is_filled_before_new_memory_is_used() {
    let mut pair = wilderness_last();
    pair.add_area(GIB);
    pair.fill(START, 0, 100 * MIB);
    for bytes in [50 * MIB, 30 * MIB] {
        pair.allocate(bytes);
    }
    let hole = pair.live.remove(0);
    pair.free(hole);
    // 20 MiB are left at the end, and would fit best.
    pair.allocate(16 * MIB);
    assert_eq!(pair.blocks.get(pair.live[1]).address, START);
}

/// If nobody waits for a view, a free block before it is a hole.
#[test]
fn the_wilderness_ends_where_no_view_returns() {
    for do_return in [true, false] {
        let mut pair = wilderness_last();
        pair.tested.expect_views(do_return);
        pair.add_area(GIB);
        pair.fill(START, 0, 100 * MIB);
        for bytes in [20 * MIB, 10 * MIB, 10 * MIB, 40 * MIB, 20 * MIB] {
            pair.allocate(bytes);
        }
        let [before, view, _, hole, _] = pair.live[..] else { panic!("five blocks") };
        pair.blocks.turn(view, State::Shadow);
        if do_return {
            pair.bare.insert(pair.blocks.get(view).address, view);
        }
        pair.free(before);
        pair.free(hole);
        pair.allocate(20 * MIB);
        let lowest = if do_return { START + 40 * MIB } else { START };
        assert_eq!(pair.blocks.get(pair.live[5]).address, lowest);
    }
}

/// The last block of a leaf may grow over the first of the next, and be cut in what that was.
#[test]
fn a_block_may_move_beyond_where_the_next_leaf_began() {
    const PAIRS: usize = 60;
    for joined in 0..PAIRS - 1 {
        let mut pair = first_fit();
        pair.add_segment(START, PAIRS as u64 * 3 * MIB + GIB);
        for _ in 0..PAIRS {
            pair.allocate(2 * MIB);
            pair.allocate(MIB + ALIGNMENT_BYTES);
        }
        let mut live = std::mem::take(&mut pair.live);
        for _ in 0..PAIRS {
            pair.free(live.remove(pair.free.len() - 1));
        }
        pair.free(live.remove(joined));
        pair.allocate(4 * MIB);
        pair.live.extend(live);
        while !pair.live.is_empty() {
            pair.check();
            pair.free_some();
        }
    }
}

#[test]
fn sizes_beyond_four_bytes_of_units_are_told_apart() {
    let mut pair = first_fit();
    for (address, bytes) in [(1 << 41, TIB), (3 << 41, TIB), (1 << 45, 3 * TIB), (1 << 46, 5 * TIB)]
    {
        pair.add_segment(address, bytes);
    }
    for bytes in [4 * TIB, 4 * TIB, 3 * TIB - 512 * KIB, 3 * TIB, TIB - 512, TIB] {
        pair.allocate(bytes);
        pair.check();
    }
}
