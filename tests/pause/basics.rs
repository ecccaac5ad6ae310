//! What pausing and resuming promise when nothing fails.

use genesis::base::Status;
use genesis::base::size::{KIB, MIB};
use genesis::config::PoolType;
use simgpu::{Call, StoreKind};

use crate::support::{A, B, C, DEVICE, Subject, status_of};
use crate::{CACHE, Scene, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    kept_contents_come_back
    dropped_contents_cost_no_copies
    nothing_of_the_tag_stays_reserved
    everything_twice_is_once
    tags_do_not_disturb_each_other
    blocks_may_be_freed_while_paused
    what_is_freed_while_paused_stays_away
    new_memory_while_paused
    generations_count_what_came_back
    tags_nest_and_are_the_threads_own
    misuse_is_reported
    recorded_streams_hold_after_the_pause
}

fn kept_contents_come_back(store: StoreKind) {
    let scene = Scene::new(store);
    let before = scene.rig.statistics();
    scene.rig.pause(WEIGHTS, true);
    let paused = scene.rig.statistics();
    let live_bytes: u64 = scene.weights.iter().map(|held| held.bytes).sum();
    assert!(paused.reserved_bytes.current + live_bytes <= before.reserved_bytes.current);
    assert_eq!(paused.allocated_bytes.current, before.allocated_bytes.current, "still live");
    assert_eq!(paused.requested_bytes.current, before.requested_bytes.current);
    let host_bytes = scene.rig.host_bytes();
    assert!(live_bytes <= host_bytes && host_bytes < live_bytes + live_bytes / 8);
    scene.check_others();
    for held in &scene.weights {
        let block = scene.rig.heap.block_containing(held.address).unwrap();
        assert_eq!((block.address, block.requested_bytes), (held.address, held.bytes));
    }
    scene.rig.resume(WEIGHTS);
    assert_eq!(scene.rig.host_bytes(), 0);
    let after = scene.rig.statistics();
    assert_eq!(after.allocated_bytes.current, before.allocated_bytes.current);
    assert!(after.reserved_bytes.current <= before.reserved_bytes.current);
    scene.finish();
}

fn dropped_contents_cost_no_copies(store: StoreKind) {
    let mut scene = Scene::new(store);
    scene.rig.pause(WEIGHTS, false);
    scene.check_others();
    scene.rig.resume(WEIGHTS);
    for call in [Call::HostRegister, Call::CopyToHost, Call::CopyToDevice, Call::HostUnregister] {
        assert_eq!(scene.rig.usage().count(call), 0, "{call:?}");
    }
    for held in std::mem::take(&mut scene.weights) {
        let block = scene.rig.heap.block_containing(held.address).unwrap();
        assert_eq!(block.requested_bytes, held.bytes, "where it was");
        scene.rig.touch(held.address, held.stream);
        if store == StoreKind::RealBytes {
            // SAFETY: a live block of so many bytes.
            unsafe { std::ptr::write_bytes(held.address as *mut u8, 7, held.bytes as usize) };
        }
    }
    scene.finish();
}

fn nothing_of_the_tag_stays_reserved(store: StoreKind) {
    let rig = subject(store).plan().start();
    let held: Vec<_> =
        [900, 3 * MIB, 40 * MIB].map(|bytes| rig.hold(Some(WEIGHTS), bytes, A, 9)).into();
    let cached = rig.hold(Some(WEIGHTS), 60 * MIB, B, 9);
    rig.free(cached.address);
    rig.pause(WEIGHTS, true);
    assert_eq!(rig.reserved_bytes(), 0);
    assert_eq!(rig.machine.census().used_bytes, 0);
    assert_eq!(rig.machine.census().mappings, 0);
    assert_eq!(rig.statistics().inactive_bytes.current, 0);
    // Giving back what is cached, and asking for memory, does not trouble what is paused.
    rig.heap.empty_cache(DEVICE).unwrap();
    let other = rig.allocate_and_touch(MIB, A);
    rig.heap.trim(DEVICE, 0).unwrap();
    rig.heap.compact(DEVICE).unwrap();
    rig.resume(WEIGHTS);
    assert!(rig.reserved_bytes() < 60 * MIB, "what was cached does not come back");
    held.iter().for_each(|held| rig.check_held(held));
    rig.free(other);
    rig.finish_without_host_memory();
}

fn everything_twice_is_once(store: StoreKind) {
    let scene = Scene::new(store);
    let heap = &scene.rig.heap;
    scene.rig.resume(WEIGHTS);
    assert_eq!(heap.generation(WEIGHTS).unwrap(), 0);
    scene.rig.pause(WEIGHTS, true);
    let calls = scene.rig.calls();
    scene.rig.pause(WEIGHTS, true);
    scene.rig.pause(WEIGHTS, false);
    assert_eq!(scene.rig.calls(), calls, "paused again it asks nothing, and keeps what it had");
    scene.rig.resume(WEIGHTS);
    let calls = scene.rig.calls();
    scene.rig.resume(WEIGHTS);
    assert_eq!(scene.rig.calls(), calls);
    assert_eq!(heap.generation(WEIGHTS).unwrap(), 1);
    for _ in 0..3 {
        scene.rig.pause(WEIGHTS, true);
        scene.rig.resume(WEIGHTS);
    }
    assert_eq!(heap.generation(WEIGHTS).unwrap(), 4);
    scene.finish();
}

fn tags_do_not_disturb_each_other(store: StoreKind) {
    let scene = Scene::new(store);
    scene.rig.pause(WEIGHTS, true);
    scene.rig.pause(CACHE, true);
    for held in &scene.untagged {
        scene.rig.check_held(held);
    }
    scene.rig.resume(WEIGHTS);
    for held in &scene.weights {
        scene.rig.check_held(held);
        scene.rig.touch(held.address, held.stream);
    }
    scene.rig.resume(CACHE);
    scene.finish();
}

fn blocks_may_be_freed_while_paused(store: StoreKind) {
    let mut scene = Scene::new(store);
    let before = scene.rig.statistics();
    scene.rig.pause(WEIGHTS, true);
    let freed: Vec<_> = [0, 2, 3].map(|number| scene.weights[number]).into();
    for held in &freed {
        scene.rig.record(held.address, C);
        scene.rig.free(held.address);
        scene.rig.check();
        scene.weights.retain(|other| other != held);
        let again = status_of(scene.rig.heap.free(held.address));
        assert!(matches!(again, Status::DoubleFree | Status::ForeignPointer), "{again:?}");
    }
    let freed_bytes: u64 = freed.iter().map(|held| held.bytes).sum();
    let paused = scene.rig.statistics();
    assert_eq!(
        paused.requested_bytes.current,
        before.requested_bytes.current - freed_bytes,
        "they are freed"
    );
    assert_eq!(paused.frees, before.frees + 3);
    scene.rig.resume(WEIGHTS);
    // The extents that have come back with others in them serve again.
    for held in freed {
        scene.weights.push(scene.rig.hold(Some(WEIGHTS), held.bytes, held.stream, 200));
    }
    scene.finish();
}

fn what_is_freed_while_paused_stays_away(store: StoreKind) {
    let mut scene = Scene::new(store);
    scene.rig.pause(WEIGHTS, true);
    let reserved_bytes = scene.rig.reserved_bytes();
    for held in std::mem::take(&mut scene.weights) {
        scene.rig.free(held.address);
        scene.rig.check();
    }
    assert_eq!(scene.rig.host_bytes(), 0, "what was saved is dropped");
    let calls = scene.rig.calls();
    scene.rig.resume(WEIGHTS);
    assert_eq!(scene.rig.calls(), calls, "there is nothing to resume");
    assert_eq!(scene.rig.heap.generation(WEIGHTS).unwrap(), 0);
    assert_eq!(scene.rig.reserved_bytes(), reserved_bytes);
    scene.finish();
}

fn new_memory_while_paused(store: StoreKind) {
    let mut scene = Scene::new(store);
    scene.rig.pause(WEIGHTS, true);
    let more: Vec<_> = [500, 100 * KIB, 2 * MIB, 30 * MIB]
        .map(|bytes| scene.rig.hold(Some(WEIGHTS), bytes, A, 99))
        .into();
    scene.rig.check();
    for held in &more {
        scene.rig.touch(held.address, held.stream);
        scene.rig.check_held(held);
    }
    scene.weights.extend(&more);
    // The next pause takes it along, and what was paused before stays.
    scene.rig.pause(WEIGHTS, true);
    assert!(scene.rig.heap.statistics(DEVICE).unwrap().inactive_bytes.current < 64 * MIB);
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn generations_count_what_came_back(store: StoreKind) {
    let scene = Scene::new(store);
    let heap = &scene.rig.heap;
    assert_eq!((heap.generation(WEIGHTS), heap.generation(CACHE)), (Ok(0), Ok(0)));
    scene.rig.pause(WEIGHTS, false);
    assert_eq!(heap.generation(WEIGHTS), Ok(0));
    scene.rig.resume(WEIGHTS);
    assert_eq!((heap.generation(WEIGHTS), heap.generation(CACHE)), (Ok(1), Ok(0)));
    scene.rig.pause(CACHE, true);
    scene.rig.resume(CACHE);
    assert_eq!(heap.generation(CACHE), Ok(1));
    let Scene { rig, .. } = scene;
    rig.finish_without_host_memory();
}

fn tags_nest_and_are_the_threads_own(store: StoreKind) {
    let rig = subject(store).plan().start();
    let other_heap = subject(store).plan().start();
    rig.heap.begin_tag(WEIGHTS).unwrap();
    rig.heap.begin_tag(CACHE).unwrap();
    other_heap.heap.begin_tag("another heap's").unwrap();
    let inner = rig.hold(None, 24 * MIB, A, 1);
    rig.heap.end_tag().unwrap();
    let outer = rig.hold(None, 24 * MIB, A, 2);
    let elsewhere =
        std::thread::scope(|scope| scope.spawn(|| rig.hold(None, 24 * MIB, A, 3)).join().unwrap());
    rig.heap.end_tag().unwrap();
    let untagged = rig.hold(None, 24 * MIB, A, 4);
    assert_eq!(status_of(rig.heap.end_tag()), Status::InvalidArgument);
    other_heap.heap.end_tag().unwrap();
    rig.pause(CACHE, true);
    [outer, elsewhere, untagged].iter().for_each(|held| rig.check_held(held));
    assert_eq!(rig.host_bytes(), inner.bytes);
    rig.pause(WEIGHTS, true);
    [elsewhere, untagged].iter().for_each(|held| rig.check_held(held));
    assert_eq!(rig.host_bytes(), inner.bytes + outer.bytes);
    rig.resume(WEIGHTS);
    rig.resume(CACHE);
    [inner, outer].iter().for_each(|held| rig.check_held(held));
    rig.finish_without_host_memory();
    other_heap.finish();
}

fn misuse_is_reported(store: StoreKind) {
    let rig = subject(store).plan().start();
    let heap = &rig.heap;
    assert_eq!(status_of(heap.end_tag()), Status::InvalidArgument);
    assert_eq!(status_of(heap.begin_tag("")), Status::InvalidArgument);
    let error = heap.pause(WEIGHTS, true).unwrap_err();
    assert_eq!(error.status, Status::InvalidArgument);
    assert!(error.message.contains("none has been used"), "{error}");
    for tag in [WEIGHTS, CACHE] {
        heap.begin_tag(tag).unwrap();
        heap.end_tag().unwrap();
    }
    let error = heap.resume("wieghts").unwrap_err();
    assert_eq!(error.status, Status::InvalidArgument);
    assert!(error.message.contains("\"weights\", \"cache\""), "{error}");
    assert_eq!(status_of(heap.generation("")), Status::InvalidArgument);
    rig.pause(WEIGHTS, true);
    rig.resume(WEIGHTS);
    assert_eq!(rig.calls(), 0, "no device was used");
    rig.finish();
    for pool_type in [PoolType::Naive, PoolType::Round, PoolType::Exact, PoolType::Caching] {
        let rig = Subject::new(pool_type, store).plan().start();
        let refusals = [
            rig.heap.pause(WEIGHTS, true),
            rig.heap.resume(WEIGHTS),
            rig.heap.enable_peer_access(DEVICE, DEVICE),
        ];
        for refusal in refusals {
            assert_eq!(status_of(refusal), Status::NotSupported, "{pool_type:?}");
        }
    }
}

/// A stream that was recorded before the pause, or during it, is waited for after it.
fn recorded_streams_hold_after_the_pause(store: StoreKind) {
    let rig = subject(store).plan().start();
    let [first, second] = [1, 2].map(|pattern| rig.hold(Some(WEIGHTS), 24 * MIB, A, pattern));
    rig.record(first.address, B);
    rig.pause(WEIGHTS, true);
    rig.record(second.address, B);
    rig.resume(WEIGHTS);
    for held in [first, second] {
        rig.check_held(&held);
        rig.machine.touch(0, B.0, simgpu::Work::write(held.address, held.bytes, "B")).unwrap();
        rig.free(held.address);
    }
    assert_eq!(rig.statistics().active_bytes.current, 48 * MIB, "both wait for B");
    let other = rig.hold(Some(WEIGHTS), 24 * MIB, A, 3);
    assert!(![first, second].map(|held| held.address).contains(&other.address));
    rig.run(B);
    rig.finish_without_host_memory();
}
