//! Giving memory back on request.

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::config::PoolType;

use crate::support::{A, B, DEVICE, Rig, Subject, status_of};

/// A segment of its own in every strategy, and rounded by none.
const BLOCK_BYTES: u64 = 16 * MIB;
/// Blocks of Elastic begin and end inside extents, so this many pages more or less than a block's
/// go back with it.
const LARGEST_EXTENT_PAGES: u64 = 4;

pub fn trim_to_a_target(subject: Subject) {
    let rig = subject.plan().start();
    cache_three(&rig);
    let held_bytes = rig.reserved_bytes();
    let cached_bytes = if subject.keeps_blocks() { 3 * BLOCK_BYTES } else { 0 };
    if subject.keeps_blocks() {
        assert_eq!(rig.heap.trim(DEVICE, held_bytes), Ok(0));
        // Elastic's memory comes in other pieces than blocks.
        let is_elastic = subject.pool_type == PoolType::Elastic;
        let first_bytes = rig.heap.trim(DEVICE, held_bytes - BLOCK_BYTES).unwrap();
        assert!(first_bytes == BLOCK_BYTES || first_bytes > BLOCK_BYTES && is_elastic);
        let more_bytes = rig.heap.trim(DEVICE, held_bytes - first_bytes - 1).unwrap();
        assert!(more_bytes == BLOCK_BYTES || more_bytes > 0 && is_elastic);
        let rest_bytes = rig.heap.trim(DEVICE, 0).unwrap();
        let cached_part = (first_bytes + more_bytes + rest_bytes) / (2 * MIB);
        assert!(
            cached_part == cached_bytes / (2 * MIB)
                || cached_part.abs_diff(cached_bytes / (2 * MIB)) <= LARGEST_EXTENT_PAGES
                    && is_elastic,
            "the rest is live: {first_bytes}, {more_bytes}, {rest_bytes}"
        );
    }
    assert_eq!(rig.heap.trim(DEVICE, 0), Ok(0));
    // The driver takes whole pages.
    let rest_bytes = rig.reserved_bytes().next_multiple_of(2 * MIB);
    assert_eq!(rig.machine.census().used_bytes, rest_bytes);
    rig.finish();
}

pub fn a_direct_free_gives_its_memory_back(subject: Subject) {
    let rig = subject.plan().start();
    let cached = rig.allocate(BLOCK_BYTES, A);
    let block = rig.allocate(BLOCK_BYTES, A);
    rig.touch(block, A);
    rig.free(cached);
    let held_bytes = rig.reserved_bytes();
    let released_bytes = rig.heap.free_directly(block).unwrap();
    assert_eq!(released_bytes, if subject.keeps_blocks() { BLOCK_BYTES } else { 0 });
    assert_eq!(rig.reserved_bytes(), held_bytes - BLOCK_BYTES);
    if subject.keeps_blocks() {
        let calls = rig.calls();
        assert_eq!(rig.allocate(BLOCK_BYTES, A), cached, "the other one is cached still");
        assert_eq!(rig.calls(), calls);
    }
    assert_eq!(status_of(rig.heap.free_directly(block + 512)), Status::ForeignPointer);
    assert_eq!(rig.heap.free_directly(0), Ok(0));
    rig.finish();
}

pub fn a_direct_free_leaves_what_is_shared(subject: Subject) {
    let rig = subject.plan().start();
    let (small, neighbour) = (rig.allocate(5000, A), rig.allocate(5000, A));
    rig.touch(neighbour, A);
    let live_bytes = rig.statistics().allocated_bytes.current;
    rig.heap.free_directly(small).unwrap();
    assert_eq!(rig.statistics().allocated_bytes.current, live_bytes / 2);
    rig.touch(neighbour, A);
    assert_eq!(status_of(rig.heap.free_directly(0x1000)), Status::ForeignPointer);
    rig.finish();
}

pub fn trim_releases_the_longest_unused_first(subject: Subject) {
    let rig = subject.plan().start();
    let [first, second, third] = cache_three(&rig);
    rig.heap.trim(DEVICE, rig.reserved_bytes() - BLOCK_BYTES).unwrap();
    let mut left = [rig.allocate(BLOCK_BYTES, A), rig.allocate(BLOCK_BYTES, A)];
    let mut expected = [second, third];
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected, "{first:#x} was freed first");
    rig.finish();
}

pub fn emptying_the_cache_keeps_what_is_live(subject: Subject) {
    let rig = subject.plan().start();
    let live = [rig.allocate(100, A), rig.allocate(3 * MIB, B), rig.allocate(BLOCK_BYTES, B)];
    cache_three(&rig);
    let released = rig.heap.empty_cache(DEVICE).unwrap();
    assert_eq!(released, if subject.keeps_blocks() { 3 * BLOCK_BYTES } else { 0 });
    for address in live {
        rig.touch(address, if address == live[0] { A } else { B });
    }
    assert_eq!(rig.heap.empty_cache(DEVICE), Ok(0));
    rig.finish();
}

pub fn emptying_the_cache_waits_for_other_streams(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate(BLOCK_BYTES, A);
    rig.record(block, B);
    rig.touch(block, B);
    rig.free(block);
    if subject.keeps_blocks() {
        assert_eq!(rig.heap.trim(DEVICE, 0), Ok(0), "trim does not wait");
        assert_eq!(rig.heap.empty_cache(DEVICE), Ok(BLOCK_BYTES));
    }
    assert_eq!(rig.machine.census().used_bytes, 0);
    rig.finish();
}

/// Of memory under addresses of the driver's choice none is: the driver would wait.
pub fn what_is_given_back_is_idle_and_nothing_is_waited_for(subject: Subject) {
    let rig = subject.plan().start();
    let waits = |rig: &Rig| rig.usage().count(simgpu::Call::Synchronize);
    let most_bytes = if subject.pool_type == PoolType::Elastic { BLOCK_BYTES } else { 0 };
    for stream in [StreamHandle::LEGACY, A] {
        let block = rig.allocate_and_touch(BLOCK_BYTES, stream);
        assert_eq!(rig.heap.give_back(DEVICE, BLOCK_BYTES), Ok(0), "it is live");
        rig.free(block);
        let before = waits(&rig);
        if subject.keeps_blocks() {
            assert_eq!(rig.heap.give_back(DEVICE, BLOCK_BYTES), Ok(0), "its work is under way");
            rig.run(stream);
            if stream == A {
                // A stream that may be destroyed has an event only from a call of its own.
                assert_eq!(rig.heap.give_back(DEVICE, BLOCK_BYTES), Ok(0));
                rig.free(rig.allocate(512, stream));
                rig.run(stream);
            }
            rig.heap.begin_capture(DEVICE).unwrap();
            assert_eq!(rig.heap.give_back(DEVICE, BLOCK_BYTES), Ok(0), "a stream is captured");
            rig.heap.end_capture(DEVICE).unwrap();
            assert_eq!(rig.heap.give_back(DEVICE, 0), Ok(0));
            assert_eq!(rig.heap.give_back(DEVICE, BLOCK_BYTES), Ok(most_bytes), "{stream:?}");
            assert_eq!(waits(&rig), before);
        }
        rig.heap.empty_cache(DEVICE).unwrap();
    }
    rig.finish();
}

pub fn garbage_is_what_two_collections_saw_unused(subject: Subject) {
    let rig = subject.plan().start();
    let [first, ..] = cache_three(&rig);
    assert_eq!(rig.heap.collect_garbage(DEVICE), Ok(0), "unused, but only just");
    let used = rig.allocate(BLOCK_BYTES, A);
    rig.free(used);
    let kept_bytes = if subject.keeps_blocks() { BLOCK_BYTES } else { 0 };
    let is_elastic = subject.pool_type == PoolType::Elastic;
    let edge_bytes = if is_elastic { LARGEST_EXTENT_PAGES * 2 * MIB } else { 0 };
    let collected_bytes = rig.heap.collect_garbage(DEVICE).unwrap();
    assert!(collected_bytes.abs_diff(2 * kept_bytes) <= edge_bytes, "not {first:#x} alone");
    let inactive_bytes = rig.statistics().inactive_bytes.current;
    let small_bytes = 2 * MIB; // around what cache_three has allocated in between
    assert!(inactive_bytes >= kept_bytes);
    assert!(inactive_bytes < kept_bytes + small_bytes + edge_bytes);
    let collected_bytes = rig.heap.collect_garbage(DEVICE).unwrap();
    assert!(collected_bytes.abs_diff(kept_bytes) <= edge_bytes);
    rig.finish();
}

pub fn compaction_takes_in_what_has_finished(subject: Subject) {
    let rig = subject.plan().start();
    let block = rig.allocate(BLOCK_BYTES, A);
    rig.record(block, B);
    rig.touch(block, B);
    rig.free(block);
    assert_eq!(rig.heap.compact(DEVICE), Ok(0), "B is not done");
    rig.run(B);
    let taken_bytes = if subject.keeps_blocks() { BLOCK_BYTES } else { 0 };
    assert_eq!(rig.heap.compact(DEVICE), Ok(taken_bytes));
    assert_eq!(rig.heap.compact(DEVICE), Ok(0));
    assert_eq!(rig.reserved_bytes(), taken_bytes, "nothing is given back");
    assert_eq!(rig.statistics().inactive_bytes.peak, taken_bytes);
    rig.finish();
}

/// Leaves three blocks cached on A, each next to a live one, and freed in this order with an
/// allocation between, by which the lane tells their ages.
fn cache_three(rig: &Rig) -> [u64; 3] {
    let blocks = [(); 3].map(|()| {
        let block = rig.allocate_and_touch(BLOCK_BYTES, A);
        rig.allocate(BLOCK_BYTES, A);
        block
    });
    for block in blocks {
        rig.free(block);
        rig.allocate(512, A);
    }
    blocks
}
