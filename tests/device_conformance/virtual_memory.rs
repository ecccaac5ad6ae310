//! Reservations, handles, mappings and access.

use genesis::base::DeviceOrdinal;
use genesis::driver::{Code, Device, DriverError, HandleOptions, Handles, MemoryHandle, Shareable};

use crate::subject::{PLAIN, Subject};

pub(crate) fn granularity_is_a_power_of_two(subject: &Subject) {
    let granule = subject.device.granularity(PLAIN).unwrap();
    assert!(granule.is_power_of_two() && granule >= 4096);
    assert_eq!(subject.device.granularity(PLAIN), Ok(granule));
}

pub(crate) fn reservations_are_aligned_and_disjoint(subject: &Subject) {
    let device = &subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let free_bytes = device.memory_info().unwrap().free_bytes;
    let total_bytes = device.memory_info().unwrap().total_bytes;
    let mut ranges = Vec::new();
    for (granules, alignment_granules) in [(1, 0), (3, 1), (1, 16), (7, 4), (1, 0)] {
        let alignment_bytes = alignment_granules * granule;
        let address = device.reserve(granules * granule, alignment_bytes).unwrap();
        assert_eq!(address % granule.max(alignment_bytes), 0);
        ranges.push((address, granules * granule));
    }
    // More address space than memory is the point of it.
    let large_bytes = (2 * total_bytes).next_multiple_of(granule);
    ranges.push((device.reserve(large_bytes, 0).unwrap(), large_bytes));
    assert_eq!(device.memory_info().unwrap().free_bytes, free_bytes);
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
    }
    for (address, bytes) in ranges {
        device.unreserve(address, bytes).unwrap();
    }
}

pub(crate) fn wrong_reservations_are_refused(subject: &Subject) {
    let device = &subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    for (bytes, alignment_bytes) in [(0, 0), (granule + 512, 0), (granule, 3 * granule)] {
        refused(device.reserve(bytes, alignment_bytes));
    }
    assert!(device.reserve(1 << 50, 0).unwrap_err().is_out_of_memory());
    let address = device.reserve(2 * granule, 0).unwrap();
    refused(device.unreserve(address, granule));
    refused(device.unreserve(address + granule, granule));
    refused(device.unreserve(address, 3 * granule));
    device.unreserve(address, 2 * granule).unwrap();
    refused(device.unreserve(address, 2 * granule));
}

pub(crate) fn handles_take_memory_until_released(subject: &Subject) {
    let device = &subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let before = device.memory_info().unwrap();
    let handles: Vec<_> = (0..64).map(|_| device.create(granule, PLAIN).unwrap()).collect();
    for (index, handle) in handles.iter().enumerate() {
        assert!(!handles[..index].contains(handle), "{handle:?} given out twice");
    }
    let during = device.memory_info().unwrap();
    assert!(during.free_bytes < before.free_bytes);
    assert_eq!(during.total_bytes, before.total_bytes);
    let error = device.create(before.total_bytes.next_multiple_of(granule), PLAIN).unwrap_err();
    assert!(error.is_out_of_memory());
    for handle in handles {
        device.release(handle).unwrap();
    }
    assert!(device.memory_info().unwrap().free_bytes > during.free_bytes);
}

pub(crate) fn wrong_handle_sizes_are_refused(subject: &Subject) {
    let device = &subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    for bytes in [0, 512, granule - 1, granule + 512] {
        refused(device.create(bytes, PLAIN));
    }
}

pub(crate) fn options_are_given_or_refused(subject: &Subject) {
    let device = &*subject.device;
    let plain_granule = device.granularity(PLAIN).unwrap();
    for options in every_option() {
        let promised = device.granularity(options);
        if let Ok(granule) = promised {
            assert!(granule.is_power_of_two());
            assert_eq!(device.granularity(options), Ok(granule), "{options:?}");
        }
        let granule = promised.unwrap_or(plain_granule).max(plain_granule);
        match device.create(granule, options) {
            Ok(handle) => {
                assert!(promised.is_ok(), "{options:?}");
                let base = device.reserve(granule, granule).unwrap();
                device.map(base, granule, handle).unwrap();
                device.set_access(base, granule, &[]).unwrap();
                subject.fill(base, granule, 6);
                subject.expect(base, granule, 6);
                dismantle(device, base, granule, &[handle]);
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
    let device = &*subject.device;
    for wished in every_option() {
        let handles = Handles::open(subject.device.clone(), wished).unwrap();
        let granule = handles.granularity_bytes();
        assert_eq!(granule % device.granularity(PLAIN).unwrap(), 0);
        let created = [(); 2].map(|()| handles.create(granule).unwrap());
        let given = handles.options();
        assert!(given.shareable == wished.shareable || given.shareable == Shareable::None);
        assert!(wished.rdma || !given.rdma);
        // What was given is what the device gives when it is asked for it alone.
        device.release(device.create(granule, given).unwrap()).unwrap();
        let base = device.reserve(2 * granule, granule).unwrap();
        for (place, handle) in [base, base + granule].into_iter().zip(created) {
            device.map(place, granule, handle).unwrap();
        }
        device.set_access(base, 2 * granule, &[]).unwrap();
        dismantle(device, base, 2 * granule, &created);
    }
}

pub(crate) fn wrong_mappings_are_refused(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let base = device.reserve(4 * granule, 0).unwrap();
    let handle = device.create(2 * granule, PLAIN).unwrap();
    for (address, bytes) in [
        (base, granule),                   // part of the handle
        (base, 4 * granule),               // more than the handle
        (base + granule / 2, 2 * granule), // not aligned
        (base + 3 * granule, 2 * granule), // over the end of the reservation
        (base - granule, 2 * granule),     // over its start
    ] {
        refused(device.map(address, bytes, handle));
    }
    device.map(base + granule, 2 * granule, handle).unwrap();
    let other = device.create(2 * granule, PLAIN).unwrap();
    for address in [base, base + granule, base + 2 * granule] {
        refused(device.map(address, 2 * granule, other));
    }
    // None of it disturbed the mapping that was made.
    device.set_access(base + granule, 2 * granule, &[]).unwrap();
    subject.fill(base + granule, 2 * granule, 1);
    subject.expect(base + granule, 2 * granule, 1);
    device.unmap(base + granule, 2 * granule).unwrap();
    device.release(handle).unwrap();
    device.release(other).unwrap();
    device.unreserve(base, 4 * granule).unwrap();
}

pub(crate) fn aliases_show_the_same_memory(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let (base, handles) = mapped(device, &[granule]);
    let alias = device.reserve(3 * granule, 0).unwrap();
    let free_bytes = device.memory_info().unwrap().free_bytes;
    for place in [alias, alias + 2 * granule] {
        device.map(place, granule, handles[0]).unwrap();
        device.set_access(place, granule, &[]).unwrap();
    }
    assert_eq!(device.memory_info().unwrap().free_bytes, free_bytes, "an alias takes no memory");
    subject.fill(base, granule, 40);
    subject.expect(alias, granule, 40);
    subject.fill(alias + 2 * granule, granule, 41);
    subject.expect(base, granule, 41);
    device.unmap(base, granule).unwrap();
    subject.expect(alias, granule, 41);
    device.unmap(alias + 2 * granule, granule).unwrap();
    device.unmap(alias, granule).unwrap();
    device.release(handles[0]).unwrap();
    device.unreserve(alias, 3 * granule).unwrap();
    device.unreserve(base, granule).unwrap();
}

pub(crate) fn mapped_memory_outlives_its_handle(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let before = device.memory_info().unwrap().free_bytes;
    let (base, handles) = mapped(device, &[8 * granule]);
    subject.fill(base, 8 * granule, 5);
    let during = device.memory_info().unwrap().free_bytes;
    device.release(handles[0]).unwrap();
    assert_eq!(device.memory_info().unwrap().free_bytes, during);
    assert!(during < before);
    subject.expect(base, 8 * granule, 5);
    device.unmap(base, 8 * granule).unwrap();
    assert!(device.memory_info().unwrap().free_bytes > during);
    device.unreserve(base, 8 * granule).unwrap();
}

pub(crate) fn memory_moves_with_its_handle(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let (base, handles) = mapped(device, &[granule, granule]);
    subject.fill(base, granule, 10);
    subject.fill(base + granule, granule, 20);
    device.unmap(base, 2 * granule).unwrap();
    // The two change places.
    device.map(base + granule, granule, handles[0]).unwrap();
    device.map(base, granule, handles[1]).unwrap();
    device.set_access(base, 2 * granule, &[]).unwrap();
    subject.expect(base, granule, 20);
    subject.expect(base + granule, granule, 10);
    dismantle(device, base, 2 * granule, &handles);
}

pub(crate) fn access_and_unmapping_concern_whole_mappings(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let sizes = [2 * granule, granule, 3 * granule];
    let (base, handles) = mapped(device, &sizes);
    subject.fill(base, 6 * granule, 77);
    refused(device.unmap(base, granule)); // part of the first
    refused(device.unmap(base + granule, granule)); // its other part
    refused(device.unmap(base, 4 * granule)); // two and a part
    refused(device.unmap(base, 7 * granule)); // beyond the last
    subject.expect(base, 6 * granule, 77);
    device.unmap(base + 2 * granule, granule).unwrap();
    refused(device.unmap(base + 2 * granule, granule)); // nothing there any more
    refused(device.unmap(base, 6 * granule)); // a hole in the middle
    refused(device.set_access(base, 6 * granule, &[]));
    refused(device.set_access(base + 2 * granule, granule, &[]));
    subject.expect(base, 2 * granule, 77);
    device.map(base + 2 * granule, granule, handles[1]).unwrap();
    device.set_access(base, 6 * granule, &[]).unwrap();
    subject.expect(base, 6 * granule, 77);
    dismantle(device, base, 6 * granule, &handles);
}

pub(crate) fn reservations_in_use_stay(subject: &Subject) {
    let device = &*subject.device;
    let granule = device.granularity(PLAIN).unwrap();
    let base = device.reserve(2 * granule, 0).unwrap();
    let handle = device.create(granule, PLAIN).unwrap();
    device.map(base + granule, granule, handle).unwrap();
    refused(device.unreserve(base, 2 * granule));
    device.set_access(base + granule, granule, &[]).unwrap();
    subject.fill(base + granule, granule, 8);
    subject.expect(base + granule, granule, 8);
    device.unmap(base + granule, granule).unwrap();
    device.release(handle).unwrap();
    device.unreserve(base, 2 * granule).unwrap();
}

pub(crate) fn peers_are_given_access(subject: &Subject) {
    let device = &*subject.device;
    assert_eq!(device.can_access_peer(device.ordinal()), Ok(true), "its own memory");
    assert!(device.can_access_peer(DeviceOrdinal(10_000)).is_err());
    let Some(peer) = &subject.peer else { return };
    assert_eq!(peer.can_access_peer(device.ordinal()), Ok(true));
    let granule = device.granularity(PLAIN).unwrap().max(peer.granularity(PLAIN).unwrap());
    let (base, handles) = mapped(device, &[granule, granule]);
    device.set_access(base, 2 * granule, &[peer.ordinal()]).unwrap();
    subject.fill(base, 2 * granule, 2);
    subject.expect(base, 2 * granule, 2);
    assert_eq!(peer.memory_info().unwrap().free_bytes, peer.memory_info().unwrap().total_bytes);
    dismantle(device, base, 2 * granule, &handles);
}

/// Every way of sharing, with and without RDMA.
fn every_option() -> impl Iterator<Item = HandleOptions> {
    [Shareable::None, Shareable::PosixFd, Shareable::Fabric]
        .into_iter()
        .flat_map(|shareable| [false, true].map(|rdma| HandleOptions { shareable, rdma }))
}

/// A reservation filled with accessible mappings of `sizes` bytes, side by side.
fn mapped(device: &dyn Device, sizes: &[u64]) -> (u64, Vec<MemoryHandle>) {
    let total_bytes = sizes.iter().sum();
    let base = device.reserve(total_bytes, 0).unwrap();
    let mut address = base;
    let mut handles = Vec::new();
    for &bytes in sizes {
        let handle = device.create(bytes, PLAIN).unwrap();
        device.map(address, bytes, handle).unwrap();
        handles.push(handle);
        address += bytes;
    }
    device.set_access(base, total_bytes, &[]).unwrap();
    (base, handles)
}

fn dismantle(device: &dyn Device, base: u64, bytes: u64, handles: &[MemoryHandle]) {
    device.unmap(base, bytes).unwrap();
    for &handle in handles {
        device.release(handle).unwrap();
    }
    device.unreserve(base, bytes).unwrap();
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, DriverError>) {
    assert_eq!(answer.unwrap_err().code, Code::INVALID_VALUE);
}
