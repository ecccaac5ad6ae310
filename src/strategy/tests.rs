//! What every [`Strategy`] does, by whichever name it was asked for.

use std::sync::Arc;

use super::*;
use crate::base::size::{KIB, MIB};
use crate::memory::{Directory, Segment};

const TYPES: [PoolType; 6] = [
    PoolType::Naive,
    PoolType::Round,
    PoolType::Exact,
    PoolType::Caching,
    PoolType::Arena,
    PoolType::Elastic,
];

fn settings(pool_type: PoolType, max_split_size_bytes: Option<u64>) -> Settings {
    let mut settings = Settings { max_split_size_bytes, ..Settings::default() };
    settings.strategy.pool_type = pool_type;
    settings
}

/// A lane with two free segments of a small and two of a large size.
fn lane(pool_type: PoolType) -> (BlockTable, Strategy, [Slot; 4]) {
    let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
    let mut strategy = Strategy::new(&settings(pool_type, None));
    let mut address = 1 << 40;
    let slots = [64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB].map(|bytes| {
        let slot = blocks.insert(Segment { address, bytes, class: SizeClass::of(bytes) });
        address += 64 * MIB;
        strategy.give(&mut blocks, slot);
        slot
    });
    (blocks, strategy, slots)
}

#[test]
fn a_strategy_suits_what_asks_for_it_alone() {
    for of in TYPES {
        let strategy = Strategy::new(&settings(of, None));
        for by in TYPES {
            let are_buckets =
                [of, by].iter().all(|one| matches!(one, PoolType::Round | PoolType::Exact));
            assert_eq!(
                strategy.suits(&settings(by, None)),
                of == by || are_buckets,
                "{of:?} {by:?}"
            );
        }
        assert_eq!(strategy.keeps_blocks(), of != PoolType::Naive);
    }
    let cuts = Strategy::new(&settings(PoolType::Caching, Some(20 * MIB)));
    assert!(cuts.suits(&settings(PoolType::Caching, Some(20 * MIB))));
    assert!(!cuts.suits(&settings(PoolType::Caching, Some(40 * MIB))));
    assert!(!cuts.suits(&settings(PoolType::Caching, None)));
}

#[test]
fn the_largest_free_block_is_known() {
    for of in TYPES {
        let (mut blocks, mut strategy, slots) = lane(of);
        strategy.validate(&blocks).unwrap();
        assert_eq!(strategy.largest_free_bytes(&blocks), 8 * MIB, "{of:?}");
        strategy.withdraw(&mut blocks, slots[3]);
        blocks.get_mut(slots[3]).state = State::Live;
        assert_eq!(strategy.largest_free_bytes(&blocks), 2 * MIB, "{of:?}");
        for slot in &slots[..3] {
            strategy.withdraw(&mut blocks, *slot);
            blocks.get_mut(*slot).state = State::Live;
        }
        assert_eq!(strategy.largest_free_bytes(&blocks), 0, "{of:?}");
        strategy.validate(&blocks).unwrap();
    }
}

/// Which of the free blocks a search in another lane is shown.
#[test]
fn blocks_that_could_serve_are_visited() {
    for of in TYPES {
        let (blocks, strategy, slots) = lane(of);
        let visited = |least_bytes, most_bytes| {
            let mut visited = Vec::new();
            strategy.visit(&blocks, &(least_bytes..=most_bytes), &mut |slot, _| visited.push(slot));
            visited.sort_unstable();
            visited
        };
        let [small, other, large, largest] = slots;
        let is_exact = matches!(of, PoolType::Round | PoolType::Exact);
        let expected = |all: &[Slot], exact: &[Slot]| match of {
            PoolType::Naive => Vec::new(),
            _ if is_exact => exact.to_vec(),
            _ => all.to_vec(),
        };
        assert_eq!(visited(64 * KIB, MIB), expected(&[small, other], &[small]), "{of:?}");
        assert_eq!(visited(64 * KIB, 64 * KIB), expected(&[small], &[small]), "{of:?}");
        assert_eq!(visited(2 * MIB, 8 * MIB), expected(&[large, largest], &[large]), "{of:?}");
        assert_eq!(visited(4 * MIB, 8 * MIB), expected(&[largest], &[]), "{of:?}");
        assert_eq!(visited(2 * MIB, u64::MAX), expected(&[large, largest], &[large]), "{of:?}");
        // Only Elastic's extents may serve the other class.
        let both = if of == PoolType::Elastic { vec![other, large] } else { vec![other] };
        assert_eq!(visited(512 * KIB, 2 * MIB), expected(&both, &[other]), "{of:?}");
    }
}

/// Of a block that a lane was given, what the request leaves becomes free where segments are cut.
#[test]
fn rests_are_kept_by_those_who_cut_segments() {
    for of in TYPES {
        let (mut blocks, mut strategy, slots) = lane(of);
        strategy.withdraw(&mut blocks, slots[3]);
        strategy.cut(&mut blocks, slots[3], 2 * MIB);
        blocks.get_mut(slots[3]).state = State::Live;
        let is_cut = matches!(of, PoolType::Caching | PoolType::Arena);
        let rest_bytes = if is_cut { 6 * MIB } else { 0 };
        assert_eq!(blocks.get(slots[3]).bytes, 8 * MIB - rest_bytes, "{of:?}");
        strategy.validate(&blocks).unwrap();
        let split = strategy.split(SizeClass::Large);
        assert_eq!(split.bytes.current, rest_bytes, "{of:?}");
        assert_eq!(split.blocks.current, u64::from(is_cut), "{of:?}");
        assert_eq!(strategy.split(SizeClass::Small).bytes.peak, 0, "{of:?}");
        strategy.give(&mut blocks, slots[3]);
        assert_eq!(strategy.largest_free_bytes(&blocks), 8 * MIB, "{of:?}: joined, if it was cut");
        assert_eq!(strategy.split(SizeClass::Large).bytes.peak, rest_bytes, "{of:?}");
        strategy.reset_peaks();
        assert_eq!(strategy.split(SizeClass::Large).bytes.peak, 0, "{of:?}");
    }
}

#[test]
fn a_block_that_no_list_has_is_named() {
    for of in TYPES {
        let (mut blocks, mut strategy, slots) = lane(of);
        strategy.withdraw(&mut blocks, slots[0]);
        // It counts as free still; only Naive keeps no list that could lack it.
        assert_eq!(strategy.validate(&blocks).is_ok(), of == PoolType::Naive, "{of:?}");
    }
}

#[test]
fn blocks_are_visited_by_size_and_the_smallest_that_fits_is_taken() {
    for of in TYPES {
        let (mut blocks, mut strategy, slots) = lane(of);
        let mut visited = Vec::new();
        strategy.visit(&blocks, &(4 * MIB..=8 * MIB), &mut |slot, _| visited.push(slot));
        let is_exact = matches!(of, PoolType::Naive | PoolType::Round | PoolType::Exact);
        assert_eq!(visited, if is_exact { vec![] } else { vec![slots[3]] }, "{of:?}");
        let taken = strategy.take(&mut blocks, 2 * MIB);
        assert_eq!(taken, (of != PoolType::Naive).then_some(slots[2]), "{of:?}");
    }
}
