//! Pinned memory in the order of the streams that use it, on both stores, under the race detector.
//!
//! Streams stand still until a test lets them go on. The host writes to every block that it gets, so
//! one that is reused too early is a race, and one that goes back to the system too early is gone
//! while in use.

use std::sync::Arc;

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use genesis::driver::host::{Gate, HostMemory, OpenGate};
use genesis::driver::simulated::SimulatedDevice;
use genesis::heap::Heap;
use simgpu::{
    Access, Call, CaptureMode, Code, Config, Machine, Progress, StoreKind, Target, Times, Work,
};

use super::{DEVICE, ORDER, POOL_TYPES, UNKNOWN, finish, heap_over};

const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];
/// Blocks of the driver's, and pages that it locks.
const SIZES: [u64; 2] = [100 * KIB, 3 * MIB];
const COPY: &str = "copy";

/// A heap of pinned memory, and the machine whose streams use it.
struct Rig {
    machine: Arc<Machine>,
    heap: Heap,
}

impl Rig {
    fn new(pool_type: PoolType, store: StoreKind) -> Self {
        let mut config = Config::new(store, 2, 64 * MIB);
        config.progress = Progress::Manual;
        config.detect_races = true;
        Self::over(pool_type, Machine::new(config).unwrap(), Arc::new(OpenGate))
    }

    fn over(pool_type: PoolType, machine: Arc<Machine>, gate: Arc<dyn Gate>) -> Self {
        let device = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
        let heap = heap_over(HostMemory::pinned(device, gate), pool_type);
        Self { machine, heap }
    }

    fn stream(&self) -> StreamHandle {
        StreamHandle(self.machine.stream_create(0, false).unwrap())
    }

    /// A block that the host has written to.
    fn block(&self, bytes: u64) -> u64 {
        let address = self.heap.allocate_on(bytes, DEVICE, ORDER).unwrap();
        self.machine.host_touch(address, bytes, Access::Write, "the host");
        address
    }

    /// A block that a stream copies from, freed.
    fn freed_in_use(&self, bytes: u64, stream: StreamHandle) -> u64 {
        let address = self.block(bytes);
        self.machine.copy_touch(0, stream.0, Work::read(address, bytes, COPY)).unwrap();
        self.heap.record_stream(address, stream).unwrap();
        self.heap.free(address).unwrap();
        address
    }

    fn check(&self) {
        let violations = self.machine.take_violations();
        assert!(violations.is_empty(), "{}", violations[0]);
        self.heap.validate().unwrap();
    }

    fn finish(&self) {
        finish(&self.heap);
        self.check();
        assert_eq!(self.machine.census().host_bytes, 0);
    }
}

/// For every strategy that keeps blocks, both stores and both ways to have memory.
fn everywhere(test: impl Fn(&Rig, u64)) {
    for pool_type in POOL_TYPES.into_iter().filter(|one| *one != PoolType::Naive) {
        for store in STORES {
            for bytes in SIZES {
                let rig = Rig::new(pool_type, store);
                test(&rig, bytes);
                rig.finish();
            }
        }
    }
}

#[test]
fn a_block_in_use_is_reused_once_its_copies_are_complete() {
    everywhere(|rig, bytes| {
        let stream = rig.stream();
        let used = rig.freed_in_use(bytes, stream);
        let other = rig.block(bytes);
        assert_ne!(other, used, "its copy is not complete");
        rig.machine.run_to_idle(0, stream.0).unwrap();
        rig.heap.free(other).unwrap();
        let active = || rig.heap.statistics(DEVICE).unwrap().active_bytes.current;
        assert!(active() >= bytes, "it is pending");
        rig.heap.compact(DEVICE).unwrap();
        assert_eq!(active(), 0);
        let again = rig.block(bytes);
        assert!([used, other].contains(&again), "both are free");
        rig.heap.free(again).unwrap();
    });
}

/// The host is no stream, so no stream is its own.
#[test]
fn a_default_stream_is_waited_for_as_any_other() {
    for handle in [StreamHandle::LEGACY, StreamHandle::LEGACY_ALIAS, StreamHandle::PER_THREAD] {
        let rig = Rig::new(PoolType::Caching, StoreKind::RealBytes);
        let used = rig.freed_in_use(3 * MIB, handle);
        let other = rig.block(3 * MIB);
        assert_ne!(other, used, "{handle:?}");
        rig.machine.run_device_to_idle(0).unwrap();
        rig.heap.free(other).unwrap();
        rig.finish();
    }
}

#[test]
fn streams_of_two_devices_are_waited_for() {
    everywhere(|rig, bytes| {
        let streams = [0, 1].map(|context| rig.machine.stream_create(context, false).unwrap());
        let used = rig.block(bytes);
        for (context, stream) in (0..).zip(streams) {
            rig.machine.copy_touch(context, stream, Work::read(used, bytes, COPY)).unwrap();
            rig.heap.record_stream(used, StreamHandle(stream)).unwrap();
        }
        rig.heap.free(used).unwrap();
        for (context, stream) in (0..).zip(streams) {
            let other = rig.block(bytes);
            assert_ne!(other, used, "device {context} has not copied");
            rig.heap.free(other).unwrap();
            rig.machine.run_to_idle(context, stream).unwrap();
        }
    });
}

/// What goes back to the system is waited for.
#[test]
fn memory_in_use_stays_until_its_work_is_over() {
    for pool_type in POOL_TYPES {
        for store in STORES {
            for bytes in SIZES {
                let rig = Rig::new(pool_type, store);
                rig.freed_in_use(bytes, rig.stream());
                rig.finish();
            }
        }
    }
}

/// A stream that is captured gives no event: the block waits until the device is idle, and nobody
/// waits for that before the capture has ended.
#[test]
fn a_capture_is_not_harmed() {
    for store in STORES {
        let mut config = Config::new(store, 1, 64 * MIB);
        config.detect_races = true;
        let machine = Machine::new(config).unwrap();
        let gate = Arc::new(Devices::new(&machine));
        let rig = Rig::over(PoolType::Caching, machine, Arc::clone(&gate) as Arc<dyn Gate>);
        let stream = rig.stream();
        gate.heap.begin_capture(DeviceOrdinal(0)).unwrap();
        rig.machine.begin_capture(0, stream.0, CaptureMode::Relaxed).unwrap();
        let used = rig.freed_in_use(3 * MIB, stream);
        rig.heap.empty_cache(DEVICE).unwrap();
        let other = rig.block(3 * MIB);
        assert_ne!(other, used, "the graph uses it");
        rig.heap.free(other).unwrap();
        rig.machine.end_capture(0, stream.0).expect("the capture is as it was");
        gate.heap.end_capture(DeviceOrdinal(0)).unwrap();
        rig.finish();
    }
}

/// The heap of the machine's device memory, which knows of captures.
#[derive(Debug)]
struct Devices {
    heap: Heap,
}

impl Devices {
    fn new(machine: &Arc<Machine>) -> Self {
        let device = SimulatedDevice::new(Arc::clone(machine), 0);
        Self { heap: crate::support::heap_over(Arc::new(device), PoolType::Caching) }
    }
}

impl Gate for Devices {
    fn pass(
        &self,
        device: DeviceOrdinal,
        wait: &mut dyn FnMut() -> genesis::driver::Result<()>,
    ) -> genesis::driver::Result<()> {
        self.heap.wait_outside_captures(device, wait)
    }
}

/// Every call of the driver's fails, once and for good: nothing is lost, and nothing is reused or
/// freed too early.
#[test]
fn every_driver_call_fails_in_turn() {
    let kinds = [
        Call::HostAllocate,
        Call::HostFree,
        Call::HostRegister,
        Call::HostUnregister,
        Call::EventCreate,
        Call::EventRecord,
        Call::EventQuery,
        Call::StreamGetId,
        Call::StreamGetContext,
        Call::StreamIsCapturing,
        Call::Synchronize,
    ];
    let mut struck = 0;
    for pool_type in POOL_TYPES {
        for (call, nth) in kinds.into_iter().flat_map(|call| (1..=3).map(move |nth| (call, nth))) {
            for (code, times) in [(UNKNOWN, Times::Once), (Code::OUT_OF_MEMORY, Times::Forever)] {
                let rig = Rig::new(pool_type, StoreKind::RealBytes);
                rig.machine.faults().fail(Target::call(call), nth, times, code);
                use_under_faults(&rig);
                struck += u64::from(rig.machine.usage(0).unwrap().count(call) >= nth);
                rig.machine.faults().clear();
                // What the driver refused to take is offered again.
                for _ in 0..2 {
                    rig.heap.empty_cache(DEVICE).unwrap();
                }
                rig.finish();
            }
        }
    }
    assert!(struck > 100, "{struck} faults struck");
}

/// A program that goes on whatever fails. Where the driver does not take note of a stream, it waits
/// for it, as the error tells.
fn use_under_faults(rig: &Rig) {
    let streams = [rig.stream(), StreamHandle::LEGACY];
    for round in 0..6 {
        let (bytes, stream) = (SIZES[round % 2], streams[round / 2 % 2]);
        let Ok(address) = rig.heap.allocate_on(bytes, DEVICE, ORDER) else { continue };
        rig.machine.host_touch(address, bytes, Access::Write, "the host");
        rig.machine.copy_touch(0, stream.0, Work::read(address, bytes, COPY)).unwrap();
        if rig.heap.record_stream(address, stream).is_err() {
            rig.machine.wait_within_call(0, stream.0).unwrap();
        }
        let _ = rig.heap.free(address);
        if round == 3 {
            rig.machine.run_device_to_idle(0).unwrap();
        }
    }
}

/// The machine sees what a heap without this order would do.
#[test]
fn a_block_reused_too_early_is_a_race() {
    for store in STORES {
        let rig = Rig::new(PoolType::Caching, store);
        let stream = rig.stream();
        let used = rig.block(3 * MIB);
        rig.machine.copy_touch(0, stream.0, Work::read(used, 3 * MIB, COPY)).unwrap();
        rig.heap.free(used).unwrap();
        assert_eq!(rig.block(3 * MIB), used, "nobody told of the copy");
        assert_eq!(rig.machine.take_violations().len(), 1);
        rig.machine.run_to_idle(0, stream.0).unwrap();
        rig.machine.stream_synchronize(0, stream.0).unwrap();
        rig.heap.free(used).unwrap();
        rig.finish();
    }
}
