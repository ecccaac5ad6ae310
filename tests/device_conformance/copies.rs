//! Copies between devices and pinned host memory.
//!
//! The host can read what it copied on every device that has bytes, so these cases look at the
//! contents of a real device's memory too.

use genesis::base::StreamHandle;
use genesis::driver::{Call, Device};

use crate::subject::{PLAIN, Subject, has_pattern, write_pattern};

/// Through plain allocations, pieces of them, and a range of two handles.
pub(crate) fn bytes_go_to_a_device_and_back(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let bytes = granule + 12_345;
    let [there, back] = [(); 2].map(|()| device.host_allocate(bytes).unwrap());
    if subject.host_bytes {
        write_pattern(there, bytes, 50);
    }
    let plain = device.allocate(bytes).unwrap();
    let range = mapped(device, 2, granule);
    for address in [plain, range, range + 2 * granule - bytes] {
        if subject.host_bytes {
            write_pattern(back, bytes, 1);
        }
        device.copy_to_device(address, there, bytes).unwrap();
        subject.expect(address, bytes, 50);
        // Back in two pieces, cut where no page ends.
        let cut = granule - 77;
        device.copy_to_host(back + cut, address + cut, bytes - cut).unwrap();
        device.copy_to_host(back, address, cut).unwrap();
        assert!(!subject.host_bytes || has_pattern(back, bytes, 50));
    }
    device.unmap(range, 2 * granule).unwrap();
    device.unreserve(range, 2 * granule).unwrap();
    device.free(plain).unwrap();
    device.host_free(there).unwrap();
    device.host_free(back).unwrap();
}

/// What a pause is: contents wait in host memory while the device's memory is given back, and
/// appear at the same addresses in other memory.
pub(crate) fn contents_survive_a_change_of_memory(subject: &Subject) {
    const PAGES: u64 = 3;
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let bytes = PAGES * granule;
    let range = mapped(device, PAGES, granule);
    let host = device.host_allocate(bytes).unwrap();
    if subject.host_bytes {
        write_pattern(host, bytes, 90);
    }
    device.copy_to_device(range, host, bytes).unwrap();
    if subject.host_bytes {
        write_pattern(host, bytes, 0);
    }
    let free_before = device.memory_info().unwrap().free_bytes;
    device.synchronize().unwrap();
    for page in 0..PAGES {
        let offset = page * granule;
        device.copy_to_host(host + offset, range + offset, granule).unwrap();
        device.unmap(range + offset, granule).unwrap();
    }
    assert!(device.memory_info().unwrap().free_bytes > free_before);
    for page in 0..PAGES {
        map_new(device, range + page * granule, granule);
    }
    device.set_access(range, bytes, &[]).unwrap();
    device.copy_to_device(range, host, bytes).unwrap();
    subject.expect(range, bytes, 90);
    device.copy_to_host(host, range, bytes).unwrap();
    assert!(!subject.host_bytes || has_pattern(host, bytes, 90));
    device.unmap(range, bytes).unwrap();
    device.unreserve(range, bytes).unwrap();
    device.host_free(host).unwrap();
}

pub(crate) fn copies_are_counted_and_wait(subject: &Subject) {
    let device = &*subject.device;
    let (address, host) = (device.allocate(1 << 20).unwrap(), device.host_allocate(8).unwrap());
    let before = device.usage();
    device.copy_to_device(address, host, 8).unwrap();
    device.copy_to_host(host, address + 512, 8).unwrap();
    device.copy_to_host(host, address, 8).unwrap();
    let after = device.usage();
    let made = |call: Call| after.calls[call as usize] - before.calls[call as usize];
    assert_eq!((made(Call::CopyToDevice), made(Call::CopyToHost)), (1, 2));
    assert_eq!(after.total_calls() - before.total_calls(), 3);
    assert!(after.nanoseconds > before.nanoseconds);
    // Nothing of them is left to wait for.
    let event = device.event_create().unwrap();
    device.event_record(event, StreamHandle::LEGACY).unwrap();
    device.event_synchronize(event).unwrap();
    device.event_destroy(event).unwrap();
    device.free(address).unwrap();
    device.host_free(host).unwrap();
}

/// Through plain memory and a range of two handles; every byte of it, and no other.
pub(crate) fn fills_are_work_on_their_stream(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let (plain, range) = (device.allocate(2 * granule).unwrap(), mapped(device, 2, granule));
    let before = device.usage();
    for address in [plain, range] {
        device.fill(address, 2 * granule, 0xDD, StreamHandle::LEGACY).unwrap();
        device.fill(address + granule - 5, 11, 0xCD, StreamHandle::PER_THREAD).unwrap();
        device.synchronize().unwrap();
        assert_eq!(device.find_other(address, granule - 5, 0xDD), Ok(None));
        assert_eq!(device.find_other(address + granule - 5, 11, 0xCD), Ok(None));
        assert_eq!(device.find_other(address + granule + 6, granule - 6, 0xDD), Ok(None));
        let found = device.find_other(address, 2 * granule, 0xDD).unwrap();
        assert_eq!(found, subject.host_bytes.then_some(granule - 5));
    }
    let made = device.usage().calls[Call::Fill as usize] - before.calls[Call::Fill as usize];
    assert_eq!(made, 4);
    device.unmap(range, 2 * granule).unwrap();
    device.unreserve(range, 2 * granule).unwrap();
    device.free(plain).unwrap();
}

/// A reservation of accessible pages, whose handles only the mappings keep.
fn mapped(device: &dyn Device, pages: u64, granule: u64) -> u64 {
    let range = device.reserve(pages * granule, 0).unwrap();
    for page in 0..pages {
        map_new(device, range + page * granule, granule);
    }
    device.set_access(range, pages * granule, &[]).unwrap();
    range
}

fn map_new(device: &dyn Device, address: u64, granule: u64) {
    let handle = device.create(granule, PLAIN).unwrap();
    device.map(address, granule, handle).unwrap();
    device.release(handle).unwrap();
}
