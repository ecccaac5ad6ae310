//! Which properties handles can have, and which devices can access them.

use simgpu::{Call, Code, Config, HandleProperties, Machine, StoreKind, Work};

const GRANULE: u64 = 2 << 20;

fn every() -> impl Iterator<Item = HandleProperties> {
    (0..8).map(|bits| HandleProperties {
        posix: bits & 1 != 0,
        fabric: bits & 2 != 0,
        rdma: bits & 4 != 0,
    })
}

#[test]
fn a_device_makes_what_it_can_and_refuses_the_rest() {
    for can_make in every() {
        let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
        config.devices[0].handles = can_make;
        let machine = Machine::new(config).unwrap();
        for wanted in every() {
            let lacks = (wanted.posix && !can_make.posix)
                || (wanted.fabric && !can_make.fabric)
                || (wanted.rdma && !can_make.rdma);
            let granule = machine.granularity_with(0, wanted);
            let handle = machine.create_with(0, GRANULE, wanted);
            if lacks {
                assert_eq!((granule, handle), (Err(Code::NOT_SUPPORTED), Err(Code::NOT_SUPPORTED)));
            } else {
                assert_eq!(granule, Ok(GRANULE));
                machine.release(0, handle.unwrap()).unwrap();
            }
        }
        assert_eq!(machine.usage(0).unwrap().count(Call::Create), 8);
    }
}

#[test]
fn by_default_descriptors_and_rdma_are_there_and_fabrics_are_not() {
    let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 1, 1 << 30)).unwrap();
    let plain = HandleProperties::default();
    let all = HandleProperties { posix: true, rdma: true, ..plain };
    assert_eq!(machine.granularity_with(0, all), Ok(GRANULE));
    let fabric = HandleProperties { fabric: true, ..plain };
    assert_eq!(machine.granularity_with(0, fabric), Err(Code::NOT_SUPPORTED));
}

#[test]
fn peers_are_those_the_machine_connects() {
    for peer_access in [true, false] {
        let mut config = Config::new(StoreKind::AddressesOnly, 2, 1 << 30);
        config.peer_access = peer_access;
        config.detect_races = true;
        let machine = Machine::new(config).unwrap();
        assert_eq!(machine.can_access_peer(0, 1), Ok(peer_access));
        assert_eq!(machine.can_access_peer(1, 1), Ok(false), "nobody is a peer of itself");
        assert_eq!(machine.can_access_peer(0, 2), Err(Code::INVALID_DEVICE));
        assert_eq!(machine.can_access_peer(2, 0), Err(Code::INVALID_DEVICE));
        assert_eq!(machine.usage(0).unwrap().count(Call::CanAccessPeer), 2);
        let enabled = machine.enable_peer_access(1, 0);
        assert_eq!(enabled.is_ok(), peer_access, "{enabled:?}");

        let base = machine.reserve(0, 2 * GRANULE, 0).unwrap();
        for (slot, device) in [(0, 0), (1, 1)] {
            let handle = machine.create(device, GRANULE).unwrap();
            machine.map(0, base + slot * GRANULE, GRANULE, handle).unwrap();
        }
        machine.set_access(0, base, GRANULE, &[0]).unwrap();
        let given = machine.set_access(0, base, 2 * GRANULE, &[0, 1]);
        if peer_access {
            assert_eq!(given, Ok(()));
        } else {
            assert_eq!(given, Err(Code::INVALID_DEVICE));
            assert!(machine.is_accessible(base, GRANULE));
            assert!(!machine.is_accessible(base + GRANULE, 1), "a refusal gives nothing");
        }
        machine.touch(1, 7, Work::read(base, 8, "peer")).unwrap();
        assert_eq!(machine.take_violations().is_empty(), peer_access);
    }
}
