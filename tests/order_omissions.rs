//! Each step of stream order is left out in turn, and the race detector must object:
//! `cargo test --features ablations --test order_omissions`.
//!
//! The programs are the short lists of `random_operations.rs`, in which no driver call fails. With
//! every step in its place none of them fails; without one of them, some list must be found out
//! soon, under one of the strategies that keep blocks.
#![allow(dead_code)] // the lists can do more

#[path = "random_operations/list.rs"]
mod list;
#[path = "random_operations/operation.rs"]
mod operation;
#[path = "random_operations/oracle.rs"]
mod oracle;
mod support;
#[path = "random_operations/worker.rs"]
mod worker;

use genesis::base::size::MIB;
use genesis::config::PoolType;
use genesis::omission::{Step, leave_out};

use list::{Header, List};
use support::Random;

const DEVICES: usize = 3;
const CAPACITY_BYTES: u64 = 256 * MIB;
const OPERATIONS: u64 = 1_000;
/// A step is found missing within so many lists, or it counts as not tested.
const MOST_LISTS: u64 = 2_000;
/// Lists with every step in place.
const SOUND_LISTS: u64 = 30;

/// One test, because a step is left out in the whole process.
#[test]
fn the_detector_notices_each_omission() {
    assert_eq!((0..SOUND_LISTS).find_map(violation), None);
    let mut unnoticed = Vec::new();
    for step in Step::ALL {
        leave_out(Some(step));
        match (0..MOST_LISTS).find_map(|seed| Some((seed, violation(seed)?))) {
            Some((seed, violation)) => println!("{step:?}: list {seed}: {violation}"),
            None => unnoticed.push(step),
        }
    }
    leave_out(None);
    assert_eq!(unnoticed, []);
}

/// What the detector says of the list of the seed.
fn violation(seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let kinds = [PoolType::Elastic, PoolType::Caching, PoolType::Round];
    let pool_type = kinds[random.below(kinds.len() as u64) as usize];
    let mut header = Header::draw(&mut random, pool_type, false);
    header.most_live = 4 << random.below(6);
    let failure = List::draw(&mut random, header, (OPERATIONS, false)).failure(true)?;
    let of_detector = ["race on", "is mapped", "unmapped", "was freed"];
    of_detector.iter().any(|text| failure.contains(text)).then_some(failure)
}
