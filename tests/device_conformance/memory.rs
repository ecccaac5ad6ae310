//! Plain allocations, memory information, pinned host memory.

use genesis::driver::{Call, Code};

use crate::subject::{Subject, has_pattern, write_pattern};

pub(crate) fn describes_itself(subject: &Subject) {
    let driver = &subject.driver;
    assert_eq!(driver.ordinal().index(), 0);
    assert!(!driver.name().is_empty());
    let info = driver.memory_info().unwrap();
    assert!(info.total_bytes > 0 && info.free_bytes <= info.total_bytes);
}

pub(crate) fn allocations_are_aligned_and_disjoint(subject: &Subject) {
    let driver = &subject.driver;
    let sizes = [1, 255, 256, 257, 512, 4096, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1];
    let mut live: Vec<(u64, u64)> = Vec::new();
    for round in 0..3 {
        for bytes in sizes {
            let address = driver.allocate(bytes).unwrap();
            assert_eq!(address % 256, 0, "{address:#x}");
            assert!(address > 0);
            live.push((address, bytes));
        }
        live.sort_unstable();
        for pair in live.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
        }
        // After every second one is freed, new ones reuse the room without overlap.
        let doomed: Vec<_> = live.iter().skip(round % 2).step_by(2).copied().collect();
        live.retain(|kept| !doomed.contains(kept));
        for (address, _) in doomed {
            driver.free(address).unwrap();
        }
    }
    for (address, _) in live {
        driver.free(address).unwrap();
    }
}

pub(crate) fn allocations_hold_bytes(subject: &Subject) {
    let driver = &subject.driver;
    let live: Vec<(u64, u64)> = [100, 512, 5000, 3 << 20, 1 << 20, 7]
        .into_iter()
        .map(|bytes| (driver.allocate(bytes).unwrap(), bytes))
        .collect();
    for (seed, &(address, bytes)) in live.iter().enumerate() {
        subject.fill(address, bytes, seed as u8);
    }
    for (seed, &(address, bytes)) in live.iter().enumerate() {
        subject.expect(address, bytes, seed as u8);
        driver.free(address).unwrap();
    }
}

pub(crate) fn shortage_is_reported_and_harmless(subject: &Subject) {
    let driver = &subject.driver;
    let total_bytes = driver.memory_info().unwrap().total_bytes;
    let held = driver.allocate(1 << 20).unwrap();
    subject.fill(held, 1 << 20, 3);
    for bytes in [total_bytes, total_bytes + 1, 1 << 46] {
        let error = driver.allocate(bytes).unwrap_err();
        assert!(error.is_out_of_memory(), "{bytes} bytes: {error}");
        assert_eq!(error.call, Call::Allocate);
    }
    let error = driver.allocate(0).unwrap_err();
    assert_eq!(error.code, Code::INVALID_VALUE);
    subject.expect(held, 1 << 20, 3);
    let next = driver.allocate(1 << 20).unwrap();
    assert_ne!(next, held);
    driver.free(next).unwrap();
    driver.free(held).unwrap();
}

pub(crate) fn only_exact_addresses_are_freed(subject: &Subject) {
    let driver = &subject.driver;
    for bytes in [4096, 4 << 20] {
        let address = driver.allocate(bytes).unwrap();
        subject.fill(address, bytes, 9);
        for wrong in [address + 512, address + bytes / 2, 0x1000] {
            let error = driver.free(wrong).unwrap_err();
            assert_eq!((error.call, error.code), (Call::Free, Code::INVALID_VALUE));
        }
        subject.expect(address, bytes, 9);
        driver.free(address).unwrap();
        assert_eq!(driver.free(address).unwrap_err().code, Code::INVALID_VALUE);
    }
}

pub(crate) fn calls_are_counted(subject: &Subject) {
    let driver = &subject.driver;
    // The first call may have to start the device, which is counted too.
    driver.memory_info().unwrap();
    let before = driver.usage();
    let began_ns = driver.clock_ns();
    for _ in 0..3 {
        let address = driver.allocate(1 << 20).unwrap();
        driver.free(address).unwrap();
    }
    assert!(driver.clock_ns() > began_ns, "calls take time by the device's clock");
    let event = driver.event_create().unwrap();
    assert!(driver.event_query(event).unwrap());
    driver.event_destroy(event).unwrap();
    driver.memory_info().unwrap();
    let after = driver.usage();
    let made = |call: Call| after.calls[call as usize] - before.calls[call as usize];
    for (call, count) in [
        (Call::Allocate, 3),
        (Call::Free, 3),
        (Call::EventCreate, 1),
        (Call::EventQuery, 1),
        (Call::EventDestroy, 1),
        (Call::MemoryInfo, 1),
        (Call::Create, 0),
    ] {
        assert_eq!(made(call), count, "{}", call.name());
    }
    assert_eq!(after.total_calls() - before.total_calls(), 10);
    assert!(after.nanoseconds > before.nanoseconds);
}

pub(crate) fn pinned_host_memory(subject: &Subject) {
    let driver = &subject.driver;
    let live: Vec<(u64, u64)> = [1, 4096, 100_000]
        .into_iter()
        .map(|bytes| (driver.host_allocate(bytes).unwrap(), bytes))
        .collect();
    for (seed, &(address, bytes)) in live.iter().enumerate() {
        assert_ne!(address, 0);
        if subject.host_bytes {
            write_pattern(address, bytes, seed as u8);
        }
    }
    for (seed, &(address, bytes)) in live.iter().enumerate() {
        if subject.host_bytes {
            assert!(has_pattern(address, bytes, seed as u8));
        }
        driver.host_free(address).unwrap();
    }
    assert_eq!(driver.host_free(0x1000).unwrap_err().code, Code::INVALID_VALUE);
}
