//! Limits of private pools: what counts, and that nobody else pays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use genesis::base::size::MIB;
use genesis::base::{Part, Status};
use genesis::heap::{PoolId, PoolUsage};

use crate::support::{A, B, DEVICE, Random, Rig, Subject, status_of};

const POOL: PoolId = PoolId(7, 8);
/// A size that each strategy's blocks and segments can have.
const BLOCK_BYTES: u64 = 4 * MIB;

impl Rig {
    fn begin_limited(&self, limit_bytes: u64) {
        self.heap.hold_pool(DEVICE, POOL, false).unwrap();
        self.heap.set_pool_limit(DEVICE, POOL, Some(limit_bytes)).unwrap();
        self.heap.begin_pool(DEVICE, POOL, Arc::new(|_| true)).unwrap();
    }

    /// What is live is freed, and the pool is gone.
    fn end_limited(&self) {
        self.heap.end_pool(DEVICE, POOL).unwrap();
        while self.heap.pool_uses(DEVICE, POOL).unwrap() > 0 {
            self.heap.release_pool(DEVICE, POOL).unwrap();
        }
    }

    fn pool_usage(&self) -> PoolUsage {
        let usage = self.heap.pool_usage(DEVICE, POOL).unwrap();
        let blocks = self.heap.pool_blocks(DEVICE, POOL).unwrap();
        let held_bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        assert_eq!(usage.reserved_bytes, held_bytes, "the account is what the pool has");
        usage
    }
}

pub fn a_pool_keeps_its_limit(subject: Subject) {
    let rig = subject.plan().start();
    rig.begin_limited(3 * BLOCK_BYTES);
    let blocks = [(); 3].map(|()| rig.allocate(BLOCK_BYTES, A));
    assert_eq!(rig.pool_usage().reserved_bytes, 3 * BLOCK_BYTES);
    for stream in [A, B] {
        let error = rig.heap.allocate(BLOCK_BYTES, DEVICE, stream).unwrap_err();
        assert_eq!(error.status, Status::LimitReached);
        assert!(error.message.contains("pool=(7, 8)"), "{error}");
        let limit = error.limit.as_ref().unwrap();
        assert_eq!((limit.part.clone(), limit.limit_bytes), (Part::Pool(7, 8), 3 * BLOCK_BYTES));
        assert_eq!((limit.held_bytes, limit.requested_bytes), (3 * BLOCK_BYTES, BLOCK_BYTES));
    }
    assert_eq!(rig.pool_usage().refusals, 2);
    assert_eq!(rig.statistics().out_of_memory_events, 2);
    // What the pool has free serves, and is not counted again.
    rig.free(blocks[1]);
    let again = rig.allocate(BLOCK_BYTES, A);
    assert_eq!(rig.pool_usage().reserved_bytes, 3 * BLOCK_BYTES);
    rig.heap.set_pool_limit(DEVICE, POOL, Some(4 * BLOCK_BYTES)).unwrap();
    let more = rig.allocate(BLOCK_BYTES, B);
    assert_eq!(rig.pool_usage().live_bytes, 4 * BLOCK_BYTES);
    rig.heap.set_pool_limit(DEVICE, POOL, None).unwrap();
    assert_eq!(rig.pool_usage().limit_bytes, None);
    let large = rig.allocate(64 * MIB, B);
    rig.heap.set_pool_limit(DEVICE, POOL, Some(0)).unwrap();
    assert_eq!(rig.refusal(64 * MIB, B), Status::LimitReached);
    rig.end_limited();
    let outside = rig.allocate(64 * MIB, A);
    for address in [blocks[0], again, blocks[2], more, large, outside] {
        rig.free(address);
    }
    let unknown = rig.heap.set_pool_limit(DEVICE, POOL, None);
    assert_eq!(status_of(unknown), Status::InvalidArgument);
    assert_eq!(status_of(rig.heap.pool_usage(DEVICE, POOL)), Status::InvalidArgument);
    rig.finish();
}

pub fn a_pools_limit_leaves_others_alone(subject: Subject) {
    let rig = subject.plan().capacity(128 * MIB).start();
    let neighbour = rig.allocate_and_touch(32 * MIB, A);
    let cached = rig.allocate_and_touch(32 * MIB, A);
    rig.free(cached);
    rig.begin_limited(2 * BLOCK_BYTES);
    let block = rig.allocate(BLOCK_BYTES, A);
    let (before, calls) = (rig.statistics(), rig.usage());
    for bytes in [BLOCK_BYTES + 4096, 16 * MIB, 512 * MIB] {
        assert_eq!(rig.refusal(bytes, A), Status::LimitReached, "{bytes}");
    }
    let after = rig.statistics();
    assert_eq!(after.reserved_bytes, before.reserved_bytes);
    assert_eq!(after.inactive_bytes, before.inactive_bytes);
    assert_eq!(after.driver_memory_calls, before.driver_memory_calls);
    let waits = |usage: simgpu::Usage| usage.count(simgpu::Call::Synchronize);
    assert_eq!(waits(rig.usage()), waits(calls));
    rig.end_limited();
    [neighbour, block].into_iter().for_each(|address| rig.free(address));
    rig.finish();
}

/// What is free in too small pieces goes back before a request fails, unless a graph may use it.
pub fn a_pool_returns_its_own_free_memory_first(subject: Subject) {
    for may_capture in [false, true] {
        let rig = subject.plan().capacity(256 * MIB).start();
        let cached = rig.allocate_and_touch(32 * MIB, A);
        rig.free(cached);
        let outside_bytes = rig.reserved_bytes();
        if may_capture {
            rig.begin_limited(6 * BLOCK_BYTES);
        } else {
            rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
            rig.heap.set_pool_limit(DEVICE, POOL, Some(6 * BLOCK_BYTES)).unwrap();
        }
        let blocks = [(); 3].map(|()| rig.allocate_and_touch(2 * BLOCK_BYTES, A));
        [blocks[0], blocks[2]].into_iter().for_each(|address| rig.free(address));
        let served = rig.heap.allocate(4 * BLOCK_BYTES, DEVICE, A);
        assert_eq!(rig.pool_usage().reserved_bytes, 6 * BLOCK_BYTES);
        match &served {
            Ok(address) => rig.touch(*address, A),
            Err(error) => assert_eq!(error.status, Status::LimitReached, "{error}"),
        }
        assert_eq!(served.is_ok(), !may_capture);
        assert_eq!(rig.reserved_bytes(), outside_bytes + 6 * BLOCK_BYTES);
        let more = status_of(rig.heap.allocate(4 * BLOCK_BYTES, DEVICE, A));
        assert_eq!(more, Status::LimitReached);
        if !may_capture {
            // Other threads are not in the pool.
            std::thread::scope(|scope| {
                scope.spawn(|| rig.free(rig.allocate(64 * MIB, A)));
            });
        }
        rig.end_limited();
        served.into_iter().chain([blocks[1]]).for_each(|address| rig.free(address));
        rig.finish();
    }
}

/// Memory that does not come is not counted.
pub fn a_pools_account_is_exact_when_memory_is_short(subject: Subject) {
    let rig = subject.plan().capacity(32 * MIB).start();
    rig.begin_limited(256 * MIB);
    let blocks: Vec<u64> =
        std::iter::from_fn(|| rig.heap.allocate(BLOCK_BYTES, DEVICE, A).ok()).take(64).collect();
    assert_eq!(blocks.len(), 8);
    assert_eq!(rig.refusal(BLOCK_BYTES, A), Status::OutOfMemory, "a real shortage");
    assert_eq!(rig.pool_usage().reserved_bytes, 32 * MIB);
    rig.end_limited();
    blocks.into_iter().for_each(|address| rig.free(address));
    rig.finish();
}

pub fn threads_together_keep_a_pools_limit(subject: Subject) {
    const LIMIT_BYTES: u64 = 48 * MIB;
    let mut plan = subject.plan().set(|settings| settings.log = genesis::config::LogLevel::Off);
    plan.machine.progress = simgpu::Progress::Automatic;
    let rig = plan.start();
    rig.begin_limited(LIMIT_BYTES);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (rig, refused) = (&rig, &refused);
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut live = Vec::new();
                for _ in 0..200 {
                    let bytes = 2 * MIB * (1 + random.below(6));
                    let stream = if random.below(2) == 0 { A } else { B };
                    match rig.heap.allocate(bytes, DEVICE, stream) {
                        Ok(address) => live.push(address),
                        Err(error) => {
                            assert_eq!(error.status, Status::LimitReached, "{error}");
                            refused.fetch_add(1, Relaxed);
                        }
                    }
                    let reserved_bytes = rig.heap.pool_usage(DEVICE, POOL).unwrap().reserved_bytes;
                    assert!(reserved_bytes <= LIMIT_BYTES, "{reserved_bytes}");
                    if live.len() > 3 {
                        rig.free(live.swap_remove(random.below(3) as usize));
                    }
                }
                live.into_iter().for_each(|address| rig.free(address));
            });
        }
    });
    let refused = refused.into_inner();
    assert!(refused > 0);
    assert_eq!(rig.pool_usage().refusals, refused, "a request that was tried again counts once");
    assert!(rig.machine.census().used_bytes <= LIMIT_BYTES);
    rig.end_limited();
    rig.finish();
}
