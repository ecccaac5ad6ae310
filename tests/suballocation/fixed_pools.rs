//! Fixed-size pools.

use std::collections::HashSet;
use std::thread;

use genesis::base::Status;
use genesis::base::size::{KIB, MIB};
use genesis::suballocation::{FixedPool, FixedPoolOptions, Threads};

use crate::sources::{AnyThread, Bench, FromHeap, Subject};
use crate::support::{A, B, C, Random, status_of};

const OPTIONS: FixedPoolOptions = FixedPoolOptions {
    threads: Threads::One,
    block_bytes: 1000,
    alignment_bytes: 64,
    count: 50,
    growth: 0,
};

fn pool(bench: &Bench, options: FixedPoolOptions) -> FixedPool<FromHeap> {
    FixedPool::new(bench.source.clone(), options).unwrap()
}

pub fn blocks_are_aligned_and_reused_newest_first(subject: Subject) {
    let bench = subject.start();
    for (block_bytes, alignment_bytes, stride_bytes) in
        [(1, 1, 1), (24, 8, 24), (100, 64, 128), (4096, 4096, 4096), (5000, 2048, 6144)]
    {
        let options = FixedPoolOptions { block_bytes, alignment_bytes, ..OPTIONS };
        let pool = pool(&bench, options);
        let blocks: Vec<u64> = (0..50).map(|_| pool.allocate().unwrap()).collect();
        for pair in blocks.windows(2) {
            assert_eq!(pair[1] - pair[0], stride_bytes);
        }
        assert!(blocks[0].is_multiple_of(alignment_bytes));
        let calls = bench.calls();
        for &block in &blocks[10..20] {
            pool.free(block).unwrap();
        }
        for &block in blocks[10..20].iter().rev() {
            assert_eq!(pool.allocate().unwrap(), block);
        }
        assert_eq!(bench.calls(), calls, "no driver call");
        pool.validate().unwrap();
    }
    bench.finish();
}

pub fn a_full_pool_is_an_error(subject: Subject) {
    let bench = subject.start();
    let pool = pool(&bench, OPTIONS);
    let blocks: Vec<u64> = (0..50).map(|_| pool.allocate().unwrap()).collect();
    for _ in 0..3 {
        let error = pool.allocate().unwrap_err();
        assert_eq!(error.status, Status::LimitReached);
        assert!(error.message.contains("all 50 blocks of 1000 bytes"), "{error}");
    }
    let statistics = pool.statistics().unwrap();
    assert_eq!((statistics.live, statistics.capacity, statistics.refusals), (50, 50, 3));
    pool.free(blocks[7]).unwrap();
    assert_eq!(pool.allocate().unwrap(), blocks[7]);
    drop(pool);
    bench.finish();
}

pub fn a_pool_grows(subject: Subject) {
    let bench = subject.start();
    let pool = pool(&bench, FixedPoolOptions { count: 0, growth: 30, ..OPTIONS });
    assert_eq!(pool.statistics().unwrap().capacity, 0);
    let blocks: HashSet<u64> = (0..100).map(|_| pool.allocate().unwrap()).collect();
    let statistics = pool.statistics().unwrap();
    assert_eq!((blocks.len(), statistics.live, statistics.capacity), (100, 100, 120));
    assert_eq!(statistics.held_bytes, 120 * 1024);
    for &block in &blocks {
        pool.free(block).unwrap();
        pool.validate().unwrap();
    }
    let again: HashSet<u64> = (0..120).map(|_| pool.allocate().unwrap()).collect();
    assert!(again.len() == 120 && again.is_superset(&blocks));
    assert_eq!(pool.statistics().unwrap().capacity, 120);
    drop(pool);
    bench.finish();
}

pub fn wrong_frees_are_reported_and_harmless(subject: Subject) {
    let bench = subject.start();
    let options = FixedPoolOptions { count: 10, growth: 10, ..OPTIONS };
    let pool = pool(&bench, options);
    let blocks: Vec<u64> = (0..25).map(|_| pool.allocate().unwrap()).collect();
    let other = self::pool(&bench, OPTIONS);
    let others = other.allocate().unwrap();
    let foreign = [1, blocks[3] + 1, blocks[3] + 512, blocks[0] - 1024, others, u64::MAX];
    for address in foreign {
        assert_eq!(status_of(pool.free(address)), Status::ForeignPointer, "{address:#x}");
    }
    for &block in &blocks[..15] {
        pool.free(block).unwrap();
        assert_eq!(status_of(pool.free(block)), Status::DoubleFree);
    }
    pool.free(0).unwrap();
    pool.validate().unwrap();
    let again: HashSet<u64> = (0..15).map(|_| pool.allocate().unwrap()).collect();
    assert!(again.is_disjoint(&blocks[15..].iter().copied().collect()));
    drop((pool, other));
    bench.finish();
}

pub fn pools_without_blocks_are_refused(subject: Subject) {
    let bench = subject.start();
    let refused = |options| status_of(FixedPool::new(bench.source.clone(), options));
    let none = FixedPoolOptions { count: 0, ..OPTIONS };
    assert_eq!(refused(none), Status::InvalidArgument);
    let empty = FixedPoolOptions { block_bytes: 0, ..OPTIONS };
    assert_eq!(refused(empty), Status::InvalidArgument);
    let crooked = FixedPoolOptions { alignment_bytes: 48, ..OPTIONS };
    assert_eq!(refused(crooked), Status::InvalidArgument);
    for block_bytes in [u64::MAX, 1 << 46] {
        let huge = FixedPoolOptions { block_bytes, ..OPTIONS };
        assert_eq!(refused(huge), Status::OutOfMemory);
    }
    bench.finish();
}

pub fn random_programs_keep_their_blocks(subject: Subject) {
    for seed in 0..10 {
        let bench = subject.start();
        let mut random = Random(seed);
        let options = FixedPoolOptions {
            block_bytes: 1 + random.below(5000),
            alignment_bytes: 1 << random.below(12),
            count: random.below(20) as u32,
            growth: 1 + random.below(40) as u32,
            ..OPTIONS
        };
        let pool = pool(&bench, options);
        let mut live: Vec<u64> = Vec::new();
        let mut freed: HashSet<u64> = HashSet::new();
        for _ in 0..2000 {
            if random.below(2) == 0 || live.is_empty() {
                let block = pool.allocate().unwrap();
                let apart = |&other: &u64| other.abs_diff(block) >= options.block_bytes;
                assert!(block.is_multiple_of(options.alignment_bytes) && live.iter().all(apart));
                freed.remove(&block);
                live.push(block);
            } else {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                pool.free(block).unwrap();
                freed.insert(block);
            }
            if random.below(20) == 0
                && let Some(&block) = freed.iter().next()
            {
                assert_eq!(status_of(pool.free(block)), Status::DoubleFree);
            }
            assert_eq!(pool.statistics().unwrap().live, live.len() as u64);
        }
        pool.validate().unwrap();
        drop(pool);
        bench.finish();
    }
}

pub fn threads_share_a_pool(subject: Subject) {
    let bench = subject.start();
    let options = FixedPoolOptions { threads: Threads::Any, count: 8, growth: 8, ..OPTIONS };
    let shared = AnyThread(pool(&bench, options));
    thread::scope(|scope| {
        for seed in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                let pool = shared.get();
                let mut random = Random(seed);
                let mut live = Vec::new();
                for _ in 0..1000 {
                    if random.below(2) == 0 || live.is_empty() {
                        live.push(pool.allocate().unwrap());
                    } else {
                        let index = random.below(live.len() as u64) as usize;
                        pool.free(live.swap_remove(index)).unwrap();
                    }
                }
                live.into_iter().for_each(|block| pool.free(block).unwrap());
            });
        }
    });
    let pool = shared.0;
    assert_eq!(pool.statistics().unwrap().live, 0);
    pool.validate().unwrap();
    drop(pool);
    bench.finish();
}

pub fn blocks_of_other_streams_are_ordered(subject: Subject) {
    judge_order(subject.start());
}

/// Also where each is a block of the heap, which the own stream may just have used.
pub fn blocks_that_are_the_heaps_own_are_ordered(subject: Subject) {
    judge_order(subject.start_poisoned());
}

fn judge_order(bench: Bench) {
    let options = FixedPoolOptions { block_bytes: 64 * KIB, count: 2, growth: 3, ..OPTIONS };
    let pool = pool(&bench, options);
    let mut random = Random(3);
    let mut live = Vec::new();
    for _ in 0..300 {
        if random.below(2) == 0 || live.is_empty() {
            let stream = [A, B, C][random.below(3) as usize];
            let block = pool.allocate_on(stream).unwrap();
            bench.touch(block, 64 * KIB, stream);
            live.push((block, stream));
        } else {
            let (block, stream) = live.swap_remove(random.below(live.len() as u64) as usize);
            bench.touch(block, 64 * KIB, stream);
            pool.free(block).unwrap();
            assert_eq!(status_of(pool.free(block)), Status::DoubleFree);
        }
        pool.validate().unwrap();
    }
    assert_eq!(bench.races(), 0);
    drop(pool);
    let block = bench.rig().allocate_and_touch(MIB, A);
    assert_eq!(bench.races(), 0, "blocks that were live have been waited for");
    bench.rig().free(block);
    bench.finish();
}

pub fn debugging_sees_each_block(subject: Subject) {
    let bench = subject.start_poisoned();
    let pool = pool(&bench, FixedPoolOptions { block_bytes: 1024, count: 3, ..OPTIONS });
    let blocks: Vec<u64> = (0..3).map(|_| pool.allocate_on(B).unwrap()).collect();
    assert_eq!(bench.source.taken.lock().unwrap().len(), 3, "a block of the heap for each");
    assert_eq!(status_of(pool.allocate()), Status::LimitReached);
    pool.free(blocks[0]).unwrap();
    assert_eq!(status_of(pool.free(blocks[0])), Status::DoubleFree);
    assert_eq!(status_of(pool.free(blocks[1] + 1)), Status::ForeignPointer);
    let again = pool.allocate().unwrap();
    pool.free(again).unwrap();
    let statistics = pool.statistics().unwrap();
    assert_eq!((statistics.live, statistics.peak_live), (2, 3));
    drop(pool);
    bench.finish();
}
