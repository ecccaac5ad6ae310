//! Limits: how much may be held, and how much may be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use genesis::base::Status;
use genesis::base::size::{GIB, MIB};
use genesis::config::{PoolType, Settings};

use crate::support::{A, B, DEVICE, Random, Rig, Subject, status_of};

pub fn a_fraction_of_the_memory(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.memory_fraction = 0.5).start();
    assert_eq!(rig.heap.memory_fraction(DEVICE), Ok(0.5));
    assert_eq!(fill(&rig, 16 * MIB), 32);
    rig.heap.set_memory_fraction(DEVICE, 0.75).unwrap();
    assert_eq!(fill(&rig, 16 * MIB), 16);
    assert_eq!(rig.machine.census().used_bytes, GIB / 4 * 3);
    for wrong in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
        let refused = rig.heap.set_memory_fraction(DEVICE, wrong);
        assert_eq!(status_of(refused), Status::InvalidArgument);
    }
    assert_eq!(rig.heap.memory_fraction(DEVICE), Ok(0.75));
    rig.finish();
}

pub fn a_limit_in_bytes(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.memory_limit_bytes = Some(64 * MIB)).start();
    assert_eq!(fill(&rig, 16 * MIB), 4);
    assert_eq!(rig.machine.census().used_bytes, 64 * MIB, "physical bytes");
    // Below what is held: nothing is taken away, and cached memory goes before more comes.
    rig.heap.set_memory_limit(DEVICE, Some(32 * MIB)).unwrap();
    assert_eq!(rig.heap.memory_limit(DEVICE), Ok(Some(32 * MIB)));
    assert_eq!(rig.reserved_bytes(), 64 * MIB);
    for block in rig.heap.largest_allocations(DEVICE, 0).unwrap() {
        rig.free(block.address);
    }
    if subject.pool_type == PoolType::Elastic {
        // The pieces would serve the next request together, so nothing would have to go.
        rig.heap.trim(DEVICE, 0).unwrap();
    }
    rig.allocate(32 * MIB, A);
    assert_eq!(rig.machine.census().used_bytes, 32 * MIB);
    assert_eq!(rig.refusal(2 * MIB, A), Status::OutOfMemory);
    rig.heap.set_memory_limit(DEVICE, None).unwrap();
    rig.allocate(512 * MIB, A);
    rig.finish();
}

pub fn threads_together_keep_the_limit(subject: Subject) {
    const LIMIT_BYTES: u64 = 128 * MIB;
    let mut plan = subject.plan().set(|settings| settings.memory_limit_bytes = Some(LIMIT_BYTES));
    plan.machine.progress = simgpu::Progress::Automatic;
    let rig = plan.start();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut live = Vec::new();
                for _ in 0..300 {
                    let bytes = 2 * MIB * (1 + random.below(16));
                    let stream = if random.below(2) == 0 { A } else { B };
                    if let Ok(address) = rig.heap.allocate(bytes, DEVICE, stream) {
                        live.push(address);
                    }
                    let used_bytes = rig.machine.census().used_bytes;
                    assert!(used_bytes <= LIMIT_BYTES, "{used_bytes} bytes are used");
                    if live.len() > 3 {
                        rig.free(live.swap_remove(random.below(3) as usize));
                    }
                }
            });
        }
    });
    assert!(rig.statistics().reserved_bytes.peak <= LIMIT_BYTES);
    rig.finish();
}

pub fn the_cache_limit(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.cache_size_bytes = Some(32 * MIB)).start();
    let blocks: Vec<u64> = (0..6).map(|_| rig.allocate_and_touch(16 * MIB, A)).collect();
    for address in blocks {
        rig.free(address);
        assert!(rig.statistics().inactive_bytes.current <= 32 * MIB);
    }
    assert_eq!(rig.reserved_bytes(), if subject.keeps_blocks() { 32 * MIB } else { 0 });
    rig.heap.set_cache_limit(DEVICE, Some(0)).unwrap();
    assert_eq!(rig.heap.cache_limit(DEVICE), Ok(Some(0)));
    assert_eq!(rig.reserved_bytes(), 0);
    let block = rig.allocate(16 * MIB, A);
    rig.free(block);
    assert_eq!(rig.reserved_bytes(), 0);
    rig.heap.set_cache_limit(DEVICE, None).unwrap();
    rig.finish();
}

pub fn the_cache_limit_holds_when_waiting_blocks_become_free(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.cache_size_bytes = Some(4 * MIB)).start();
    let small = rig.allocate(512, A);
    let blocks: Vec<u64> = (0..3).map(|_| rig.allocate_and_touch(16 * MIB, A)).collect();
    for address in blocks {
        rig.record(address, B);
        rig.free(address);
    }
    rig.run(B);
    rig.free(small);
    // The lane looks at its events now and then, on the way of a hit.
    for _ in 0..40 {
        let small = rig.allocate(512, A);
        rig.free(small);
    }
    let inactive_bytes = rig.statistics().inactive_bytes.current;
    assert!(inactive_bytes <= 4 * MIB, "{inactive_bytes} bytes are cached");
    rig.finish();
}

/// Threads free at the same time, while another reads statistics: each leaves to the one at the sums what
/// it wants of them.
pub fn the_cache_limit_of_many_threads(subject: Subject) {
    const LIMIT_BYTES: u64 = 32 * MIB;
    let rig = subject.plan().set(|settings| settings.cache_size_bytes = Some(LIMIT_BYTES)).start();
    for round in 0..20 {
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let rig = &rig;
                scope.spawn(move || {
                    let stream = if number % 2 == 0 { A } else { B };
                    let mut random = Random(round * 4 + number);
                    let blocks: Vec<u64> = (0..8)
                        .map(|_| rig.allocate((random.below(16) + 1) * MIB, stream))
                        .collect();
                    blocks.into_iter().for_each(|address| rig.free(address));
                });
            }
            scope.spawn(|| {
                for _ in 0..50 {
                    let _ = rig.statistics();
                }
            });
        });
        // A thread works for others so often at most: this settles what it left.
        let _ = rig.statistics();
        let inactive_bytes = rig.statistics().inactive_bytes.current;
        assert!(inactive_bytes <= LIMIT_BYTES, "{inactive_bytes} bytes are cached");
    }
    rig.finish();
}

/// MXNet's: a new segment that would leave less free than the reserve has the cache released.
pub fn the_reserve(subject: Subject) {
    for (percent, is_released) in [(5.0, false), (50.0, true)] {
        let plan = subject.plan().set(|settings| settings.strategy.reserve_percent = percent);
        // Blocks that have a handle each are not cut.
        let is_cut = subject.splits_blocks() && plan.settings.single_handle_size_bytes.is_none();
        let rig = plan.start();
        let block = rig.allocate(384 * MIB, A);
        rig.free(block);
        rig.allocate(256 * MIB, A);
        let is_mxnet = matches!(subject.pool_type, PoolType::Round | PoolType::Exact);
        let cached_bytes = match subject.pool_type {
            PoolType::Naive => 0,
            _ if is_cut => 128 * MIB,
            _ if is_mxnet && is_released => 0,
            _ => 384 * MIB,
        };
        assert_eq!(rig.statistics().inactive_bytes.current, cached_bytes, "{percent} %");
        rig.finish();
    }
}

pub fn the_collection_threshold(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.gc_threshold = Some(0.5)).start();
    let older = rig.allocate(128 * MIB, A);
    let newer = rig.allocate(256 * MIB, A);
    rig.free(older);
    let in_between = rig.allocate(16 * MIB, B);
    rig.free(rig.allocate(16 * MIB, A));
    rig.free(newer);
    // 400 MiB and more are reserved; another 288 would pass half of the device.
    rig.allocate(288 * MIB, A);
    let reserved_bytes = rig.reserved_bytes();
    assert!(reserved_bytes <= 512 * MIB, "{reserved_bytes} bytes are reserved");
    // A request that must pass the threshold is served all the same.
    rig.allocate(512 * MIB, A);
    rig.free(in_between);
    rig.finish();
}

pub fn age_in_allocations(subject: Subject) {
    let rig = subject.plan().set(|settings| settings.gc_age_allocations = Some(1000)).start();
    let old = rig.allocate(16 * MIB, A);
    rig.free(old);
    let held_bytes = rig.reserved_bytes();
    run_small_allocations(&rig, 900);
    assert!(rig.reserved_bytes() >= held_bytes, "too young");
    run_small_allocations(&rig, 600);
    assert!(rig.reserved_bytes() <= 2 * MIB, "old enough");
    rig.finish();
}

pub fn age_in_seconds(subject: Subject) {
    let seconds = Arc::new(AtomicU64::new(5));
    let now = Arc::clone(&seconds);
    let rig = subject
        .plan()
        .set(|settings| settings.gc_age_seconds = Some(10.0))
        .clock(move || Duration::from_secs(now.load(Ordering::Relaxed)))
        .start();
    let old = rig.allocate(16 * MIB, A);
    rig.free(old);
    let held_bytes = rig.reserved_bytes();
    seconds.store(14, Ordering::Relaxed);
    run_small_allocations(&rig, 600);
    assert!(rig.reserved_bytes() >= held_bytes, "too young");
    seconds.store(15, Ordering::Relaxed);
    run_small_allocations(&rig, 600);
    assert!(rig.reserved_bytes() <= 2 * MIB, "old enough");
    rig.finish();
}

pub fn settings_change_at_run_time(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate(16 * MIB, A);
    rig.free(block);
    let mut settings = rig.heap.settings();
    settings.memory_limit_bytes = Some(64 * MIB);
    settings.cache_size_bytes = Some(0);
    rig.heap.apply(&settings);
    assert_eq!(rig.heap.settings(), settings);
    assert_eq!(rig.reserved_bytes(), 0);
    assert_eq!(rig.refusal(65 * MIB, A), Status::OutOfMemory);
    settings.memory_limit_bytes = None;
    settings.memory_fraction = 0.25;
    rig.heap.apply(&settings);
    assert_eq!(rig.refusal(257 * MIB, A), Status::OutOfMemory);
    rig.allocate(256 * MIB, A);
    rig.finish();
}

/// Each of the three options of collection, put in force and out of force while blocks are cached.
pub fn collection_is_switched_on_and_off_at_run_time(subject: Subject) {
    let seconds = Arc::new(AtomicU64::new(5));
    let now = Arc::clone(&seconds);
    let clock = move || Duration::from_secs(now.load(Ordering::Relaxed));
    let rig = subject.plan().clock(clock).start();
    let cache_two = || {
        let blocks = [(); 2].map(|()| rig.allocate(16 * MIB, A));
        blocks.into_iter().for_each(|block| rig.free(block));
        rig.reserved_bytes()
    };
    let grow_old = || {
        seconds.fetch_add(20, Ordering::Relaxed);
        run_small_allocations(&rig, 600);
    };
    let off = rig.heap.settings();
    let ages = [
        Settings { gc_age_allocations: Some(100), ..off.clone() },
        Settings { gc_age_seconds: Some(10.0), ..off.clone() },
    ];
    for on in ages {
        let held_bytes = cache_two();
        grow_old();
        assert!(rig.reserved_bytes() >= held_bytes, "no age is set");
        rig.heap.apply(&on);
        grow_old();
        assert!(rig.reserved_bytes() <= 2 * MIB, "{on:?}");
        rig.heap.apply(&off);
    }
    let held_bytes = cache_two();
    rig.allocate(512 * MIB, B);
    assert!(rig.reserved_bytes() >= held_bytes + 512 * MIB, "no threshold is set");
    rig.heap.apply(&Settings { gc_threshold: Some(0.5), ..off });
    rig.allocate(64 * MIB, B);
    let reserved_bytes = rig.reserved_bytes();
    assert!(reserved_bytes <= (512 + 64 + 2) * MIB, "{reserved_bytes} bytes are reserved");
    rig.finish();
}

pub fn memory_info_counts_the_cache_as_free(subject: Subject) {
    let rig = subject.plan().start();
    let free_bytes = || rig.heap.memory_info(DEVICE).unwrap().free_bytes;
    assert_eq!(free_bytes(), GIB);
    let block = rig.allocate(64 * MIB, A);
    assert_eq!(free_bytes(), GIB - 64 * MIB);
    rig.free(block);
    assert_eq!(free_bytes(), GIB);
    rig.heap.set_memory_limit(DEVICE, Some(100 * MIB)).unwrap();
    assert_eq!(free_bytes(), 100 * MIB);
    rig.machine.faults().limit_capacity(0, 80 * MIB).unwrap();
    assert_eq!(free_bytes(), 80 * MIB, "another process has the rest");
    assert_eq!(rig.heap.memory_info(DEVICE).unwrap().total_bytes, GIB);
    rig.finish();
}

/// Allocates blocks of `bytes` until one is refused; says how many there were.
fn fill(rig: &Rig, bytes: u64) -> usize {
    std::iter::from_fn(|| rig.heap.allocate(bytes, DEVICE, A).ok()).count()
}

fn run_small_allocations(rig: &Rig, count: u64) {
    for _ in 0..count {
        let block = rig.allocate(512, A);
        rig.free(block);
    }
}

/// A limit is one of what the driver takes, which is whole pages: sizes just above one, and small
/// ones of which the last in a page keeps it.
pub fn a_limit_is_kept_as_the_driver_counts(subject: Subject) {
    const LIMIT_BYTES: u64 = 64 * MIB;
    let plan = subject.plan().set(|settings| settings.memory_limit_bytes = Some(LIMIT_BYTES));
    let rig = plan.start();
    let is_within = |what: &str| {
        let used_bytes = rig.machine.census().used_bytes;
        assert!(used_bytes <= LIMIT_BYTES, "{used_bytes} bytes are used: {what}");
        assert!(rig.reserved_bytes() <= used_bytes, "{what}");
    };
    let mut random = Random(7);
    for bytes in [2 * MIB + 512, 6 * MIB - 512, 3 * MIB, 512, MIB, MIB + 512] {
        let mut live = Vec::new();
        while let Ok(address) = rig.heap.allocate(bytes, DEVICE, A) {
            live.push(address);
        }
        is_within("filled");
        assert!(live.len() as u64 * bytes.max(2 * MIB) >= LIMIT_BYTES / 4, "{bytes}");
        for _ in 0..live.len() / 8 * 7 {
            rig.free(live.swap_remove(random.below(live.len() as u64) as usize));
        }
        while let Ok(address) = rig.heap.allocate(3 * MIB + 512, DEVICE, B) {
            live.push(address);
        }
        is_within("filled with others");
        rig.heap.validate().unwrap();
        live.into_iter().for_each(|address| rig.free(address));
        rig.heap.empty_cache(DEVICE).unwrap();
    }
    rig.finish();
}
