//! Synchronous copies between pinned memory and devices: what they move, refuse, wait for and
//! race with.

use simgpu::{
    Call, CaptureMode, Census, Code, Config, Machine, Progress, StoreKind, Violation, Work,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;
const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];
const A: usize = 0xA00;

fn machine(store: StoreKind) -> Arc<Machine> {
    let mut config = Config::new(store, 2, 64 * MIB);
    config.detect_races = true;
    config.progress = Progress::Manual;
    Machine::new(config).unwrap()
}

/// Two granules of two handles side by side, accessible to device 0.
fn mapped(machine: &Machine) -> u64 {
    let base = machine.reserve(0, 2 * GRANULE, 0).unwrap();
    for slot in 0..2 {
        let handle = machine.create(0, GRANULE).unwrap();
        machine.map(0, base + slot * GRANULE, GRANULE, handle).unwrap();
        machine.release(0, handle).unwrap();
    }
    machine.set_access(0, base, 2 * GRANULE, &[0]).unwrap();
    base
}

fn finish(machine: &Machine, base: u64, host: u64) {
    machine.unmap(0, base, 2 * GRANULE).unwrap();
    machine.unreserve(0, base, 2 * GRANULE).unwrap();
    machine.host_free(0, host).unwrap();
    machine.validate().unwrap();
    assert_eq!(machine.take_violations(), []);
    assert_eq!(machine.census(), Census::default());
}

#[test]
fn bytes_survive_a_journey_over_the_host() {
    let machine = machine(StoreKind::RealBytes);
    let base = mapped(&machine);
    let host = machine.host_allocate(0, 5000).unwrap();
    let start = base + GRANULE - 1000; // over the border between the handles
    // SAFETY: live, accessible memory of this machine that only this thread uses; any
    // content is valid for bytes.
    let bytes_at = |address: u64, count: usize| unsafe {
        std::slice::from_raw_parts_mut(address as *mut u8, count)
    };
    let pattern: Vec<u8> = (0..5000u32).map(|index| (index * 7 % 251) as u8).collect();
    bytes_at(start, 5000).copy_from_slice(&pattern);
    machine.copy_to_host(0, host, start, 5000).unwrap();
    assert_eq!(bytes_at(host, 5000), pattern);
    bytes_at(start, 5000).fill(0);
    machine.copy_to_device(0, start + 10, host + 10, 4000).unwrap();
    assert_eq!(bytes_at(start + 10, 4000), &pattern[10..4010]);
    assert_eq!(
        (bytes_at(start, 10), bytes_at(start + 4010, 990)),
        (&mut [0; 10][..], &mut [0; 990][..])
    );
    finish(&machine, base, host);
}

#[test]
fn both_ends_are_checked_and_errors_change_nothing() {
    for store in STORES {
        let machine = machine(store);
        let base = mapped(&machine);
        let host = machine.host_allocate(0, 10_000).unwrap();
        let bare = machine.reserve(0, GRANULE, 0).unwrap();
        let handle = machine.create(0, GRANULE).unwrap();
        machine.map(0, bare, GRANULE, handle).unwrap();
        for (host_address, address, bytes) in [
            (host, base, 0),
            (host, base, 10_001),                // more than is pinned
            (host - 1, base, 10),                // before it
            (host + 9_999, base, 2),             // over its end
            (base, base, 10),                    // a device address
            (host, base + 2 * GRANULE - 10, 11), // over the end of the mappings
            (host, bare, 10),                    // without access
            (host, u64::MAX, 10),                // over the end of all addresses
            (u64::MAX, base, 10),
        ] {
            let invalid = Err(Code::INVALID_VALUE);
            assert_eq!(machine.copy_to_host(0, host_address, address, bytes), invalid);
            assert_eq!(machine.copy_to_device(0, address, host_address, bytes), invalid);
        }
        assert_eq!(machine.pending(0, 0), Ok(0));
        assert_eq!(machine.take_violations(), [], "what is refused touches nothing");
        machine.unmap(0, bare, GRANULE).unwrap();
        machine.release(0, handle).unwrap();
        machine.unreserve(0, bare, GRANULE).unwrap();
        finish(&machine, base, host);
    }
}

#[test]
fn copies_are_counted_charged_and_known_to_be_complete() {
    for store in STORES {
        let machine = machine(store);
        let base = mapped(&machine);
        let host = machine.host_allocate(0, 2 * GRANULE).unwrap();
        let before = machine.usage(0).unwrap();
        machine.copy_to_host(0, host, base, 2 * GRANULE).unwrap();
        machine.copy_to_device(0, base, host, GRANULE).unwrap();
        let after = machine.usage(0).unwrap();
        assert_eq!((after.count(Call::CopyToHost), after.count(Call::CopyToDevice)), (1, 1));
        assert_eq!(after.host_waits.implicit - before.host_waits.implicit, 2);
        let costs = machine.config().costs;
        let [out, back] = [Call::CopyToHost, Call::CopyToDevice].map(|call| costs.get(call));
        let expected = out.price_ns(2 * GRANULE, 0) + back.price_ns(GRANULE, 0);
        assert_eq!(after.driver_nanoseconds - before.driver_nanoseconds, expected);
        assert_eq!(machine.pending(0, 0), Ok(0));
        // The host knows it: other streams may use the memory, and it may be unmapped.
        machine.touch(0, A, Work::write(base, GRANULE, "next")).unwrap();
        machine.stream_synchronize(0, A).unwrap();
        finish(&machine, base, host);
    }
}

#[test]
fn a_copy_races_with_what_the_host_has_not_waited_for() {
    let machine = machine(StoreKind::AddressesOnly);
    let base = mapped(&machine);
    let host = machine.host_allocate(0, GRANULE).unwrap();
    machine.touch(0, A, Work::write(base, 100, "kernel")).unwrap();
    machine.copy_to_host(0, host, base, GRANULE).unwrap();
    let violations = machine.take_violations();
    let [Violation::Race { first, second, .. }] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((first.label.as_str(), second.label.as_str()), ("kernel", "cuMemcpyDtoH"));
    machine.synchronize(0).unwrap();
    machine.copy_to_device(0, base, host, GRANULE).unwrap();
    // Blocking streams are ordered with the legacy stream, and with the copy.
    let blocking = machine.stream_create(0, true).unwrap();
    machine.touch(0, blocking, Work::write(base, 100, "kernel")).unwrap();
    machine.copy_to_host(0, host, base, GRANULE).unwrap();
    assert_eq!(machine.pending(0, blocking), Ok(0));
    machine.stream_destroy(0, blocking).unwrap();
    finish(&machine, base, host);
}

#[test]
fn a_copy_behind_work_that_never_ends_says_so() {
    let machine = machine(StoreKind::RealBytes);
    let base = mapped(&machine);
    let host = machine.host_allocate(0, GRANULE).unwrap();
    let blocking = machine.stream_create(0, true).unwrap();
    machine.delay(0, blocking, 1000).unwrap();
    machine.hold(0, blocking, true).unwrap();
    assert_eq!(machine.copy_to_host(0, host, base, 8), Err(Code::LAUNCH_TIMEOUT));
    machine.hold(0, blocking, false).unwrap();
    machine.copy_to_host(0, host, base, 8).unwrap();
    machine.stream_destroy(0, blocking).unwrap();
    finish(&machine, base, host);
}

#[test]
fn a_copy_spoils_the_capture_of_a_blocking_stream() {
    let machine = machine(StoreKind::AddressesOnly);
    let base = mapped(&machine);
    let host = machine.host_allocate(0, GRANULE).unwrap();
    let blocking = machine.stream_create(0, true).unwrap();
    machine.begin_capture(0, blocking, CaptureMode::Relaxed).unwrap();
    let implicit = Err(Code::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(machine.copy_to_host(0, host, base, 8), implicit);
    assert!(machine.end_capture(0, blocking).is_err());
    machine.stream_destroy(0, blocking).unwrap();
    finish(&machine, base, host);
}
