//! Managed memory: `cuMemAllocManaged`, advice and prefetches.

use genesis::base::StreamHandle;
use genesis::driver::{Advice, Call, Code, Device, Location};

use crate::subject::Subject;

const MIB: u64 = 1 << 20;
const EVERY_ADVICE: [Advice; 6] = [
    Advice::ReadMostly(true),
    Advice::ReadMostly(false),
    Advice::PreferredLocation(true),
    Advice::PreferredLocation(false),
    Advice::AccessedBy(true),
    Advice::AccessedBy(false),
];

fn here(driver: &dyn Device) -> Location {
    Location::Device(driver.ordinal())
}

/// A device without managed memory refuses every call.
fn is_without(driver: &dyn Device) -> bool {
    let is_without = !driver.has_managed().unwrap();
    if is_without && let Err(error) = driver.allocate_managed(1) {
        assert_eq!((error.call, error.code), (Call::AllocateManaged, Code::NOT_SUPPORTED));
    }
    is_without
}

pub(crate) fn managed_memory_may_be_more_than_there_is(subject: &Subject) {
    let driver = &*subject.driver;
    if is_without(driver) {
        return;
    }
    let info = driver.memory_info().unwrap();
    // Nothing is touched, so nothing is taken: neither here nor of the host.
    let large = driver.allocate_managed(info.total_bytes + (1 << 30)).unwrap();
    assert_eq!(large % 256, 0);
    let small = driver.allocate_managed(1).unwrap();
    assert_ne!(small, large);
    assert_eq!(driver.allocate_managed(0).unwrap_err().code, Code::INVALID_VALUE);
    driver.free(small).unwrap();
    driver.free(large).unwrap();
    assert_eq!(driver.free(large).unwrap_err().code, Code::INVALID_VALUE);
}

pub(crate) fn managed_memory_holds_bytes_wherever_it_is(subject: &Subject) {
    let driver = &*subject.driver;
    if is_without(driver) {
        return;
    }
    let bytes = 6 * MIB;
    let address = driver.allocate_managed(bytes).unwrap();
    let stream = StreamHandle::LEGACY;
    driver.fill(address, bytes, 7, stream).unwrap();
    for location in [Location::Host, here(driver), Location::Host] {
        driver.prefetch(address, bytes, location, stream).unwrap();
        driver.synchronize().unwrap();
        assert_eq!(driver.find_other(address, bytes, 7).unwrap(), None);
    }
    for advice in EVERY_ADVICE {
        driver.advise(address, bytes, advice, here(driver)).unwrap();
        driver.advise(address + MIB, MIB, advice, Location::Host).unwrap();
    }
    assert_eq!(driver.find_other(address, bytes, 7).unwrap(), None);
    driver.free(address).unwrap();
}

pub(crate) fn managed_calls_refuse_other_memory(subject: &Subject) {
    let driver = &*subject.driver;
    if is_without(driver) {
        return;
    }
    let plain = driver.allocate(MIB).unwrap();
    let advised = driver.advise(plain, MIB, Advice::ReadMostly(true), here(driver)).unwrap_err();
    assert_eq!((advised.call, advised.code), (Call::Advise, Code::INVALID_VALUE));
    let stream = StreamHandle::LEGACY;
    let prefetched = driver.prefetch(plain, MIB, here(driver), stream).unwrap_err();
    assert_eq!((prefetched.call, prefetched.code), (Call::Prefetch, Code::INVALID_VALUE));
    driver.free(plain).unwrap();
    assert!(driver.advise(plain, MIB, Advice::ReadMostly(true), here(driver)).is_err());
    if let Some(peer) = &subject.peer {
        // Managed memory is every device's.
        let address = driver.allocate_managed(MIB).unwrap();
        driver.prefetch(address, MIB, here(&**peer), stream).unwrap();
        driver.free(address).unwrap();
    }
}
