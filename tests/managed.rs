//! Managed memory (`GENESIS_MANAGED`): programs larger than the device, on both stores.

mod support;

use std::sync::Arc;

use genesis::base::size::MIB;
use genesis::base::{DeviceOrdinal, Status};
use genesis::config::{LogLevel, Oversubscription, PoolType};
use genesis::driver::{Advice, Location};
use simgpu::{Call, CaptureMode, ManagedAccess, StoreKind, Work};
use support::{A, B, DEVICE, Plan, Rig, Subject, status_of};

const CAPACITY: u64 = 64 * MIB;
const BEYOND: u64 = 128 * MIB;
const HERE: Location = Location::Device(DEVICE);

fn subjects() -> impl Iterator<Item = Subject> {
    let strategies = PoolType::ALL.iter().copied();
    strategies.flat_map(|pool_type| {
        [StoreKind::RealBytes, StoreKind::AddressesOnly].map(|store| Subject::new(pool_type, store))
    })
}

fn plan(subject: Subject) -> Plan {
    subject.plan().capacity(CAPACITY).set(|settings| {
        settings.managed = Oversubscription::Most(BEYOND);
        settings.log = LogLevel::Info;
    })
}

fn elastic() -> Rig {
    plan(Subject::new(PoolType::Elastic, StoreKind::AddressesOnly)).start()
}

/// What streams waited for so far: faults, and bytes that came to the device.
fn faults(rig: &Rig) -> (u64, u64) {
    let paging = rig.usage().paging;
    (paging.faults, paging.arrived_bytes)
}

#[test]
fn a_program_larger_than_the_device_runs() {
    for subject in subjects() {
        let rig = plan(subject).start();
        let blocks: Vec<_> = [A, B]
            .repeat(4)
            .into_iter()
            .map(|stream| (rig.allocate_and_touch(16 * MIB, stream), stream))
            .collect();
        let statistics = rig.statistics();
        assert_eq!(statistics.managed_bytes, statistics.reserved_bytes.current, "{subject:?}");
        assert_eq!(statistics.oversubscribed_bytes, rig.reserved_bytes() - CAPACITY, "{subject:?}");
        assert!(statistics.oversubscribed_bytes >= 64 * MIB, "{subject:?}");
        assert!(rig.machine.used_bytes(0).unwrap() <= CAPACITY);
        // Each pass evicts and brings back.
        for &(block, stream) in &blocks {
            rig.touch(block, stream);
            rig.run(A);
            rig.run(B);
        }
        assert!(rig.usage().paging.arrived_bytes > 0, "{subject:?}");
        assert_eq!(rig.refusal(BEYOND, A), Status::OutOfMemory);
        let info = rig.heap.memory_info(DEVICE).unwrap();
        assert_eq!(info.total_bytes, CAPACITY, "it is the card's");
        assert!(info.free_bytes <= CAPACITY);
        rig.run(A);
        rig.run(B);
        blocks.into_iter().for_each(|(block, _)| rig.free(block));
        let peak_bytes = rig.statistics().peak_oversubscribed_bytes;
        assert!(peak_bytes >= 64 * MIB, "{subject:?}: {peak_bytes}");
        rig.finish();
    }
}

#[test]
fn what_is_cached_goes_before_anything_is_evicted() {
    let rig = elastic();
    let cached: Vec<u64> = (0..6).map(|_| rig.allocate_and_touch(10 * MIB, A)).collect();
    rig.run(A);
    cached.into_iter().for_each(|block| rig.free(block));
    assert!(rig.statistics().free_bytes >= 60 * MIB);
    // For this the cached 60 MiB are in the way, and of no use to it.
    let block = rig.allocate_and_touch(48 * MIB, A);
    assert_eq!(rig.usage().paging.evicted_bytes, 0);
    assert_eq!(rig.statistics().oversubscribed_bytes, 0);
    rig.run(A);
    rig.free(block);
    rig.finish();
}

#[test]
fn new_memory_is_there_before_it_is_touched() {
    let rig = elastic();
    let block = rig.allocate_and_touch(16 * MIB, A);
    assert_eq!(faults(&rig), (0, 0));
    assert_eq!(rig.usage().count(Call::Prefetch), 1);
    // In the order of the stream that asked.
    assert_eq!(rig.machine.pending(0, A.0).unwrap(), 2);
    rig.run(A);
    rig.free(block);
    let again = rig.allocate_and_touch(16 * MIB, A);
    assert_eq!((again, rig.usage().count(Call::Prefetch)), (block, 1), "a hit asks nothing");
    rig.run(A);
    // More than the device is not brought there.
    let larger = rig.allocate(CAPACITY + 2 * MIB, A);
    assert_eq!(rig.usage().count(Call::Prefetch), 1);
    rig.free(larger);
    rig.finish();
}

#[test]
fn a_capture_is_left_alone() {
    let rig = elastic();
    rig.machine.begin_capture(0, A.0, CaptureMode::Relaxed).unwrap();
    let block = rig.allocate(16 * MIB, A);
    assert_eq!(rig.usage().count(Call::Prefetch), 0);
    let asked = rig.heap.prefetch(block, 2 * MIB, HERE, A);
    assert_eq!(status_of(asked), Status::DriverFailed);
    rig.machine.touch(0, A.0, Work::write(block, 16 * MIB, "captured")).unwrap();
    rig.machine.end_capture(0, A.0).expect("it is valid");
    rig.free(block);
    // The next miss on the stream finds that it is over.
    rig.free(rig.allocate(20 * MIB, A));
    rig.finish();
}

#[test]
fn a_program_says_what_it_needs() {
    let rig = elastic();
    let first = rig.allocate_and_touch(48 * MIB, A);
    let second = rig.allocate_and_touch(48 * MIB, A);
    let evicted_bytes = rig.usage().paging.evicted_bytes;
    assert!(evicted_bytes >= 32 * MIB);
    // Without the prefetch, the touch would fault.
    rig.heap.prefetch(second, 48 * MIB, Location::Host, A).unwrap();
    rig.heap.prefetch(first, 48 * MIB, HERE, A).unwrap();
    let before = faults(&rig).0;
    rig.touch(first, A);
    assert_eq!(faults(&rig).0, before);
    assert_eq!(rig.usage().paging.evicted_bytes, evicted_bytes, "there was room");
    // What should be on the host stays there.
    rig.heap.advise(second, 48 * MIB, Advice::PreferredLocation(true), Location::Host).unwrap();
    rig.touch(second, A);
    assert_eq!(faults(&rig).0, before);
    rig.run(A);
    rig.free(first);
    rig.free(second);
    rig.finish();
}

#[test]
fn wrong_ranges_are_refused() {
    let rig = elastic();
    let block = rig.allocate(MIB, A);
    for (address, bytes) in [(block, 0), (block, 2 * MIB), (block + MIB, 1), (block, u64::MAX)] {
        let asked = rig.heap.prefetch(address, bytes, HERE, A).map_err(|error| error.status);
        assert!(asked.is_err_and(|status| status != Status::DriverFailed), "{bytes}");
    }
    let nowhere = Location::Device(DeviceOrdinal(9));
    let asked = rig.heap.advise(block, MIB, Advice::AccessedBy(true), nowhere);
    assert_eq!(status_of(asked), Status::InvalidDevice);
    rig.free(block);
    let shared = rig.allocate(4 * MIB, A);
    let sent = rig.heap.share(shared).and_then(|share| rig.heap.check_sendable(&share));
    let error = sent.unwrap_err();
    assert_eq!(error.status, Status::NotSupported, "{error}");
    rig.free(shared);
    drop(rig);
}

#[test]
fn a_device_without_it_keeps_ordinary_memory() {
    for managed in [ManagedAccess::None, ManagedAccess::Exclusive] {
        let mut plan = plan(Subject::new(PoolType::Elastic, StoreKind::AddressesOnly));
        plan.machine.devices[0].managed = managed;
        let rig = plan.start();
        let block = rig.allocate_and_touch(16 * MIB, A);
        assert!(rig.lines().iter().any(|line| line.contains("no managed memory")), "{managed:?}");
        assert_eq!(rig.statistics().managed_bytes, 0);
        assert!(rig.usage().count(Call::Create) > 0, "Elastic, as it was");
        assert_eq!(rig.refusal(CAPACITY, A), Status::OutOfMemory);
        let advised = rig.heap.advise(block, MIB, Advice::ReadMostly(true), HERE);
        assert_eq!(status_of(advised), Status::NotSupported);
        rig.run(A);
        rig.free(block);
        rig.finish();
    }
}

#[test]
fn threads_together_keep_the_limit() {
    let plan = plan(Subject::new(PoolType::Caching, StoreKind::AddressesOnly));
    let rig = Arc::new(plan.start());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let rig = Arc::clone(&rig);
            scope.spawn(move || {
                let stream = genesis::base::StreamHandle(0xD000 + thread);
                for _ in 0..50 {
                    let blocks: Vec<u64> = (0..4)
                        .filter_map(|_| rig.heap.allocate(16 * MIB, DEVICE, stream).ok())
                        .collect();
                    assert!(rig.reserved_bytes() <= CAPACITY + BEYOND);
                    for &block in &blocks {
                        rig.touch(block, stream);
                    }
                    blocks.into_iter().for_each(|block| rig.free(block));
                }
            });
        }
    });
    Arc::into_inner(rig).expect("the only one").finish();
}
