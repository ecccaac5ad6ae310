//! [`Caching`]: when blocks are cut, when they are joined, what is kept for large requests.

use std::sync::Arc;

use super::SplitFree;
use super::caching::Caching;
use crate::base::Gauge;
use crate::base::size::{KIB, MIB, SizeClass};
use crate::memory::{BlockTable, Directory, Segment, Slot, State};

const SEGMENT_ADDRESS: u64 = 1 << 40;

/// One segment, free, with the strategy that holds it.
struct Lane {
    blocks: BlockTable,
    caching: Caching,
}

impl Lane {
    fn new(bytes: u64, class: SizeClass, max_split_bytes: Option<u64>) -> Self {
        let blocks = BlockTable::new(0, Arc::new(Directory::new()));
        let mut lane = Self { blocks, caching: Caching::new(max_split_bytes) };
        lane.add_segment(SEGMENT_ADDRESS, bytes, class);
        lane
    }

    fn add_segment(&mut self, address: u64, bytes: u64, class: SizeClass) {
        let slot = self.blocks.insert(Segment { address, bytes, class });
        self.caching.give(&mut self.blocks, slot);
    }

    /// Takes a block; returns its slot and size.
    fn take(&mut self, bytes: u64) -> Option<(Slot, u64)> {
        let slot = self.caching.take(&mut self.blocks, bytes)?;
        self.blocks.list(slot);
        self.blocks.get_mut(slot).state = State::Live;
        self.check();
        Some((slot, self.blocks.get(slot).bytes))
    }

    fn give(&mut self, slot: Slot) {
        self.blocks.get_mut(slot).state = State::Free;
        self.caching.give(&mut self.blocks, slot);
        self.check();
    }

    fn check(&self) {
        self.blocks.validate().unwrap();
        let free = self.blocks.iter().filter(|(_, block)| block.state == State::Free).count();
        assert_eq!(self.caching.validate(&self.blocks), Ok(free));
    }

    fn free_sizes(&self) -> Vec<u64> {
        let free = self.blocks.iter().filter(|(_, block)| block.state == State::Free);
        let mut sizes: Vec<u64> = free.map(|(_, block)| block.bytes).collect();
        sizes.sort_unstable();
        sizes
    }
}

/// A part that is cut or joined stays one: only its bytes change.
#[test]
fn parts_of_segments_are_counted_as_pytorch_does() {
    let mut lane = Lane::new(20 * MIB, SizeClass::Large, None);
    let counted = |lane: &Lane| {
        let SplitFree { blocks, bytes } = lane.caching.split(SizeClass::Large);
        let all =
            |gauge: Gauge, unit: u64| [gauge.current, gauge.peak, gauge.total].map(|n| n / unit);
        (all(blocks, 1), all(bytes, MIB))
    };
    let (first, _) = lane.take(2 * MIB).unwrap();
    assert_eq!(counted(&lane), ([1, 1, 1], [18, 18, 18]));
    let (second, _) = lane.take(4 * MIB).unwrap();
    assert_eq!(counted(&lane), ([1, 1, 1], [14, 18, 18]));
    lane.give(first);
    assert_eq!(counted(&lane), ([2, 2, 2], [16, 18, 20]));
    lane.give(second);
    assert_eq!(counted(&lane), ([0, 2, 2], [0, 18, 20]));
}

#[test]
fn small_blocks_are_cut_down_to_the_alignment() {
    for (taken, rest) in [(2 * MIB, vec![]), (2 * MIB - 512, vec![512]), (512, vec![2 * MIB - 512])]
    {
        // Requests above 1 MiB are never small, so the block is cut directly.
        let mut lane = Lane::new(2 * MIB, SizeClass::Small, None);
        let slot = lane.take(MIB).unwrap().0;
        lane.give(slot);
        lane.caching.withdraw(&mut lane.blocks, slot);
        lane.caching.cut(&mut lane.blocks, slot, taken);
        lane.blocks.list(slot);
        lane.blocks.get_mut(slot).state = State::Live;
        lane.check();
        assert_eq!(lane.free_sizes(), rest);
    }
}

#[test]
fn large_blocks_are_cut_only_above_a_mebibyte_of_rest() {
    for (taken, expected) in [
        (20 * MIB, 20 * MIB),
        (19 * MIB + 512, 20 * MIB),
        (19 * MIB, 20 * MIB),
        (19 * MIB - 512, 19 * MIB - 512),
        (2 * MIB, 2 * MIB),
    ] {
        let mut lane = Lane::new(20 * MIB, SizeClass::Large, None);
        let (_, bytes) = lane.take(taken).unwrap();
        assert_eq!(bytes, expected, "for {taken}");
        assert_eq!(lane.free_sizes().iter().sum::<u64>(), 20 * MIB - expected);
    }
}

#[test]
fn size_classes_are_kept_apart() {
    let mut lane = Lane::new(20 * MIB, SizeClass::Large, None);
    assert_eq!(lane.take(MIB), None, "a small request has its own segments");
    lane.add_segment(2 * SEGMENT_ADDRESS, 2 * MIB, SizeClass::Small);
    assert_eq!(lane.take(MIB).unwrap().1, MIB);
    assert_eq!(lane.take(MIB + 512).unwrap().1, MIB + 512);
    assert_eq!(lane.caching.largest_bytes(&lane.blocks), 20 * MIB - MIB - 512);
}

#[test]
fn neighbours_are_joined_in_every_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut lane = Lane::new(20 * MIB, SizeClass::Large, None);
        let slots = [5 * MIB, 4 * MIB, 6 * MIB].map(|bytes| lane.take(bytes).unwrap().0);
        for (epoch, index) in (1..).zip(order) {
            lane.blocks.get_mut(slots[index]).freed_epoch = epoch;
            lane.blocks.get_mut(slots[index]).freed_tick = epoch;
            lane.give(slots[index]);
        }
        assert_eq!(lane.free_sizes(), [20 * MIB], "{order:?}");
        let (slot, block) = lane.blocks.iter().next().unwrap();
        assert!(lane.blocks.is_whole_segment(slot));
        assert_eq!((block.freed_epoch, block.freed_tick), (3, 3), "as fresh as its last part");
    }
}

/// A block that waited for other streams comes in long after it was freed.
#[test]
fn a_late_block_does_not_make_its_neighbours_older() {
    for late in [0, 1] {
        let mut lane = Lane::new(20 * MIB, SizeClass::Large, None);
        let slots = [8 * MIB, 12 * MIB].map(|bytes| lane.take(bytes).unwrap().0);
        for (index, slot) in slots.into_iter().enumerate() {
            let freed = if index == late { 3 } else { 9 };
            let block = lane.blocks.get_mut(slot);
            (block.freed_epoch, block.freed_tick, block.freed_second) = (freed, freed, freed);
        }
        lane.give(slots[1 - late]);
        lane.give(slots[late]);
        let (_, block) = lane.blocks.iter().next().unwrap();
        assert_eq!(block.bytes, 20 * MIB);
        assert_eq!((block.freed_epoch, block.freed_tick, block.freed_second), (9, 9, 9));
    }
}

#[test]
fn oversize_blocks_are_kept_for_oversize_requests() {
    let mut lane = Lane::new(64 * MIB, SizeClass::Large, Some(32 * MIB));
    assert_eq!(lane.take(8 * MIB), None, "not for a smaller request");
    assert_eq!(lane.take(44 * MIB), None, "20 MiB and more would be wasted");
    let (slot, bytes) = lane.take(44 * MIB + 512).unwrap();
    assert_eq!(bytes, 64 * MIB, "an oversize block is not cut");
    lane.give(slot);
    // The limit itself is oversize.
    let mut lane = Lane::new(40 * MIB, SizeClass::Large, Some(32 * MIB));
    assert_eq!(lane.take(32 * MIB).unwrap().1, 40 * MIB);
    // Below the limit everything is as usual.
    lane.add_segment(2 * SEGMENT_ADDRESS, 20 * MIB, SizeClass::Large);
    assert_eq!(lane.take(8 * MIB).unwrap().1, 8 * MIB);
}

#[test]
fn the_smallest_that_fits_is_taken() {
    let mut lane = Lane::new(2 * MIB, SizeClass::Small, None);
    let sizes = [64 * KIB, 4 * KIB, 32 * KIB, 4 * KIB, 16 * KIB, 4 * KIB];
    let slots = sizes.map(|bytes| lane.take(bytes).unwrap().0);
    let addresses = slots.map(|slot| lane.blocks.get(slot).address);
    for index in [0, 2, 4] {
        lane.give(slots[index]);
    }
    for (request, index) in [(16 * KIB, 4), (17 * KIB, 2), (33 * KIB, 0)] {
        let (slot, bytes) = lane.take(request).unwrap();
        assert_eq!((lane.blocks.get(slot).address, bytes), (addresses[index], request));
    }
}
