//! One capacity for all machines of one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use simgpu::{Code, Config, Machine, StoreKind};

use crate::peer::{MIB, Peer};
use crate::{GRANULE, POSIX, STORES};

/// A file that is gone with the value.
struct Common(PathBuf);

impl Common {
    fn new(test: &str) -> Self {
        let name = format!("simgpu-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn machine(&self, store: StoreKind) -> Arc<Machine> {
        let mut config = Config::new(store, 2, 64 * MIB);
        config.common = Some(self.0.clone());
        Machine::new(config).unwrap()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn free_bytes(machine: &Machine, device: u32) -> u64 {
    machine.memory_info(device).unwrap().free_bytes
}

#[test]
fn all_machines_together_have_what_the_device_has() {
    for store in STORES {
        let common = Common::new("together");
        let machines = [common.machine(store), common.machine(store), common.machine(store)];
        let alone = Machine::new(Config::new(store, 2, 64 * MIB)).unwrap();
        let address = machines[0].allocate(0, 40 * MIB).unwrap();
        let handle = machines[1].create(0, 20 * MIB).unwrap();
        assert_eq!(machines[2].allocate(0, 6 * MIB), Err(Code::OUT_OF_MEMORY));
        assert_eq!(machines[2].create_with(0, 6 * MIB, POSIX), Err(Code::OUT_OF_MEMORY));
        let small = machines[2].allocate(0, 100).unwrap();
        for machine in &machines {
            assert_eq!((free_bytes(machine, 0), free_bytes(machine, 1)), (2 * MIB, 64 * MIB));
            machine.validate().unwrap();
        }
        assert_eq!(free_bytes(&alone, 0), 64 * MIB);
        machines[0].free(0, address).unwrap();
        let all = machines[2].allocate(0, 42 * MIB).unwrap();
        machines[1].release(0, handle).unwrap();
        machines[2].free(0, all).unwrap();
        machines[2].free(0, small).unwrap();
        assert_eq!(free_bytes(&machines[0], 0), 64 * MIB);
    }
}

#[test]
fn a_piece_counts_once_until_nobody_has_it() {
    for store in STORES {
        let common = Common::new("piece");
        let [maker, taker, other] = [(); 3].map(|()| common.machine(store));
        let handle = maker.create_with(0, 32 * MIB, POSIX).unwrap();
        let descriptor = maker.export_handle(0, handle).unwrap();
        let imported = taker.import_handle(0, &descriptor).unwrap();
        assert_eq!(free_bytes(&other, 0), 32 * MIB, "two have it, and it counts once");
        maker.release(0, handle).unwrap();
        assert_eq!(maker.census().used_bytes, 0);
        assert_eq!(free_bytes(&maker, 0), 32 * MIB, "the other one still has it");
        assert_eq!(maker.allocate(0, 34 * MIB), Err(Code::OUT_OF_MEMORY));
        drop(maker);
        assert_eq!(free_bytes(&other, 0), 32 * MIB);
        let again = taker.import_handle(0, &descriptor).unwrap();
        taker.release(0, imported).unwrap();
        assert_eq!(free_bytes(&other, 0), 32 * MIB);
        taker.release(0, again).unwrap();
        assert_eq!(free_bytes(&other, 0), 64 * MIB);
        // Its place in the file may be another piece's by now.
        let new = other.create_with(1, 4 * MIB, POSIX).unwrap();
        let late = taker.import_handle(0, &descriptor).unwrap();
        assert_eq!((free_bytes(&other, 0), free_bytes(&other, 1)), (32 * MIB, 60 * MIB));
        taker.release(0, late).unwrap();
        other.release(0, new).unwrap();
        assert_eq!((free_bytes(&other, 0), free_bytes(&other, 1)), (64 * MIB, 64 * MIB));
        taker.validate().unwrap();
    }
}

#[test]
fn machines_without_the_file_count_their_own() {
    let common = Common::new("without");
    let counted = common.machine(StoreKind::RealBytes);
    let alone = Machine::new(Config::new(StoreKind::RealBytes, 1, 64 * MIB)).unwrap();
    let handle = alone.create_with(0, GRANULE, POSIX).unwrap();
    let descriptor = alone.export_handle(0, handle).unwrap();
    let imported = counted.import_handle(0, &descriptor).unwrap();
    assert_eq!(free_bytes(&counted, 0), 64 * MIB);
    counted.release(0, imported).unwrap();
    assert_eq!(free_bytes(&alone, 0), 62 * MIB);
    alone.release(0, handle).unwrap();
}

#[test]
fn a_process_that_dies_gives_back_what_only_it_had() {
    let common = Common::new("dies");
    let mut here = Peer::start(StoreKind::AddressesOnly, common.path());
    let mut there = Peer::start(StoreKind::AddressesOnly, common.path());
    let shared = here.ask(&format!("create {}", 8 * MIB)).unwrap();
    let place = here.ask(&format!("export {shared}")).unwrap();
    let imported = there.ask(&format!("import {place}")).unwrap();
    here.ask(&format!("allocate {}", 16 * MIB)).unwrap();
    assert_eq!(there.ask("free_bytes"), Ok((40 * MIB).to_string()));
    here.kill();
    assert_eq!(there.ask("free_bytes"), Ok((56 * MIB).to_string()));
    there.ask(&format!("release {imported}")).unwrap();
    assert_eq!(there.ask("free_bytes"), Ok((64 * MIB).to_string()));
    Peer::finish([there]);
}

#[test]
fn processes_at_once_get_exactly_what_there_is() {
    let common = Common::new("at-once");
    let mut peers = [(); 3].map(|()| Peer::start(StoreKind::AddressesOnly, common.path()));
    for _ in 0..20 {
        peers.iter_mut().for_each(|peer| peer.tell("grab"));
        let held = peers.each_mut().map(|peer| peer.answer().unwrap().parse::<u64>().unwrap());
        assert_eq!(held.iter().sum::<u64>(), 64 * MIB, "{held:?}");
        peers.iter_mut().for_each(|peer| peer.tell("drop"));
        peers.iter_mut().for_each(|peer| drop(peer.answer().unwrap()));
        assert_eq!(peers[0].ask("free_bytes"), Ok((64 * MIB).to_string()));
    }
    Peer::finish(peers);
}
