//! Reservations, handles, mappings and access.

use genesis::base::DeviceOrdinal;
use genesis::driver::{
    Code, Device, DriverError, HandleOptions, Handles, MemoryHandle, Prices, Shareable,
};

use crate::subject::{PLAIN, Subject};

pub(crate) fn granularity_is_a_power_of_two(subject: &Subject) {
    let granule = subject.driver.granularity(PLAIN).unwrap();
    assert!(granule.is_power_of_two() && granule >= 4096);
    assert_eq!(subject.driver.granularity(PLAIN), Ok(granule));
}

pub(crate) fn reservations_are_aligned_and_disjoint(subject: &Subject) {
    let driver = &subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let free_bytes = driver.memory_info().unwrap().free_bytes;
    let total_bytes = driver.memory_info().unwrap().total_bytes;
    let mut ranges = Vec::new();
    for (granules, alignment_granules) in [(1, 0), (3, 1), (1, 16), (7, 4), (1, 0)] {
        let alignment_bytes = alignment_granules * granule;
        let address = driver.reserve(granules * granule, alignment_bytes).unwrap();
        assert_eq!(address % granule.max(alignment_bytes), 0);
        ranges.push((address, granules * granule));
    }
    // Reservations may exceed the physical memory.
    let large_bytes = (2 * total_bytes).next_multiple_of(granule);
    ranges.push((driver.reserve(large_bytes, 0).unwrap(), large_bytes));
    assert_eq!(driver.memory_info().unwrap().free_bytes, free_bytes);
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
    }
    for (address, bytes) in ranges {
        driver.unreserve(address, bytes).unwrap();
    }
}

pub(crate) fn wrong_reservations_are_refused(subject: &Subject) {
    let driver = &subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    for (bytes, alignment_bytes) in [(0, 0), (granule + 512, 0), (granule, 3 * granule)] {
        refused(driver.reserve(bytes, alignment_bytes));
    }
    assert!(driver.reserve(1 << 50, 0).unwrap_err().is_out_of_memory());
    let address = driver.reserve(2 * granule, 0).unwrap();
    refused(driver.unreserve(address, granule));
    refused(driver.unreserve(address + granule, granule));
    refused(driver.unreserve(address, 3 * granule));
    driver.unreserve(address, 2 * granule).unwrap();
    refused(driver.unreserve(address, 2 * granule));
}

pub(crate) fn handles_take_memory_until_released(subject: &Subject) {
    let driver = &subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let before = driver.memory_info().unwrap();
    let handles: Vec<_> = (0..64).map(|_| driver.create(granule, PLAIN).unwrap()).collect();
    for (index, handle) in handles.iter().enumerate() {
        assert!(!handles[..index].contains(handle), "{handle:?} given out twice");
    }
    let during = driver.memory_info().unwrap();
    assert!(during.free_bytes < before.free_bytes);
    assert_eq!(during.total_bytes, before.total_bytes);
    let error = driver.create(before.total_bytes.next_multiple_of(granule), PLAIN).unwrap_err();
    assert!(error.is_out_of_memory());
    for handle in handles {
        driver.release(handle).unwrap();
    }
    assert!(driver.memory_info().unwrap().free_bytes > during.free_bytes);
}

pub(crate) fn wrong_handle_sizes_are_refused(subject: &Subject) {
    let driver = &subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    for bytes in [0, 512, granule - 1, granule + 512] {
        refused(driver.create(bytes, PLAIN));
    }
}

pub(crate) fn options_are_given_or_refused(subject: &Subject) {
    let driver = &*subject.driver;
    let plain_granule = driver.granularity(PLAIN).unwrap();
    for options in every_option() {
        let promised = driver.granularity(options);
        if let Ok(granule) = promised {
            assert!(granule.is_power_of_two());
            assert_eq!(driver.granularity(options), Ok(granule), "{options:?}");
        }
        let granule = promised.unwrap_or(plain_granule).max(plain_granule);
        match driver.create(granule, options) {
            Ok(handle) => {
                assert!(promised.is_ok(), "{options:?}");
                let base = driver.reserve(granule, granule).unwrap();
                driver.map(base, granule, handle).unwrap();
                driver.set_access(base, granule, &[]).unwrap();
                subject.fill(base, granule, 6);
                subject.expect(base, granule, 6);
                dismantle(driver, base, granule, &[handle]);
            }
            // Drivers older than a handle type find its number invalid.
            Err(error) => assert!(
                matches!(error.code, Code::NOT_SUPPORTED | Code::NOT_PERMITTED)
                    || (error.code == Code::INVALID_VALUE && options.shareable != Shareable::None),
                "{options:?}: {error}"
            ),
        }
    }
}

pub(crate) fn wishes_that_cannot_be_granted_cost_nothing_else(subject: &Subject) {
    let driver = &*subject.driver;
    for wished in every_option() {
        let handles = Handles::open(subject.driver.clone(), wished).unwrap();
        let granule = handles.granularity_bytes();
        assert_eq!(granule % driver.granularity(PLAIN).unwrap(), 0);
        let created = [(); 2].map(|()| handles.create(granule).unwrap());
        let given = handles.options();
        let granted = match wished.shareable {
            Shareable::PosixFdOrFabric => &[wished.shareable, Shareable::PosixFd, Shareable::None],
            one => &[one, Shareable::None][..],
        };
        assert!(granted.contains(&given.shareable), "{wished:?}: {given:?}");
        assert!(wished.rdma || !given.rdma);
        // Created together or alone, the device supports the same options.
        driver.release(driver.create(granule, given).unwrap()).unwrap();
        let base = driver.reserve(2 * granule, granule).unwrap();
        for (place, handle) in [base, base + granule].into_iter().zip(created) {
            driver.map(place, granule, handle).unwrap();
        }
        driver.set_access(base, 2 * granule, &[]).unwrap();
        dismantle(driver, base, 2 * granule, &created);
    }
}

pub(crate) fn wrong_mappings_are_refused(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let base = driver.reserve(4 * granule, 0).unwrap();
    let handle = driver.create(2 * granule, PLAIN).unwrap();
    // Not the whole of the handle.
    for bytes in [granule, 4 * granule] {
        let code = driver.map(base, bytes, handle).unwrap_err().code;
        assert!([Code::NOT_SUPPORTED, Code::INVALID_VALUE].contains(&code), "{code:?}");
    }
    refused(driver.map(base + granule / 2, 2 * granule, handle)); // not aligned
    refused(driver.map(base - granule, 2 * granule, handle)); // over the reservation's start
    if subject.is_strict {
        refused(driver.map(base + 3 * granule, 2 * granule, handle)); // over its end
    }
    driver.map(base + granule, 2 * granule, handle).unwrap();
    let other = driver.create(2 * granule, PLAIN).unwrap();
    for address in [base, base + granule, base + 2 * granule] {
        refused(driver.map(address, 2 * granule, other));
    }
    // None of it disturbed the mapping that was made.
    driver.set_access(base + granule, 2 * granule, &[]).unwrap();
    subject.fill(base + granule, 2 * granule, 1);
    subject.expect(base + granule, 2 * granule, 1);
    driver.unmap(base + granule, 2 * granule).unwrap();
    driver.release(handle).unwrap();
    driver.release(other).unwrap();
    driver.unreserve(base, 4 * granule).unwrap();
}

pub(crate) fn aliases_show_the_same_memory(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let (base, handles) = mapped(driver, &[granule]);
    let alias = driver.reserve(3 * granule, 0).unwrap();
    let free_bytes = driver.memory_info().unwrap().free_bytes;
    for place in [alias, alias + 2 * granule] {
        driver.map(place, granule, handles[0]).unwrap();
        driver.set_access(place, granule, &[]).unwrap();
    }
    assert_eq!(driver.memory_info().unwrap().free_bytes, free_bytes, "an alias takes no memory");
    subject.fill(base, granule, 40);
    subject.expect(alias, granule, 40);
    subject.fill(alias + 2 * granule, granule, 41);
    subject.expect(base, granule, 41);
    driver.unmap(base, granule).unwrap();
    subject.expect(alias, granule, 41);
    driver.unmap(alias + 2 * granule, granule).unwrap();
    driver.unmap(alias, granule).unwrap();
    driver.release(handles[0]).unwrap();
    driver.unreserve(alias, 3 * granule).unwrap();
    driver.unreserve(base, granule).unwrap();
}

pub(crate) fn mapped_memory_outlives_its_handle(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let before = driver.memory_info().unwrap().free_bytes;
    let (base, handles) = mapped(driver, &[8 * granule]);
    subject.fill(base, 8 * granule, 5);
    let during = driver.memory_info().unwrap().free_bytes;
    driver.release(handles[0]).unwrap();
    assert_eq!(driver.memory_info().unwrap().free_bytes, during);
    assert!(during < before);
    subject.expect(base, 8 * granule, 5);
    driver.unmap(base, 8 * granule).unwrap();
    assert!(driver.memory_info().unwrap().free_bytes > during);
    driver.unreserve(base, 8 * granule).unwrap();
}

pub(crate) fn memory_moves_with_its_handle(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let (base, handles) = mapped(driver, &[granule, granule]);
    subject.fill(base, granule, 10);
    subject.fill(base + granule, granule, 20);
    driver.unmap(base, 2 * granule).unwrap();
    // The two change places.
    driver.map(base + granule, granule, handles[0]).unwrap();
    driver.map(base, granule, handles[1]).unwrap();
    driver.set_access(base, 2 * granule, &[]).unwrap();
    subject.expect(base, granule, 20);
    subject.expect(base + granule, granule, 10);
    dismantle(driver, base, 2 * granule, &handles);
}

pub(crate) fn access_and_unmapping_concern_whole_mappings(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let sizes = [2 * granule, granule, 3 * granule];
    let (base, handles) = mapped(driver, &sizes);
    subject.fill(base, 6 * granule, 77);
    refused(driver.unmap(base, granule)); // part of the first
    refused(driver.unmap(base + granule, granule)); // its other part
    refused(driver.unmap(base, 4 * granule)); // two and a part
    refused(driver.set_access(base, granule, &[]));
    if subject.is_strict {
        refused(driver.unmap(base, 7 * granule)); // beyond the last
    }
    subject.expect(base, 6 * granule, 77);
    driver.unmap(base + 2 * granule, granule).unwrap();
    if subject.is_strict {
        refused(driver.unmap(base + 2 * granule, granule)); // nothing there any more
        refused(driver.unmap(base, 6 * granule)); // a hole in the middle
        refused(driver.set_access(base, 6 * granule, &[]));
    }
    refused(driver.set_access(base + 2 * granule, granule, &[]));
    subject.expect(base, 2 * granule, 77);
    driver.map(base + 2 * granule, granule, handles[1]).unwrap();
    driver.set_access(base, 6 * granule, &[]).unwrap();
    subject.expect(base, 6 * granule, 77);
    dismantle(driver, base, 6 * granule, &handles);
}

pub(crate) fn reservations_in_use_stay(subject: &Subject) {
    let driver = &*subject.driver;
    let granule = driver.granularity(PLAIN).unwrap();
    let base = driver.reserve(2 * granule, 0).unwrap();
    let handle = driver.create(granule, PLAIN).unwrap();
    driver.map(base + granule, granule, handle).unwrap();
    refused(driver.unreserve(base, 2 * granule));
    driver.set_access(base + granule, granule, &[]).unwrap();
    subject.fill(base + granule, granule, 8);
    subject.expect(base + granule, granule, 8);
    driver.unmap(base + granule, granule).unwrap();
    driver.release(handle).unwrap();
    driver.unreserve(base, 2 * granule).unwrap();
}

pub(crate) fn peers_are_given_access(subject: &Subject) {
    let driver = &*subject.driver;
    assert_eq!(driver.can_access_peer(driver.ordinal()), Ok(true), "its own memory");
    assert!(driver.can_access_peer(DeviceOrdinal(10_000)).is_err());
    let Some(peer) = &subject.peer else { return };
    assert_eq!(peer.can_access_peer(driver.ordinal()), Ok(true));
    let granule = driver.granularity(PLAIN).unwrap().max(peer.granularity(PLAIN).unwrap());
    let (base, handles) = mapped(driver, &[granule, granule]);
    driver.set_access(base, 2 * granule, &[peer.ordinal()]).unwrap();
    subject.fill(base, 2 * granule, 2);
    subject.expect(base, 2 * granule, 2);
    assert_eq!(peer.memory_info().unwrap().free_bytes, peer.memory_info().unwrap().total_bytes);
    dismantle(driver, base, 2 * granule, &handles);
}

/// Every way of sharing, with and without RDMA.
fn every_option() -> impl Iterator<Item = HandleOptions> {
    [Shareable::None, Shareable::PosixFd, Shareable::Fabric, Shareable::PosixFdOrFabric]
        .into_iter()
        .flat_map(|shareable| [false, true].map(|rdma| HandleOptions { shareable, rdma }))
}

/// A reservation filled with accessible mappings of `sizes` bytes, side by side.
fn mapped(driver: &dyn Device, sizes: &[u64]) -> (u64, Vec<MemoryHandle>) {
    let total_bytes = sizes.iter().sum();
    let base = driver.reserve(total_bytes, 0).unwrap();
    let mut address = base;
    let mut handles = Vec::new();
    for &bytes in sizes {
        let handle = driver.create(bytes, PLAIN).unwrap();
        driver.map(address, bytes, handle).unwrap();
        handles.push(handle);
        address += bytes;
    }
    driver.set_access(base, total_bytes, &[]).unwrap();
    (base, handles)
}

fn dismantle(driver: &dyn Device, base: u64, bytes: u64, handles: &[MemoryHandle]) {
    driver.unmap(base, bytes).unwrap();
    for &handle in handles {
        driver.release(handle).unwrap();
    }
    driver.unreserve(base, bytes).unwrap();
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, DriverError>) {
    assert_eq!(answer.unwrap_err().code, Code::INVALID_VALUE);
}

/// Also nothing is left of it. Stand-ins charge an H100's prices, by virtual time.
pub(crate) fn prices_are_measured(subject: &Subject) {
    let prices = Prices::try_out(&*subject.driver).unwrap();
    let text = prices.to_string();
    for call in ["create ", "map ", "set access ", "unmap ", "release "] {
        assert!(text.contains(call), "{text}");
    }
    assert!((-3..=2).contains(&prices.dearness()));
    if subject.peer.is_some() {
        assert!(text.starts_with("create 10.0 µs, map 0.5 µs, set access 77.0 µs"), "{text}");
    }
}
