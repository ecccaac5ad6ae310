//! Blocks that have their memory to themselves, paused and resumed alone.

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{Result, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::PoolId;
use simgpu::{Call, CaptureMode, StoreKind, Times};

use crate::failures::{KINDS, with_fault};
use crate::support::{A, B, C, DEVICE, Rig, Subject, status_of};
use crate::{CACHE, Held, Scene, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    only_the_block_goes
    once_is_enough
    what_was_freed_stays_away
    a_tag_brings_its_blocks_back
    other_blocks_are_refused
    limits_and_pools
    a_capture_is_busy
    every_call_fails_in_turn
}

impl Rig {
    fn allocate_alone(&self, bytes: u64, stream: StreamHandle) -> Result<u64> {
        self.heap.allocate_alone(bytes, DEVICE, self.heap.identify(DEVICE, stream).unwrap())
    }

    #[track_caller]
    fn alone(&self, tag: &str, bytes: u64, pattern: u8) -> Held {
        self.heap.begin_tag(tag).unwrap();
        let address = self.allocate_alone(bytes, A).unwrap();
        self.heap.end_tag().unwrap();
        self.touch(address, A);
        self.filled(Held { address, bytes: bytes.next_multiple_of(2 * MIB), stream: A, pattern })
    }
}

/// Of blocks beside each other one goes, with just its bytes, and comes back to its address.
fn only_the_block_goes(store: StoreKind) {
    let scene = Scene::new(store);
    let blocks = [5, 20, 64, 2].map(|mib| scene.rig.alone(WEIGHTS, mib * MIB, mib as u8));
    let reserved_bytes = scene.rig.reserved_bytes();
    for held in &blocks {
        scene.rig.heap.pause_block(held.address).unwrap();
        scene.rig.check();
        assert_eq!(scene.rig.reserved_bytes(), reserved_bytes - held.bytes);
        blocks.iter().filter(|other| *other != held).for_each(|other| scene.rig.check_held(other));
        scene.check_all();
        scene.rig.heap.resume_block(held.address).unwrap();
        scene.rig.check();
        assert_eq!(scene.rig.reserved_bytes(), reserved_bytes);
        scene.rig.touch(held.address, A);
        scene.rig.filled(*held);
    }
    for call in [Call::HostRegister, Call::CopyToHost, Call::CopyToDevice] {
        assert_eq!(scene.rig.usage().count(call), 0, "{call:?}: contents are the caller's");
    }
    scene.finish();
}

fn once_is_enough(store: StoreKind) {
    let rig = subject(store).plan().start();
    let held = rig.alone(WEIGHTS, 24 * MIB, 1);
    for _ in 0..2 {
        for _ in 0..2 {
            rig.heap.pause_block(held.address).unwrap();
            assert_eq!(rig.reserved_bytes(), 0);
        }
        for _ in 0..2 {
            rig.heap.resume_block(held.address).unwrap();
            assert_eq!(rig.reserved_bytes(), 24 * MIB);
        }
    }
    assert_eq!(rig.heap.generation(WEIGHTS), Ok(2), "what came back is counted");
    rig.finish_without_host_memory();
}

fn what_was_freed_stays_away(store: StoreKind) {
    let rig = subject(store).plan().start();
    let [freed, kept] = [1, 2].map(|pattern| rig.alone(WEIGHTS, 24 * MIB, pattern));
    for held in [freed, kept] {
        rig.heap.pause_block(held.address).unwrap();
    }
    rig.heap.free_directly(freed.address).unwrap();
    rig.check();
    for refused in [rig.heap.pause_block(freed.address), rig.heap.resume_block(freed.address)] {
        assert!(matches!(status_of(refused), Status::DoubleFree | Status::ForeignPointer));
    }
    rig.heap.resume_block(kept.address).unwrap();
    assert_eq!(rig.reserved_bytes(), 24 * MIB);
    rig.heap.free_directly(kept.address).unwrap();
    assert_eq!(rig.reserved_bytes(), 0, "it goes back to the driver");
    rig.finish_without_host_memory();
}

fn a_tag_brings_its_blocks_back(store: StoreKind) {
    let scene = Scene::new(store);
    let [one, other] =
        [(WEIGHTS, 1), (CACHE, 2)].map(|(tag, byte)| scene.rig.alone(tag, 24 * MIB, byte));
    scene.rig.heap.pause_block(one.address).unwrap();
    scene.rig.heap.pause_block(other.address).unwrap();
    scene.rig.pause(WEIGHTS, true);
    scene.rig.resume(WEIGHTS);
    scene.check_all();
    scene.rig.touch(one.address, A);
    let reserved_bytes = scene.rig.reserved_bytes();
    scene.rig.heap.resume_block(other.address).unwrap();
    assert_eq!(scene.rig.reserved_bytes(), reserved_bytes + 24 * MIB);
    scene.finish();
}

fn other_blocks_are_refused(store: StoreKind) {
    let scene = Scene::new(store);
    let untagged = scene.rig.allocate_alone(24 * MIB, B).unwrap();
    let reserved_bytes = scene.rig.reserved_bytes();
    let refuses = |address, status| {
        assert_eq!(status_of(scene.rig.heap.pause_block(address)), status);
        assert_eq!(scene.rig.reserved_bytes(), reserved_bytes);
        scene.rig.check();
    };
    for held in scene.weights.iter().filter(|held| held.bytes < 2 * MIB) {
        refuses(held.address, Status::InvalidArgument);
    }
    refuses(untagged, Status::InvalidArgument);
    refuses(untagged + 512, Status::ForeignPointer);
    refuses(4096, Status::ForeignPointer);
    for pool_type in [PoolType::Caching, PoolType::Naive] {
        let rig = Subject::new(pool_type, store).plan().start();
        let refused = rig.allocate_alone(MIB, A);
        assert_eq!(status_of(refused), Status::NotSupported);
        let block = rig.allocate(MIB, A);
        assert_eq!(status_of(rig.heap.pause_block(block)), Status::NotSupported);
        rig.free(block);
        rig.finish();
    }
    assert_eq!(scene.rig.allocate_alone(0, A), Ok(0));
    let too_much = scene.rig.allocate_alone(u64::MAX, A);
    assert_eq!(status_of(too_much), Status::OutOfMemory);
    scene.finish();
}

fn limits_and_pools(store: StoreKind) {
    const POOL: PoolId = PoolId(0, 7);
    let rig = subject(store).plan().start();
    rig.heap.set_tag_limit(WEIGHTS, None, Some(10 * MIB)).unwrap();
    let held = rig.alone(WEIGHTS, 7 * MIB, 1);
    rig.heap.begin_tag(WEIGHTS).unwrap();
    let refused = rig.allocate_alone(4 * MIB, A);
    assert_eq!(status_of(refused), Status::LimitReached);
    rig.heap.begin_pool(DEVICE, POOL, Arc::new(|_| true)).unwrap();
    let within = rig.allocate_alone(2 * MIB, A).unwrap();
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.end_tag().unwrap();
    assert_eq!(rig.heap.pool_usage(DEVICE, POOL).unwrap().reserved_bytes, 0, "not the pool's");
    rig.heap.pause_block(within).unwrap();
    rig.heap.pause_block(held.address).unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish_without_host_memory();
}

fn a_capture_is_busy(store: StoreKind) {
    let rig = subject(store).plan().start();
    let held = rig.alone(WEIGHTS, 7 * MIB, 1);
    rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
    assert_eq!(status_of(rig.heap.pause_block(held.address)), Status::Busy);
    rig.machine.end_capture(0, C.0).unwrap_err();
    rig.check_held(&held);
    rig.finish_without_host_memory();
}

/// A call that fails changes nothing, and the next goes through.
fn every_call_fails_in_turn(store: StoreKind) {
    let mut struck = 0;
    for call in KINDS {
        for nth in 1.. {
            let rig = subject(store).plan().start();
            let [held, other] = [1, 2].map(|byte| rig.alone(WEIGHTS, 24 * MIB, byte));
            let target = simgpu::Target::call(call);
            let pause = || rig.heap.pause_block(held.address);
            let paused = with_fault(&rig, target, nth, Times::Once, pause);
            rig.check();
            if let Some(Err(error)) = &paused {
                assert_eq!(error.status, Status::DriverFailed, "{error}");
                rig.check_held(&held);
                rig.heap.pause_block(held.address).unwrap();
            }
            let resume = || rig.heap.resume_block(held.address);
            let resumed = with_fault(&rig, target, nth, Times::Once, resume);
            rig.check();
            if let Some(Err(error)) = &resumed {
                assert_eq!(error.status, Status::DriverFailed, "{error}");
                rig.heap.resume_block(held.address).unwrap();
            }
            rig.touch(held.address, A);
            rig.check_held(&other);
            rig.finish_without_host_memory();
            let both = u32::from(paused.is_some()) + u32::from(resumed.is_some());
            if both == 0 {
                break;
            }
            struck += both;
        }
    }
    assert!(struck > 5, "only {struck} faults struck");
}
