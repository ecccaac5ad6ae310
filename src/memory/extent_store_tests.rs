//! Tests of the store of extents: what the driver is asked, who may access what is mapped, and who
//! is told of it.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use simgpu::{Config, Machine, StoreKind, Target, Times, Work};

use super::*;
use crate::driver::simulated::SimulatedDevice;
use crate::memory::Registrar;
use crate::observe::EventStream;

const STREAM: usize = 0xA000;
const UNKNOWN: simgpu::Code = simgpu::Code(12345);

struct House {
    machine: Arc<Machine>,
    driver: Arc<dyn Device>,
    store: ExtentStore,
    ledger: Ledger,
    granule_bytes: u64,
}

/// The store of the second of three devices.
fn house() -> House {
    let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 3, 1 << 30)).unwrap();
    let driver: Arc<dyn Device> = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 1));
    let events = || EventStream::silent().of(DeviceOrdinal(1));
    let store = ExtentStore::open(Arc::clone(&driver), HandleOptions::default(), events());
    let (store, ledger) = (store.unwrap().unwrap(), Ledger::new(1 << 30, None, events()));
    let granule_bytes = store.granule_bytes();
    House { machine, driver, store, ledger, granule_bytes }
}

impl House {
    /// Maps a new extent of a granule at `address`.
    fn map(&self, address: u64, made_for: Option<&Arc<Communication>>) -> (ExtentId, bool) {
        let size = (self.granule_bytes, SizeClass::Small);
        let id = self.store.create(&self.ledger, size, made_for).unwrap();
        (id, self.store.map(&[id], 0, address).is_ok())
    }

    /// Which of the devices may access `address`.
    fn who_may(&self, address: u64) -> Vec<u32> {
        let may = |&device: &u32| {
            let work = Work::write(address, 512, "");
            self.machine.copy_touch(device, STREAM + device as usize, work).is_ok()
        };
        (0..3).filter(may).collect()
    }

    fn created(&self) -> u64 {
        self.machine.usage(1).unwrap().count(simgpu::Call::Create)
    }
}

#[test]
fn what_is_mapped_is_counted_and_goes_again() {
    let house = house();
    let granule_bytes = house.granule_bytes;
    assert!(granule_bytes > 512 && house.store.options() == HandleOptions::default());
    let address = house.store.reserve(4 * granule_bytes, 0).unwrap();
    assert_eq!(house.machine.census().reserved_bytes, 4 * granule_bytes);
    let sizes = [granule_bytes, 2 * granule_bytes].map(|bytes| (bytes, SizeClass::Large));
    let ids = sizes.map(|size| house.store.create(&house.ledger, size, None).unwrap());
    assert_eq!(house.ledger.reserved_bytes(), 3 * granule_bytes);
    house.store.map(&ids, 7, address).unwrap();
    assert_eq!(house.store.extents().at(address + granule_bytes), Some(ids[1]));
    for at in [address, address + granule_bytes, address + 2 * granule_bytes] {
        assert_eq!(house.who_may(at), [1]);
    }
    house.machine.run_device_to_idle(1).unwrap();
    house.store.unmap(ids[0], address).unwrap();
    house.store.unmap(ids[1], address + granule_bytes).unwrap();
    assert_eq!(house.store.extents().at(address), None);
    ids.iter().for_each(|&id| house.store.destroy(&house.ledger, id).unwrap());
    assert_eq!((house.ledger.reserved_bytes(), house.store.extents().count()), (0, 0));
    house.store.unreserve(address, 4 * granule_bytes).unwrap();
    assert_eq!(house.machine.census().reserved_bytes, 0);
}

#[test]
fn an_extent_that_the_driver_keeps_serves_the_next_need_of_its_size() {
    let house = house();
    let (small, large) = (house.granule_bytes, 2 * house.granule_bytes);
    let create = |bytes| house.store.create(&house.ledger, (bytes, SizeClass::Small), None);
    let id = create(small).unwrap();
    house.machine.faults().fail(Target::call(simgpu::Call::Release), 1, Times::Once, UNKNOWN);
    assert!(house.store.destroy(&house.ledger, id).is_err());
    assert_eq!((house.store.resting_bytes(), house.ledger.reserved_bytes()), (small, small));
    assert_ne!(create(large), Ok(id));
    assert_eq!((house.store.resting_bytes(), house.created()), (small, 2));
    assert_eq!(create(small), Ok(id));
    assert_eq!((house.store.resting_bytes(), house.created()), (0, 2));
    // A refusal leaves nothing charged.
    let held_bytes = house.ledger.reserved_bytes();
    house.machine.faults().fail(Target::call(simgpu::Call::Create), 1, Times::Once, UNKNOWN);
    assert!(create(small).is_err());
    house.ledger.set_allowed_bytes(held_bytes + small);
    assert_eq!(house.ledger.room_bytes(), small);
}

#[test]
fn a_peer_may_access_what_is_and_what_comes() {
    let house = house();
    let address = house.store.reserve(4 * house.granule_bytes, 0).unwrap();
    assert!(house.map(address, None).1);
    assert_eq!(house.who_may(address), [1]);
    house.machine.faults().fail(Target::call(simgpu::Call::SetAccess), 1, Times::Once, UNKNOWN);
    assert!(house.store.add_peer(DeviceOrdinal(2)).is_err());
    assert_eq!(house.store.peers(), []);
    house.store.add_peer(DeviceOrdinal(2)).unwrap();
    assert_eq!(house.who_may(address), [1, 2]);
    assert!(house.map(address + house.granule_bytes, None).1);
    assert_eq!(house.who_may(address + house.granule_bytes), [1, 2]);
    house.store.add_peer(DeviceOrdinal(2)).unwrap();
    assert_eq!(house.store.peers(), [DeviceOrdinal(2)], "once");
    assert!(house.store.add_peer(DeviceOrdinal(64)).is_err(), "too many");
}

/// What it was told, in order; and whether it refuses.
#[derive(Debug, Default)]
struct Told {
    calls: Mutex<Vec<(bool, u64, u64)>>,
    refuses: AtomicBool,
}

impl Registrar for Told {
    fn register(&self, address: u64, bytes: u64) -> bool {
        self.calls.lock().unwrap().push((true, address, bytes));
        !self.refuses.load(Relaxed)
    }

    fn deregister(&self, address: u64, bytes: u64) {
        self.calls.lock().unwrap().push((false, address, bytes));
    }
}

#[test]
fn those_who_reach_memory_by_its_address_are_told() {
    let house = house();
    let told = Arc::new(Told::default());
    let registrar = Some(Arc::clone(&told) as Arc<dyn Registrar>);
    let made_for = Arc::new(Communication::open(&house.driver, registrar).unwrap());
    assert_eq!(made_for.peers(), [0, 2].map(DeviceOrdinal));
    let granule_bytes = house.granule_bytes;
    let address = house.store.reserve(4 * granule_bytes, 0).unwrap();
    let (id, is_mapped) = house.map(address, Some(&made_for));
    assert!(is_mapped);
    assert_eq!(house.who_may(address), [0, 1, 2]);
    assert!(house.map(address + granule_bytes, None).1);
    assert_eq!(house.who_may(address + granule_bytes), [1], "it was made for nobody");
    house.machine.run_device_to_idle(1).unwrap();
    house.store.unmap(id, address).unwrap();
    let all = [(true, address, granule_bytes), (false, address, granule_bytes)];
    assert_eq!(std::mem::take(&mut *told.calls.lock().unwrap()), all);

    told.refuses.store(true, Relaxed);
    let at = address + 2 * granule_bytes;
    let (refused, is_mapped) = house.map(at, Some(&made_for));
    assert!(!is_mapped && !house.store.extents().has_views(refused));
    assert_eq!(
        *told.calls.lock().unwrap(),
        [(true, at, granule_bytes)],
        "not registered: not told"
    );
    let (alone, is_mapped) = {
        let nobody = Arc::new(Communication::open(&house.driver, None).unwrap());
        house.map(at, Some(&nobody))
    };
    assert!(is_mapped && house.store.extents().has_views(alone), "nobody has to agree");
}
