//! All or nothing: busy devices, memory that is short, and every driver call failed in turn.

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{Backup, Result, Status};
use genesis::heap::{Keeping, PoolId};
use simgpu::{Call, CaptureMode, Code, StoreKind, Target, Times};

use crate::pools::POOL as GRAPH;
use crate::support::tier::some_or_all;
use crate::support::{A, B, C, DEVICE, Rig, status_of};
use crate::{Held, Scene, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    a_begun_pool_or_a_capture_is_busy
    a_pool_goes_before_a_tag
    freed_blocks_that_still_wait_are_busy
    no_host_memory_leaves_everything_running
    no_memory_leaves_the_tag_paused
    limits_hold_for_what_comes_back
    faults_of_a_pause
    faults_of_a_resume
    a_driver_that_stays_broken
}

const POOL: PoolId = PoolId(0, 7);
const UNKNOWN: Code = Code(12345);

fn a_begun_pool_or_a_capture_is_busy(store: StoreKind) {
    let scene = Scene::new(store);
    let heap = &scene.rig.heap;
    heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == C)).unwrap();
    let calls = scene.rig.calls();
    assert_eq!(status_of(heap.pause(WEIGHTS, true)), Status::Busy);
    assert_eq!(scene.rig.calls(), calls, "nothing is asked of a device that may capture");
    heap.end_pool(DEVICE, POOL).unwrap();
    heap.release_pool(DEVICE, POOL).unwrap();
    scene.check_all();

    scene.rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
    assert_eq!(status_of(heap.pause(WEIGHTS, true)), Status::Busy);
    scene.rig.machine.end_capture(0, C.0).unwrap_err();
    scene.check_all();

    scene.rig.pause(WEIGHTS, true);
    heap.begin_pool(DEVICE, POOL, Arc::new(|_| false)).unwrap();
    assert_eq!(status_of(heap.resume(WEIGHTS)), Status::Busy);
    heap.end_pool(DEVICE, POOL).unwrap();
    heap.release_pool(DEVICE, POOL).unwrap();
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn a_pool_goes_before_a_tag(store: StoreKind) {
    let rig = subject(store).plan().start();
    let heap = &rig.heap;
    heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == A)).unwrap();
    let captured = rig.hold(Some(WEIGHTS), 24 * MIB, A, 1);
    let tagged = rig.hold(Some(WEIGHTS), 24 * MIB, B, 2);
    heap.end_pool(DEVICE, POOL).unwrap();
    rig.pause(WEIGHTS, true);
    assert_eq!(rig.host_bytes(), tagged.bytes, "the pool's memory stays");
    rig.check_held(&captured);
    rig.resume(WEIGHTS);
    rig.check_held(&tagged);
    heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish_without_host_memory();
}

/// A driver that will not speak of an event leaves its block waiting for the next idleness.
fn freed_blocks_that_still_wait_are_busy(store: StoreKind) {
    let scene = Scene::new(store);
    let shared = scene.rig.hold(Some(WEIGHTS), 24 * MIB, A, 50);
    scene.rig.record(shared.address, C);
    scene.rig.free(shared.address);
    let every_query = Target::call(Call::EventQuery);
    scene.rig.machine.faults().fail(every_query, 1, Times::Forever, UNKNOWN);
    assert_eq!(status_of(scene.rig.heap.pause(WEIGHTS, true)), Status::Busy);
    scene.rig.machine.faults().clear();
    scene.check_all();
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn no_host_memory_leaves_everything_running(store: StoreKind) {
    let mut plan = subject(store).plan();
    plan.machine.host_memory_bytes = 20 * MIB;
    let scene = Scene::on(plan);
    let reserved_bytes = scene.rig.reserved_bytes();
    assert_eq!(status_of(scene.rig.heap.pause(WEIGHTS, true)), Status::OutOfMemory);
    assert_eq!(scene.rig.host_bytes(), 0);
    assert_eq!(scene.rig.reserved_bytes(), reserved_bytes);
    scene.finish();
}

fn no_memory_leaves_the_tag_paused(store: StoreKind) {
    let scene = Scene::on(subject(store).plan().capacity(160 * MIB));
    scene.rig.pause(WEIGHTS, true);
    let room_bytes = 160 * MIB - scene.rig.reserved_bytes();
    let guest = scene.rig.hold(None, room_bytes - 8 * MIB, C, 60);
    let host_bytes = scene.rig.host_bytes();
    for _ in 0..2 {
        let error = scene.rig.heap.resume(WEIGHTS).unwrap_err();
        assert_eq!(error.status, Status::OutOfMemory);
        assert_eq!(scene.rig.host_bytes(), host_bytes);
        scene.rig.check();
        scene.check_others();
        scene.rig.check_held(&guest);
    }
    assert_eq!(scene.rig.heap.generation(WEIGHTS), Ok(0));
    scene.rig.free(guest.address);
    // It is cached now, and goes back for what comes home.
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

fn limits_hold_for_what_comes_back(store: StoreKind) {
    let scene = Scene::new(store);
    scene.rig.pause(WEIGHTS, true);
    let reserved_bytes = scene.rig.reserved_bytes();
    scene.rig.heap.set_memory_limit(DEVICE, Some(reserved_bytes + 4 * MIB)).unwrap();
    assert_eq!(status_of(scene.rig.heap.resume(WEIGHTS)), Status::OutOfMemory);
    scene.rig.check();
    assert!(scene.rig.statistics().reserved_bytes.peak < reserved_bytes + 64 * MIB);
    scene.rig.heap.set_memory_limit(DEVICE, None).unwrap();
    scene.rig.resume(WEIGHTS);
    scene.finish();
}

/// The calls that pausing and resuming make.
pub const KINDS: [Call; 11] = [
    Call::MemoryInfo,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::Synchronize,
    Call::HostRegister,
    Call::HostUnregister,
    Call::CopyToHost,
    Call::CopyToDevice,
];

/// Fewer blocks than a whole scene, since it is played for every call; one of two extents, and one
/// in the pool of a graph, which also uses free memory beside it.
fn scene_of_few(store: StoreKind) -> (Scene, Held) {
    let rig = subject(store).plan().capacity(256 * MIB).start();
    let mut weights = Vec::new();
    for (number, bytes) in [300, MIB, 11 * MIB, 3 * MIB].into_iter().enumerate() {
        weights.push(rig.hold(Some(WEIGHTS), bytes, A, number as u8 + 1));
    }
    rig.free(weights.remove(1).address);
    let untagged = vec![rig.hold(None, 3 * MIB, A, 90)];
    rig.begin_graph(Backup::Pinned);
    weights.push(rig.hold(None, 2 * MIB, B, 40));
    let of_graph = rig.hold_and_free(3 * MIB, 41);
    rig.heap.end_pool(DEVICE, GRAPH).unwrap();
    (Scene { rig, weights, cache: Vec::new(), untagged }, of_graph)
}

/// The graph ends, and then everything.
fn finish(scene: Scene) {
    scene.rig.heap.release_pool(DEVICE, GRAPH).unwrap();
    scene.finish();
}

/// What `operation` did with the nth call of a kind failing; `None` if there was no such call.
pub fn with_fault(
    rig: &Rig,
    target: Target,
    nth: u64,
    times: Times,
    operation: impl FnOnce() -> Result<()>,
) -> Option<Result<()>> {
    let count = |rig: &Rig| match target.call {
        Some(call) => rig.usage().count(call),
        None => rig.calls(),
    };
    let before = count(rig);
    rig.machine.faults().fail(target, nth, times, UNKNOWN);
    let result = operation();
    rig.machine.faults().clear();
    (count(rig) >= before + nth).then_some(result)
}

/// Every fault that strikes within `operation`, one after the other in a scene of its own; on every
/// change each [`step`]th, once.
fn sweep(store: StoreKind, mut judge: impl FnMut(Target, u64, Times) -> bool) {
    let mut struck = 0;
    let all_times = match store {
        StoreKind::RealBytes => &[Times::Once][..],
        StoreKind::AddressesOnly => some_or_all(&[Times::Once][..], &[Times::Once, Times::Forever]),
    };
    for call in KINDS {
        for &times in all_times {
            for nth in (1..).step_by(step(store)) {
                if !judge(Target::call(call), nth, times) {
                    break;
                }
                struck += 1;
            }
        }
    }
    assert!(struck > 10, "only {struck} faults struck");
}

/// Scenes take long, real bytes most, so on every change not each call fails. The step is odd because
/// in some tests every second scene differs.
fn step(store: StoreKind) -> usize {
    match store {
        StoreKind::RealBytes => some_or_all(5, 1),
        StoreKind::AddressesOnly => some_or_all(3, 1),
    }
}

/// The kinds of backup of a sweep; on every change two, with real bytes one.
fn kinds(store: StoreKind, all: &[Backup]) -> &[Backup] {
    match store {
        StoreKind::RealBytes => some_or_all(&[Backup::Disk], all),
        StoreKind::AddressesOnly => some_or_all(&[Backup::Pinned, Backup::Disk], all),
    }
}

fn faults_of_a_pause(store: StoreKind) {
    for &backup in kinds(store, Backup::ALL) {
        let keeping = Keeping { backup: Some(backup), version: None };
        sweep(store, |target, nth, times| {
            let (mut scene, of_graph) = scene_of_few(store);
            let reserved_bytes = scene.rig.reserved_bytes();
            let pause = || scene.rig.heap.pause_tags(Some(WEIGHTS), keeping);
            let Some(result) = with_fault(&scene.rig, target, nth, times, pause) else {
                return false;
            };
            scene.rig.check();
            match result {
                Err(error) => {
                    assert_eq!(error.status, Status::DriverFailed, "{error}");
                    assert_eq!(scene.rig.reserved_bytes(), reserved_bytes, "{target:?} {nth}");
                    scene.check_all();
                    scene.rig.check_free(&of_graph, store);
                    scene.rig.heap.pause_tags(Some(WEIGHTS), keeping).unwrap();
                }
                // The driver has kept some of it, or host memory that was not needed.
                Ok(()) => {
                    assert!(matches!(target.call, Some(Call::Release | Call::HostUnregister)))
                }
            }
            scene.rig.resume(WEIGHTS);
            scene.rig.replay(&of_graph);
            if backup == Backup::None {
                scene.weights.clear();
            } else {
                scene.rig.check_free(&of_graph, store);
            }
            finish(scene);
            true
        });
    }
}

fn faults_of_a_resume(store: StoreKind) {
    for &backup in kinds(store, &[Backup::Pinned, Backup::Pageable, Backup::Disk]) {
        let keeping = Keeping { backup: Some(backup), version: None };
        sweep(store, |target, nth, times| {
            let (scene, of_graph) = scene_of_few(store);
            scene.rig.heap.pause_tags(Some(WEIGHTS), keeping).unwrap();
            let (reserved_bytes, host_bytes) = (scene.rig.reserved_bytes(), scene.rig.host_bytes());
            let resume = || scene.rig.heap.resume(WEIGHTS);
            let Some(result) = with_fault(&scene.rig, target, nth, times, resume) else {
                return false;
            };
            scene.rig.check();
            match result {
                Err(error) => {
                    assert_eq!(error.status, Status::DriverFailed, "{error}");
                    assert_eq!(scene.rig.reserved_bytes(), reserved_bytes, "{target:?} {nth}");
                    assert!(scene.rig.host_bytes() >= host_bytes);
                    scene.check_others();
                    assert_eq!(scene.rig.heap.generation(WEIGHTS), Ok(0));
                    scene.rig.resume(WEIGHTS);
                }
                Ok(()) => assert!(matches!(target.call, Some(Call::HostUnregister)), "{target:?}"),
            }
            assert_eq!(scene.rig.heap.generation(WEIGHTS), Ok(1));
            scene.rig.check_free(&of_graph, store);
            // What could not be unlocked goes with the next.
            scene.rig.pause(WEIGHTS, true);
            scene.rig.resume(WEIGHTS);
            finish(scene);
            true
        });
    }
}

/// From some call on nothing works any more, undoing neither, until the driver is well again.
fn a_driver_that_stays_broken(store: StoreKind) {
    for nth in (1..).step_by(step(store)) {
        let (scene, _) = scene_of_few(store);
        let pause = || scene.rig.heap.pause(WEIGHTS, true);
        let struck = with_fault(&scene.rig, Target::ANY, nth, Times::Forever, pause);
        scene.rig.check();
        scene.check_others();
        if nth % 2 == 0 {
            scene.rig.pause(WEIGHTS, true);
        }
        scene.rig.resume(WEIGHTS);
        finish(scene);
        if struck.is_none() {
            break;
        }
    }
    for nth in (1..).step_by(step(store)) {
        let (scene, _) = scene_of_few(store);
        scene.rig.pause(WEIGHTS, true);
        let resume = || scene.rig.heap.resume(WEIGHTS);
        let struck = with_fault(&scene.rig, Target::ANY, nth, Times::Forever, resume);
        scene.rig.check();
        scene.check_others();
        if nth % 2 == 0 {
            scene.rig.pause(WEIGHTS, true);
        }
        scene.rig.resume(WEIGHTS);
        scene.rig.pause(WEIGHTS, true);
        scene.rig.resume(WEIGHTS);
        finish(scene);
        if struck.is_none() {
            break;
        }
    }
}
