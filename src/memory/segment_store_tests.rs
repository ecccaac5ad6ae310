//! Tests of segments: what is charged for them, and what comes of addresses that cannot be used.

use std::sync::Mutex;

use simgpu::{Config, Machine, StoreKind};

use super::*;
use crate::base::DeviceOrdinal;
use crate::driver::simulated::SimulatedDevice;
use crate::observe::EventStream;

const STREAM: StreamHandle = StreamHandle(0xA000);

fn house() -> (Arc<Machine>, Arc<dyn Device>, Ledger) {
    let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 1, 1 << 30)).unwrap();
    let driver = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
    let ledger = Ledger::new(1 << 30, None, EventStream::silent().of(DeviceOrdinal(0)));
    ledger.set_allowed_bytes(1 << 30);
    (machine, driver, ledger)
}

/// A source whose next segment is at an address that the test decides; and what came back.
#[derive(Debug, Default)]
struct Decided {
    next: Mutex<Option<u64>>,
    back: Mutex<Vec<(u64, u64)>>,
}

impl SegmentSource for Decided {
    fn allocate(&self, _: u64, stream: StreamHandle) -> Option<u64> {
        assert_eq!(stream, STREAM);
        *self.next.lock().unwrap()
    }

    fn free(&self, address: u64, bytes: u64) {
        self.back.lock().unwrap().push((address, bytes));
    }
}

#[test]
fn small_segments_of_one_page_are_charged_as_one_page() {
    let (_, driver, ledger) = house();
    let page_bytes = driver.page_bytes();
    let store = SegmentStore::new(driver);
    assert!(!store.has_source() && !store.is_managed());
    let room_bytes = ledger.room_bytes();
    let size = (page_bytes / 4, SizeClass::Small);
    let segments = [(); 4].map(|()| store.acquire(&ledger, size, STREAM).unwrap());
    assert_eq!(store.charged_bytes(size.0), page_bytes);
    assert_eq!(room_bytes - ledger.room_bytes(), page_bytes);
    let large = store.acquire(&ledger, (page_bytes, SizeClass::Large), STREAM).unwrap();
    let next = store.acquire(&ledger, (page_bytes, SizeClass::Large), STREAM).unwrap();
    assert_eq!(room_bytes - ledger.room_bytes(), 3 * page_bytes, "whole pages of their own");
    assert_eq!(ledger.reserved_bytes(), 3 * page_bytes);
    for (segment, left) in segments.into_iter().zip([3, 3, 3, 2]) {
        store.release(&ledger, segment).unwrap();
        assert_eq!(room_bytes - ledger.room_bytes(), left * page_bytes, "with its last segment");
    }
    store.release(&ledger, large).unwrap();
    store.release(&ledger, next).unwrap();
    assert_eq!((ledger.room_bytes(), ledger.reserved_bytes()), (room_bytes, 0));
}

#[test]
fn managed_memory_is_asked_for_as_such() {
    let (machine, driver, ledger) = house();
    let store = SegmentStore::managed(driver);
    assert!(store.is_managed() && !store.has_source());
    let segment = store.acquire(&ledger, (4 << 20, SizeClass::Large), STREAM).unwrap();
    assert_eq!(machine.usage(0).unwrap().count(simgpu::Call::AllocateManaged), 1);
    store.release(&ledger, segment).unwrap();
    assert_eq!(machine.usage(0).unwrap().count(simgpu::Call::Free), 1);
}

#[test]
fn addresses_that_cannot_be_used_go_back_to_their_source() {
    let (machine, driver, ledger) = house();
    let source = Arc::new(Decided::default());
    let store = SegmentStore::with_source(driver, Arc::clone(&source) as Arc<dyn SegmentSource>);
    assert!(store.has_source() && !store.is_managed());
    let room_bytes = ledger.room_bytes();
    let size = (4096, SizeClass::Small);
    assert_eq!(store.acquire(&ledger, size, STREAM), Err(Refusal::Driver(SHORT)));
    for address in [0, 256, 1 << 57] {
        *source.next.lock().unwrap() = Some(address);
        let refused = DriverError { call: Call::Allocate, code: Code::NOT_SUPPORTED };
        assert_eq!(store.acquire(&ledger, size, STREAM), Err(Refusal::Driver(refused)));
        assert_eq!(source.back.lock().unwrap().pop(), Some((address, 4096)));
        assert_eq!((ledger.room_bytes(), ledger.reserved_bytes()), (room_bytes, 0));
    }
    *source.next.lock().unwrap() = Some(512);
    let segment = store.acquire(&ledger, size, STREAM).unwrap();
    assert_eq!(segment, Segment { address: 512, bytes: 4096, class: SizeClass::Small });
    assert_eq!(*source.back.lock().unwrap(), []);
    store.release(&ledger, segment).unwrap();
    assert_eq!(*source.back.lock().unwrap(), [(512, 4096)]);
    let usage = machine.usage(0).unwrap();
    assert_eq!((usage.count(simgpu::Call::Allocate), usage.count(simgpu::Call::Free)), (0, 0));
}
