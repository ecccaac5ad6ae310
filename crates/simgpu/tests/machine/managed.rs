//! Managed memory: where its pages are, what is refused, and what it costs.

use std::sync::Arc;

use simgpu::{
    Advice, Call, CaptureMode, Census, Code, Config, Machine, ManagedAccess, Progress, StoreKind,
    Violation, Work,
};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;
const CAPACITY: u64 = 16 * MIB;
const STREAM: usize = 0xA0;
const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];

fn config(store: StoreKind) -> Config {
    let mut config = Config::new(store, 2, CAPACITY);
    config.detect_races = true;
    config
}

fn machine(store: StoreKind) -> Arc<Machine> {
    Machine::new(config(store)).unwrap()
}

fn write(machine: &Machine, device: u32, address: u64, bytes: u64) {
    machine.touch(device, STREAM + device as usize, Work::write(address, bytes, "test")).unwrap();
    machine.synchronize(device).unwrap();
}

fn finish(machine: &Machine) {
    machine.validate().unwrap();
    assert_eq!(machine.census(), Census::default());
    assert_eq!(machine.take_violations(), []);
}

#[test]
fn pages_come_where_they_are_touched_and_the_oldest_go() {
    for store in STORES {
        let machine = machine(store);
        let address = machine.allocate_managed(0, 2 * CAPACITY).unwrap();
        assert_eq!(machine.used_bytes(0).unwrap(), 0, "nothing was touched");
        write(&machine, 0, address, CAPACITY);
        assert_eq!(machine.managed_bytes(Some(0)), CAPACITY);
        let first = machine.usage(0).unwrap().paging;
        assert_eq!((first.faults, first.evicted_bytes), (6 * 8, 0));
        write(&machine, 0, address, PAGE);
        assert_eq!(machine.usage(0).unwrap().paging.faults, first.faults, "it is there");
        // The first page was used last, so the second is the oldest.
        write(&machine, 0, address + CAPACITY, PAGE);
        let later = machine.usage(0).unwrap().paging;
        assert_eq!((later.evicted_bytes, machine.managed_bytes(None)), (PAGE, PAGE));
        write(&machine, 0, address, PAGE);
        assert_eq!(machine.usage(0).unwrap().paging.faults, later.faults, "it had stayed");
        write(&machine, 0, address + PAGE, PAGE);
        let back = machine.usage(0).unwrap().paging;
        assert_eq!((back.faults - later.faults, back.arrived_bytes), (6, PAGE));
        assert!(back.nanoseconds > later.nanoseconds);
        machine.validate().unwrap();
        machine.free(0, address).unwrap();
        finish(&machine);
    }
}

#[test]
fn other_memory_evicts_pages_and_is_never_evicted() {
    for store in STORES {
        let machine = machine(store);
        let managed = machine.allocate_managed(0, CAPACITY).unwrap();
        write(&machine, 0, managed, CAPACITY);
        assert_eq!(machine.memory_info(0).unwrap().free_bytes, 0);
        let plain = machine.allocate(0, CAPACITY - PAGE).unwrap();
        assert_eq!(machine.managed_bytes(Some(0)), PAGE);
        let handle = machine.create(0, PAGE).unwrap();
        assert_eq!(machine.managed_bytes(Some(0)), 0);
        assert_eq!(machine.allocate(0, PAGE), Err(Code::OUT_OF_MEMORY));
        // Nothing can be evicted for it, so it is reached on the host.
        write(&machine, 0, managed, PAGE);
        assert_eq!(machine.managed_bytes(None), CAPACITY);
        machine.release(0, handle).unwrap();
        machine.free(0, plain).unwrap();
        machine.free(0, managed).unwrap();
        finish(&machine);
    }
}

#[test]
fn advice_says_where_pages_are() {
    let machine = machine(StoreKind::AddressesOnly);
    let address = machine.allocate_managed(0, 4 * PAGE).unwrap();
    let at = |page: u64| (address + page * PAGE, PAGE);
    machine.advise(0, at(0), Advice::PreferredLocation(true), None).unwrap();
    write(&machine, 0, address, PAGE);
    assert_eq!(machine.managed_bytes(None), PAGE, "it is new, and where it should be");
    // A page that device 1 has stays there for a device that was said to access it.
    write(&machine, 1, address + PAGE, PAGE);
    machine.advise(0, at(1), Advice::AccessedBy(true), Some(0)).unwrap();
    let faults = machine.usage(0).unwrap().paging.faults;
    write(&machine, 0, address + PAGE, PAGE);
    assert_eq!(machine.managed_bytes(Some(1)), PAGE);
    assert_eq!(machine.usage(0).unwrap().paging.faults, faults);
    machine.advise(0, at(1), Advice::AccessedBy(false), Some(0)).unwrap();
    write(&machine, 0, address + PAGE, PAGE);
    assert_eq!((machine.managed_bytes(Some(1)), machine.managed_bytes(Some(0))), (0, PAGE));
    machine.host_touch(address + PAGE, PAGE, simgpu::Access::Read, "host");
    assert_eq!(machine.managed_bytes(Some(0)), 0, "the host reads it");
    machine.free(0, address).unwrap();
    finish(&machine);
}

#[test]
fn a_prefetch_is_work_of_its_stream() {
    let mut config = config(StoreKind::AddressesOnly);
    config.progress = Progress::Manual;
    let machine = Machine::new(config).unwrap();
    let address = machine.allocate_managed(0, CAPACITY).unwrap();
    machine.prefetch(0, (address, CAPACITY), Some(0), STREAM).unwrap();
    assert_eq!(machine.pending(0, STREAM).unwrap(), 1);
    assert_eq!(machine.managed_bytes(Some(0)), CAPACITY);
    write(&machine, 0, address, CAPACITY);
    assert_eq!(machine.usage(0).unwrap().paging.faults, 0);
    machine.prefetch(0, (address, PAGE), None, STREAM).unwrap();
    assert_eq!(machine.managed_bytes(None), PAGE);
    let before_ns = machine.usage(0).unwrap().host_waits.nanoseconds;
    machine.synchronize(0).unwrap();
    let waited_ns = machine.usage(0).unwrap().host_waits.nanoseconds - before_ns;
    assert_eq!(waited_ns, 55_000, "a page over the bus, as a copy costs");
    assert_eq!(machine.usage(0).unwrap().count(Call::Prefetch), 2);
    machine.free(0, address).unwrap();
    finish(&machine);
}

#[test]
fn what_the_manual_refuses_is_refused() {
    let mut config = config(StoreKind::AddressesOnly);
    config.devices[1].managed = ManagedAccess::Exclusive;
    let mut without = config.devices[0].clone();
    without.managed = ManagedAccess::None;
    config.devices.push(without);
    let machine = Machine::new(config).unwrap();
    assert_eq!(machine.allocate_managed(0, 0), Err(Code::INVALID_VALUE));
    assert_eq!(machine.allocate_managed(2, PAGE), Err(Code::NOT_SUPPORTED));
    let plain = machine.allocate(0, PAGE).unwrap();
    let managed = machine.allocate_managed(0, 2 * PAGE).unwrap();
    assert!(machine.is_managed(managed + PAGE) && !machine.is_managed(plain));
    let (whole, beyond) = ((managed, 2 * PAGE), (managed, 3 * PAGE));
    for range in [(plain, PAGE), beyond, (managed, 0)] {
        assert_eq!(machine.prefetch(0, range, Some(0), STREAM), Err(Code::INVALID_VALUE));
        let advised = machine.advise(0, range, Advice::ReadMostly(true), None);
        assert_eq!(advised, Err(Code::INVALID_VALUE));
    }
    for device in [1, 2, 3] {
        let place = Some(device);
        assert_eq!(machine.prefetch(0, whole, place, STREAM), Err(Code::INVALID_DEVICE));
        let advised = machine.advise(0, whole, Advice::PreferredLocation(true), place);
        assert_eq!(advised, Err(Code::INVALID_DEVICE));
    }
    // A stream of a device without concurrent access prefetches nowhere, not even to the host.
    assert_eq!(machine.prefetch(1, whole, None, STREAM + 1), Err(Code::INVALID_DEVICE));
    assert_eq!(machine.ipc_get_memory(0, managed), Err(Code::INVALID_VALUE));
    machine.begin_capture(0, STREAM, CaptureMode::Relaxed).unwrap();
    let refused = machine.prefetch(0, whole, Some(0), STREAM);
    assert_eq!(refused, Err(Code::STREAM_CAPTURE_UNSUPPORTED));
    let ended = machine.end_capture(0, STREAM).map(|_| ());
    assert_eq!(ended, Err(Code::STREAM_CAPTURE_INVALIDATED));
    // Where access is exclusive, memory is taken at once, and no more than there is.
    let exclusive = machine.allocate_managed(1, CAPACITY).unwrap();
    assert_eq!(machine.memory_info(1).unwrap().free_bytes, 0);
    assert_eq!(machine.allocate_managed(1, PAGE), Err(Code::OUT_OF_MEMORY));
    machine.free(1, exclusive).unwrap();
    machine.free(0, managed).unwrap();
    machine.free(0, plain).unwrap();
    finish(&machine);
}

#[test]
fn the_host_has_an_end_too() {
    let mut config = config(StoreKind::AddressesOnly);
    config.host_memory_bytes = 2 * PAGE;
    let machine = Machine::new(config).unwrap();
    let address = machine.allocate_managed(0, CAPACITY + 3 * PAGE).unwrap();
    write(&machine, 0, address, CAPACITY + 2 * PAGE);
    assert_eq!(machine.take_violations(), []);
    write(&machine, 0, address + CAPACITY + 2 * PAGE, PAGE);
    let expected = Violation::HostMemoryUsedUp { bytes: 3 * PAGE };
    assert_eq!(machine.take_violations(), [expected]);
    machine.free(0, address).unwrap();
    finish(&machine);
}
