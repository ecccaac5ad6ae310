//! The strategy Arena: for what lives briefly and dies together.
//!
//! | blocks | kept in | a request gets |
//! |---|---|---|
//! | small | pools of fixed sizes ([`SizePools`]) | the block of its size freed last |
//! | large | arenas: segments filled from their start ([`Arenas`]) | the next bytes of an arena |
//!
//! The *end* of an arena is its free part behind all its blocks. A request is cut from an end, the
//! smallest that is large enough, so that one arena is filled before the next is begun. A freed
//! block is joined with its free neighbours; so an arena is empty, and its end the whole of it, when
//! the last of its blocks is freed. Free blocks before the end are *holes*, which serve only a
//! request that fits no end: before the lane would take more memory.

use std::ops::RangeInclusive;

use super::best_fit::BestFit;
use super::elastic::ExactCut;
use super::joined::{FreeList, Joined};
use super::size_pools::SizePools;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot};

/// The free blocks of one lane.
pub type Arena = Joined<SizePools, Arenas, ExactCut>;

impl Arena {
    /// No free block.
    pub fn new() -> Self {
        Self::with_rule(ExactCut)
    }
}

/// The free large blocks.
#[derive(Debug)]
pub struct Arenas {
    ends: BestFit,
    holes: BestFit,
}

impl Arenas {
    /// Where the block is kept. It stays an end or a hole as long as it is free: an arena has its
    /// end for ever.
    #[inline]
    fn list_of(&mut self, blocks: &BlockTable, slot: Slot) -> &mut BestFit {
        if blocks.get(slot).after == NO_SLOT { &mut self.ends } else { &mut self.holes }
    }
}

impl FreeList for Arenas {
    fn new() -> Self {
        Self { ends: BestFit::new(), holes: BestFit::new() }
    }

    #[inline]
    fn find(&mut self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        self.ends.find(blocks, bytes).or_else(|| self.holes.find(blocks, bytes))
    }

    #[inline]
    fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.list_of(blocks, slot).insert(blocks, slot);
    }

    #[inline]
    fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        self.list_of(blocks, slot).remove(blocks, slot);
    }

    fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        self.ends.visit(blocks, bytes, visit);
        self.holes.visit(blocks, bytes, visit);
    }

    fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        self.ends.largest_bytes(blocks).max(self.holes.largest_bytes(blocks))
    }

    fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        Ok(self.ends.validate(blocks)? + self.holes.validate(blocks)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::size::{KIB, MIB, SizeClass};
    use crate::memory::{Directory, Segment};

    /// A lane's free blocks, and the blocks.
    struct Rig {
        blocks: BlockTable,
        arena: Arena,
        next: u64,
    }

    impl Rig {
        fn new() -> Self {
            let blocks = BlockTable::new(0, Arc::new(Directory::new()));
            Self { blocks, arena: Arena::new(), next: 1 << 30 }
        }

        fn add(&mut self, bytes: u64, class: SizeClass) {
            let slot = self.blocks.insert(Segment { address: self.next, bytes, class });
            self.next += 1 << 30;
            self.give(slot);
        }

        fn take(&mut self, bytes: u64) -> Option<Slot> {
            let slot = self.arena.take(&mut self.blocks, bytes)?;
            self.blocks.get_mut(slot).state = crate::memory::State::Live;
            self.blocks.list(slot);
            self.check();
            Some(slot)
        }

        fn give(&mut self, slot: Slot) {
            self.blocks.get_mut(slot).state = crate::memory::State::Free;
            self.arena.give(&mut self.blocks, slot);
            self.check();
        }

        fn check(&self) {
            self.blocks.validate().unwrap();
            self.arena.validate(&self.blocks).unwrap();
        }

        fn address(&self, slot: Slot) -> u64 {
            self.blocks.get(slot).address
        }
    }

    #[test]
    fn arenas_are_filled_in_order_and_reset_when_empty() {
        let mut rig = Rig::new();
        rig.add(32 * MIB, SizeClass::Large);
        let start = 1 << 30;
        for _ in 0..3 {
            let slots: Vec<Slot> = (0..8).map(|_| rig.take(4 * MIB).unwrap()).collect();
            for (n, &slot) in slots.iter().enumerate() {
                assert_eq!(rig.address(slot), start + n as u64 * 4 * MIB);
            }
            assert_eq!(rig.take(2 * MIB), None);
            slots.into_iter().for_each(|slot| rig.give(slot));
        }
        assert_eq!(rig.arena.largest_bytes(&rig.blocks), 32 * MIB);
    }

    #[test]
    fn holes_serve_last() {
        let mut rig = Rig::new();
        rig.add(32 * MIB, SizeClass::Large);
        let slots: Vec<Slot> = (0..4).map(|_| rig.take(4 * MIB).unwrap()).collect();
        rig.give(slots[1]);
        let behind = rig.take(4 * MIB).unwrap();
        assert_eq!(rig.address(behind), (1 << 30) + 16 * MIB, "not the hole");
        let rest: Vec<Slot> = std::iter::from_fn(|| rig.take(4 * MIB)).collect();
        let last = rest.last().map(|&slot| rig.address(slot));
        assert_eq!(last, Some(rig.address(slots[0]) + 4 * MIB), "the hole");
    }

    #[test]
    fn a_segment_has_blocks_of_one_size() {
        let mut rig = Rig::new();
        rig.add(2 * MIB, SizeClass::Small);
        rig.add(2 * MIB, SizeClass::Small);
        let small: Vec<Slot> = (0..5).map(|_| rig.take(3 * KIB).unwrap()).collect();
        let other = rig.take(100 * KIB).unwrap();
        assert!(rig.address(other).abs_diff(rig.address(small[0])) >= 1 << 29, "a segment each");
        assert_eq!(rig.take(KIB), None, "no third size");
        rig.give(small[2]);
        assert_eq!(rig.take(2 * KIB), None, "not from a larger block");
        let again = rig.take(3 * KIB).unwrap();
        assert_eq!(rig.address(again), rig.address(small[0]) + 6 * KIB);
        for &slot in [0, 1, 3, 4].map(|n| &small[n]).into_iter().chain([&again]) {
            rig.give(slot);
        }
        assert!(rig.take(KIB).is_some(), "the segment is free for any size");
    }

    #[test]
    fn a_block_of_the_largest_size_serves_no_other() {
        let mut rig = Rig::new();
        rig.add(2 * MIB, SizeClass::Small);
        let slots = [(); 2].map(|()| rig.take(MIB).unwrap());
        rig.give(slots[0]);
        assert_eq!(rig.take(512 * KIB), None);
        assert_eq!(rig.take(MIB), Some(slots[0]));
    }

    #[test]
    fn what_is_left_at_a_segments_end_hides_nothing() {
        let mut rig = Rig::new();
        rig.add(2 * MIB, SizeClass::Small);
        let count = 2 * MIB / (96 * KIB);
        let slots: Vec<Slot> = (0..count).map(|_| rig.take(96 * KIB).unwrap()).collect();
        assert_eq!(rig.take(96 * KIB), None);
        rig.give(slots[3]);
        rig.give(slots[count as usize - 1]);
        assert!(rig.take(96 * KIB).is_some() && rig.take(96 * KIB).is_some());
        assert_eq!(rig.take(96 * KIB), None);
    }
}
