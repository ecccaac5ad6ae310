//! Private pools where memory moves: a graph knows addresses, so what lies under a pool's does
//! not move, and nothing moves into it, until the pool has been released.

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{Status, StreamHandle};
use genesis::heap::PoolId;
use simgpu::{Call, CaptureMode, Graph, StoreKind, Violation, Work};

use crate::support::{A, B, DEVICE, Random, Rig, Subject, is_filled};
use crate::{ADDRESSES, REAL};

const POOL: PoolId = PoolId(0, 1);
const CAPACITY_BYTES: u64 = 64 * MIB;

#[test]
fn a_pool_takes_no_extents_from_outside() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    let free_outside = rig.allocate_and_touch(32 * MIB, A);
    rig.free(free_outside);
    begin(&rig, A);
    assert_eq!(rig.refusal(40 * MIB, A), Status::OutOfMemory, "half of the device is not its");
    let inside = rig.allocate_and_touch(32 * MIB, A);
    let census = rig.machine.census();
    assert_eq!(census.mappings, census.handles, "nothing moved");
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.free(inside);
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

#[test]
fn a_pools_extents_are_taken_only_after_its_release() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    begin(&rig, A);
    let inside = [(); 4].map(|()| rig.allocate_and_touch(8 * MIB, A));
    inside.iter().step_by(2).for_each(|&address| rig.free(address));
    assert_eq!(rig.refusal(40 * MIB, B), Status::OutOfMemory, "while it is begun");
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    for stream in [A, B] {
        assert_eq!(rig.refusal(40 * MIB, stream), Status::OutOfMemory, "while it is held");
    }
    rig.heap.empty_cache(DEVICE).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    // What was free then is for everybody, and the rest when it is free.
    let outside = rig.allocate_and_touch(48 * MIB, B);
    rig.free(outside);
    assert_eq!(rig.refusal(64 * MIB, B), Status::OutOfMemory, "two blocks of the pool are live");
    inside[1..].iter().step_by(2).for_each(|&address| rig.free(address));
    rig.allocate_and_touch(64 * MIB, B);
    rig.finish();
}

/// While a pool is begun, what others on the device have still moves to where they need it.
#[test]
fn beside_a_pool_memory_moves_within_a_lane() {
    let rig = ADDRESSES.plan().capacity(CAPACITY_BYTES).start();
    let blocks = [(); 6].map(|()| rig.allocate_and_touch(8 * MIB, B));
    begin(&rig, A);
    rig.allocate_and_touch(16 * MIB, A);
    blocks.iter().step_by(2).for_each(|&address| rig.free(address));
    rig.allocate_and_touch(24 * MIB, B);
    let usage = rig.usage();
    for call in [Call::EventQuery, Call::Synchronize, Call::Unmap, Call::Release] {
        assert_eq!(usage.count(call), 0, "{call:?}");
    }
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.release_pool(DEVICE, POOL).unwrap();
    rig.finish();
}

/// A graph runs again and again while a program needs every page it can get, and finds
/// its bytes each time.
#[test]
fn a_graph_keeps_its_memory() {
    for subject in [ADDRESSES, REAL] {
        let rig = subject.plan().capacity(CAPACITY_BYTES).start();
        let (graph, blocks) = captured(&rig, subject);
        let mut random = Random(3);
        let mut live = Vec::new();
        for round in 0..200 {
            let bytes = 512 * (1 + random.below(12 * MIB / 512));
            match rig.heap.allocate(bytes, DEVICE, B) {
                Ok(address) => {
                    rig.touch(address, B);
                    write(subject, address, bytes, 0xFF);
                    live.push(address);
                }
                Err(error) => assert_eq!(error.status, Status::OutOfMemory, "{error}"),
            }
            while live.len() > 4 {
                rig.free(live.swap_remove(random.below(live.len() as u64) as usize));
            }
            if round % 20 == 0 {
                rig.heap.trim(DEVICE, 0).unwrap();
                rig.machine.graph_launch(0, B.0, &graph).unwrap();
                rig.check();
            }
        }
        for &(address, bytes, mark) in &blocks {
            assert_marked(subject, address, bytes, mark);
        }
        // The addresses are gone with the release, and not before.
        rig.machine.run_device_to_idle(0).unwrap();
        rig.heap.release_pool(DEVICE, POOL).unwrap();
        rig.machine.graph_launch(0, B.0, &graph).unwrap();
        let violations = rig.machine.take_violations();
        let is_of_graph =
            |violation: &Violation| matches!(violation, Violation::TouchUnmapped { .. });
        assert!(!violations.is_empty() && violations.iter().all(is_of_graph), "{violations:?}");
        live.into_iter().for_each(|address| rig.free(address));
        rig.machine.run_device_to_idle(0).unwrap();
        rig.finish();
    }
}

/// A graph over three blocks, one after the other freed, which share no memory.
fn captured(rig: &Rig, subject: Subject) -> (Graph, Vec<(u64, u64, u8)>) {
    begin(rig, A);
    rig.machine.begin_capture(0, A.0, CaptureMode::Global).unwrap();
    let mut blocks = Vec::new();
    for (mark, bytes) in [(1, 3 * MIB), (2, 5 * MIB), (3, 700 * 1024)] {
        let address = rig.allocate_and_touch(bytes, A);
        write(subject, address, bytes, mark);
        blocks.push((address, bytes, mark));
    }
    blocks.iter().for_each(|&(address, ..)| rig.free(address));
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    let graph = rig.machine.end_capture(0, A.0).expect("a capture that nothing disturbed");
    // Touched as long as it is held.
    for &(address, bytes, _) in &blocks {
        rig.machine.touch(0, A.0, Work::read(address, bytes, "the graph's")).unwrap();
    }
    rig.run(A);
    rig.machine.synchronize(0).unwrap();
    rig.check();
    (graph, blocks)
}

fn begin(rig: &Rig, stream: StreamHandle) {
    let filter = Arc::new(move |asked| asked == stream);
    rig.heap.begin_pool(DEVICE, POOL, filter).unwrap();
}

fn write(subject: Subject, address: u64, bytes: u64, mark: u8) {
    if subject.store == StoreKind::RealBytes {
        // SAFETY: a live block of so many bytes, which nobody else uses.
        unsafe { std::ptr::write_bytes(address as *mut u8, mark, bytes as usize) };
    }
}

fn assert_marked(subject: Subject, address: u64, bytes: u64, mark: u8) {
    if subject.store == StoreKind::RealBytes {
        // SAFETY: mapped as long as the pool is held, and written by nobody now.
        let held = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
        assert!(is_filled(held, mark), "the block at {address:#x} has changed");
    }
}
