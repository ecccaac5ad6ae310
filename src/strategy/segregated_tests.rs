//! [`Segregated`] against a sorted set, and in a lane that cuts and joins, [`Elastic`], against
//! the ranges it has handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::elastic::Elastic;
use super::joined::FreeList;
use super::segregated::Segregated;
use crate::base::size::{ALIGNMENT_BYTES, KIB, MIB, SizeClass};
use crate::memory::{Block, BlockTable, Directory, NO_SLOT, Segment, Slot, State};

/// Below this, in bytes, each size has a bin of its own.
const EXACT_BELOW_BYTES: u64 = 64 * ALIGNMENT_BYTES;

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn segment(number: u64, bytes: u64) -> Segment {
    Segment { address: (number + 1) << 40, bytes, class: SizeClass::Small }
}

/// Where the bin of `bytes` starts and how wide it is, in units.
fn bin(bytes: u64) -> (u64, u64) {
    let units = bytes / ALIGNMENT_BYTES;
    let width = 1 << units.max(1).ilog2().saturating_sub(5);
    (units / width * width, width)
}

/// A table of blocks, some of them in the structure and in the set.
struct Pair {
    blocks: BlockTable,
    tested: Segregated,
    oracle: BTreeSet<(u64, Slot)>,
    outside: Vec<Slot>,
    random: Random,
}

impl Pair {
    /// Blocks of the sizes given, none inserted yet; every other is a part of a segment.
    fn new(sizes: impl Iterator<Item = u64>) -> Self {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let place = |(n, bytes): (u64, u64)| {
            let is_part = n % 2 == 1;
            let slot = blocks.insert(segment(n, bytes + u64::from(is_part) * ALIGNMENT_BYTES));
            if is_part {
                let rest = blocks.split(slot, bytes);
                blocks.get_mut(rest).state = State::Live;
            }
            slot
        };
        let outside: Vec<Slot> = (0..).zip(sizes).map(place).collect();
        let (tested, oracle) = (Segregated::new(), BTreeSet::new());
        Self { blocks, tested, oracle, outside, random: Random(1) }
    }

    fn insert_some(&mut self) {
        let index = self.random.below(self.outside.len());
        let slot = self.outside.swap_remove(index);
        self.tested.insert(&mut self.blocks, slot);
        assert!(self.oracle.insert((self.blocks.get(slot).bytes, slot)));
    }

    fn remove_some(&mut self) {
        let index = self.random.below(self.oracle.len());
        let entry = *self.oracle.iter().nth(index).unwrap();
        self.remove(entry.1);
    }

    fn remove(&mut self, slot: Slot) {
        self.tested.remove(&mut self.blocks, slot);
        assert!(self.oracle.remove(&(self.blocks.get(slot).bytes, slot)));
        self.outside.push(slot);
    }

    /// A search finds a block that is here whenever one fits, and one as good as promised.
    fn check_search(&mut self, bytes: u64) -> Option<Slot> {
        let found = self.tested.find(&self.blocks, bytes);
        let best_bytes = self.oracle.range((bytes, 0)..).next().map(|&(bytes, _)| bytes);
        assert_eq!(found.is_some(), best_bytes.is_some(), "for {bytes}");
        let (slot, best_bytes) = (found?, best_bytes?);
        let found_bytes = self.blocks.get(slot).bytes;
        assert!(found_bytes >= bytes && self.oracle.contains(&(found_bytes, slot)));
        let (first, width) = bin(bytes);
        let own_bin = first * ALIGNMENT_BYTES..(first + width) * ALIGNMENT_BYTES;
        let in_own_bin = self.oracle.range((own_bin.start, 0)..(own_bin.end, 0)).count();
        if !own_bin.contains(&best_bytes) {
            assert_eq!(bin(found_bytes), bin(best_bytes), "for {bytes}");
        } else if in_own_bin <= 8 || best_bytes < EXACT_BELOW_BYTES {
            assert_eq!(found_bytes, best_bytes, "for {bytes}");
        }
        if found_bytes < EXACT_BELOW_BYTES && self.blocks.is_whole_segment(slot) {
            let same_size = self.oracle.range((found_bytes, 0)..=(found_bytes, NO_SLOT));
            let mut slots = same_size.map(|&(_, slot)| slot);
            assert!(slots.all(|slot| self.blocks.is_whole_segment(slot)), "parts go first");
        }
        found
    }

    fn check_all(&mut self) {
        assert_eq!(self.tested.validate(&self.blocks), Ok(self.oracle.len()));
        let largest_bytes = self.oracle.last().map_or(0, |&(bytes, _)| bytes);
        assert_eq!(self.tested.largest_bytes(&self.blocks), largest_bytes);

        let range = self.random.next() % (largest_bytes + 1)..=largest_bytes;
        let mut visited = BTreeSet::new();
        self.tested.visit(&self.blocks, &range, &mut |slot, block| {
            assert!(visited.insert((block.bytes, slot)), "block {slot} twice");
        });
        assert!(visited.iter().eq(self.oracle.range((*range.start(), 0)..)), "{range:?}");
    }

    /// Random operations, among them "take what fits" as an allocator does.
    fn run(&mut self, operations: usize, request_bytes: impl Fn(u64) -> u64) {
        for n in 0..operations {
            match self.random.below(3) {
                0 if !self.oracle.is_empty() => self.remove_some(),
                1 => {
                    let bytes = request_bytes(self.random.next());
                    if let Some(slot) = self.check_search(bytes) {
                        self.remove(slot);
                    }
                }
                _ if !self.outside.is_empty() => self.insert_some(),
                _ => {}
            }
            if n % 64 == 0 {
                self.check_all();
            }
        }
        while !self.oracle.is_empty() {
            self.remove_some();
        }
        self.check_all();
        assert_eq!(self.tested.find(&self.blocks, ALIGNMENT_BYTES), None);
    }
}

#[test]
fn sizes_of_every_magnitude() {
    let size = |n: u64| ((n % 37 + 1) * ALIGNMENT_BYTES) << (n % 33);
    Pair::new((0..700).map(size)).run(40_000, |random| size(random % 5000));
}

#[test]
fn many_blocks_of_few_sizes() {
    let size = |n: u64| (n % 3 + 1) * ALIGNMENT_BYTES;
    Pair::new((0..900).map(size)).run(40_000, |random| (random % 5) * 300 + 1);
}

/// More blocks in one bin than a search looks at; the last that fits is found all the same.
#[test]
fn one_bin_of_many_sizes() {
    // All between 32 and 33 MiB: one bin is 1 MiB wide there.
    let size = |n: u64| 32 * MIB + n * 7 % 2048 * ALIGNMENT_BYTES;
    Pair::new((0..2000).map(size)).run(40_000, |random| 31 * MIB + random % (3 * MIB));
}

/// Requests at and around the edges of bins, where rounding one way or the other would show.
#[test]
fn edges_of_bins() {
    let mut pair = Pair::new((9..47).flat_map(|exponent| {
        let power = 1u64 << exponent;
        [power, power + ALIGNMENT_BYTES, power + power / 32, 2 * power - ALIGNMENT_BYTES]
            .into_iter()
            .filter(|bytes| bytes % ALIGNMENT_BYTES == 0)
    }));
    while !pair.outside.is_empty() {
        pair.insert_some();
    }
    pair.check_all();
    for exponent in 9..48 {
        let power = 1u64 << exponent;
        for bytes in [power - 1, power, power + 1, power + power / 32, power + power / 32 + 1] {
            pair.check_search(bytes);
        }
    }
}

#[test]
fn validation_notices_what_is_wrong() {
    let spoil = |spoil: fn(&mut Pair)| {
        let mut pair = Pair::new([MIB, MIB, MIB + 512, 512].into_iter());
        while !pair.outside.is_empty() {
            pair.insert_some();
        }
        pair.check_all();
        spoil(&mut pair);
        assert!(pair.tested.validate(&pair.blocks).is_err());
    };
    spoil(|pair| pair.blocks.get_mut(0).state = State::Live);
    spoil(|pair| pair.blocks.get_mut(0).bytes *= 2);
    spoil(|pair| pair.blocks.get_mut(1).bytes *= 4);
    spoil(|pair| pair.blocks.get_mut(0).links.swap(0, 1));
    spoil(|pair| pair.blocks.get_mut(1).links[0] = 1);
}

/// A lane's free blocks, with what it has handed out.
struct Allocator {
    blocks: BlockTable,
    elastic: Elastic,
    /// What is handed out: address → size and slot.
    live: BTreeMap<u64, (u64, Slot)>,
    segments_bytes: u64,
}

impl Allocator {
    fn new(segments: u64, bytes: u64) -> Self {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let mut elastic = Elastic::new();
        for number in 0..segments {
            for (half, class) in SizeClass::ALL.into_iter().enumerate() {
                let segment = segment(2 * number + half as u64, bytes / 2);
                let slot = blocks.insert(Segment { class, ..segment });
                elastic.give(&mut blocks, slot);
            }
        }
        Self { blocks, elastic, live: BTreeMap::new(), segments_bytes: segments * bytes }
    }

    fn allocate(&mut self, bytes: u64) -> bool {
        let Some(slot) = self.elastic.take(&mut self.blocks, bytes) else {
            return false;
        };
        let block = self.blocks.get_mut(slot);
        block.state = State::Live;
        assert_eq!(block.bytes, bytes);
        let address = block.address;
        self.blocks.list(slot);
        let before = self.live.range(..=address).next_back();
        assert!(before.is_none_or(|(start, (bytes, _))| start + bytes <= address));
        let after = self.live.range(address..).next();
        assert!(after.is_none_or(|(&start, _)| address + bytes <= start));
        self.live.insert(address, (bytes, slot));
        true
    }

    fn free(&mut self, address: u64) {
        let (_, slot) = self.live.remove(&address).unwrap();
        self.blocks.get_mut(slot).state = State::Free;
        self.elastic.give(&mut self.blocks, slot);
    }

    /// Every block is in exactly one place, and together they are the segments.
    fn check(&self) {
        self.blocks.validate().unwrap();
        let free = self.blocks.iter().filter(|(_, block)| block.state == State::Free);
        let free: BTreeMap<Slot, u64> = free.map(|(slot, block)| (slot, block.bytes)).collect();
        assert_eq!(self.elastic.validate(&self.blocks), Ok(free.len()));
        let mut held = BTreeMap::new();
        self.elastic.visit(&self.blocks, &SizeClass::ALL, &(0..=u64::MAX), &mut |slot, block| {
            held.insert(slot, block.bytes);
        });
        assert_eq!(held, free);
        let live_bytes: u64 = self.live.values().map(|(bytes, _)| bytes).sum();
        assert_eq!(live_bytes + free.values().sum::<u64>(), self.segments_bytes);
    }
}

#[test]
fn nothing_is_lost_and_nothing_handed_out_twice() {
    for (seed, distinct_sizes) in [(1, 20), (2, 300), (3, 20_000)] {
        let (segments, segment_bytes) = (8, 64 * MIB);
        let mut allocator = Allocator::new(segments, segment_bytes);
        let mut random = Random(seed);
        let mut refused = 0;
        for n in 0..60_000 {
            // Drifts between nearly empty and too full.
            let is_filling = n / 5000 % 2 == 0;
            if random.below(100) < if is_filling { 60 } else { 40 } {
                let kind = random.next() % distinct_sizes;
                let bytes = (kind % 31 + 1) * ((512 << (kind % 12)) + kind / 372 * 512);
                refused += usize::from(!allocator.allocate(bytes.min(32 * MIB)));
            } else if !allocator.live.is_empty() {
                let near = random.next() % ((segments + 1) << 40);
                let found = allocator.live.range(near..).next().or(allocator.live.iter().next());
                let address = *found.unwrap().0;
                allocator.free(address);
            }
            if n % 97 == 0 {
                allocator.check();
            }
        }
        allocator.check();
        assert!(refused > 0, "{distinct_sizes} sizes never filled the segments");
        let addresses: Vec<u64> = allocator.live.keys().copied().collect();
        addresses.into_iter().for_each(|address| allocator.free(address));
        allocator.check();
        assert_eq!(allocator.blocks.iter().count() as u64, 2 * segments, "all joined again");
        assert!(!allocator.allocate(segment_bytes / 2 + 512));
        let split = SizeClass::ALL.map(|class| allocator.elastic.split(class).bytes);
        assert_eq!(split.map(|bytes| bytes.current), [0, 0]);
        assert!(split.iter().all(|bytes| bytes.peak > 64 * KIB));
    }
}

#[test]
fn validation_notices_parts_miscounted_and_neighbours_not_joined() {
    let spoil = |spoil: fn(&mut Block)| {
        let mut allocator = Allocator::new(1, 2 * MIB);
        assert!(allocator.allocate(4 * KIB));
        allocator.check();
        let &(_, slot) = allocator.live.values().next().unwrap();
        let rest = allocator.blocks.get(slot).after;
        for slot in [slot, rest] {
            spoil(allocator.blocks.get_mut(slot));
        }
        assert!(allocator.elastic.validate(&allocator.blocks).is_err());
    };
    // The rest stays in its bin, so only the count of parts shows it.
    spoil(|block| block.bytes += ALIGNMENT_BYTES);
    spoil(|block| block.state = State::Free);
}
