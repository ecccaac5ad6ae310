//! Memory: what is counted, what is refused, what is left behind.

use simgpu::{
    AddressRange, Call, Census, Code, Config, Machine, MemoryInfo, Progress, StoreKind, Target,
    Times,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;
const CAPACITY: u64 = 64 * MIB;
const STORES: [StoreKind; 2] = [StoreKind::RealBytes, StoreKind::AddressesOnly];

fn machine(store: StoreKind) -> Arc<Machine> {
    Machine::new(Config::new(store, 2, CAPACITY)).unwrap()
}

fn free_bytes(machine: &Machine) -> u64 {
    machine.memory_info(0).unwrap().free_bytes
}

fn finish(machine: &Machine) {
    machine.validate().unwrap();
    assert_eq!(machine.census(), Census::default());
}

#[test]
fn whole_granules_count_and_small_sizes_share_them() {
    for store in STORES {
        let machine = machine(store);
        for (bytes, counted) in [
            (1, GRANULE),
            (512, GRANULE),
            (GRANULE - 512, GRANULE),
            (GRANULE - 511, GRANULE),
            (GRANULE, GRANULE),
            (GRANULE + 1, 2 * GRANULE),
        ] {
            let address = machine.allocate(0, bytes).unwrap();
            assert_eq!(address % 512, 0);
            assert!(bytes <= GRANULE - 512 || address.is_multiple_of(GRANULE));
            assert_eq!(CAPACITY - free_bytes(&machine), counted, "{bytes}");
            machine.validate().unwrap();
            let range = machine.address_range(1, address + bytes - 1).unwrap();
            assert_eq!(range, AddressRange { device: 0, base: address, bytes });
            machine.free(0, address).unwrap();
            assert!(machine.address_range(0, address).is_err());
        }
        let used_bytes = || CAPACITY - free_bytes(&machine);
        let halves: Vec<u64> = (0..3).map(|_| machine.allocate(0, GRANULE / 2).unwrap()).collect();
        assert_eq!(used_bytes(), 2 * GRANULE, "two share one");
        machine.free(0, halves[0]).unwrap();
        machine.free(0, halves[2]).unwrap();
        assert_eq!(used_bytes(), GRANULE, "one is in use still");
        machine.validate().unwrap();
        machine.free(0, halves[1]).unwrap();
        assert_eq!(used_bytes(), 0);
        finish(&machine);
    }
}

#[test]
fn small_allocations_fill_the_device_to_the_last_block() {
    for store in STORES {
        let machine = Machine::new(Config::new(store, 1, 4 * MIB)).unwrap();
        let mut live: Vec<u64> = (0..8192).map(|_| machine.allocate(0, 1).unwrap()).collect();
        assert_eq!(machine.allocate(0, 1), Err(Code::OUT_OF_MEMORY));
        live.sort_unstable();
        assert!(live.windows(2).all(|pair| pair[1] - pair[0] >= 512));
        machine.validate().unwrap();
        for address in live {
            machine.free(0, address).unwrap();
        }
        machine.free(0, machine.allocate(0, 4 * MIB).unwrap()).unwrap();
        finish(&machine);
    }
}

#[test]
fn bytes_are_those_of_the_device_and_gone_when_freed() {
    let machine = machine(StoreKind::RealBytes);
    let address = machine.allocate(0, 5 * MIB).unwrap();
    let last = (address + 5 * MIB - 1) as *mut u8;
    // SAFETY: the address is the last byte of live, accessible memory of this machine.
    unsafe { last.write_volatile(7) };
    // SAFETY: as above.
    assert_eq!(unsafe { last.read_volatile() }, 7);
    machine.free(0, address).unwrap();
    let again = machine.allocate(0, 5 * MIB).unwrap();
    assert_eq!(again, address, "addresses are used again");
    // SAFETY: the memory is live again; fresh memory of this store reads as zero.
    assert_eq!(unsafe { last.read_volatile() }, 0);
    machine.free(0, again).unwrap();
}

#[test]
fn an_error_changes_nothing() {
    for store in STORES {
        let machine = machine(store);
        let base = machine.reserve(0, 8 * GRANULE, 0).unwrap();
        let handle = machine.create(0, 2 * GRANULE).unwrap();
        machine.map(0, base, 2 * GRANULE, handle).unwrap();
        let plain = machine.allocate(0, MIB).unwrap();
        let large = machine.allocate(0, GRANULE).unwrap();
        let before = machine.census();
        let info = machine.memory_info(0).unwrap();
        let invalid = Err(Code::INVALID_VALUE);
        assert_eq!(machine.set_access(0, base, GRANULE, &[0]), invalid, "part of a mapping");
        assert_eq!(machine.set_access(0, base, 2 * GRANULE, &[]), invalid);
        assert_eq!(machine.set_access(0, base, 2 * GRANULE, &[2]), Err(Code::INVALID_DEVICE));
        assert_eq!(machine.set_access(0, large, GRANULE, &[0]), invalid, "a plain allocation");
        assert_eq!(machine.unmap(0, large, GRANULE), invalid);
        assert_eq!(machine.unmap(0, base, u64::MAX), invalid);
        assert_eq!(machine.map(0, base + 2 * GRANULE, 2 * GRANULE, 12345), invalid);
        assert_eq!(machine.map(0, u64::MAX - 1, 2 * GRANULE, handle), invalid);
        assert_eq!(machine.map(0, 0u64.wrapping_sub(GRANULE), 2 * GRANULE, handle), invalid);
        assert_eq!(machine.map(0, large, 2 * GRANULE, handle), invalid);
        assert_eq!(machine.release(0, 0), invalid);
        assert_eq!(machine.free(0, base), invalid, "a mapping is not freed");
        assert_eq!(machine.free(0, 0), invalid);
        assert_eq!(machine.allocate(0, u64::MAX), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.allocate(0, u64::MAX - 511), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.allocate(2, 1), Err(Code::INVALID_DEVICE));
        assert_eq!(machine.reserve(0, 0u64.wrapping_sub(GRANULE), 0), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.reserve(0, GRANULE, 1 << 63), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.host_allocate(0, 0), Err(Code::INVALID_VALUE));
        assert_eq!(machine.host_allocate(0, u64::MAX), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.census(), before);
        assert_eq!(machine.memory_info(0), Ok(info));
        machine.validate().unwrap();
        machine.unmap(0, base, 2 * GRANULE).unwrap();
        machine.release(0, handle).unwrap();
        assert_eq!(machine.release(0, handle), invalid, "released twice");
        assert_eq!(machine.map(0, base, 2 * GRANULE, handle), invalid, "a handle given up");
        machine.unreserve(0, base, 8 * GRANULE).unwrap();
        machine.free(1, plain).unwrap();
        machine.free(0, large).unwrap();
        finish(&machine);
    }
}

#[test]
fn a_released_handle_cannot_be_mapped_again_though_it_lives() {
    let machine = machine(StoreKind::AddressesOnly);
    let base = machine.reserve(0, 2 * GRANULE, 0).unwrap();
    let handle = machine.create(0, GRANULE).unwrap();
    machine.map(0, base, GRANULE, handle).unwrap();
    machine.release(0, handle).unwrap();
    assert_eq!(machine.map(0, base + GRANULE, GRANULE, handle), Err(Code::INVALID_VALUE));
    assert_eq!(machine.census().used_bytes, GRANULE);
    machine.unmap(0, base, GRANULE).unwrap();
    assert_eq!(machine.census().used_bytes, 0);
    machine.unreserve(0, base, 2 * GRANULE).unwrap();
    finish(&machine);
}

#[test]
fn address_space_runs_out_and_comes_back() {
    for store in STORES {
        let mut config = Config::new(store, 1, CAPACITY);
        config.address_space_bytes = Some(16 * GRANULE);
        let machine = Machine::new(config).unwrap();
        let first = machine.reserve(0, 12 * GRANULE, 0).unwrap();
        assert_eq!(machine.reserve(0, 5 * GRANULE, 0), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.allocate(0, 5 * GRANULE), Err(Code::OUT_OF_MEMORY));
        assert_eq!(free_bytes(&machine), CAPACITY);
        let second = machine.reserve(0, 4 * GRANULE, 0).unwrap();
        assert_eq!(machine.allocate(0, 1), Err(Code::OUT_OF_MEMORY));
        machine.unreserve(0, first, 12 * GRANULE).unwrap();
        let third = machine.reserve(0, 12 * GRANULE, 0).unwrap();
        machine.unreserve(0, second, 4 * GRANULE).unwrap();
        machine.unreserve(0, third, 12 * GRANULE).unwrap();
        finish(&machine);
    }
}

#[test]
fn terabytes_are_nothing_without_bytes() {
    let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 2, 1 << 45)).unwrap();
    let large: Vec<u64> = (0..2).map(|device| machine.allocate(device, 1 << 45).unwrap()).collect();
    assert!(large[0].abs_diff(large[1]) >= 1 << 45);
    assert!(large.iter().all(|address| address + (1 << 45) <= 1 << 47));
    machine.validate().unwrap();
    for address in large {
        machine.free(0, address).unwrap();
    }
    finish(&machine);
}

#[test]
fn a_device_without_virtual_memory_says_so() {
    let mut config = Config::new(StoreKind::AddressesOnly, 1, CAPACITY);
    config.devices[0].virtual_memory = false;
    let machine = Machine::new(config).unwrap();
    let unsupported = Code::NOT_SUPPORTED;
    assert_eq!(machine.granularity(0), Err(unsupported));
    assert_eq!(machine.reserve(0, GRANULE, 0), Err(unsupported));
    assert_eq!(machine.unreserve(0, GRANULE, GRANULE), Err(unsupported));
    assert_eq!(machine.create(0, GRANULE), Err(unsupported));
    assert_eq!(machine.release(0, 1), Err(unsupported));
    assert_eq!(machine.map(0, GRANULE, GRANULE, 1), Err(unsupported));
    assert_eq!(machine.set_access(0, GRANULE, GRANULE, &[0]), Err(unsupported));
    assert_eq!(machine.unmap(0, GRANULE, GRANULE), Err(unsupported));
    machine.free(0, machine.allocate(0, GRANULE).unwrap()).unwrap();
}

#[test]
fn impossible_machines_are_refused() {
    let config = |change: fn(&mut Config)| {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, CAPACITY);
        change(&mut config);
        Machine::new(config).map(|_| ())
    };
    let invalid = Err(Code::INVALID_VALUE);
    assert_eq!(config(|config| config.devices.clear()), invalid);
    assert_eq!(config(|config| config.devices[0].granularity_bytes = 3 << 20), invalid);
    assert_eq!(config(|config| config.devices[0].granularity_bytes = 512), invalid);
    assert_eq!(config(|config| config.address_space_bytes = Some(1 << 48)), invalid);
    let mut config = Config::new(StoreKind::RealBytes, 1, 1 << 20);
    config.devices[0].granularity_bytes = 65536;
    config.devices = vec![config.devices[0].clone(); 64];
    assert!(Machine::new(config).is_ok());
}

#[test]
fn capacity_shrinks_and_is_restored() {
    let machine = machine(StoreKind::AddressesOnly);
    let held = machine.allocate(0, 32 * MIB).unwrap();
    machine.faults().limit_capacity(0, 40 * MIB).unwrap();
    let info = MemoryInfo { free_bytes: 8 * MIB, total_bytes: CAPACITY };
    assert_eq!(machine.memory_info(0), Ok(info));
    assert_eq!(machine.create(0, 10 * MIB), Err(Code::OUT_OF_MEMORY));
    machine.faults().limit_capacity(0, MIB).unwrap();
    assert_eq!(free_bytes(&machine), 0);
    machine.faults().clear();
    machine.faults().restore_capacity(0).unwrap();
    assert_eq!(free_bytes(&machine), 32 * MIB);
    machine.free(0, held).unwrap();
    finish(&machine);
}

#[test]
fn scripted_faults_strike_as_told() {
    let machine = machine(StoreKind::AddressesOnly);
    let create = || machine.create(0, GRANULE).map(|handle| machine.release(0, handle).unwrap());
    let broken = Code(999);
    machine.faults().fail(Target::call(Call::Create), 3, Times::Count(2), broken);
    let answers: Vec<_> = (0..6).map(|_| create()).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(broken), Err(broken), Ok(()), Ok(())]);

    machine.faults().fail(Target::ANY.on(1), 1, Times::Forever, broken);
    assert_eq!(create(), Ok(()));
    for _ in 0..3 {
        assert_eq!(machine.allocate(1, 1), Err(broken));
        assert_eq!(machine.memory_info(1), Err(broken));
    }
    machine.faults().clear();
    machine.free(1, machine.allocate(1, 1).unwrap()).unwrap();

    let charged = || machine.usage(0).unwrap().driver_nanoseconds;
    machine.faults().delay(Target::call(Call::MemoryInfo), 1, Times::Once, 5_000_000);
    let (start, _) = (charged(), machine.memory_info(0).unwrap());
    let (slow, _) = (charged() - start, machine.memory_info(0).unwrap());
    let quick = charged() - start - slow;
    assert_eq!(slow - quick, 5_000_000);
    finish(&machine);
}

#[test]
fn calls_are_counted_and_charged() {
    let machine = machine(StoreKind::AddressesOnly);
    machine.free(0, machine.allocate(0, 4 * MIB).unwrap()).unwrap();
    let usage = machine.usage(0).unwrap();
    assert_eq!((usage.count(Call::Allocate), usage.count(Call::Free)), (1, 1));
    let costs = machine.config().costs;
    let (allocate, free) = (costs.get(Call::Allocate), costs.get(Call::Free));
    let expected = allocate.price_ns(4 * MIB, 0) + free.price_ns(4 * MIB, 0);
    assert_eq!(usage.driver_nanoseconds, expected);
    assert_eq!((usage.host_waits.implicit, usage.host_waits.blocked), (1, 0));
    assert!(machine.allocate(0, u64::MAX).is_err());
    let failed = machine.usage(0).unwrap();
    assert_eq!(failed.count(Call::Allocate), 2, "failing calls count");
    assert_eq!(failed.driver_nanoseconds - expected, allocate.base_ns());
    assert_eq!(machine.usage(1).unwrap(), simgpu::Usage::default());
}

#[test]
fn freeing_waits_for_the_device() {
    let machine = machine(StoreKind::AddressesOnly);
    machine.set_progress(Progress::Manual);
    let address = machine.allocate(0, MIB).unwrap();
    machine.delay(0, 7, 3_000).unwrap();
    machine.hold(0, 7, true).unwrap();
    assert_eq!(machine.free(0, address), Err(Code::LAUNCH_TIMEOUT));
    assert_eq!(machine.census().allocations, 1);
    machine.hold(0, 7, false).unwrap();
    machine.free(0, address).unwrap();
    assert_eq!(machine.pending(0, 7), Ok(0));
    let waits = machine.usage(0).unwrap().host_waits;
    assert_eq!((waits.implicit, waits.blocked, waits.nanoseconds), (2, 2, 3_000));
    finish(&machine);
}

#[test]
fn pinned_memory_has_its_limit() {
    for store in STORES {
        let mut config = Config::new(store, 1, CAPACITY);
        config.host_memory_bytes = 10_000;
        let machine = Machine::new(config).unwrap();
        let first = machine.host_allocate(0, 6_000).unwrap();
        assert_eq!(machine.host_allocate(0, 6_000), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machine.census().host_bytes, 6_000);
        assert_eq!(machine.free(0, first), Err(Code::INVALID_VALUE));
        machine.host_free(0, first).unwrap();
        assert_eq!(machine.host_free(0, first), Err(Code::INVALID_VALUE));
        finish(&machine);
    }
}
