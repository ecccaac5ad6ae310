//! Captures that did not begin a pool: until they end, nothing is waited for or given back.
//! Afterwards everything comes back.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::PoolId;
use simgpu::{Call, CaptureMode, Code, Target, Times};

use crate::support::{A, B, C, DEVICE, PATIENCE, Rig, Subject};

/// As in `streams`: a segment of its own in every strategy.
const BLOCK_BYTES: u64 = 48 * MIB;
const CACHE_BYTES: u64 = 16 * MIB;
const POOL: PoolId = PoolId(7, 8);
const CAPTURE_TIME: Duration = Duration::from_millis(10);
const CAPTURE_UNSUPPORTED: Code = Code(900);

/// A heap with every setting that makes it give memory back.
fn start(subject: Subject) -> Rig {
    let plan = subject.plan().capacity(5 * BLOCK_BYTES).set(|settings| {
        settings.cache_size_bytes = Some(CACHE_BYTES);
        settings.gc_threshold = Some(0.5);
        settings.gc_age_allocations = Some(100);
    });
    plan.start()
}

pub fn a_capture_that_was_told_of_is_left_alone(subject: Subject) {
    let rig = start(subject);
    let blocks = use_memory(&rig);
    rig.heap.begin_capture(DEVICE).unwrap();
    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
    thread::scope(|scope| scope.spawn(|| give_cause(&rig, &blocks)).join().unwrap());
    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
    rig.heap.end_capture(DEVICE).unwrap();
    let inactive_bytes = rig.statistics().inactive_bytes.current;
    assert!(inactive_bytes <= CACHE_BYTES, "{inactive_bytes} bytes are cached");
    judge_end(&rig);
    rig.finish();
}

/// Nobody told of it, but a request on its stream was not served at once.
pub fn a_capture_that_was_seen_is_left_alone(subject: Subject) {
    let rig = start(subject);
    let blocks = use_memory(&rig);
    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
    let captured = rig.allocate_and_touch(2 * MIB, B);
    thread::scope(|scope| scope.spawn(|| give_cause(&rig, &blocks)).join().unwrap());
    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
    // The next calls on the stream find that it is over.
    rig.free(captured);
    for bytes in [2 * MIB, 8 * MIB] {
        rig.free(rig.allocate(bytes, B));
    }
    judge_end(&rig);
    rig.finish();
}

/// What another thread's captures hold back serves a request once they end; it waits for that.
pub fn a_request_waits_for_another_threads_captures(subject: Subject) {
    let announced = (1, announce as fn(&Rig, &dyn Fn()));
    let one_after_the_other = (5, announced.1);
    let in_a_pool = (1, capture_into_a_pool as fn(&Rig, &dyn Fn()));
    for (count, capture) in [announced, one_after_the_other, in_a_pool] {
        let rig = subject.plan().capacity(3 * BLOCK_BYTES).start();
        request_beside_captures(&rig, count, capture);
        rig.finish();
    }
}

/// A thread waits for others' captures, also if one that it has begun was ended by another thread.
pub fn a_capture_may_end_in_another_thread(subject: Subject) {
    for is_in_pool in [false, true] {
        let rig = subject.plan().capacity(3 * BLOCK_BYTES).start();
        let heap = &rig.heap;
        let end = || match is_in_pool {
            false => heap.end_capture(DEVICE).unwrap(),
            true => heap.end_pool(DEVICE, POOL).unwrap(),
        };
        match is_in_pool {
            false => heap.begin_capture(DEVICE).unwrap(),
            true => heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == B)).unwrap(),
        }
        thread::scope(|scope| scope.spawn(end).join().unwrap());
        request_beside_captures(&rig, 1, announce);
        if is_in_pool {
            heap.release_pool(DEVICE, POOL).unwrap();
        }
        rig.finish();
    }
}

/// All memory waits for streams, and another thread captures `count` times; then a request is served.
fn request_beside_captures(rig: &Rig, count: usize, capture: fn(&Rig, &dyn Fn())) {
    let blocks = [(); 3].map(|()| rig.allocate_and_touch(BLOCK_BYTES, A));
    let has_begun = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..count {
                capture(rig, &|| {
                    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
                    if round == 0 {
                        has_begun.wait();
                    }
                    thread::sleep(CAPTURE_TIME);
                    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
                });
            }
        });
        has_begun.wait();
        blocks.iter().for_each(|&block| rig.free(block));
        rig.free(rig.allocate(2 * BLOCK_BYTES, C));
    });
}

/// Makes a request during a capture.
type Capture = dyn Fn(&Rig, &(dyn Fn() + Sync));

/// Its capture would wait for it. The least of a few times counts, because the machine may be busy.
pub fn a_request_that_its_own_capture_waits_for_is_refused_at_once(subject: Subject) {
    let from_here = |capture: fn(&Rig, &dyn Fn())| {
        move |rig: &Rig, request: &(dyn Fn() + Sync)| capture(rig, request)
    };
    let from_another_thread = |rig: &Rig, request: &(dyn Fn() + Sync)| {
        capture_into_a_pool(rig, &|| thread::scope(|scope| scope.spawn(request).join().unwrap()));
    };
    let captures: [&Capture; 4] = [
        &from_here(announce),
        &from_here(capture_into_a_pool),
        &from_another_thread,
        &|_, request| thread::scope(|scope| scope.spawn(request).join().unwrap()),
    ];
    for (way, capture) in captures.into_iter().enumerate() {
        let rig = subject.plan().capacity(4 * BLOCK_BYTES).start();
        let least = Mutex::new(Duration::MAX);
        for _ in 0..3 {
            let blocks = [(); 3].map(|()| rig.allocate_and_touch(BLOCK_BYTES, A));
            capture(&rig, &|| {
                rig.machine.begin_capture(0, B.0, CaptureMode::Relaxed).unwrap();
                // Here one is found that nobody told of.
                let captured = rig.allocate(2 * MIB, B);
                blocks.iter().for_each(|&block| rig.free(block));
                let begin = Instant::now();
                let is_refused = rig.refusal(3 * BLOCK_BYTES, B) == Status::OutOfMemory;
                let time = begin.elapsed();
                rig.machine.end_capture(0, B.0).expect("the capture is still valid");
                rig.free(captured);
                assert!(is_refused);
                let mut least = least.lock().unwrap();
                *least = time.min(*least);
            });
            // And here that it is over.
            rig.free(rig.allocate(8 * MIB, B));
        }
        let least = least.into_inner().unwrap();
        assert!(least < Duration::from_millis(100), "way {way}: refused after {least:?}");
        rig.finish();
    }
}

/// Where nothing is cached, what is freed during a capture goes back when that ends.
pub fn what_a_capture_kept_goes_back(subject: Subject) {
    for capture in [announce, capture_into_a_pool] {
        let rig = start(subject);
        let blocks = use_memory(&rig);
        capture(&rig, &|| {
            blocks.iter().for_each(|&block| rig.free(block));
            assert_eq!(rig.reserved_bytes(), 3 * BLOCK_BYTES);
        });
        assert_eq!(rig.reserved_bytes(), 0);
        rig.finish();
    }
}

/// Callbacks may have something to free that needs a wait.
pub fn callbacks_are_asked_again_after_a_capture(subject: Subject) {
    let rig = subject.plan().capacity(BLOCK_BYTES).start();
    let block = rig.allocate(BLOCK_BYTES, A);
    let (is_captured, has_begun) = (Arc::new(AtomicBool::new(true)), Barrier::new(2));
    let free = {
        let (heap, is_captured) = (Arc::downgrade(&rig.heap), Arc::clone(&is_captured));
        move |_, _| !is_captured.load(SeqCst) && heap.upgrade().unwrap().free(block).is_ok()
    };
    let callback = rig.heap.add_out_of_memory_callback(Arc::new(free));
    thread::scope(|scope| {
        scope.spawn(|| {
            announce(&rig, &|| {
                has_begun.wait();
                thread::sleep(CAPTURE_TIME);
                is_captured.store(false, SeqCst);
            });
        });
        has_begun.wait();
        rig.free(rig.allocate(BLOCK_BYTES, A));
    });
    rig.heap.remove_out_of_memory_callback(callback);
    rig.finish();
}

/// Captures follow each other, and each time the request tries again the next one has begun. All together
/// take longer than it waits for one.
pub fn captures_that_follow_each_other_are_outlasted(subject: Subject) {
    let rig = subject.plan().capacity(3 * BLOCK_BYTES).start();
    let blocks = [(); 3].map(|()| rig.allocate_and_touch(BLOCK_BYTES, A));
    let (begins, has_begun) = sync_channel(0);
    let has_begun = Arc::new(Mutex::new(has_begun));
    let callback = {
        let has_begun = Arc::clone(&has_begun);
        rig.heap.add_out_of_memory_callback(Arc::new(move |_, _| {
            // In vain after the last one.
            let _ = has_begun.lock().unwrap().recv();
            false
        }))
    };
    let served = thread::scope(|scope| {
        scope.spawn(|| {
            let begins = begins;
            for _ in 0..6 {
                announce(&rig, &|| {
                    // In vain once the request has been refused.
                    let _ = begins.send(());
                    thread::sleep(PATIENCE / 5);
                });
                // So that it is seen that none is under way.
                thread::sleep(CAPTURE_TIME);
            }
        });
        has_begun.lock().unwrap().recv().unwrap();
        blocks.iter().for_each(|&block| rig.free(block));
        let served = rig.heap.allocate(2 * BLOCK_BYTES, DEVICE, C);
        rig.heap.remove_out_of_memory_callback(callback);
        drop(has_begun);
        served
    });
    rig.free(served.unwrap());
    rig.finish();
}

fn announce(rig: &Rig, capture: &dyn Fn()) {
    rig.heap.begin_capture(DEVICE).unwrap();
    capture();
    rig.heap.end_capture(DEVICE).unwrap();
}

fn capture_into_a_pool(rig: &Rig, capture: &dyn Fn()) {
    rig.heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == B)).unwrap();
    capture();
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
}

/// A capture that begins between the heap's look and the driver's refusal: the free succeeds, and
/// the memory goes back later.
pub fn a_free_that_meets_a_capture_keeps_its_memory(subject: Subject) {
    let is_refused_for = |call: Call| {
        let rig = start(subject);
        let block = rig.allocate_and_touch(BLOCK_BYTES, A);
        let count = |rig: &Rig| rig.usage().count(call);
        let before = count(&rig);
        rig.machine.faults().fail(Target::call(call), 1, Times::Once, CAPTURE_UNSUPPORTED);
        rig.heap.free(block).expect("nothing is wrong");
        rig.machine.faults().clear();
        let is_struck = count(&rig) > before;
        judge_end(&rig);
        rig.finish();
        is_struck
    };
    let struck = [Call::Synchronize, Call::Free].map(is_refused_for);
    if subject.pool_type == PoolType::Naive {
        assert!(struck.contains(&true), "nothing was refused");
    }
}

fn use_memory(rig: &Rig) -> [u64; 3] {
    let blocks = [(); 3].map(|()| rig.allocate_and_touch(BLOCK_BYTES, A));
    rig.record(blocks[0], C);
    blocks
}

/// Everything for which memory goes back or the device is waited for.
fn give_cause(rig: &Rig, blocks: &[u64]) {
    let before = rig.usage().calls;
    blocks.iter().for_each(|&block| rig.free(block));
    assert_eq!(rig.refusal(5 * BLOCK_BYTES, A), Status::OutOfMemory);
    let beyond = rig.heap.allocate(BLOCK_BYTES, DEVICE, C);
    for _ in 0..600 {
        rig.free(rig.allocate(512, A));
    }
    if let Ok(block) = beyond {
        rig.free(block);
    }
    rig.heap.empty_cache(DEVICE).unwrap();
    rig.heap.trim(DEVICE, 0).unwrap();
    rig.heap.collect_garbage(DEVICE).unwrap();
    rig.heap.compact(DEVICE).unwrap();
    let after = rig.usage().calls;
    for call in [Call::Free, Call::Unmap, Call::Release, Call::Synchronize] {
        assert_eq!(after[call as usize], before[call as usize], "{call:?}");
    }
    assert!(rig.reserved_bytes() >= 3 * BLOCK_BYTES);
}

fn judge_end(rig: &Rig) {
    rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(rig.reserved_bytes(), 0, "everything comes back");
}

/// Blocks for which no event tells when they can be used again: a program that frees one after the
/// other does not hold more and more.
pub fn blocks_of_another_threads_default_stream_do_not_pile_up(subject: Subject) {
    let rig = subject.plan().start();
    for _ in 0..100 {
        let block = rig.allocate_and_touch(BLOCK_BYTES, A);
        rig.record(block, StreamHandle::PER_THREAD);
        thread::scope(|scope| scope.spawn(|| rig.free(block)).join().unwrap());
    }
    is_little(&rig);
    rig.finish();
}

/// See [`blocks_of_another_threads_default_stream_do_not_pile_up`].
pub fn blocks_recorded_on_a_capturing_stream_do_not_pile_up(subject: Subject) {
    let rig = subject.plan().start();
    for _ in 0..100 {
        let block = rig.allocate_and_touch(BLOCK_BYTES, A);
        rig.record(block, C);
        rig.heap.begin_capture(DEVICE).unwrap();
        rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
        rig.free(block);
        rig.machine.end_capture(0, C.0).expect("the capture is still valid");
        rig.heap.end_capture(DEVICE).unwrap();
    }
    is_little(&rig);
    rig.finish();
}

fn is_little(rig: &Rig) {
    let peak_bytes = rig.statistics().reserved_bytes.peak;
    assert!(peak_bytes <= 10 * BLOCK_BYTES, "{peak_bytes} bytes held for {BLOCK_BYTES} live");
}
