//! Lanes that no thread has in common lend each other nothing, unless that would take very much memory or
//! more than there is.

use std::sync::mpsc::channel;
use std::thread::Scope;

use genesis::base::size::{GIB, MIB};
use genesis::base::{StreamHandle, thread};
use simgpu::Progress;

use crate::ADDRESSES;
use crate::support::{A, B, Rig};

const BLOCK_BYTES: u64 = 32 * MIB;
/// What the first lane has needed, and has free.
const CACHED_BYTES: u64 = 1024 * MIB;

/// A heap whose lane of [`A`] has [`CACHED_BYTES`] free, all called by this thread.
fn with_cache(device_bytes: u64) -> Rig {
    let mut plan = ADDRESSES.plan().capacity(device_bytes);
    plan.machine.progress = Progress::Automatic;
    let rig = plan.start();
    let blocks = CACHED_BYTES / BLOCK_BYTES;
    let blocks: Vec<u64> = (0..blocks).map(|_| rig.allocate(BLOCK_BYTES, A)).collect();
    blocks.into_iter().for_each(|address| rig.free(address));
    rig
}

/// `count` more blocks of [`B`], live at the same time, for which `allocate` asks. Before each, this
/// thread calls [`A`], so that the event is recorded that may have been asked for; a small block
/// leaves what is cached as it is.
fn use_more(rig: &Rig, count: u64, allocate: impl Fn() -> u64) -> Vec<u64> {
    let next = |_| {
        rig.free(rig.allocate(512, A));
        allocate()
    };
    (0..count).map(next).collect()
}

/// Runs `work` in a thread that is told apart from this one.
pub fn elsewhere<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let own_number = thread::number();
    scope.spawn(move || {
        // Threads are told apart by their numbers modulo 64.
        if thread::number() % 64 == own_number % 64 {
            std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
        } else {
            work();
        }
    });
}

/// [`use_more`] in another thread, of `stream`.
fn use_more_elsewhere(rig: &Rig, stream: StreamHandle, count: u64) -> Vec<u64> {
    std::thread::scope(|scope| {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        elsewhere(scope, move || {
            for () in asked {
                answer.send(rig.allocate(BLOCK_BYTES, stream)).unwrap();
            }
        });
        let blocks = use_more(rig, count, || {
            ask.send(()).unwrap();
            answers.recv().unwrap()
        });
        drop(ask);
        blocks
    })
}

fn end(rig: Rig, blocks: Vec<u64>) {
    blocks.into_iter().for_each(|address| rig.free(address));
    rig.finish();
}

#[test]
fn what_a_thread_needs_beside_another_is_its_own() {
    let rig = with_cache(64 * GIB);
    // As much as the other thread has needed before.
    let blocks = use_more_elsewhere(&rig, B, CACHED_BYTES / BLOCK_BYTES);
    assert_eq!(rig.statistics().cross_stream_reuses, 0);
    let held_bytes = rig.statistics().reserved_bytes.current;
    assert!((2 * CACHED_BYTES..2 * CACHED_BYTES / 25 * 26).contains(&held_bytes), "{held_bytes}");
    end(rig, blocks);
}

#[test]
fn streams_of_one_thread_share() {
    let rig = with_cache(64 * GIB);
    let blocks = use_more(&rig, CACHED_BYTES / 4 / BLOCK_BYTES, || rig.allocate(BLOCK_BYTES, B));
    assert!(rig.statistics().cross_stream_reuses > 0);
    assert!(rig.statistics().reserved_bytes.current < CACHED_BYTES / 8 * 9);
    end(rig, blocks);
}

#[test]
fn many_threads_that_need_their_most_in_turns_share() {
    let rig = with_cache(64 * GIB);
    let count = CACHED_BYTES / BLOCK_BYTES;
    for stream in [0xB0, 0xC0, 0xD0] {
        let blocks = use_more_elsewhere(&rig, StreamHandle(stream), count);
        blocks.into_iter().for_each(|address| rig.free(address));
    }
    assert_eq!(rig.statistics().cross_stream_reuses, 0);
    // With a fifth, all have needed more than four times what was live at any time.
    let blocks = use_more_elsewhere(&rig, StreamHandle(0xE0), count);
    assert!(rig.statistics().cross_stream_reuses > 0);
    assert!(rig.statistics().reserved_bytes.current < CACHED_BYTES / 2 * 9);
    end(rig, blocks);
}

#[test]
fn threads_share_a_device_that_they_fill() {
    let rig = with_cache(CACHED_BYTES / 4 * 5);
    let blocks = use_more_elsewhere(&rig, B, CACHED_BYTES / BLOCK_BYTES);
    assert!(rig.statistics().cross_stream_reuses > 0);
    end(rig, blocks);
}
