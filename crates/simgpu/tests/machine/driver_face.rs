//! What a machine offers a library that plays the driver: finding memory, copies, captures in
//! progress, peaks, real host memory.

use simgpu::{CaptureMode, Code, Config, Machine, Progress, StoreKind, Work};

const A: usize = 0xA000;
const B: usize = 0xB000;
const MIB: u64 = 1 << 20;

fn machine(devices: usize) -> std::sync::Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, devices, 64 * MIB);
    config.detect_races = true;
    config.progress = Progress::Manual;
    Machine::new(config).unwrap()
}

#[test]
fn memory_is_found_by_any_address_in_it() {
    let machine = machine(2);
    let address = machine.allocate(1, 3 * MIB).unwrap();
    let found = machine.find(address + 3 * MIB - 1).unwrap();
    assert_eq!((found.device, found.base, found.bytes), (1, address, 3 * MIB));
    assert_eq!(machine.find(address + 3 * MIB), None);
    let (base, bytes) = machine.address_span();
    assert!((base..base + bytes).contains(&address));
    assert_eq!(machine.usage(1).unwrap().count(simgpu::Call::AddressRange), 0);
}

#[test]
fn only_what_somebody_may_touch_is_accessible() {
    let machine = machine(1);
    let granule = machine.granularity(0).unwrap();
    let range = machine.reserve(0, 3 * granule, 0).unwrap();
    let handle = machine.create(0, granule).unwrap();
    for place in [0, 1] {
        machine.map(0, range + place * granule, granule, handle).unwrap();
    }
    assert!(!machine.is_accessible(range, 1));
    machine.set_access(0, range, granule, &[0]).unwrap();
    assert!(machine.is_accessible(range, granule) && machine.is_accessible(range, 0));
    assert!(!machine.is_accessible(range, granule + 1));
    machine.set_access(0, range + granule, granule, &[0]).unwrap();
    assert!(machine.is_accessible(range + 5, 2 * granule - 5));
    assert!(!machine.is_accessible(range + 5, 2 * granule));
    assert!(!machine.is_accessible(u64::MAX, 2));
}

#[test]
fn peer_copies_reach_other_devices_and_kernels_only_peers() {
    let machine = machine(2);
    let address = machine.allocate(1, MIB).unwrap();
    machine.peer_copy_touch(0, A, Work::read(address, MIB, "copy")).unwrap();
    assert_eq!(machine.take_violations(), []);
    machine.touch(0, A, Work::read(address, MIB, "kernel")).unwrap();
    assert_eq!(machine.take_violations().len(), 1);
    machine.copy_touch(1, B, Work::write(address, MIB, "copy")).unwrap();
    assert_eq!(machine.take_violations().len(), 1, "a copy races like any other work");
}

#[test]
fn a_wait_within_a_call_is_none_of_its_own() {
    let machine = machine(1);
    let address = machine.allocate(0, MIB).unwrap();
    machine.copy_touch(0, A, Work::write(address, MIB, "copy")).unwrap();
    assert_eq!(machine.pending(0, A), Ok(1));
    machine.wait_within_call(0, A).unwrap();
    assert_eq!(machine.pending(0, A), Ok(0));
    machine.copy_touch(0, B, Work::write(address, MIB, "later")).unwrap();
    assert_eq!(machine.take_violations(), [], "the host knew that the copy was complete");
    let usage = machine.usage(0).unwrap();
    assert_eq!(usage.count(simgpu::Call::StreamSynchronize), 0);
    assert_eq!((usage.host_waits.explicit, usage.host_waits.implicit), (0, 1));
}

#[test]
fn captures_have_numbers_and_may_be_spoilt() {
    let machine = machine(1);
    assert_eq!(machine.capture_info(0, A), Ok(None));
    machine.begin_capture(0, A, CaptureMode::ThreadLocal).unwrap();
    let info = machine.capture_info(0, A).unwrap().unwrap();
    assert!(info.is_valid && info.id != 0);
    machine.touch(0, A, Work::read(0, 0, "kernel")).unwrap();
    assert_eq!(machine.stream_query(0, A), Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    assert!(!machine.capture_info(0, A).unwrap().unwrap().is_valid);
    assert!(machine.end_capture(0, A).is_err());
    machine.begin_capture(0, A, CaptureMode::Relaxed).unwrap();
    assert_ne!(machine.capture_info(0, A).unwrap().unwrap().id, info.id);
    machine.touch(0, A, Work::read(0, 0, "kernel")).unwrap();
    assert_eq!(machine.end_capture(0, A).unwrap().touch_count(), 1);
}

#[test]
fn peaks_are_kept_until_they_are_reset() {
    let machine = machine(1);
    let address = machine.allocate(0, 8 * MIB).unwrap();
    machine.free(0, address).unwrap();
    machine.allocate(0, 2 * MIB).unwrap();
    assert_eq!(machine.peak_used_bytes(0), Ok(8 * MIB));
    machine.reset_peak(0).unwrap();
    assert_eq!(machine.peak_used_bytes(0), Ok(2 * MIB));
    assert_eq!(machine.peak_used_bytes(1), Err(Code::INVALID_DEVICE));
}

#[test]
fn host_memory_may_be_real_though_device_memory_is_not() {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, 64 * MIB);
    config.host_bytes = true;
    let machine = Machine::new(config).unwrap();
    let address = machine.host_allocate(0, 5000).unwrap();
    let bytes = address as *mut u8;
    // SAFETY: 5000 bytes of real memory, the test's own until it is freed.
    unsafe {
        bytes.add(4999).write_volatile(7);
        assert_eq!(bytes.add(4999).read_volatile(), 7);
    }
    machine.host_free(0, address).unwrap();
    assert_eq!(machine.census().host_bytes, 0);
}
