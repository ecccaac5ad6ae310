//! Tests of the ledger: what is charged and counted, alone and beside other processes.

use std::sync::Mutex;

use super::*;
use crate::base::DeviceOrdinal;
use crate::driver::{Call, Code};
use crate::memory::{Neighbour, Taken, Wanted};
use crate::observe::EventStream;

const REFUSED: DriverError = DriverError { call: Call::Release, code: Code::OUT_OF_MEMORY };

fn ledger(neighbours: Option<Arc<dyn Neighbours>>) -> Ledger {
    Ledger::new(1 << 30, neighbours, EventStream::silent().of(DeviceOrdinal(0)))
}

fn gauge(current: u64, peak: u64, total: u64) -> Gauge {
    Gauge { current, peak, total }
}

/// Other processes that leave so many bytes.
#[derive(Debug)]
struct Others(Mutex<(u64, Option<u64>)>);

impl Neighbours for Others {
    fn charge(&self, bytes: u64) -> bool {
        let left = &mut self.0.lock().unwrap().0;
        let has_room = bytes <= *left;
        *left -= if has_room { bytes } else { 0 };
        has_room
    }

    fn set_limit(&self, bytes: u64) {
        self.0.lock().unwrap().1 = Some(bytes);
    }

    fn refund(&self, bytes: u64) {
        assert!(bytes > 0, "a refund of nothing is a call for nothing");
        self.0.lock().unwrap().0 += bytes;
    }

    fn room_bytes(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    fn list(&self) -> Vec<Neighbour> {
        Vec::new()
    }

    fn ask(&self, _: Wanted, _: &mut dyn FnMut() -> Taken) {}
}

#[test]
fn as_much_is_charged_as_the_limit_allows() {
    let ledger = ledger(None);
    assert_eq!(ledger.total_bytes(), 1 << 30);
    assert_eq!((ledger.allowed_bytes(), ledger.room_bytes()), (u64::MAX, u64::MAX));
    assert_eq!(ledger.shared_room_bytes(), u64::MAX);
    ledger.set_allowed_bytes(100);
    assert_eq!(ledger.allowed_bytes(), 100);
    ledger.charge(60).unwrap();
    assert_eq!(ledger.charge(41), Err(Refusal::Limit));
    assert_eq!(ledger.charge(u64::MAX), Err(Refusal::Limit), "the sum has no number");
    assert_eq!(ledger.room_bytes(), 40);
    ledger.charge(40).unwrap();
    ledger.set_allowed_bytes(30);
    assert_eq!(ledger.room_bytes(), 0, "what is charged stays");
    ledger.refund(80);
    assert_eq!(ledger.room_bytes(), 10);
}

#[test]
fn what_is_held_is_counted_by_class_and_in_all() {
    let ledger = ledger(None);
    let (small, large) = (Some(SizeClass::Small), Some(SizeClass::Large));
    ledger.charge(111).unwrap();
    ledger.count(1, SizeClass::Small, 512);
    ledger.count(10, SizeClass::Large, 1024);
    ledger.count(100, SizeClass::Large, 2048);
    assert_eq!(ledger.reserved_bytes(), 111);
    assert_eq!(ledger.reserved(None), gauge(111, 111, 111));
    assert_eq!(ledger.reserved(small), gauge(1, 1, 1));
    assert_eq!(ledger.reserved(large), gauge(110, 110, 110));
    assert_eq!(ledger.segments(None), gauge(3, 3, 3));
    assert_eq!(ledger.segments(large), gauge(2, 2, 2));

    ledger.set_allowed_bytes(111);
    ledger.release(10, SizeClass::Large, 1024, || Ok(7)).unwrap();
    assert_eq!(ledger.room_bytes(), 7, "as much as came free");
    assert_eq!(ledger.reserved(None), gauge(101, 111, 111));
    assert_eq!(ledger.reserved(large), gauge(100, 110, 110));
    assert_eq!(ledger.segments(large), gauge(1, 2, 2));
    assert_eq!(ledger.release(100, SizeClass::Large, 2048, || Err(REFUSED)), Err(REFUSED));
    assert_eq!(ledger.room_bytes(), 7);
    assert_eq!(ledger.reserved(None), gauge(101, 111, 111), "it is held, and not held anew");
    assert_eq!(ledger.segments(None), gauge(2, 3, 3));
    ledger.reset_peak();
    assert_eq!(ledger.reserved(None), gauge(101, 101, 111));
    assert_eq!(ledger.reserved(large), gauge(100, 100, 110));
    assert_eq!(ledger.segments(None), gauge(2, 2, 3));
    assert_eq!(ledger.segments(large), gauge(1, 1, 2));

    ledger.reclassify(100, SizeClass::Large, SizeClass::Large);
    assert_eq!(ledger.reserved(large), gauge(100, 100, 110));
    ledger.reclassify(100, SizeClass::Large, SizeClass::Small);
    assert_eq!(ledger.reserved(large), gauge(0, 100, 110));
    assert_eq!(ledger.reserved(small), gauge(101, 101, 1));
    assert_eq!(ledger.segments(large), gauge(0, 1, 2));
    assert_eq!(ledger.segments(small), gauge(2, 2, 1));
    assert_eq!(ledger.reserved(None), gauge(101, 101, 111), "nothing came or went");
}

#[test]
fn other_processes_are_asked_and_told() {
    let others = Arc::new(Others(Mutex::new((50, None))));
    let ledger = ledger(Some(Arc::clone(&others) as Arc<dyn Neighbours>));
    assert!(ledger.neighbours().is_some());
    ledger.set_allowed_bytes(90);
    assert_eq!(others.0.lock().unwrap().1, Some(90));
    ledger.charge(30).unwrap();
    assert_eq!((ledger.shared_room_bytes(), ledger.room_bytes()), (20, 60));
    assert_eq!(ledger.charge(21), Err(Refusal::Limit));
    assert_eq!(ledger.room_bytes(), 60, "what others refuse is not charged here");
    assert_eq!(ledger.charge(61), Err(Refusal::Limit));
    assert_eq!(ledger.shared_room_bytes(), 20, "what the limit refuses, they are not asked for");
    ledger.refund(0);
    ledger.refund(30);
    assert_eq!((ledger.shared_room_bytes(), ledger.room_bytes()), (50, 90));
}
