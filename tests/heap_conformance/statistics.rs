//! Statistics: exact after every operation.

use genesis::base::Gauge;
use genesis::base::size::{KIB, MIB, SizeClass};
use genesis::config::PoolType;
use genesis::heap::LiveBlock;
use genesis::observe::PoolStatistics;

use crate::support::{A, B, DEVICE, Random, Rig, Subject};

pub fn levels_and_totals(subject: Subject) {
    let rig = subject.plan().start();
    let mut random = Random(3);
    let mut live: Vec<(u64, u64)> = Vec::new();
    let (mut requested_total, mut allocations, mut frees) = (0, 0, 0);
    for _ in 0..600 {
        if random.below(5) < 3 {
            let bytes = 1 + random.below(2 * MIB);
            let stream = if random.below(2) == 0 { A } else { B };
            live.push((rig.allocate(bytes, stream), bytes));
            requested_total += bytes;
            allocations += 1;
        } else if !live.is_empty() {
            let (address, _) = live.swap_remove(random.below(live.len() as u64) as usize);
            rig.free(address);
            frees += 1;
        }
        let statistics = rig.statistics();
        let blocks = rig.heap.largest_allocations(DEVICE, 0).unwrap();
        let allocated_bytes: u64 = blocks.iter().map(|block| block.allocated_bytes).sum();
        let requested_bytes: u64 = live.iter().map(|&(_, bytes)| bytes).sum();
        let reserved_bytes = statistics.reserved_bytes.current;
        assert_eq!(statistics.requested_bytes.current, requested_bytes);
        assert_eq!(statistics.requested_bytes.total, requested_total);
        assert_eq!(statistics.allocated_bytes.current, allocated_bytes);
        assert_eq!(statistics.active_bytes.current, allocated_bytes);
        assert_eq!(statistics.inactive_bytes.current, reserved_bytes - allocated_bytes);
        assert_eq!(statistics.free_bytes, reserved_bytes - allocated_bytes);
        assert_eq!((statistics.allocations, statistics.frees), (allocations, frees));
        assert_eq!(statistics.hits + statistics.misses, allocations);
        assert_eq!(statistics.driver_calls, rig.usage().calls.iter().sum::<u64>());
    }
    rig.finish();
}

pub fn peaks_and_their_reset(subject: Subject) {
    let rig = subject.plan().start();
    let mut blocks: Vec<u64> = Vec::new();
    for n in 1..=10 {
        blocks.push(rig.allocate(n * 2 * MIB, if n % 2 == 0 { A } else { B }));
    }
    let at_top = rig.statistics();
    for address in blocks.drain(1..) {
        rig.free(address);
    }
    let after = rig.statistics();
    assert_eq!(after.requested_bytes.peak, 110 * MIB);
    assert_eq!(after.allocated_bytes.peak, at_top.allocated_bytes.current);
    assert_eq!(after.active_bytes.peak, at_top.active_bytes.current);
    assert_eq!(after.reserved_bytes.peak, at_top.reserved_bytes.current);
    assert_eq!(after.inactive_bytes.peak, after.inactive_bytes.current.max(at_top.free_bytes));
    rig.heap.reset_peaks(DEVICE).unwrap();
    let reset = rig.statistics();
    assert_eq!(reset.requested_bytes.current, 2 * MIB);
    assert_eq!(reset.requested_bytes.peak, 2 * MIB, "what is live, not 0");
    for gauge in
        [reset.allocated_bytes, reset.active_bytes, reset.inactive_bytes, reset.reserved_bytes]
    {
        assert_eq!(gauge.peak, gauge.current);
    }
    assert_eq!(reset.requested_bytes.total, 110 * MIB, "totals stay");
    // The peak follows again, through hits and misses alike.
    let more = rig.allocate(4 * MIB, A);
    rig.free(more);
    assert_eq!(rig.statistics().requested_bytes.peak, 6 * MIB);
    rig.finish();
}

/// What a test counts of one size class, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    allocation: Gauge,
    allocated_bytes: Gauge,
    requested_bytes: Gauge,
}

impl Counted {
    fn add(&mut self, block: &LiveBlock) {
        self.allocation.add(1);
        self.allocated_bytes.add(block.allocated_bytes);
        self.requested_bytes.add(block.requested_bytes);
    }

    fn take(&mut self, block: &LiveBlock) {
        self.allocation.take(1);
        self.allocated_bytes.take(block.allocated_bytes);
        self.requested_bytes.take(block.requested_bytes);
    }

    fn of(statistics: &PoolStatistics) -> Self {
        Self {
            allocation: statistics.allocation,
            allocated_bytes: statistics.allocated_bytes,
            requested_bytes: statistics.requested_bytes,
        }
    }
}

/// After each of many operations on two streams, levels, peaks and totals of small blocks, of
/// large ones and of all are exactly what they must be.
pub fn pools_of_sizes(subject: Subject) {
    const CLASSES: [Option<SizeClass>; 3] = [None, Some(SizeClass::Small), Some(SizeClass::Large)];
    let rig = subject.plan().start();
    let mut random = Random(7);
    let mut live: Vec<LiveBlock> = Vec::new();
    let mut counted = [Counted::default(); 3];
    for step in 0..600 {
        let belongs = |class: Option<SizeClass>, block: &LiveBlock| {
            class.is_none_or(|class| class == SizeClass::of(block.allocated_bytes))
        };
        if random.below(100) < 55 && live.len() < 100 {
            let most_bytes = if random.below(2) == 0 { 64 * KIB } else { 4 * MIB };
            let stream = if random.below(2) == 0 { A } else { B };
            let address = rig.allocate(1 + random.below(most_bytes), stream);
            let block = rig.heap.block_containing(address).unwrap();
            live.push(block);
            for (class, counted) in CLASSES.iter().zip(&mut counted) {
                if belongs(*class, &block) {
                    counted.add(&block);
                }
            }
        } else if !live.is_empty() {
            let block = live.swap_remove(random.below(live.len() as u64) as usize);
            rig.free(block.address);
            for (class, counted) in CLASSES.iter().zip(&mut counted) {
                if belongs(*class, &block) {
                    counted.take(&block);
                }
            }
        }
        if step == 300 {
            rig.heap.reset_peaks(DEVICE).unwrap();
            for counted in &mut counted {
                counted.allocation.reset_peak();
                counted.allocated_bytes.reset_peak();
                counted.requested_bytes.reset_peak();
            }
        }
        for (class, counted) in CLASSES.iter().zip(&counted) {
            let statistics = rig.heap.pool_statistics(DEVICE, *class).unwrap();
            assert_eq!(Counted::of(&statistics), *counted, "step {step}, {class:?}");
            assert_eq!(statistics.active, statistics.allocation, "nothing waits for a stream");
        }
    }
    let [all, small, large] = CLASSES.map(|class| rig.heap.pool_statistics(DEVICE, class).unwrap());
    assert_eq!(all.reserved_bytes, rig.statistics().reserved_bytes);
    assert_eq!(
        all.reserved_bytes.current,
        small.reserved_bytes.current + large.reserved_bytes.current
    );
    assert_eq!(all.segment.current, small.segment.current + large.segment.current);
    rig.finish();
}

/// Where blocks are never cut, a free one is no part of anything.
pub fn nothing_is_cut(subject: Subject) {
    let rig = subject.plan().start();
    let blocks = [(); 3].map(|()| rig.allocate(5 * MIB, A));
    rig.free(blocks[1]);
    assert_eq!(large_blocks(&rig).inactive_split, Gauge::default());
    assert_eq!(large_blocks(&rig).inactive_split_bytes, Gauge::default());
    rig.finish();
}

pub fn free_parts_of_segments(subject: Subject) {
    let rig = subject.plan().start();
    let is_elastic = subject.pool_type == PoolType::Elastic;
    let blocks = [(); 3].map(|()| rig.allocate(5 * MIB, A));
    let parts = || large_blocks(&rig).inactive_split;
    let bytes = || large_blocks(&rig).inactive_split_bytes;
    // What is left of the segment is a part; then the block in the middle makes a second one.
    let rest_bytes = bytes().current;
    assert!(rest_bytes == 5 * MIB || is_elastic);
    rig.free(blocks[1]);
    assert_eq!(parts().current, 2);
    assert_eq!(bytes().current, rest_bytes + 5 * MIB);
    rig.free(blocks[2]);
    assert_eq!(parts().current, 1, "joined");
    assert_eq!(bytes().current, rest_bytes + 10 * MIB);
    rig.free(blocks[0]);
    // A whole segment is no part. Elastic has no segments: all that is free is part of an area.
    assert_eq!(parts().current, if is_elastic { 1 } else { 0 });
    assert_eq!(bytes().current, if is_elastic { rest_bytes + 15 * MIB } else { 0 });
    assert_eq!(bytes().peak, rest_bytes + if is_elastic { 15 * MIB } else { 10 * MIB });
    rig.finish();
}

fn large_blocks(rig: &Rig) -> PoolStatistics {
    rig.heap.pool_statistics(DEVICE, Some(SizeClass::Large)).unwrap()
}

pub fn hits_and_misses(subject: Subject) {
    let rig = subject.plan().start();
    assert_eq!(rig.statistics().hit_rate, 0.0);
    for _ in 0..10 {
        let block = rig.allocate(16 * MIB, A);
        rig.free(block);
    }
    let statistics = rig.statistics();
    let hits = if subject.keeps_blocks() { 9 } else { 0 };
    assert_eq!((statistics.hits, statistics.misses), (hits, 10 - hits));
    assert_eq!(statistics.hit_rate, hits as f64 / 10.0);
    let driver_memory_calls = match subject.pool_type {
        PoolType::Naive => 20..=20,
        // Reserve, create and map so many extents, set access; `tight` makes the most.
        PoolType::Elastic => 2 + 2 * 4..=2 + 2 * 8,
        _ => 1..=1,
    };
    assert!(driver_memory_calls.contains(&statistics.driver_memory_calls), "{statistics:?}");
    assert!(statistics.driver_nanoseconds > 0);
    rig.finish();
}

pub fn fragmentation(subject: Subject) {
    let rig = subject.plan().start();
    assert_eq!(rig.statistics().fragmentation_ratio, 0.0);
    assert_eq!(rig.statistics().fragmentation_index, 0.0);
    let blocks: Vec<u64> = (0..4).map(|_| rig.allocate(16 * MIB, A)).collect();
    assert_eq!(rig.statistics().fragmentation_ratio, 0.0);
    rig.free(blocks[0]);
    rig.free(blocks[2]);
    let statistics = rig.statistics();
    let (ratio, index) = if subject.keeps_blocks() { (0.5, 0.5) } else { (0.0, 0.0) };
    assert_eq!(statistics.fragmentation_ratio, ratio);
    assert_eq!(statistics.fragmentation_index, index);
    assert_eq!(statistics.largest_free_bytes, if index > 0.0 { 16 * MIB } else { 0 });
    rig.finish();
}

pub fn largest_allocations_first(subject: Subject) {
    let rig = subject.plan().start();
    let sizes = [100, 64 * KIB, 3 * MIB, 64 * KIB, 512, 2 * MIB];
    let blocks = sizes.map(|bytes| rig.allocate(bytes, if bytes > MIB { B } else { A }));
    rig.free(blocks[5]);
    let listed = rig.heap.largest_allocations(DEVICE, 512).unwrap();
    let requested: Vec<u64> = listed.iter().map(|block| block.requested_bytes).collect();
    assert_eq!(requested, [3 * MIB, 64 * KIB, 64 * KIB, 512]);
    assert_eq!(listed[0].address, blocks[2]);
    assert_eq!(listed[0].device, DEVICE);
    assert_ne!(listed[0].stream, listed[1].stream);
    assert!(listed[1].address < listed[2].address);
    if subject.pool_type == PoolType::Naive {
        assert!(listed.iter().all(|block| block.allocated_bytes == block.requested_bytes));
    }
    check_extents(&rig);
    rig.finish();
}

/// Every byte of a block leads to it, the one after its end does not.
fn check_extents(rig: &Rig) {
    for block in rig.heap.largest_allocations(DEVICE, 0).unwrap() {
        let last = block.address + block.allocated_bytes - 1;
        assert_eq!(rig.heap.block_containing(last), Ok(block));
        let beyond = rig.heap.block_containing(last + 1);
        assert!(beyond.is_err() || beyond.unwrap().address == last + 1);
    }
}
