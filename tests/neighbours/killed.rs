//! Processes that are killed, at any moment of their lives, among others that go on.
//!
//! A life is: the program begins, joins, allocates and frees at random, asks and is asked. What it
//! writes for others is written by system calls, each of which is a moment in
//! `crates/device-register/tests/killed.rs`; here whole processes are killed at random moments.

use std::thread;
use std::time::{Duration, Instant};

use crate::peer::Peer;
use crate::tier::some_or_all;
use crate::town::Town;
use crate::{DEVICE_BYTES, MIB};

/// Requests of those who churn: four of them want more than the device has.
const MOST_BYTES: u64 = 60 * MIB;
/// A request waits for neighbours at most this long, and many are made.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_others_go_on_and_the_register_adds_up() {
    let town = Town::new();
    let mut survivors: Vec<Peer> = (0..3).map(|_| town.peer(&[])).collect();
    for peer in &mut survivors {
        peer.malloc(2 * MIB);
    }
    let (mut refused, mut died_early) = (0, 0);
    for round in 1..=some_or_all(12, 1000) {
        let order = |operations: u64| format!("churn {round} {operations} {MOST_BYTES}");
        let mut victim = town.peer(&[("GENESIS_SHARE_GUARANTEE", "50MB")]);
        victim.tell(&order(0));
        let begin = Instant::now();
        survivors.iter_mut().for_each(|peer| peer.tell(&order(60)));
        thread::sleep(Duration::from_micros(round * 7919 % 120_000));
        died_early += u64::from(town.entries().len() < 4);
        victim.kill();
        for peer in &mut survivors {
            refused += peer.answer("churn").unwrap().parse::<u64>().unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "round {round}: {:?}", begin.elapsed());
        town.check(&mut survivors);
    }
    println!("{refused} requests refused, {died_early} died before they had joined");
    // All that the dead had is there.
    for peer in &mut survivors {
        peer.do_it("empty");
    }
    let live_bytes: u64 = survivors.iter_mut().map(|peer| peer.number("reserved")).sum();
    survivors[0].malloc(DEVICE_BYTES - live_bytes);
    town.check(&mut survivors);
}
