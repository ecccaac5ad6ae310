//! Blocks used by streams of other devices and contexts: a wait for the device's own context says
//! nothing of them, nor does its own default stream of another one's.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use genesis::base::blocking::letting_go;
use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use simgpu::{CaptureMode, Work};

use crate::support::{A, DEVICE, PATIENCE, Rig, Subject};

/// As in `streams`: a segment of its own in every strategy.
const BLOCK_BYTES: u64 = 48 * MIB;
const OTHER_DEVICE: u32 = 1;
const OTHER: DeviceOrdinal = DeviceOrdinal(OTHER_DEVICE);
const CAPTURE_TIME: Duration = Duration::from_millis(10);

pub fn a_stream_of_another_device_delays_reuse(subject: Subject) {
    let rig = subject.plan().devices(2, 64 * MIB).start();
    used_by_another(&rig, OTHER_DEVICE);
    rig.finish();
}

pub fn a_stream_of_another_context_delays_reuse(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let context = rig.machine.context_create(0).unwrap();
    used_by_another(&rig, context);
    rig.finish();
}

/// While a thread is about to wait for a device, another device's stream comes to use its memory and
/// is captured: that device is not waited for, because nobody looked for its captures.
pub fn a_device_that_joins_a_wait_may_capture(subject: Subject) {
    thread_local! {
        static JOINING: RefCell<Option<(Rig, u64, StreamHandle)>> = const { RefCell::new(None) };
    }
    fn join(wait: &mut dyn FnMut()) {
        if let Some((rig, shared, foreign)) = JOINING.take() {
            rig.record(shared, foreign);
            rig.heap.begin_capture(OTHER).unwrap();
            rig.machine.begin_capture(OTHER_DEVICE, foreign.0, CaptureMode::Global).unwrap();
        }
        wait();
    }
    let rig = subject.plan().devices(2, 256 * MIB).start();
    rig.heap.free(rig.heap.allocate(512, OTHER, StreamHandle::LEGACY).unwrap()).unwrap();
    let foreign = other_stream(&rig);
    let shared = rig.allocate(BLOCK_BYTES, A);
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    JOINING.set(Some((rig.clone(), shared, foreign)));
    letting_go(join, || {
        rig.free(block);
        rig.heap.empty_cache(DEVICE).unwrap();
    });
    match JOINING.take() {
        // Other strategies leave the wait to the driver, which takes a segment back.
        Some(_) => assert_ne!(subject.pool_type, PoolType::Elastic, "nothing was waited for"),
        None => {
            rig.machine.end_capture(OTHER_DEVICE, foreign.0).expect("the capture is still valid");
            rig.heap.end_capture(OTHER).unwrap();
        }
    }
    rig.free(shared);
    rig.finish();
}

/// The only memory waits for a stream of another device, which cannot be waited for while another
/// thread captures there.
pub fn a_request_waits_for_captures_on_a_device_that_uses_its_memory(subject: Subject) {
    let rig = start_two(subject);
    let captured = other_stream(&rig);
    let block = share_a_block(&rig);
    let has_begun = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            rig.heap.begin_capture(OTHER).unwrap();
            rig.machine.begin_capture(OTHER_DEVICE, captured.0, CaptureMode::Global).unwrap();
            has_begun.wait();
            thread::sleep(CAPTURE_TIME);
            let graph = rig.machine.end_capture(OTHER_DEVICE, captured.0);
            graph.expect("the capture is still valid");
            rig.heap.end_capture(OTHER).unwrap();
        });
        has_begun.wait();
        rig.free(block);
        rig.allocate_and_touch(BLOCK_BYTES, A);
    });
    rig.finish();
}

/// As before, but nobody tells of that capture, which a request there has found, nor of its end.
pub fn the_end_of_a_capture_on_a_device_that_uses_the_memory_is_found(subject: Subject) {
    let rig = start_two(subject);
    let captured = other_stream(&rig);
    let block = share_a_block(&rig);
    rig.machine.begin_capture(OTHER_DEVICE, captured.0, CaptureMode::Global).unwrap();
    let stream = rig.heap.identify_lasting(OTHER, captured).unwrap();
    rig.heap.allocate_on(BLOCK_BYTES, OTHER, stream).unwrap();
    let graph = rig.machine.end_capture(OTHER_DEVICE, captured.0);
    graph.expect("the capture is still valid");
    rig.free(block);
    rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.finish();
}

/// A capture of another thread, on a device that uses the memory, ends before any one of the driver calls
/// that a request makes until it has waited for that in vain.
pub fn a_capture_on_a_device_that_uses_the_memory_may_end_at_any_call(subject: Subject) {
    for call in 0.. {
        let rig = start_two(subject);
        let block = share_a_block(&rig);
        in_another_thread(|| rig.heap.begin_capture(OTHER).unwrap());
        rig.free(block);
        let (calls, requesting) = (AtomicUsize::new(0), thread::current().id());
        let (heap, begin) = (Arc::downgrade(&rig.heap), Instant::now());
        let time_of_end = Arc::new(OnceLock::new());
        let end = Arc::clone(&time_of_end);
        rig.machine.before_each_call(move |_| {
            let is_request = thread::current().id() == requesting;
            if is_request && calls.fetch_add(1, Relaxed) == call {
                in_another_thread(|| heap.upgrade().unwrap().end_capture(OTHER).unwrap());
                end.set(begin.elapsed()).unwrap();
            }
        });
        let served = rig.heap.allocate(BLOCK_BYTES, DEVICE, A);
        let time_of_end = time_of_end.get().expect("a refused request has asked the driver why");
        let is_too_late = *time_of_end >= PATIENCE;
        assert!(served.is_ok() || is_too_late, "call {call}: {served:?}");
        rig.finish();
        if is_too_late {
            assert!(call > 0);
            break;
        }
    }
}

fn start_two(subject: Subject) -> Rig {
    let rig = subject.plan().devices(2, 64 * MIB).start();
    rig.heap.free(rig.heap.allocate(512, OTHER, StreamHandle::LEGACY).unwrap()).unwrap();
    rig
}

fn other_stream(rig: &Rig) -> StreamHandle {
    StreamHandle(rig.machine.stream_create(OTHER_DEVICE, false).unwrap())
}

/// A block that a stream of the other device is still reading.
fn share_a_block(rig: &Rig) -> u64 {
    let foreign = other_stream(rig);
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(block, foreign);
    copy_from(rig, block, A, (OTHER_DEVICE, foreign));
    block
}

fn in_another_thread(act: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(act).join().unwrap());
}

/// A shortage, when the only memory is waiting for a stream of `context`.
fn used_by_another(rig: &Rig, context: u32) {
    let foreign = StreamHandle(rig.machine.stream_create(context, false).unwrap());
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(block, foreign);
    copy_from(rig, block, A, (context, foreign));
    rig.free(block);
    rig.allocate_and_touch(BLOCK_BYTES, A);
}

/// The default stream is another one on each device, and a caller such as PyTorch says only "the
/// default stream".
pub fn default_streams_of_two_devices_are_two(subject: Subject) {
    for stream in [StreamHandle::LEGACY, A] {
        let rig = subject.plan().devices(2, 64 * MIB).start();
        rig.heap.allocate(512, OTHER, StreamHandle::LEGACY).unwrap();
        let block = rig.allocate_and_touch(BLOCK_BYTES, stream);
        rig.heap.record_lasting_stream(block, StreamHandle::LEGACY).unwrap();
        copy_from(&rig, block, stream, (OTHER_DEVICE, StreamHandle::LEGACY));
        rig.free(block);
        rig.allocate_and_touch(BLOCK_BYTES, stream);
        rig.finish();
    }
}

/// A stream of another context copies from a block, after the work of the block's own stream.
fn copy_from(rig: &Rig, block: u64, own: StreamHandle, (context, stream): (u32, StreamHandle)) {
    let event = rig.machine.event_create(0, false).unwrap();
    rig.machine.event_record(0, event, own.0).unwrap();
    rig.machine.stream_wait(context, stream.0, event).unwrap();
    let copied =
        rig.machine.peer_copy_touch(context, stream.0, Work::read(block, BLOCK_BYTES, "a copy"));
    copied.unwrap();
}
