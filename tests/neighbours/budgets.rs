//! Guarantees, weights and limits of processes that share a device.

use genesis::config::PoolType;

use crate::peer::Peer;
use crate::town::Town;
use crate::{DEVICE_BYTES, MIB};

fn is_refused(peer: &mut Peer, bytes: u64) -> bool {
    match peer.ask(&format!("malloc {bytes}")) {
        Ok(block) => {
            peer.do_it(&format!("free {block}"));
            peer.do_it("empty");
            false
        }
        Err(refusal) => {
            assert!(refusal.starts_with("OutOfMemory"), "{refusal}");
            true
        }
    }
}

/// Opens the device: until then a process has no entry.
fn begin(peer: &mut Peer) {
    let block = peer.malloc(2 * MIB);
    peer.free(block);
    peer.do_it("empty");
}

#[test]
fn what_is_guaranteed_stays_free_of_others() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let town = Town::new();
        let mut here = town.peer_of(pool_type, &[("GENESIS_SHARE_GUARANTEE", "400MB")]);
        begin(&mut here);
        let mut there = town.peer_of(pool_type, &[]);
        assert!(is_refused(&mut there, 700 * MIB), "{pool_type:?}");
        let room = DEVICE_BYTES - 400 * MIB;
        assert_eq!(there.do_it("info"), format!("{room} {DEVICE_BYTES}"));
        assert!(!is_refused(&mut there, 600 * MIB));
        there.malloc(600 * MIB);
        here.malloc(400 * MIB);
        town.check(&mut [here, there]);
    }
}

#[test]
fn what_is_cached_within_a_guarantee_is_not_given_back() {
    let town = Town::new();
    let mut here = town.peer(&[("GENESIS_SHARE_GUARANTEE", "400MB")]);
    let block = here.malloc(600 * MIB);
    here.free(block);
    let mut there = town.peer(&[]);
    there.malloc(600 * MIB);
    assert!(is_refused(&mut there, 100 * MIB));
    assert!(here.number("reserved") >= 400 * MIB);
    town.check(&mut [here, there]);
}

#[test]
fn guarantees_do_not_exceed_the_device() {
    let town = Town::new();
    let mut here = town.peer(&[("GENESIS_SHARE_GUARANTEE", "800MB")]);
    begin(&mut here);
    let mut there = town.peer(&[("GENESIS_SHARE_GUARANTEE", "800MB")]);
    begin(&mut there);
    let guarantees: u64 = town.entries().iter().map(|entry| entry.guarantee_bytes).sum();
    assert_eq!(guarantees, DEVICE_BYTES);
    assert!(is_refused(&mut there, 300 * MIB));
    here.kill();
    assert!(!is_refused(&mut there, 900 * MIB));
}

#[test]
fn who_holds_more_than_its_part_gets_no_more_from_those_who_hold_less() {
    let town = Town::new();
    let mut heavy = town.peer(&[("GENESIS_SHARE_WEIGHT", "300")]);
    let mut light = town.peer(&[("GENESIS_SHARE_WEIGHT", "100")]);
    let block = heavy.malloc(700 * MIB);
    heavy.free(block);
    // Its part is 256 MiB of 1 GiB, and the other's 768.
    light.malloc(250 * MIB);
    assert!(is_refused(&mut light, 200 * MIB));
    assert!(heavy.number("reserved") >= 700 * MIB);
    // Below its part it gets what the other has above its own, and more.
    let block = heavy.malloc(770 * MIB);
    town.check(&mut [heavy, light]);
    let _ = block;
}

#[test]
fn entries_say_what_each_holds_and_may_hold() {
    let town = Town::new();
    let variables = [
        ("GENESIS_MEMORY_LIMIT", "300MB"),
        ("GENESIS_SHARE_GUARANTEE", "100MB"),
        ("GENESIS_SHARE_WEIGHT", "7"),
    ];
    let mut here = town.peer(&variables);
    here.malloc(64 * MIB);
    let block = here.malloc(32 * MIB);
    here.free(block);
    let entry = town.entry(&here, |entry| entry.live_bytes == 64 * MIB && entry.cached_bytes > 0);
    assert_eq!((entry.limit_bytes, entry.guarantee_bytes), (300 * MIB, 100 * MIB));
    assert_eq!((entry.weight, entry.total_bytes), (7, DEVICE_BYTES));
    assert_eq!(entry.charged_bytes, here.number("reserved"));
    assert_eq!(entry.live_bytes + entry.cached_bytes, entry.charged_bytes);
    assert!(entry.program.starts_with("neighbours-"), "{}", entry.program);
    here.do_it(&format!("limit {}", 200 * MIB));
    town.entry(&here, |entry| entry.limit_bytes == 200 * MIB);
}

/// Two that charge at once never exceed what is guaranteed to a third.
#[test]
fn a_guarantee_is_kept_against_many_at_once() {
    let town = Town::new();
    let mut owner = town.peer(&[("GENESIS_SHARE_GUARANTEE", "500MB")]);
    begin(&mut owner);
    let mut others: Vec<Peer> = (0..3).map(|_| town.peer(&[])).collect();
    for round in 1..=4 {
        others.iter_mut().for_each(|peer| peer.tell(&format!("churn {round} 300 {}", 200 * MIB)));
        let block = owner.malloc(500 * MIB);
        owner.free(block);
        owner.do_it("empty");
        for peer in &mut others {
            peer.answer("churn").unwrap();
        }
    }
    others.push(owner);
    town.check(&mut others);
}
