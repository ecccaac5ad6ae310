//! A process with managed memory beside others.

use crate::peer::Peer;
use crate::town::Town;
use crate::{DEVICE_BYTES, MIB};

const MANAGED: (&str, &str) = ("GENESIS_MANAGED", "2GiB");

fn with_managed(town: &Town) -> Peer {
    town.peer(&[MANAGED])
}

#[test]
fn managed_memory_may_exceed_a_shared_device() {
    let town = Town::new();
    let mut neighbour = town.peer(&[("GENESIS_SHARE_GUARANTEE", "400MB")]);
    neighbour.malloc(300 * MIB);
    let mut managed = with_managed(&town);
    managed.malloc(DEVICE_BYTES + 500 * MIB);
    // It is in nobody's register: the driver moves it out of the way.
    town.check(&mut [neighbour]);
}

#[test]
fn it_is_in_no_register_and_nobody_is_asked_for_it() {
    let town = Town::new();
    let mut managed = with_managed(&town);
    let cached = managed.malloc(600 * MIB);
    managed.free(cached);
    let mut neighbour = town.peer(&[]);
    neighbour.malloc(100 * MIB);
    assert_eq!(town.entries().len(), 1);
    // Simcuda evicts nothing for another process.
    let refusal = neighbour.ask(&format!("malloc {}", 700 * MIB)).unwrap_err();
    assert!(refusal.starts_with("OutOfMemory"), "{refusal}");
    assert_eq!(managed.number("reserved"), 600 * MIB);
    town.check(&mut [neighbour]);
}
