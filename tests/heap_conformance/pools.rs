//! Private pools: what is apart stays apart, addresses stay until the release, and a capture
//! is never disturbed.

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::heap::{PoolFilter, PoolId};
use simgpu::{CaptureMode, Progress};

use crate::support::{A, B, C, DEVICE, Rig, Subject, status_of};

const POOL: PoolId = PoolId(0, 1);
const OTHER_POOL: PoolId = PoolId(0, 2);
const BLOCK_BYTES: u64 = 48 * MIB;

fn only(stream: StreamHandle) -> PoolFilter {
    Arc::new(move |asked| asked == stream)
}

impl Rig {
    fn begin(&self, pool: PoolId, filter: PoolFilter) {
        self.heap.begin_pool(DEVICE, pool, filter).unwrap();
    }

    fn end(&self, pool: PoolId) {
        self.heap.end_pool(DEVICE, pool).unwrap();
    }

    fn release(&self, pool: PoolId) {
        self.heap.release_pool(DEVICE, pool).unwrap();
    }
}

pub fn a_pool_takes_nothing_and_gives_nothing(subject: Subject) {
    let rig = subject.plan().start();
    let outside = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.free(outside);
    rig.begin(POOL, only(A));
    let inside = rig.allocate_and_touch(BLOCK_BYTES, A);
    if subject.keeps_blocks() {
        assert_ne!(inside, outside, "what is cached outside stays outside");
    }
    rig.free(inside);
    if subject.keeps_blocks() {
        assert_eq!(rig.allocate_and_touch(BLOCK_BYTES, A), inside, "the pool reuses its own");
        rig.free(inside);
    }
    let unrouted = rig.allocate_and_touch(BLOCK_BYTES, B);
    assert_ne!(unrouted, inside, "the filter does not let B in");
    rig.end(POOL);
    let after = rig.allocate_and_touch(BLOCK_BYTES, A);
    assert_ne!(after, inside, "nor is it for anyone after the end");
    rig.release(POOL);
    rig.finish();
}

pub fn addresses_stay_until_the_last_release(subject: Subject) {
    let rig = subject.plan().start();
    for _ in 0..2 {
        rig.begin(POOL, only(A));
        let block = rig.allocate_and_touch(BLOCK_BYTES, A);
        rig.free(block);
        rig.end(POOL);
    }
    let held_bytes = rig.reserved_bytes();
    assert!(held_bytes >= BLOCK_BYTES);
    rig.heap.empty_cache(DEVICE).unwrap();
    rig.heap.trim(DEVICE, 0).unwrap();
    rig.heap.collect_garbage(DEVICE).unwrap();
    rig.heap.set_cache_limit(DEVICE, Some(0)).unwrap();
    assert_eq!(rig.reserved_bytes(), held_bytes);
    rig.release(POOL);
    assert_eq!(rig.reserved_bytes(), held_bytes, "begun twice, released once");
    rig.release(POOL);
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

pub fn a_shortage_does_not_take_a_pools_memory(subject: Subject) {
    let rig = subject.plan().capacity(4 * BLOCK_BYTES).start();
    rig.begin(POOL, only(A));
    let block = rig.allocate(2 * BLOCK_BYTES, A);
    rig.free(block);
    rig.end(POOL);
    assert_eq!(rig.refusal(3 * BLOCK_BYTES, B), Status::OutOfMemory);
    let rest = rig.allocate(2 * BLOCK_BYTES, B);
    assert_eq!(rig.refusal(2 * BLOCK_BYTES, B), Status::OutOfMemory, "as large as the pool's");
    rig.free(rest);
    rig.release(POOL);
    let large = rig.allocate(3 * BLOCK_BYTES, B);
    rig.free(large);
    rig.finish();
}

pub fn what_is_live_at_the_release_goes_back_later(subject: Subject) {
    let rig = subject.plan().start();
    rig.begin(POOL, only(A));
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    let shared = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(shared, B);
    rig.free(shared);
    rig.end(POOL);
    rig.release(POOL);
    assert!(rig.reserved_bytes() >= BLOCK_BYTES, "live memory stays");
    rig.free(block);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

pub fn pools_do_not_mix(subject: Subject) {
    let rig = subject.plan().start();
    rig.begin(POOL, only(A));
    rig.begin(OTHER_POOL, only(B));
    let first = rig.allocate(BLOCK_BYTES, A);
    rig.free(first);
    let second = rig.allocate(BLOCK_BYTES, B);
    assert_ne!(second, first);
    rig.end(POOL);
    rig.end(OTHER_POOL);
    rig.release(POOL);
    assert!(rig.heap.block_containing(second).is_ok());
    rig.free(second);
    // The same name after the last release is another pool.
    rig.begin(POOL, only(C));
    let third = rig.allocate(BLOCK_BYTES, C);
    rig.free(third);
    rig.end(POOL);
    rig.release(OTHER_POOL);
    rig.release(POOL);
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

pub fn misuse_of_pools_is_reported(subject: Subject) {
    let rig = subject.plan().start();
    let heap = &rig.heap;
    assert_eq!(status_of(heap.end_pool(DEVICE, POOL)), Status::InvalidArgument);
    assert_eq!(status_of(heap.release_pool(DEVICE, POOL)), Status::InvalidArgument);
    rig.begin(POOL, only(A));
    assert_eq!(status_of(heap.begin_pool(DEVICE, POOL, only(B))), Status::InvalidArgument);
    rig.end(POOL);
    assert_eq!(status_of(heap.end_pool(DEVICE, POOL)), Status::InvalidArgument);
    rig.release(POOL);
    assert_eq!(status_of(heap.release_pool(DEVICE, POOL)), Status::InvalidArgument);
    rig.finish();
}

/// A capture in which everything happens that could disturb it: misses, frees, streams that
/// share blocks, a shortage, and every way to give memory back.
pub fn a_capture_is_not_disturbed(subject: Subject) {
    let rig = subject.plan().capacity(8 * BLOCK_BYTES).start();
    rig.machine.set_progress(Progress::Automatic);
    let cached = rig.allocate_and_touch(BLOCK_BYTES, B);
    rig.free(cached);
    let shared = rig.allocate_and_touch(BLOCK_BYTES, B);
    rig.record(shared, C);
    rig.free(shared);
    rig.machine.begin_capture(0, A.0, CaptureMode::Global).unwrap();
    rig.begin(POOL, only(A));
    let calls = rig.usage().calls;
    let first = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(first, B);
    rig.free(first);
    let second = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.free(second);
    assert_eq!(rig.refusal(16 * BLOCK_BYTES, A), Status::OutOfMemory);
    rig.heap.empty_cache(DEVICE).unwrap();
    rig.heap.trim(DEVICE, 0).unwrap();
    rig.heap.compact(DEVICE).unwrap();
    let after = rig.usage().calls;
    for call in [simgpu::Call::Free, simgpu::Call::Synchronize, simgpu::Call::EventQuery] {
        assert_eq!(after[call as usize], calls[call as usize], "{call:?}");
    }
    rig.end(POOL);
    let graph = rig.machine.end_capture(0, A.0).expect("the capture is as good as new");
    // The graph's memory is where it was, on whatever stream it runs.
    rig.machine.graph_launch(0, B.0, &graph).unwrap();
    rig.machine.run_device_to_idle(0).unwrap();
    rig.release(POOL);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}
