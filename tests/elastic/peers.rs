//! Several devices in one process: each may access the others' memory without anybody's help.

use genesis::base::size::{GIB, MIB};
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::{DebugModes, PoolType};
use simgpu::{Call, StoreKind, Target, Times, Work};

use crate::support::{A, B, DEVICE, Plan, Rig, Subject};

const SECOND: DeviceOrdinal = DeviceOrdinal(1);
const BYTES: u64 = 4 * MIB;

fn plan() -> Plan {
    let subject = Subject::new(PoolType::Elastic, StoreKind::RealBytes);
    subject.plan().devices(2, GIB)
}

/// Has work of `device` on `stream` read the block at `address`; returns true if it could.
fn read(rig: &Rig, device: DeviceOrdinal, stream: StreamHandle, address: u64) -> bool {
    // Memory that a device has no access to is a violation, and perhaps an error as well.
    let touched = rig.machine.touch(device.0, stream.0, Work::read(address, BYTES, "a peer"));
    rig.machine.synchronize(device.0).unwrap();
    touched.is_ok() && rig.machine.take_violations().is_empty()
}

#[test]
fn devices_in_use_reach_each_other() {
    let rig = plan().start();
    let [before, later] = [(); 2].map(|()| rig.allocate(BYTES, A));
    let theirs = rig.heap.allocate(BYTES, SECOND, B).unwrap();
    let after = rig.allocate(256 * MIB, A);
    for address in [before, later, after] {
        assert!(read(&rig, SECOND, B, address), "{address:#x} by the second");
    }
    assert!(read(&rig, DEVICE, A, theirs), "the second's by the first");
    rig.finish();
}

#[test]
fn one_device_in_use_costs_nothing_more() {
    let rig = plan().start();
    let address = rig.allocate(BYTES, A);
    let calls: u64 = rig.machine.usage(1).unwrap().calls.iter().sum();
    assert_eq!(calls, 0, "the other device is left alone");
    assert!(!read(&rig, SECOND, B, address), "and has no access");
    rig.finish();
}

#[test]
fn devices_that_cannot_reach_each_other_work_alone() {
    let mut plan = plan();
    plan.machine.peer_access = false;
    let rig = plan.start();
    rig.allocate(BYTES, A);
    rig.heap.allocate(BYTES, SECOND, B).unwrap();
    assert!(rig.lines().is_empty(), "{:?}", rig.lines());
    rig.finish();
}

#[test]
fn an_introduction_that_fails_comes_with_the_next_mapping() {
    for call in [Call::SetAccess, Call::CanAccessPeer] {
        let rig = plan().start();
        let address = rig.allocate(BYTES, A);
        let target = Target::call(call).on(if call == Call::SetAccess { 0 } else { 1 });
        // As the device is opened it is tried twice.
        rig.machine.faults().fail(target, 1, Times::Count(2), simgpu::Code(12345));
        rig.heap.allocate(BYTES, SECOND, B).unwrap();
        assert!(!read(&rig, SECOND, B, address), "{}", call.name());
        rig.allocate(256 * MIB, A);
        assert!(read(&rig, SECOND, B, address), "{}", call.name());
        rig.finish();
    }
}

#[test]
fn devices_opened_at_once_reach_each_other() {
    for _ in 0..50 {
        let rig = plan().start();
        let [first, second] = std::thread::scope(|scope| {
            [(DEVICE, A), (SECOND, B)]
                .map(|(device, stream)| {
                    let rig = &rig;
                    scope.spawn(move || rig.heap.allocate(BYTES, device, stream).unwrap())
                })
                .map(|thread| thread.join().unwrap())
        });
        assert!(read(&rig, SECOND, B, first) && read(&rig, DEVICE, A, second));
        rig.finish();
    }
}

#[test]
fn guarded_memory_is_reached_as_well() {
    let guard = DebugModes { guard: true, ..DebugModes::OFF };
    let rig = plan().set(|settings| settings.debug = guard).start();
    let before = rig.allocate(BYTES, A);
    let theirs = rig.heap.allocate(BYTES, SECOND, B).unwrap();
    let after = rig.allocate(BYTES, A);
    assert!(read(&rig, SECOND, B, before) && read(&rig, SECOND, B, after));
    assert!(read(&rig, DEVICE, A, theirs));
    rig.finish();
}
