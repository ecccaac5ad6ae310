//! Memory made ready before a program asks for it: what a run held (`Heap::plan`), made for the next
//! one (`Heap::make_ready`), and a number of bytes taken beforehand.

#[path = "warm_start/disturbed.rs"]
mod disturbed;
#[path = "warm_start/preallocated.rs"]
mod preallocated;
mod support;
#[path = "warm_start/traces.rs"]
mod traces;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, Result, Status, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::{DevicePlan, PartState, PoolId};
use simgpu::StoreKind;

use support::{A, B, C, DEVICE, Rig, Subject, status_of};

/// The strategies that keep memory, on both stores.
fn subjects() -> impl Iterator<Item = Subject> {
    let kept = PoolType::ALL.iter().filter(|pool_type| **pool_type != PoolType::Naive);
    kept.flat_map(|&pool_type| {
        [StoreKind::RealBytes, StoreKind::AddressesOnly].map(|store| Subject::new(pool_type, store))
    })
}

/// A step of a program on three streams, whose memory moves: every second block is freed, and then
/// larger ones are wanted. What it leaves live is returned.
fn step(rig: &Rig, device: DeviceOrdinal) -> Vec<u64> {
    let mut live = Vec::new();
    let allocate = |bytes, stream: StreamHandle| {
        let address = rig.heap.allocate(bytes, device, stream).unwrap();
        let block = rig.heap.block_containing(address).unwrap();
        let work = simgpu::Work::write(address, block.requested_bytes, "a step");
        rig.machine.touch(device.0, stream.0, work).unwrap();
        address
    };
    for stream in [A, B, C] {
        let blocks: Vec<u64> = (0..12).map(|_| allocate(3 * MIB, stream)).collect();
        live.extend((0..20).map(|index| allocate(30 * KIB + index, stream)));
        for (index, block) in blocks.into_iter().enumerate() {
            if index % 2 == 0 { rig.free(block) } else { live.push(block) }
        }
        live.push(allocate(14 * MIB, stream));
    }
    live
}

/// The same, and everything is freed.
fn whole_step(rig: &Rig) {
    step(rig, DEVICE).into_iter().for_each(|block| rig.free(block));
}

/// What the device holds after some steps of a run of its own.
fn plan_of(subject: Subject) -> DevicePlan {
    let rig = subject.plan().start();
    (0..3).for_each(|_| whole_step(&rig));
    let plan = rig.heap.plan().remove(0);
    plan.check().unwrap();
    rig.finish();
    plan
}

fn make_ready(rig: &Rig, plan: &DevicePlan) -> Result<()> {
    rig.heap.expect(plan)?;
    rig.heap.make_ready(plan, &AtomicBool::new(false))
}

#[test]
fn a_plan_made_ready_is_held_and_serves_the_first_step() {
    for subject in subjects() {
        let plan = plan_of(subject);
        let rig = subject.plan().start();
        make_ready(&rig, &plan).unwrap();
        rig.check();
        assert_eq!(rig.reserved_bytes(), plan.held_bytes(), "{subject:?}");
        let before = rig.statistics().driver_memory_calls;
        whole_step(&rig);
        let calls = rig.statistics().driver_memory_calls - before;
        // Elastic's streams still take memory from each other: what their work will do next is not
        // what it did last, because here it stands still.
        let most = if subject.pool_type == PoolType::Elastic { before / 4 } else { 0 };
        assert!(calls <= most, "{subject:?}: {before} beforehand, then {calls}");
        rig.finish();
    }
}

#[test]
fn each_stream_gets_the_lane_of_its_turn() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let plan = plan_of(subject);
    assert_eq!(plan.lanes.len(), 3);
    let rig = subject.plan().start();
    make_ready(&rig, &plan).unwrap();
    // Streams of other handles than the run before had, but in the same order.
    let others = [0xE000, 0xE100, 0xE200, 0xE300].map(StreamHandle);
    let calls = rig.statistics().driver_memory_calls;
    let blocks = others[..3].iter().map(|&stream| rig.allocate_and_touch(14 * MIB, stream));
    let blocks: Vec<u64> = blocks.collect();
    assert_eq!(rig.statistics().driver_memory_calls, calls);
    // For a fourth stream nothing was expected: it gets memory as always.
    let fourth = rig.allocate_and_touch(14 * MIB, others[3]);
    blocks.into_iter().chain([fourth]).for_each(|block| rig.free(block));
    rig.finish();
    // What was made for streams that never came is in no plan again.
    let rig = subject.plan().start();
    make_ready(&rig, &plan).unwrap();
    let only = rig.allocate_and_touch(KIB, A);
    let next = rig.heap.plan().remove(0);
    assert_eq!(next.lanes.len(), 1);
    assert!(next.held_bytes() < plan.held_bytes());
    rig.free(only);
    rig.finish();
}

#[test]
fn what_waits_for_streams_to_come_can_be_taken_and_released() {
    for subject in subjects() {
        let plan = plan_of(subject);
        let rig = subject.plan().start();
        make_ready(&rig, &plan).unwrap();
        assert_eq!(rig.heap.empty_cache(DEVICE).unwrap(), plan.held_bytes(), "{subject:?}");
        assert_eq!(rig.reserved_bytes(), 0);
        whole_step(&rig);
        rig.finish();
    }
    // One stream takes what was meant for others.
    let subject = Subject::new(PoolType::Elastic, StoreKind::RealBytes);
    let plan = plan_of(subject);
    let rig = subject.plan().start();
    make_ready(&rig, &plan).unwrap();
    let created = rig.usage().count(simgpu::Call::Create);
    let block = rig.allocate_and_touch(plan.held_bytes() / 8 * 7, A);
    assert!(rig.usage().count(simgpu::Call::Create) <= created + 1);
    rig.free(block);
    rig.finish();
}

/// Streams that came and ended meanwhile leave the lanes that the plan is still made ready in.
#[test]
fn no_private_pool_gets_what_is_made_ready() {
    const POOL: PoolId = PoolId(3, 4);
    for subject in subjects() {
        let plan = plan_of(subject);
        let rig = subject.plan().start();
        rig.heap.expect(&plan).unwrap();
        for stream in [A, B, C] {
            rig.free(rig.allocate(KIB, stream));
        }
        rig.heap.empty_cache(DEVICE).unwrap();
        [A, B, C].into_iter().for_each(|stream| rig.heap.forget_stream(stream).unwrap());
        let late = StreamHandle(0xD000);
        rig.heap.begin_pool(DEVICE, POOL, Arc::new(move |of| of == late)).unwrap();
        let block = rig.allocate(KIB, late);
        rig.heap.end_pool(DEVICE, POOL).unwrap();
        let private_bytes = || -> u64 {
            let regions = rig.heap.regions().into_iter().filter(|region| region.is_private);
            let parts = regions.flat_map(|region| region.parts);
            parts.filter(|part| part.state == PartState::Free).map(|part| part.bytes).sum()
        };
        let before_bytes = private_bytes();
        rig.heap.make_ready(&plan, &AtomicBool::new(false)).unwrap();
        assert_eq!(private_bytes(), before_bytes, "{subject:?}");
        rig.free(block);
        rig.heap.release_pool(DEVICE, POOL).unwrap();
        rig.finish();
    }
}

#[test]
fn a_plan_of_another_device_or_strategy_is_refused() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let plan = DevicePlan { needs_finer: true, ..plan_of(subject) };
    let larger = subject.plan().capacity(2 << 30).start();
    assert_eq!(status_of(make_ready(&larger, &plan)), Status::InvalidArgument);
    let caching = Subject::new(PoolType::Caching, StoreKind::AddressesOnly).plan().start();
    assert_eq!(status_of(make_ready(&caching, &plan)), Status::InvalidArgument);
    let nowhere = DevicePlan { device: DeviceOrdinal(7), ..plan.clone() };
    assert_eq!(status_of(make_ready(&larger, &nowhere)), Status::InvalidDevice);
    let mut wrong = plan;
    wrong.extents[0].home_view = 99;
    let rig = subject.plan().start();
    assert_eq!(status_of(make_ready(&rig, &wrong)), Status::InvalidArgument);
    // Its extents are finer only if it is for this device.
    for (rig, is_finer) in [(larger, false), (caching, false), (rig, true)] {
        whole_step(&rig);
        assert_eq!(rig.heap.plan()[0].needs_finer, is_finer);
        rig.finish();
    }
}

/// Finer extents help where memory is lost in pieces: not a program that wants more than there is, one whose
/// extents are as small as can be, or one whose memory is held back by a capture.
#[test]
fn only_a_refusal_for_pieces_asks_for_finer_extents() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let needs_finer = |rig: Rig| {
        let needs_finer = rig.heap.plan()[0].needs_finer;
        rig.finish();
        needs_finer
    };
    // Of neighbours, large enough to fill the device, every second one is free.
    let in_pieces = |rig: &Rig, piece_bytes: u64| {
        let count = rig.heap.plan()[0].model.total_bytes / piece_bytes;
        let blocks: Vec<u64> = (0..count).map(|_| rig.allocate(piece_bytes, A)).collect();
        blocks.iter().step_by(2).for_each(|&block| rig.free(block));
        assert_eq!(rig.refusal(count / 2 * piece_bytes, A), Status::OutOfMemory);
        blocks.into_iter().skip(1).step_by(2).for_each(|block| rig.free(block));
    };
    let start = |bytes| {
        let rig = subject.plan().capacity(bytes).start();
        rig.free(rig.allocate(512, A));
        rig
    };
    let large = start(32 << 30);
    in_pieces(&large, 11 * MIB);
    assert!(needs_finer(large));
    let small = start(1 << 30);
    in_pieces(&small, MIB + 64 * KIB);
    assert!(!needs_finer(small));
    let full = start(32 << 30);
    let live = full.allocate(20 << 30, A);
    assert_eq!(full.refusal(13 << 30, A), Status::OutOfMemory);
    full.free(live);
    assert!(!needs_finer(full));
    let captured = start(32 << 30);
    let cached = captured.allocate(20 << 30, A);
    captured.heap.begin_capture(DEVICE).unwrap();
    captured.free(cached);
    assert_eq!(captured.refusal(30 << 30, B), Status::OutOfMemory);
    captured.heap.end_capture(DEVICE).unwrap();
    assert!(!needs_finer(captured));
}

#[test]
fn two_devices_have_a_plan_each() {
    let other = DeviceOrdinal(1);
    for subject in subjects() {
        let start = || subject.plan().devices(2, 1 << 30).start();
        let cold = start();
        for device in [DEVICE, other] {
            step(&cold, device).into_iter().for_each(|block| cold.free(block));
        }
        let plans = cold.heap.plan();
        assert_eq!(plans.len(), 2);
        cold.finish();
        let rig = start();
        plans.iter().for_each(|plan| make_ready(&rig, plan).unwrap());
        for (device, plan) in [DEVICE, other].into_iter().zip(&plans) {
            let reserved = rig.heap.statistics(device).unwrap().reserved_bytes.current;
            assert_eq!(reserved, plan.held_bytes(), "{subject:?}");
            step(&rig, device).into_iter().for_each(|block| rig.free(block));
        }
        rig.finish();
    }
}

#[test]
fn the_plan_is_of_the_moment_when_most_was_held() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    for wanted in [None, Some("a file".to_owned())] {
        let rig = subject.plan().set(|settings| settings.plan.clone_from(&wanted)).start();
        whole_step(&rig);
        let held_bytes = rig.reserved_bytes();
        rig.heap.empty_cache(DEVICE).unwrap();
        let small = rig.allocate(KIB, A);
        let plan = rig.heap.plan().remove(0);
        assert_eq!(plan.held_bytes() == held_bytes, wanted.is_some());
        rig.free(small);
        rig.finish();
    }
}
