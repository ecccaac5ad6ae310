//! Copies between devices and pinned host memory.
//!
//! On every device with bytes the host can read what it copied, so these cases also check the
//! contents of a real device's memory.

use genesis::base::StreamHandle;
use genesis::driver::{Call, Device};

use crate::subject::{PLAIN, Subject, has_pattern, write_pattern};

/// Through plain allocations, pieces of them, and a range of two handles.
pub(crate) fn bytes_go_to_a_device_and_back(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let bytes = granule + 12_345;
    let [there, back] = [(); 2].map(|()| driver.host_allocate(bytes).unwrap());
    if subject.host_bytes {
        write_pattern(there, bytes, 50);
    }
    let plain = driver.allocate(bytes).unwrap();
    let range = mapped(driver, 2, granule);
    for address in [plain, range, range + 2 * granule - bytes] {
        if subject.host_bytes {
            write_pattern(back, bytes, 1);
        }
        driver.copy_to_device(address, there, bytes).unwrap();
        subject.expect(address, bytes, 50);
        // Back in two pieces, cut where no page ends.
        let cut = granule - 77;
        driver.copy_to_host(back + cut, address + cut, bytes - cut).unwrap();
        driver.copy_to_host(back, address, cut).unwrap();
        assert!(!subject.host_bytes || has_pattern(back, bytes, 50));
    }
    driver.unmap(range, 2 * granule).unwrap();
    driver.unreserve(range, 2 * granule).unwrap();
    driver.free(plain).unwrap();
    driver.host_free(there).unwrap();
    driver.host_free(back).unwrap();
}

/// A pause: contents wait in host memory while the device's memory is released, and return to the
/// same addresses in other memory.
pub(crate) fn contents_survive_a_change_of_memory(subject: &Subject) {
    const PAGES: u64 = 3;
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let bytes = PAGES * granule;
    let range = mapped(driver, PAGES, granule);
    let host = driver.host_allocate(bytes).unwrap();
    if subject.host_bytes {
        write_pattern(host, bytes, 90);
    }
    driver.copy_to_device(range, host, bytes).unwrap();
    if subject.host_bytes {
        write_pattern(host, bytes, 0);
    }
    let free_before = driver.memory_info().unwrap().free_bytes;
    driver.synchronize().unwrap();
    for page in 0..PAGES {
        let offset = page * granule;
        driver.copy_to_host(host + offset, range + offset, granule).unwrap();
        driver.unmap(range + offset, granule).unwrap();
    }
    assert!(driver.memory_info().unwrap().free_bytes > free_before);
    for page in 0..PAGES {
        map_new(driver, range + page * granule, granule);
    }
    driver.set_access(range, bytes, &[]).unwrap();
    driver.copy_to_device(range, host, bytes).unwrap();
    subject.expect(range, bytes, 90);
    driver.copy_to_host(host, range, bytes).unwrap();
    assert!(!subject.host_bytes || has_pattern(host, bytes, 90));
    driver.unmap(range, bytes).unwrap();
    driver.unreserve(range, bytes).unwrap();
    driver.host_free(host).unwrap();
}

pub(crate) fn copies_are_counted_and_wait(subject: &Subject) {
    let driver = &*subject.driver;
    let (address, host) = (driver.allocate(1 << 20).unwrap(), driver.host_allocate(8).unwrap());
    let before = driver.usage();
    driver.copy_to_device(address, host, 8).unwrap();
    driver.copy_to_host(host, address + 512, 8).unwrap();
    driver.copy_to_host(host, address, 8).unwrap();
    let after = driver.usage();
    let made = |call: Call| after.calls[call as usize] - before.calls[call as usize];
    assert_eq!((made(Call::CopyToDevice), made(Call::CopyToHost)), (1, 2));
    assert_eq!(after.total_calls() - before.total_calls(), 3);
    assert!(after.nanoseconds > before.nanoseconds);
    // Both copies are complete.
    let event = driver.event_create().unwrap();
    driver.event_record(event, StreamHandle::LEGACY).unwrap();
    driver.event_synchronize(event).unwrap();
    driver.event_destroy(event).unwrap();
    driver.free(address).unwrap();
    driver.host_free(host).unwrap();
}

/// Through plain memory and a range of two handles; every byte of it, and no other.
pub(crate) fn fills_are_work_on_their_stream(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let (plain, range) = (driver.allocate(2 * granule).unwrap(), mapped(driver, 2, granule));
    let before = driver.usage();
    for address in [plain, range] {
        driver.fill(address, 2 * granule, 0xDD, StreamHandle::LEGACY).unwrap();
        driver.fill(address + granule - 5, 11, 0xCD, StreamHandle::PER_THREAD).unwrap();
        driver.synchronize().unwrap();
        assert_eq!(driver.find_other(address, granule - 5, 0xDD), Ok(None));
        assert_eq!(driver.find_other(address + granule - 5, 11, 0xCD), Ok(None));
        assert_eq!(driver.find_other(address + granule + 6, granule - 6, 0xDD), Ok(None));
        let found = driver.find_other(address, 2 * granule, 0xDD).unwrap();
        assert_eq!(found, subject.host_bytes.then_some(granule - 5));
    }
    let made = driver.usage().calls[Call::Fill as usize] - before.calls[Call::Fill as usize];
    assert_eq!(made, 4);
    driver.unmap(range, 2 * granule).unwrap();
    driver.unreserve(range, 2 * granule).unwrap();
    driver.free(plain).unwrap();
}

/// A reservation of accessible pages, whose handles only the mappings keep.
fn mapped(driver: &dyn Device, pages: u64, granule: u64) -> u64 {
    let range = driver.reserve(pages * granule, 0).unwrap();
    for page in 0..pages {
        map_new(driver, range + page * granule, granule);
    }
    driver.set_access(range, pages * granule, &[]).unwrap();
    range
}

fn map_new(driver: &dyn Device, address: u64, granule: u64) {
    let handle = driver.create(granule, PLAIN).unwrap();
    driver.map(address, granule, handle).unwrap();
    driver.release(handle).unwrap();
}
