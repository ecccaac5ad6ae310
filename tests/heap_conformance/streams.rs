//! Stream order: who may use freed memory, and when.
//!
//! Streams stand still until a case runs them, and the race detector watches: a block handed
//! out too early is found when its next user touches it.

use std::thread;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use simgpu::{Call, CaptureMode};

use crate::support::{A, B, C, DEVICE, Rig, Subject};

/// Large enough for a segment of its own in every strategy, and rounded by none.
const BLOCK_BYTES: u64 = 48 * MIB;

pub fn same_stream_reuses_at_once(subject: Subject) {
    let rig = subject.plan().start();
    for bytes in [1, 512, 4096, 100_000, 3 * MIB, BLOCK_BYTES] {
        let first = rig.allocate_and_touch(bytes, A);
        rig.free(first);
        let calls = rig.calls();
        let second = rig.allocate_and_touch(bytes, A);
        if subject.keeps_blocks() {
            assert_eq!(second, first);
            rig.free(second);
            assert_eq!(rig.calls(), calls, "{bytes} bytes");
        } else {
            rig.free(second);
            assert_eq!(rig.calls(), calls + 3, "an allocation, a look for captures, a free");
        }
    }
    rig.finish();
}

pub fn another_stream_waits_for_the_event(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.free(block);
    // The first miss on B cannot have it, and asks for a fence; the next call on A makes it.
    let first = rig.allocate_and_touch(BLOCK_BYTES, B);
    rig.allocate(512, A);
    let second = rig.allocate_and_touch(BLOCK_BYTES, B);
    if subject.keeps_blocks() {
        assert_ne!(first, block);
        // Elastic maps the memory at another address.
        assert!(second == block || subject.pool_type == PoolType::Elastic);
        assert_eq!(rig.statistics().cross_stream_reuses, 1);
        assert_eq!(rig.usage().host_waits.explicit, 0, "the host waits for nothing");
        rig.machine.advance(0, B.0, 100).unwrap();
        assert_ne!(rig.machine.pending(0, B.0).unwrap(), 0, "B waits for A on the device");
        rig.run(A);
        rig.machine.advance(0, B.0, 100).unwrap();
        assert_eq!(rig.machine.pending(0, B.0).unwrap(), 0);
    }
    rig.finish();
}

pub fn another_stream_takes_nothing_without_an_event(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.free(block);
    for _ in 0..5 {
        let other = rig.allocate_and_touch(BLOCK_BYTES, B);
        assert!(other != block || !subject.keeps_blocks());
    }
    rig.finish();
}

pub fn recorded_streams_delay_reuse(subject: Subject) {
    let rig = subject.plan().start();
    let block = free_while_others_read(&rig);
    let statistics = rig.statistics();
    assert_eq!(statistics.allocated_bytes.current, 0);
    assert_eq!(statistics.active_bytes.current, BLOCK_BYTES, "it waits");
    assert_ne!(rig.allocate_and_touch(BLOCK_BYTES, A), block);
    rig.run(B);
    assert_ne!(rig.allocate_and_touch(BLOCK_BYTES, A), block, "C is not done");
    rig.run(C);
    assert_eq!(rig.allocate_and_touch(BLOCK_BYTES, A), block);
    rig.finish();
}

/// What goes back to the driver at once is out of use by then: the driver waits.
pub fn the_driver_waits_for_recorded_streams(subject: Subject) {
    let rig = subject.plan().start();
    free_while_others_read(&rig);
    for stream in [A, B, C] {
        assert_eq!(rig.machine.pending(0, stream.0).unwrap(), 0, "{stream:?}");
    }
    assert_eq!(rig.statistics().active_bytes.current, 0);
    assert_eq!(rig.reserved_bytes(), 0);
    rig.finish();
}

/// Frees a block of A, which B and C still read, and returns its address.
fn free_while_others_read(rig: &Rig) -> u64 {
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    // The order between the streams is the program's business: C and B both wait for A.
    follow(rig, A, &[B, C]);
    rig.record(block, B);
    rig.record(block, C);
    rig.record(block, B);
    rig.machine.touch(0, B.0, simgpu::Work::read(block, 512, "B")).unwrap();
    rig.machine.touch(0, C.0, simgpu::Work::read(block, 512, "C")).unwrap();
    assert_ne!(rig.machine.pending(0, B.0).unwrap() * rig.machine.pending(0, C.0).unwrap(), 0);
    rig.free(block);
    block
}

pub fn recording_the_own_stream_changes_nothing(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    let calls = rig.calls();
    rig.record(block, A);
    assert_eq!(rig.calls(), calls);
    rig.free(block);
    if subject.keeps_blocks() {
        assert_eq!(rig.allocate_and_touch(BLOCK_BYTES, A), block);
        assert_eq!(rig.calls(), calls);
    }
    rig.finish();
}

pub fn a_capturing_recorded_stream_delays_until_idle(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(block, C);
    rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
    rig.machine.touch(0, C.0, simgpu::Work::read(block, 512, "captured")).unwrap();
    rig.free(block);
    rig.run(A);
    for _ in 0..40 {
        let other = rig.allocate(512, A);
        rig.free(other);
    }
    assert_ne!(rig.allocate_and_touch(BLOCK_BYTES, A), block);
    rig.machine.end_capture(0, C.0).expect("the capture is still valid");
    assert_ne!(rig.allocate_and_touch(BLOCK_BYTES, A), block, "no event tells");
    let released = rig.heap.empty_cache(DEVICE).unwrap();
    assert!(released >= BLOCK_BYTES, "an idle device does");
    rig.finish();
}

/// Waiting for the device is forbidden while a stream is captured, and would spoil the capture.
pub fn a_shortage_leaves_a_capture_alone(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let waiting = rig.allocate(BLOCK_BYTES, A);
    rig.record(waiting, C);
    rig.touch(waiting, C);
    rig.free(waiting);
    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
    let captured = rig.heap.allocate(BLOCK_BYTES, DEVICE, B);
    assert_eq!(captured.is_ok(), !subject.keeps_blocks(), "the memory still waits for C");
    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
    // The next call on the stream finds that the capture is over.
    let after = if subject.keeps_blocks() { BLOCK_BYTES } else { 512 };
    rig.allocate_and_touch(after, B);
    rig.finish();
}

/// Of streams that last, a capture that nobody told of holds nothing back once it has ended.
pub fn the_end_of_a_capture_that_was_seen_is_found(subject: Subject) {
    let rig = subject.plan().start();
    let cached = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.free(cached);
    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
    let stream = rig.heap.identify_lasting(DEVICE, B).unwrap();
    let captured = rig.heap.allocate_on(2 * BLOCK_BYTES, DEVICE, stream).unwrap();
    assert_eq!(rig.heap.empty_cache(DEVICE).unwrap(), 0, "it would spoil the capture");
    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
    let released = rig.heap.empty_cache(DEVICE).unwrap();
    assert!(released >= BLOCK_BYTES || !subject.keeps_blocks());
    rig.free(captured);
    rig.finish();
}

/// A block that waited for another stream joins neighbours freed after it: what is joined must
/// not be handed to a third stream behind an event that is older than those frees.
pub fn a_joined_block_is_as_fresh_as_its_freshest_part(subject: Subject) {
    let rig = subject.plan().start();
    let early = rig.allocate_and_touch(8 * MIB, A);
    let late = rig.allocate_and_touch(8 * MIB, A);
    follow(&rig, A, &[B]);
    rig.record(early, B);
    rig.machine.touch(0, B.0, simgpu::Work::write(early, 512, "B")).unwrap();
    rig.free(early);
    // Something else of A's is missed by C, so that A gets its event now.
    let wanted = rig.allocate(BLOCK_BYTES, A);
    rig.free(wanted);
    rig.allocate_and_touch(BLOCK_BYTES, C);
    rig.allocate(512, A);
    // Work after that event, then the late free; then B finishes and the parts are joined.
    rig.touch(late, A);
    rig.free(late);
    rig.run(B);
    rig.heap.compact(DEVICE).unwrap();
    rig.allocate_and_touch(8 * MIB, C);
    rig.allocate_and_touch(8 * MIB, C);
    rig.allocate_and_touch(8 * MIB, C);
    rig.finish();
}

pub fn a_destroyed_stream_is_never_touched(subject: Subject) {
    let rig = subject.plan().capacity(64 * MIB).start();
    let stream = StreamHandle(rig.machine.stream_create(0, false).unwrap());
    let block = rig.allocate_and_touch(BLOCK_BYTES, stream);
    rig.free(block);
    rig.machine.stream_destroy(0, stream.0).unwrap();
    // There is no room for another one: the memory has to come from the destroyed stream.
    let other = rig.allocate_and_touch(BLOCK_BYTES, B);
    rig.free(other);
    rig.heap.trim(DEVICE, 0).unwrap();
    rig.heap.collect_garbage(DEVICE).unwrap();
    rig.finish();
}

pub fn names_of_the_default_stream_are_one(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, StreamHandle::LEGACY);
    rig.record(block, StreamHandle::LEGACY_ALIAS);
    rig.free(block);
    let again = rig.allocate_and_touch(BLOCK_BYTES, StreamHandle::LEGACY_ALIAS);
    assert!(again == block || !subject.keeps_blocks());
    rig.finish();
}

pub fn each_threads_default_stream_is_its_own(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate_and_touch(BLOCK_BYTES, StreamHandle::PER_THREAD);
    rig.free(block);
    let other_thread = || rig.allocate_and_touch(BLOCK_BYTES, StreamHandle::PER_THREAD);
    let other = thread::scope(|scope| scope.spawn(other_thread).join().unwrap());
    assert!(other != block || !subject.keeps_blocks());
    // Recorded for one thread's stream and freed by another, which cannot name that stream.
    let shared = rig.allocate_and_touch(BLOCK_BYTES, A);
    rig.record(shared, StreamHandle::PER_THREAD);
    rig.machine.stream_wait(0, StreamHandle::PER_THREAD.0, event_after(&rig, A)).unwrap();
    rig.touch(shared, StreamHandle::PER_THREAD);
    thread::scope(|scope| scope.spawn(|| rig.free(shared)).join().unwrap());
    assert!(rig.allocate_and_touch(BLOCK_BYTES, A) != shared || !subject.keeps_blocks());
    rig.finish();
}

/// Programs that make and drop streams for ever run for ever.
pub fn streams_come_and_go(subject: Subject) {
    let mut plan = subject.plan().capacity(256 * MIB);
    plan.machine.detect_races = false;
    let rig = plan.start();
    let kept = rig.allocate(MIB, A);
    for n in 0..4500 {
        let stream = StreamHandle(rig.machine.stream_create(0, false).unwrap());
        let block = rig.allocate(2 * MIB, stream);
        rig.free(block);
        rig.machine.stream_destroy(0, stream.0).unwrap();
        if n % 500 == 0 {
            rig.heap.validate().unwrap();
        }
    }
    assert_eq!(rig.heap.block_containing(kept).unwrap().address, kept);
    rig.free(kept);
    rig.finish();
}

pub fn streams_of_one_device_leave_room_for_another(subject: Subject) {
    let mut plan = subject.plan().devices(2, 64 * MIB);
    plan.machine.detect_races = false;
    let rig = plan.start();
    for n in 0..4200 {
        let block = rig.allocate(512, StreamHandle(0x10_0000 + n));
        rig.free(block);
    }
    let block = rig.heap.allocate(512, DeviceOrdinal(1), A).unwrap();
    rig.free(block);
    rig.finish();
}

/// Makes work enqueued on `followers` from now on come after what is on `leader`.
fn follow(rig: &Rig, leader: StreamHandle, followers: &[StreamHandle]) {
    let event = event_after(rig, leader);
    for stream in followers {
        rig.machine.stream_wait(0, stream.0, event).unwrap();
    }
    assert!(rig.usage().count(Call::StreamWait) >= followers.len() as u64);
}

fn event_after(rig: &Rig, stream: StreamHandle) -> u64 {
    let event = rig.machine.event_create(0, false).unwrap();
    rig.machine.event_record(0, event, stream.0).unwrap();
    event
}
