//! When memory is short: what is tried, and what is said when nothing helps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use genesis::base::size::{GIB, MIB};
use genesis::base::{Error, Status};
use genesis::config::{ElasticPolicy, Oversubscription, PoolType, Settings};

use crate::support::{A, B, DEVICE, Rig, Subject, tier};

/// Long beside what a request takes that is refused, and short beside how long one waits.
const CALLBACK_TIME: Duration = Duration::from_millis(20);
/// What takes longer has failed.
const TEST_TIME: Duration = Duration::from_secs(60);

pub fn callbacks_are_asked_until_removed(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let held = Arc::new(Mutex::new(vec![rig.allocate(48 * MIB, A)]));
    let wanted = Arc::new(AtomicU64::new(0));
    let id = {
        let (heap, held, wanted) = (Arc::downgrade(&rig.heap), held.clone(), wanted.clone());
        rig.heap.add_out_of_memory_callback(Arc::new(move |device, bytes| {
            assert_eq!(device, DEVICE);
            wanted.store(bytes, Ordering::Relaxed);
            let freed = std::mem::take(&mut *held.lock().unwrap());
            let heap = heap.upgrade().unwrap();
            freed.iter().for_each(|&address| heap.free(address).unwrap());
            !freed.is_empty()
        }))
    };
    let block = rig.allocate_and_touch(32 * MIB, A);
    assert!(wanted.load(Ordering::Relaxed) >= 32 * MIB);
    assert!(held.lock().unwrap().is_empty());
    // It has nothing left to give: the next request is refused, and the heap goes on.
    assert_eq!(rig.refusal(64 * MIB, A), Status::OutOfMemory);
    assert!(rig.heap.remove_out_of_memory_callback(id));
    assert!(!rig.heap.remove_out_of_memory_callback(id));
    wanted.store(0, Ordering::Relaxed);
    assert_eq!(rig.refusal(64 * MIB, A), Status::OutOfMemory);
    assert_eq!(wanted.load(Ordering::Relaxed), 0, "removed");
    rig.free(block);
    rig.finish();
}

pub fn callbacks_may_use_the_heap(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let held = rig.allocate(48 * MIB, A);
    let heap = Arc::downgrade(&rig.heap);
    rig.heap.add_out_of_memory_callback(Arc::new(move |device, _| {
        let heap = heap.upgrade().unwrap();
        // Requests of its own on the stream that waits; those refused do not ask this callback
        // again, for that would go on for ever.
        for _ in 0..3 {
            assert!(heap.allocate(GIB, device, A).is_err());
        }
        if let Ok(own) = heap.allocate(512, device, A) {
            heap.record_stream(own, B).unwrap();
            heap.free(own).unwrap();
        }
        heap.statistics(device).unwrap();
        heap.validate().unwrap();
        heap.empty_cache(device).unwrap();
        let freed = heap.free(held);
        freed.is_ok()
    }));
    rig.allocate_and_touch(60 * MIB, A);
    assert_eq!(rig.refusal(GIB, A), Status::OutOfMemory);
    rig.finish();
}

/// A callback of another thread has taken what it will free, so that this thread's finds nothing.
pub fn a_request_waits_for_another_threads_callback(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let held = Arc::new(Mutex::new(vec![rig.allocate(48 * MIB, A)]));
    let (takes, has_taken) = channel();
    let id = {
        let heap = Arc::downgrade(&rig.heap);
        rig.heap.add_out_of_memory_callback(Arc::new(move |_, _| {
            let taken = held.lock().unwrap().pop();
            let Some(address) = taken else { return false };
            takes.send(()).unwrap();
            thread::sleep(CALLBACK_TIME);
            heap.upgrade().unwrap().free(address).is_ok()
        }))
    };
    thread::scope(|scope| {
        scope.spawn(|| rig.allocate(24 * MIB, A));
        has_taken.recv_timeout(TEST_TIME).expect("the first request needs the callback");
        rig.allocate(24 * MIB, A);
    });
    assert!(rig.heap.remove_out_of_memory_callback(id));
    rig.finish();
}

pub fn the_line_has_every_figure(subject: Subject) {
    let rig = subject.plan().capacity(256 * MIB).start();
    rig.heap.set_memory_limit(DEVICE, Some(192 * MIB)).unwrap();
    rig.allocate(32 * MIB, A);
    let freed = rig.allocate(16 * MIB, A);
    rig.free(freed);
    let error = refusal(&rig, 1 << 32);
    let figures = figures(&error.message);
    let statistics = rig.statistics();
    let figure = |name: &str| figures[name].parse::<u64>().unwrap();
    assert_eq!(figure("device"), 0);
    assert_eq!(figure("requested_bytes"), 1 << 32);
    assert_eq!(figure("live_bytes"), 32 * MIB);
    assert_eq!(figure("live_blocks"), 1);
    assert_eq!(figure("cached_bytes"), statistics.free_bytes);
    assert_eq!(figure("largest_free_bytes"), statistics.largest_free_bytes);
    assert_eq!(figure("pending_bytes"), 0);
    assert_eq!(figure("reserved_bytes"), statistics.reserved_bytes.current);
    assert_eq!(figure("limit_bytes"), 192 * MIB);
    let driver_free_bytes = 256 * MIB - statistics.reserved_bytes.current;
    assert_eq!(figure("driver_free_bytes"), driver_free_bytes);
    assert_eq!(figure("driver_total_bytes"), 256 * MIB);
    let index: f64 = figures["fragmentation_index"].parse().unwrap();
    assert!((index - statistics.fragmentation_index).abs() < 0.001);
    assert!(error.message.contains("4.00 GiB") && error.message.contains("hint: "));
    assert!(!error.message.contains('\n'), "one line");
    assert_eq!(rig.lines(), [error.message.to_string()], "and the log has it too");
    assert_eq!(statistics.out_of_memory_events, 1);
    rig.finish();
}

pub fn the_hint_is_true(subject: Subject) {
    let rig = subject.plan().capacity(256 * MIB).start();
    let hint = |bytes| {
        let message = refusal(&rig, bytes).message.clone();
        message.split_once("hint: ").unwrap().1.to_owned()
    };
    let has = |hint: String, words: &str| assert!(hint.contains(words), "{hint:?}: {words:?}");
    has(hint(GIB), "larger than the device");
    rig.heap.set_memory_limit(DEVICE, Some(64 * MIB)).unwrap();
    has(hint(100 * MIB), "limit in force");
    rig.heap.set_memory_limit(DEVICE, None).unwrap();
    // Managed memory is evicted where others hold the device, and has a limit of its own.
    let is_managed = subject.plan().settings.managed != Oversubscription::Off;
    if !is_managed {
        rig.machine.faults().limit_capacity(0, 64 * MIB).unwrap();
        has(hint(100 * MIB), "held by others");
        rig.machine.faults().restore_capacity(0).unwrap();
    }
    let live = rig.allocate(192 * MIB, A);
    has(hint(128 * MIB), if is_managed { "GENESIS_MANAGED" } else { "live" });
    rig.free(live);
    if subject.splits_blocks() {
        // A full device of small neighbours, every second one free: enough, but in pieces.
        let blocks: Vec<u64> = (0..256).map(|_| rig.allocate(MIB, A)).collect();
        blocks.iter().step_by(2).for_each(|&address| rig.free(address));
        let hint = hint(100 * MIB);
        let Settings { strategy, elastic_policy, .. } = &subject.plan().settings;
        let is_coarse =
            strategy.pool_type == PoolType::Elastic && *elastic_policy == ElasticPolicy::Balanced;
        assert_eq!(hint.contains("GENESIS_ELASTIC_POLICY=fine"), is_coarse, "{hint:?}");
        has(hint, "in pieces");
    }
    rig.finish();
}

/// pytorch#159674: what is cached makes way for a request that needs the room.
pub fn sixty_then_seventy_of_eighty(subject: Subject) {
    let unit_bytes = tier::some_or_all(GIB / 8, GIB);
    let rig = subject.plan().capacity(80 * unit_bytes).start();
    for units in [60, 70, 79, 10, 80] {
        let bytes = units * unit_bytes;
        let block = rig.allocate_and_touch(bytes, A);
        rig.free(block);
    }
    rig.finish();
}

/// pytorch#35901, as far as each strategy goes: blocks of a segment each make room together.
pub fn every_second_block_of_a_full_device(subject: Subject) {
    let rig = subject.plan().start();
    let blocks: Vec<u64> = (0..64).map(|_| rig.allocate_and_touch(16 * MIB, A)).collect();
    assert_eq!(rig.refusal(16 * MIB, A), Status::OutOfMemory);
    blocks.iter().step_by(2).for_each(|&address| rig.free(address));
    rig.allocate_and_touch(512 * MIB, A);
    for address in blocks.into_iter().skip(1).step_by(2) {
        rig.touch(address, A);
        rig.free(address);
    }
    rig.finish();
}

pub fn memory_comes_from_another_streams_cache(subject: Subject) {
    // With a reserve, MXNet's strategies would release the cache first.
    let plan = subject.plan().capacity(64 * MIB);
    let rig = plan.set(|settings| settings.strategy.reserve_percent = 0.0).start();
    for stream in [A, B, A, B] {
        let block = rig.allocate_and_touch(48 * MIB, stream);
        rig.free(block);
    }
    let expected = if subject.keeps_blocks() { 3 } else { 0 };
    assert_eq!(rig.statistics().cross_stream_reuses, expected);
    // A recorded block, too, though its stream has yet to finish.
    let block = rig.allocate_and_touch(48 * MIB, A);
    rig.record(block, B);
    rig.free(block);
    rig.allocate_and_touch(48 * MIB, A);
    if subject.pool_type != PoolType::Naive {
        assert_ne!(rig.usage().host_waits.explicit, 0, "that takes a wait");
    }
    rig.finish();
}

fn refusal(rig: &Rig, bytes: u64) -> Error {
    let error = rig.heap.allocate(bytes, DEVICE, A).unwrap_err();
    assert_eq!(error.status, Status::OutOfMemory);
    error
}

/// The `name=value` pairs of a message.
fn figures(message: &str) -> HashMap<&str, &str> {
    message.split_whitespace().filter_map(|word| word.split_once('=')).collect()
}
