//! Stream handles that are used again: the driver gives the handle of a destroyed stream to the
//! next one, also while the old one's work is outstanding (rapidsai/rmm#649).
//!
//! A new stream of that handle is another queue. Whatever is known of the old one, by the handle,
//! says nothing of the new one, and an event of the new one nothing of the old one's work.

use genesis::base::StreamHandle;
use genesis::base::size::MIB;
use genesis::config::StreamIds;

use crate::support::{A, B, Rig, Subject};

/// As in `streams`: a segment of its own in every strategy.
const BLOCK_BYTES: u64 = 48 * MIB;

fn create(rig: &Rig) -> StreamHandle {
    StreamHandle(rig.machine.stream_create(0, false).unwrap())
}

/// Destroys `stream`; the next stream has its handle.
fn replace(rig: &Rig, stream: StreamHandle) -> StreamHandle {
    rig.machine.stream_destroy(0, stream.0).unwrap();
    let next = create(rig);
    assert_eq!(next, stream, "the handle is given again");
    next
}

/// A block that a destroyed stream's work still uses is not handed out at once to its successor.
pub fn a_new_stream_does_not_get_an_old_ones_blocks(subject: Subject) {
    let rig = subject.plan().start();
    let old = create(&rig);
    let block = rig.allocate_and_touch(BLOCK_BYTES, old);
    rig.free(block);
    let new = replace(&rig, old);
    let other = rig.allocate_and_touch(BLOCK_BYTES, new);
    assert!(other != block || !subject.keeps_blocks());
    rig.finish();
}

/// Blocks that wait for an old stream are not ready when its successor has come to its end.
pub fn a_new_streams_events_do_not_end_an_old_ones_waits(subject: Subject) {
    let rig = subject.plan().start();
    let old = create(&rig);
    let [finished, waiting, another] = [(); 3].map(|()| rig.allocate(BLOCK_BYTES, A));
    let free_after_use_on = |block, stream| {
        rig.record(block, stream);
        rig.touch(block, stream);
        rig.free(block);
    };
    free_after_use_on(finished, old);
    rig.run(old);
    // The miss finds the old stream at its end.
    let more = rig.allocate(2 * BLOCK_BYTES, A);
    free_after_use_on(waiting, old);
    let new = replace(&rig, old);
    free_after_use_on(another, new);
    rig.run(new);
    for _ in 0..3 {
        rig.allocate_and_touch(BLOCK_BYTES, A);
    }
    rig.free(more);
    rig.finish();
}

/// Memory that another stream takes behind an event of the new stream was in use by the old one.
pub fn a_new_streams_fence_does_not_cover_an_old_ones_blocks(subject: Subject) {
    let rig = subject.plan().start();
    let old = create(&rig);
    let block = rig.allocate_and_touch(BLOCK_BYTES, old);
    rig.free(block);
    // B misses, so that the next call on the old stream's lane would record an event.
    rig.allocate_and_touch(BLOCK_BYTES, B);
    let new = replace(&rig, old);
    rig.allocate(512, new);
    rig.allocate_and_touch(BLOCK_BYTES, B);
    rig.finish();
}

/// A program that makes and drops streams for ever does not hold more and more.
pub fn streams_that_come_and_go_leave_little_behind(subject: Subject) {
    let rig = subject.plan().start();
    for _ in 0..200 {
        let stream = create(&rig);
        let block = rig.allocate_and_touch(BLOCK_BYTES, stream);
        rig.free(block);
        rig.run(stream);
        rig.machine.stream_destroy(0, stream.0).unwrap();
    }
    let peak_bytes = rig.statistics().reserved_bytes.peak;
    assert!(peak_bytes <= 10 * BLOCK_BYTES, "{peak_bytes} bytes held for {BLOCK_BYTES} live");
    rig.finish();
}

/// A stream that was told to end is not touched any more for blocks it was recorded for, however
/// streams are told.
pub fn a_forgotten_stream_is_not_touched(subject: Subject) {
    for &stream_ids in StreamIds::ALL {
        let rig = subject.plan().set(|settings| settings.stream_ids = stream_ids).start();
        let old = create(&rig);
        let block = rig.allocate(BLOCK_BYTES, A);
        rig.record(block, old);
        rig.touch(block, old);
        rig.heap.forget_stream(old).unwrap();
        replace(&rig, old);
        rig.free(block);
        rig.allocate_and_touch(BLOCK_BYTES, A);
        rig.finish();
    }
}
