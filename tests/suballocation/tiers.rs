//! Tiers.

use std::thread;

use genesis::base::Status;
use genesis::base::size::KIB;
use genesis::suballocation::{Threads, Tier, Tiers};

use crate::sources::{AnyThread, Bench, FromHeap, Subject};
use crate::support::{A, B, Random, status_of};

const TIERS: [Tier; 3] = [
    Tier { block_bytes: 1024, count: 5 },
    Tier { block_bytes: 64, count: 10 },
    Tier { block_bytes: 192, count: 10 },
];

fn tiers(bench: &Bench, arena_bytes: u64) -> Tiers<FromHeap> {
    Tiers::new(bench.source.clone(), &TIERS, arena_bytes, Threads::One).unwrap()
}

pub fn requests_go_to_the_smallest_pool_that_fits(subject: Subject) {
    let bench = subject.start();
    let tiers = tiers(&bench, 64 * KIB);
    let calls = bench.calls();
    for (bytes, alignment, least_alignment) in
        [(1, 0, 64), (64, 64, 64), (65, 0, 64), (100, 128, 512), (193, 0, 512), (1024, 512, 512)]
    {
        let block = tiers.allocate(bytes, alignment, None).unwrap();
        assert!(block.is_multiple_of(least_alignment), "{bytes} {alignment}: {block:#x}");
    }
    assert_eq!(tiers.statistics().unwrap().pool_blocks, 6);
    let large = tiers.allocate(1025, 0, None).unwrap();
    let strict = tiers.allocate(10, 1024, None).unwrap();
    assert!(strict.is_multiple_of(1024));
    assert_eq!(tiers.statistics().unwrap().arena_blocks, 2);
    assert_eq!(tiers.allocate(0, 0, None).unwrap(), 0);
    tiers.free(large).unwrap();
    tiers.free(0).unwrap();
    tiers.validate().unwrap();
    assert_eq!(bench.calls(), calls, "nothing is asked of the source after the start");
    drop(tiers);
    bench.finish();
}

pub fn a_full_pool_leaves_the_rest_to_the_arena(subject: Subject) {
    let bench = subject.start();
    let with_arena = tiers(&bench, 64 * KIB);
    let blocks: Vec<u64> = (0..20).map(|_| with_arena.allocate(1000, 0, None).unwrap()).collect();
    let statistics = with_arena.statistics().unwrap();
    assert_eq!((statistics.pool_blocks, statistics.arena_blocks), (5, 15));
    assert_eq!(statistics.overflows, 15);
    while let Ok(address) = with_arena.allocate(8 * KIB, 0, None) {
        assert_ne!(address, 0);
    }
    assert_eq!(status_of(with_arena.allocate(8 * KIB, 0, None)), Status::LimitReached);
    blocks.iter().for_each(|&block| with_arena.free(block).unwrap());
    let without = tiers(&bench, 0);
    (0..5).for_each(|_| assert_ne!(without.allocate(1000, 0, None).unwrap(), 0));
    assert_eq!(status_of(without.allocate(1000, 0, None)), Status::LimitReached);
    assert_eq!(status_of(without.allocate(2000, 0, None)), Status::LimitReached);
    drop((with_arena, without));
    bench.finish();
}

pub fn the_arena_is_empty_when_nothing_of_it_is_live(subject: Subject) {
    let bench = subject.start();
    let tiers = tiers(&bench, 64 * KIB);
    let calls = bench.calls();
    for _ in 0..20 {
        let blocks: Vec<u64> = (0..7).map(|_| tiers.allocate(8 * KIB, 0, None).unwrap()).collect();
        for &block in &blocks {
            assert_ne!(tiers.statistics().unwrap().arena_used_bytes, 0);
            tiers.free(block).unwrap();
        }
        assert_eq!(tiers.statistics().unwrap().arena_used_bytes, 0);
    }
    assert_eq!(bench.calls(), calls);
    drop(tiers);
    bench.finish();
}

pub fn wrong_frees_of_tiers_are_reported(subject: Subject) {
    let bench = subject.start();
    let tiers = tiers(&bench, 64 * KIB);
    let (small, large) =
        (tiers.allocate(64, 0, None).unwrap(), tiers.allocate(5000, 0, None).unwrap());
    let keeps = tiers.allocate(5000, 0, None).unwrap();
    for block in [small, large] {
        tiers.free(block).unwrap();
        assert_eq!(status_of(tiers.free(block)), Status::DoubleFree);
    }
    for foreign in [1, small + 1, u64::MAX] {
        assert_eq!(status_of(tiers.free(foreign)), Status::ForeignPointer, "{foreign:#x}");
    }
    tiers.free(keeps).unwrap();
    assert_eq!(status_of(tiers.free(keeps)), Status::DoubleFree);
    tiers.validate().unwrap();
    drop(tiers);
    bench.finish();
}

pub fn tiers_are_checked(subject: Subject) {
    let bench = subject.start();
    let refused =
        |tiers: &[Tier]| status_of(Tiers::new(bench.source.clone(), tiers, 0, Threads::One));
    let tier = |block_bytes, count| Tier { block_bytes, count };
    assert_eq!(refused(&[tier(64, 1), tier(64, 2)]), Status::InvalidArgument);
    assert_eq!(refused(&[tier(0, 1)]), Status::InvalidArgument);
    assert_eq!(refused(&[tier(64, 0)]), Status::InvalidArgument);
    assert_eq!(refused(&[tier(64, 10), tier(1 << 40, 1 << 20)]), Status::OutOfMemory);
    let none = Tiers::new(bench.source.clone(), &[], 0, Threads::One).unwrap();
    assert_eq!(status_of(none.allocate(1, 0, None)), Status::LimitReached);
    drop(none);
    bench.finish();
}

pub fn threads_share_tiers(subject: Subject) {
    let bench = subject.start();
    let tiers = Tiers::new(bench.source.clone(), &TIERS, 4096 * KIB, Threads::Any).unwrap();
    let shared = AnyThread(tiers);
    thread::scope(|scope| {
        for seed in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                let tiers = shared.get();
                let mut random = Random(seed);
                let mut live = Vec::new();
                for _ in 0..1000 {
                    let has_room = live.len() < 20;
                    if has_room && (random.below(2) == 0 || live.is_empty()) {
                        let bytes = 1 + random.below(3000);
                        match tiers.allocate(bytes, 0, None) {
                            Ok(block) => live.push(block),
                            Err(error) => assert_eq!(error.status, Status::LimitReached),
                        }
                    } else {
                        let index = random.below(live.len() as u64) as usize;
                        tiers.free(live.swap_remove(index)).unwrap();
                    }
                }
                live.into_iter().for_each(|block| tiers.free(block).unwrap());
            });
        }
    });
    let tiers = shared.0;
    let statistics = tiers.statistics().unwrap();
    assert_eq!((statistics.pool_blocks, statistics.arena_blocks), (0, 0));
    assert_eq!(statistics.arena_used_bytes, 0);
    tiers.validate().unwrap();
    drop(tiers);
    bench.finish();
}

pub fn other_streams_are_ordered(subject: Subject) {
    let bench = subject.start();
    let tiers = tiers(&bench, 64 * KIB);
    let mut random = Random(9);
    let mut live = Vec::new();
    for _ in 0..300 {
        if random.below(2) == 0 || live.is_empty() {
            let (bytes, stream) = (1 + random.below(3000), [A, B][random.below(2) as usize]);
            if let Ok(block) = tiers.allocate(bytes, 0, Some(stream)) {
                bench.touch(block, bytes, stream);
                live.push(block);
            }
        } else {
            tiers.free(live.swap_remove(random.below(live.len() as u64) as usize)).unwrap();
        }
    }
    assert_eq!(bench.races(), 0);
    drop(tiers);
    bench.finish();
}
