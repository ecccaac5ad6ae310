//! Which memory the work of a device may touch: kernels, plain copies and peer copies, on mapped
//! memory and plain allocations of another device, with and without the race detector.

use simgpu::{Access, Code, Config, Machine, StoreKind, Violation, Work};
use std::sync::Arc;

const GRANULE: u64 = 2 << 20;
const A: usize = 0xA00;

fn machine(detects_races: bool) -> Arc<Machine> {
    let mut config = Config::new(StoreKind::AddressesOnly, 2, 64 << 20);
    config.detect_races = detects_races;
    Machine::new(config).unwrap()
}

/// A granule of device 0, accessible to `devices`.
fn mapped(machine: &Machine, devices: &[u32]) -> u64 {
    let base = machine.reserve(0, GRANULE, 0).unwrap();
    let handle = machine.create(0, GRANULE).unwrap();
    machine.map(0, base, GRANULE, handle).unwrap();
    machine.set_access(0, base, GRANULE, devices).unwrap();
    base
}

fn only_without_access(machine: &Machine) {
    let violations = machine.take_violations();
    assert!(matches!(violations[..], [Violation::TouchWithoutAccess { .. }]), "{violations:?}");
}

#[test]
fn mapped_memory_asks_for_access_whatever_peers_were_enabled() {
    for detects_races in [true, false] {
        let machine = machine(detects_races);
        machine.enable_peer_access(1, 0).unwrap();
        let host = machine.host_allocate(1, GRANULE).unwrap();
        let base = mapped(&machine, &[0]);
        let invalid = Err(Code::INVALID_VALUE);
        for access in [Access::Read, Access::Write] {
            assert_eq!(machine.copy_touch(1, A, Work::new(base, 8, access, "plain")), invalid);
            only_without_access(&machine);
            machine.peer_copy_touch(1, A, Work::new(base, 8, access, "peer")).unwrap();
        }
        assert_eq!(machine.copy_to_host(1, host, base, 8), invalid);
        only_without_access(&machine);
        assert_eq!(machine.copy_to_device(1, base, host, 8), invalid);
        only_without_access(&machine);
        assert_eq!(machine.fill(1, A, base, 8, 7), invalid);
        only_without_access(&machine);
        machine.touch(1, A, Work::read(base, 8, "kernel")).unwrap();
        assert_eq!(machine.take_violations().len(), usize::from(detects_races));

        machine.set_access(0, base, GRANULE, &[1]).unwrap();
        machine.copy_touch(1, A, Work::write(base, 8, "plain")).unwrap();
        machine.fill(1, A, base, 8, 7).unwrap();
        machine.touch(1, A, Work::read(base, 8, "kernel")).unwrap();
        machine.copy_to_host(1, host, base, 8).err();
        assert!(machine.take_violations().iter().all(|one| matches!(one, Violation::Race { .. })));
    }
}

#[test]
fn plain_allocations_ask_for_peer_access_of_the_context() {
    let machine = machine(true);
    let address = machine.allocate(0, GRANULE).unwrap();
    let further = machine.context_create(1).unwrap();
    for context in [1, further] {
        let copy = |machine: &Machine| machine.copy_touch(context, 0, Work::read(address, 8, ""));
        assert_eq!(copy(&machine), Err(Code::INVALID_VALUE));
        only_without_access(&machine);
        machine.enable_peer_access(context, 0).unwrap();
        let again = machine.enable_peer_access(context, 0);
        assert_eq!(again, Err(Code::PEER_ACCESS_ALREADY_ENABLED));
        copy(&machine).unwrap();
        machine.touch(context, 0, Work::read(address, 8, "kernel")).unwrap();
        assert_eq!(machine.take_violations(), []);
    }
}

#[test]
fn a_part_without_access_is_enough() {
    let machine = machine(true);
    let base = machine.reserve(0, 2 * GRANULE, 0).unwrap();
    for (place, devices) in [(0, &[0u32, 1][..]), (1, &[0][..])] {
        let handle = machine.create(0, GRANULE).unwrap();
        machine.map(0, base + place * GRANULE, GRANULE, handle).unwrap();
        machine.set_access(0, base + place * GRANULE, GRANULE, devices).unwrap();
    }
    machine.copy_touch(1, A, Work::read(base, GRANULE, "first")).unwrap();
    let both = machine.copy_touch(1, A, Work::read(base, GRANULE + 1, "both"));
    assert_eq!(both, Err(Code::INVALID_VALUE));
    let violations = machine.take_violations();
    let [Violation::TouchWithoutAccess { address, .. }] = violations[..] else {
        panic!("{violations:?}")
    };
    assert_eq!(address, base + GRANULE);
}
