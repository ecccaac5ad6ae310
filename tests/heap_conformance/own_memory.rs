//! Private pools with memory of their own: whole segments, and functions in place of the driver.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::driver::Device;
use genesis::heap::{PoolId, PoolOptions, SegmentSource};

use simgpu::CaptureMode;

use crate::support::{A, B, DEVICE, Rig, Subject, status_of};

const POOL: PoolId = PoolId(0, 1);
const SIZES: [u64; 6] = [512, MIB, 3 * MIB, 12 * MIB, 48 * MIB, 700];

/// The simulated driver, called by functions of the test's.
#[derive(Debug)]
struct Source {
    driver: Arc<dyn Device>,
    /// What it has handed out: addresses, bytes, streams.
    live: Mutex<Vec<(u64, u64, StreamHandle)>>,
    is_empty: AtomicBool,
}

impl SegmentSource for Source {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Option<u64> {
        let address = (!self.is_empty.load(SeqCst)).then(|| self.driver.allocate(bytes).ok())??;
        self.live.lock().unwrap().push((address, bytes, stream));
        Some(address)
    }

    fn free(&self, address: u64, bytes: u64) {
        let mut live = self.live.lock().unwrap();
        let is_it =
            |&(start, size, _): &(u64, u64, StreamHandle)| (start, size) == (address, bytes);
        let place = live.iter().position(is_it).expect("it takes back what it handed out");
        live.swap_remove(place);
        self.driver.free(address).expect("nothing uses it");
    }
}

impl Source {
    fn has(&self, address: u64) -> bool {
        let live = self.live.lock().unwrap();
        live.iter().any(|&(start, bytes, _)| (start..start + bytes).contains(&address))
    }

    fn count(&self) -> usize {
        self.live.lock().unwrap().len()
    }
}

impl Rig {
    fn create(&self, keeps_whole: bool, source: Option<Arc<Source>>) {
        let source = source.map(|source| -> Arc<dyn SegmentSource> { source });
        let options = PoolOptions { keeps_whole, source, ..PoolOptions::default() };
        self.heap.create_pool(DEVICE, POOL, options).unwrap();
    }

    fn source(&self) -> Arc<Source> {
        let driver = Arc::clone(self.heap.driver(DEVICE).unwrap());
        Arc::new(Source { driver, live: Mutex::default(), is_empty: AtomicBool::new(false) })
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        let both = |stream| stream == A || stream == B;
        self.heap.begin_pool(DEVICE, POOL, Arc::new(both)).unwrap();
        let result = act();
        self.heap.end_pool(DEVICE, POOL).unwrap();
        self.heap.release_pool(DEVICE, POOL).unwrap();
        result
    }

    fn allocate_all(&self) -> Vec<u64> {
        SIZES.iter().map(|&bytes| self.allocate_and_touch(bytes, A)).collect()
    }

    fn free_all(&self, blocks: Vec<u64>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }
}

pub fn segments_of_a_pool_stay_whole(subject: Subject) {
    let rig = subject.plan().start();
    rig.create(true, None);
    let outside = rig.allocate_all();
    let inside = rig.within(|| rig.allocate_all());
    let check = |count: usize| {
        let blocks = rig.heap.pool_blocks(DEVICE, POOL).unwrap();
        assert_eq!(blocks.len(), count);
        for block in blocks {
            assert_eq!(block.segment, block.address..block.address + block.bytes);
        }
        rig.check();
    };
    check(SIZES.len());
    rig.free_all(inside.clone());
    check(SIZES.len());
    if subject.keeps_blocks() {
        let mut again = rig.within(|| rig.allocate_all());
        check(SIZES.len());
        again.sort_unstable();
        let mut first = inside;
        first.sort_unstable();
        assert_eq!(again, first, "each segment serves its sizes again");
        rig.free_all(again);
    }
    rig.free_all(outside);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert!(rig.reserved_bytes() >= SIZES.iter().sum(), "the pool is held");
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

/// Blocks lie one behind the other, and when all are free the next begin where the first did. One
/// that is live keeps its arena.
pub fn a_pool_with_arenas_fills_them_in_order(subject: Subject) {
    let rig = subject.plan().start();
    let options = PoolOptions { has_arenas: true, ..PoolOptions::default() };
    rig.heap.create_pool(DEVICE, POOL, options).unwrap();
    let four = || {
        rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
        let blocks = [(); 4].map(|()| rig.allocate_and_touch(4 * MIB, A));
        rig.heap.end_pool(DEVICE, POOL).unwrap();
        rig.heap.release_pool(DEVICE, POOL).unwrap();
        blocks
    };
    let first = four();
    if subject.splits_blocks() {
        assert!(first.windows(2).all(|pair| pair[1] - pair[0] == 4 * MIB), "{first:x?}");
    }
    [1, 0, 3].into_iter().for_each(|n| rig.free(first[n]));
    let second = four();
    assert!(second.iter().all(|block| !(first[2]..first[2] + 4 * MIB).contains(block)));
    rig.free(first[2]);
    second.into_iter().for_each(|block| rig.free(block));
    let calls = rig.statistics().driver_memory_calls;
    for _ in 0..3 {
        let again = four();
        if subject.splits_blocks() {
            assert!(again.windows(2).all(|pair| pair[1] - pair[0] == 4 * MIB), "{again:x?}");
        }
        again.into_iter().for_each(|block| rig.free(block));
    }
    assert!(rig.statistics().driver_memory_calls == calls || !subject.keeps_blocks());
    rig.check();
    rig.heap.empty_cache(DEVICE).unwrap();
    let is_scratch = subject.splits_blocks();
    assert!(
        rig.reserved_bytes() == 0 || !is_scratch,
        "its free memory goes back when it is asked for"
    );
    four().into_iter().for_each(|block| rig.free(block));
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

pub fn a_pools_memory_comes_from_its_source(subject: Subject) {
    let rig = subject.plan().start();
    let source = rig.source();
    rig.create(false, Some(Arc::clone(&source)));
    let outside = rig.allocate_all();
    assert_eq!(source.count(), 0);
    let inside = rig.within(|| rig.allocate_all());
    assert!(inside.iter().all(|&block| source.has(block)));
    assert!(!outside.iter().any(|&block| source.has(block)));
    assert!(source.live.lock().unwrap().iter().all(|&(.., stream)| stream == A));
    rig.check();
    rig.free_all(inside.clone());
    let segments = source.count();
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(source.count(), segments, "the pool is held");
    if subject.keeps_blocks() {
        let again = rig.within(|| rig.allocate_all());
        assert_eq!(source.count(), segments, "what is cached is reused");
        rig.free_all(again);
    }
    rig.free_all(outside);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    assert_eq!(source.count(), 0);
    // The name is free for another pool, without a source.
    let common = rig.within(|| rig.allocate_all());
    assert_eq!(source.count(), 0);
    rig.free_all(common);
    rig.finish();
}

pub fn a_source_gets_back_what_outlives_its_pool(subject: Subject) {
    let rig = subject.plan().start();
    let source = rig.source();
    rig.create(false, Some(Arc::clone(&source)));
    let kept = rig.within(|| rig.allocate_and_touch(48 * MIB, A));
    rig.record(kept, B);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    // A pool that is made meanwhile changes nothing for the one that is gone.
    rig.create(true, None);
    assert!(source.has(kept));
    rig.touch(kept, A);
    rig.free(kept);
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!((source.count(), rig.reserved_bytes()), (0, 0));
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

pub fn a_source_without_memory_is_a_shortage(subject: Subject) {
    let rig = subject.plan().capacity(256 * MIB).start();
    let source = rig.source();
    rig.create(false, Some(Arc::clone(&source)));
    source.is_empty.store(true, SeqCst);
    rig.within(|| assert_eq!(rig.refusal(MIB, A), Status::OutOfMemory));
    source.is_empty.store(false, SeqCst);
    // A limit counts its memory like any other.
    rig.heap.set_memory_limit(DEVICE, Some(64 * MIB)).unwrap();
    let block = rig.within(|| rig.allocate(48 * MIB, A));
    rig.within(|| assert_eq!(rig.refusal(48 * MIB, A), Status::OutOfMemory));
    rig.free(block);
    assert_eq!(rig.refusal(48 * MIB, A), Status::OutOfMemory, "the pool's memory is its own");
    rig.check();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    let block = rig.allocate(48 * MIB, A);
    rig.free(block);
    rig.finish();
}

pub fn a_capture_calls_no_source_to_free(subject: Subject) {
    let rig = subject.plan().start();
    let source = rig.source();
    rig.create(false, Some(Arc::clone(&source)));
    let block = rig.within(|| rig.allocate_and_touch(48 * MIB, A));
    rig.machine.begin_capture(0, B.0, CaptureMode::Relaxed).unwrap();
    rig.heap.begin_capture(DEVICE).unwrap();
    rig.free(block);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(source.count(), 1, "it might wait for the device");
    rig.machine.end_capture(0, B.0).expect("the capture is as good as new");
    rig.heap.end_capture(DEVICE).unwrap();
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(source.count(), 0);
    rig.finish();
}

pub fn a_pool_that_is_held_is_not_made_again(subject: Subject) {
    let rig = subject.plan().start();
    rig.create(true, None);
    let again = rig.heap.create_pool(DEVICE, POOL, PoolOptions::default());
    assert_eq!(status_of(again), Status::InvalidArgument);
    assert_eq!(rig.heap.pool_uses(DEVICE, POOL).unwrap(), 1);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.create(false, None);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}
