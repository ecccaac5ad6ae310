//! What a stream that has nothing to do has free is lent at once, although no call names that stream.
//! Neither this nor giving memory back names a stream to the driver that may be gone.

use genesis::base::StreamHandle;
use genesis::base::size::{GIB, MIB};
use genesis::config::StreamIds;
use simgpu::{Call, CaptureMode};

use crate::ADDRESSES;
use crate::support::{A, B, DEVICE, Rig};

const BLOCK_BYTES: u64 = 32 * MIB;
/// The lender has needed so many, and has them free.
const CACHED: u64 = 32;
/// So many are needed elsewhere: for less than 256 MiB no request waits for the device.
const NEEDED: u64 = 7;

fn rig(stream_ids: StreamIds) -> Rig {
    ADDRESSES.plan().capacity(64 * GIB).set(|settings| settings.stream_ids = stream_ids).start()
}

/// `count` blocks on `stream` that kernels write to.
fn used(rig: &Rig, count: u64, stream: StreamHandle) -> Vec<u64> {
    (0..count).map(|_| rig.allocate_and_touch(BLOCK_BYTES, stream)).collect()
}

fn free(rig: &Rig, blocks: Vec<u64>) {
    blocks.into_iter().for_each(|address| rig.free(address));
}

#[test]
fn what_an_idle_stream_has_free_is_lent_without_a_wait() {
    for lender in [A, StreamHandle::LEGACY] {
        let rig = rig(StreamIds::Off);
        free(&rig, used(&rig, CACHED, lender));
        rig.run(lender);
        let blocks = used(&rig, NEEDED, B);
        // One may be made of the slack before memory is moved.
        let held_bytes = rig.reserved_bytes();
        assert!(held_bytes <= (CACHED + 1) * BLOCK_BYTES, "{lender:?}: {held_bytes}");
        assert_eq!(rig.usage().count(Call::StreamWait), 0);
        assert_eq!(rig.usage().count(Call::Synchronize), 0);
        rig.run(B);
        free(&rig, blocks);
        rig.finish();
    }
}

#[test]
fn what_an_idle_stream_no_longer_waits_for_is_lent() {
    let rig = rig(StreamIds::Off);
    let shared = used(&rig, CACHED, A);
    for &address in &shared {
        rig.heap.record_stream(address, B).unwrap();
    }
    free(&rig, shared);
    rig.run(A);
    // Now B has done with them, too. Nothing is called for A, so no event was looked at since.
    rig.run(B);
    let blocks = used(&rig, NEEDED, B);
    // One may be made of the slack before memory is moved.
    let held_bytes = rig.reserved_bytes();
    assert!(held_bytes <= (CACHED + 1) * BLOCK_BYTES, "{held_bytes}");
    rig.run(B);
    free(&rig, blocks);
    rig.finish();
}

#[test]
fn what_a_stream_still_uses_is_not_lent() {
    let rig = rig(StreamIds::Off);
    free(&rig, used(&rig, CACHED, A));
    let blocks = used(&rig, NEEDED, B);
    assert_eq!(rig.statistics().cross_stream_reuses, 0);
    assert_eq!(rig.reserved_bytes(), (CACHED + NEEDED) * BLOCK_BYTES);
    rig.run(A);
    let more = rig.allocate_and_touch(2 * BLOCK_BYTES, B);
    assert!(rig.statistics().cross_stream_reuses > 0);
    rig.run(B);
    free(&rig, blocks);
    rig.free(more);
    rig.finish();
}

#[test]
fn a_capturing_stream_is_left_alone() {
    let rig = rig(StreamIds::Off);
    free(&rig, used(&rig, CACHED, A));
    rig.run(A);
    rig.machine.begin_capture(0, A.0, CaptureMode::Relaxed).unwrap();
    let blocks = used(&rig, NEEDED, B);
    assert_eq!(rig.statistics().cross_stream_reuses, 0);
    rig.machine.end_capture(0, A.0).expect("a capture that nothing disturbed");
    rig.run(B);
    free(&rig, blocks);
    rig.finish();
}

/// A program that lends in each cycle what it lent in the last one; then the lender goes on.
fn lends_again_and_again(rig: &Rig) {
    // A window of another lane's memory is known after less than half as many cycles.
    const CYCLES: usize = 20;
    let cycle = || {
        let lent = used(rig, CACHED, A);
        rig.run(A);
        free(rig, lent);
        let blocks = used(rig, NEEDED, B);
        rig.run(B);
        free(rig, blocks);
    };
    (0..CYCLES).for_each(|_| cycle());
    let (reuses, maps) = (rig.statistics().cross_stream_reuses, rig.usage().count(Call::Map));
    cycle();
    assert!(rig.statistics().cross_stream_reuses > reuses, "A lends");
    assert_eq!(rig.usage().count(Call::Map), maps);
    free(rig, used(rig, CACHED, A));
}

#[test]
fn what_was_lent_before_is_not_lent_while_its_stream_uses_it() {
    let rig = rig(StreamIds::Off);
    lends_again_and_again(&rig);
    let reuses = rig.statistics().cross_stream_reuses;
    let blocks = used(&rig, NEEDED, B);
    assert_eq!(rig.statistics().cross_stream_reuses, reuses);
    rig.run(B);
    free(&rig, blocks);
    rig.run(A);
    rig.finish();
}

#[test]
fn asking_for_what_was_lent_before_disturbs_no_capture() {
    for captured in [A, B] {
        let rig = rig(StreamIds::Off);
        lends_again_and_again(&rig);
        rig.run(A);
        rig.machine.begin_capture(0, captured.0, CaptureMode::Relaxed).unwrap();
        let blocks: Vec<u64> = (0..NEEDED).map(|_| rig.allocate(BLOCK_BYTES, B)).collect();
        rig.machine.end_capture(0, captured.0).expect("a capture that nothing disturbed");
        free(&rig, blocks);
        rig.finish();
    }
}

/// `count` blocks of a caller that identifies its streams by their handles, as PyTorch's hooks do.
fn hooked(rig: &Rig, count: u64, stream: StreamHandle) -> Vec<u64> {
    let stream = rig.heap.identify_lasting(DEVICE, stream).unwrap();
    (0..count).map(|_| rig.heap.allocate_on(BLOCK_BYTES, DEVICE, stream).unwrap()).collect()
}

/// A new stream with cached memory, of which only its handle is known.
fn made(rig: &Rig) -> StreamHandle {
    let made = StreamHandle(rig.machine.stream_create(0, false).unwrap());
    free(rig, hooked(rig, CACHED, made));
    made
}

/// PyTorch's own streams last, those that others made may not.
#[test]
fn a_stream_that_may_have_been_destroyed_is_not_named() {
    let rig = rig(StreamIds::Auto);
    let made = made(&rig);
    rig.machine.stream_destroy(0, made.0).unwrap();
    let queries = rig.usage().count(Call::StreamQuery);
    let blocks = hooked(&rig, NEEDED, B);
    assert_eq!(rig.usage().count(Call::StreamQuery), queries);
    free(&rig, blocks);
    rig.machine.run_device_to_idle(0).unwrap();
    rig.finish();
}

#[test]
fn a_stream_that_its_caller_knows_to_last_is_looked_at() {
    let rig = rig(StreamIds::Auto);
    rig.heap.ask_which_last(|device, stream| device == DEVICE && stream == A);
    free(&rig, hooked(&rig, CACHED, A));
    let blocks = hooked(&rig, NEEDED, B);
    assert!(rig.reserved_bytes() <= (CACHED + 1) * BLOCK_BYTES);
    free(&rig, blocks);
    rig.machine.run_device_to_idle(0).unwrap();
    rig.finish();
}

#[test]
fn giving_back_names_no_stream_that_may_be_gone() {
    let rig = rig(StreamIds::Auto);
    let made = made(&rig);
    free(&rig, hooked(&rig, 1, StreamHandle::LEGACY));
    rig.machine.stream_destroy(0, made.0).unwrap();
    let records = rig.usage().count(Call::EventRecord);
    rig.heap.give_back(DEVICE, GIB).unwrap();
    assert_eq!(rig.usage().count(Call::EventRecord), records + 1, "of the default stream");
    rig.run(StreamHandle::LEGACY);
    assert!(rig.heap.give_back(DEVICE, GIB).unwrap() >= BLOCK_BYTES);
    rig.finish();
}

#[test]
fn an_announced_end_is_heeded() {
    let rig = rig(StreamIds::Off);
    let made = StreamHandle(rig.machine.stream_create(0, false).unwrap());
    free(&rig, used(&rig, CACHED, made));
    rig.run(made);
    rig.heap.forget_stream(made).unwrap();
    rig.machine.stream_destroy(0, made.0).unwrap();
    let queries = rig.usage().count(Call::StreamQuery);
    let blocks = used(&rig, NEEDED, B);
    assert_eq!(rig.usage().count(Call::StreamQuery), queries);
    rig.run(B);
    free(&rig, blocks);
    rig.finish();
}

/// What another stream has free behind an event that is still to come, a captured stream cannot take: its
/// graph must not wait for work outside. It gets new memory, and nobody told of the capture.
#[test]
fn a_captured_stream_takes_nothing_behind_an_event() {
    let rig = rig(StreamIds::Off);
    free(&rig, used(&rig, CACHED, A));
    // At the next call on that stream an event is recorded.
    let asking = used(&rig, 1, B);
    let fenced = used(&rig, 1, A);
    rig.machine.begin_capture(0, B.0, CaptureMode::Global).unwrap();
    let blocks = used(&rig, NEEDED, B);
    assert_eq!(rig.statistics().cross_stream_reuses, 0);
    assert_eq!(rig.statistics().out_of_memory_events, 0);
    rig.machine.end_capture(0, B.0).expect("the capture is still valid");
    // That it is over, the next miss on the stream finds.
    rig.free(rig.allocate(CACHED * BLOCK_BYTES, B));
    rig.run(A);
    rig.run(B);
    for blocks in [asking, fenced, blocks] {
        free(&rig, blocks);
    }
    rig.finish();
}
