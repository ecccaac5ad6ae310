//! Whole heaps under drawn schedules (the feature `shuttle`): two or three threads with random
//! operations, and in half of the runs driver calls that fail. A seed decides what the threads do and
//! in which order they take their steps.
//!
//! Without captures, contents that are kept in files, and what waits for a time: a device knows the
//! thread that captures, a file is written by a thread of its own, and clocks are no part of a
//! schedule. Other contents are copied in one piece here, for which a pause needs no thread.

#[path = "lent_edges.rs"]
mod lent_edges;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use genesis::config::PoolType;

use crate::DEVICES;
use crate::list::Header;
use crate::operation::{Extent, Kept, Operation};
use crate::oracle::Oracle;
use crate::support::{Random, schedules::explore};
use crate::worker::{Conduct, Worker};

/// Operations of each thread.
const OPERATIONS: usize = 30;
/// Live blocks of each thread, at most.
const MOST_LIVE: usize = 8;

/// What contents are kept in while they are paused.
const KEPT: [Kept; 4] = [Kept::AsAllocated, Kept::None, Kept::Pageable, Kept::Pinned];

#[test]
fn whole_heaps() {
    let any =
        |random: &mut Random| PoolType::ALL[random.below(PoolType::ALL.len() as u64) as usize];
    explore(move |seed| perform(seed, any, |random, extent| Operation::draw(random, extent)));
}

/// Threads pause and resume their tags and blocks, while others allocate, free and move memory.
#[test]
fn pauses() {
    explore(|seed| perform(seed, |_| PoolType::Elastic, draw_among_pauses));
}

fn draw_among_pauses(random: &mut Random, extent: Extent) -> Operation {
    match random.below(16) {
        0..2 => {
            let kept = KEPT[random.below(KEPT.len() as u64) as usize];
            Operation::PauseTag { kept, version: None }
        }
        2..4 => Operation::ResumeTag,
        4 => Operation::PauseBlock { which: random.below(1 << 20) },
        5 => Operation::ResumeBlock,
        _ => Operation::draw(random, extent),
    }
}

/// Threads perform what `draw` returns, on a heap of a strategy that `choose` returns.
fn perform(
    seed: u64,
    choose: impl Fn(&mut Random) -> PoolType,
    draw: impl Fn(&mut Random, Extent) -> Operation + Copy + Send + 'static,
) {
    let mut random = Random(seed);
    let pool_type = choose(&mut random);
    let mut header = Header::draw(&mut random, pool_type, false);
    header.at_once = random.below(2) == 0;
    let (clock, oracle) = (Arc::new(AtomicU64::new(0)), Arc::new(Oracle::new(DEVICES)));
    let rig = header.start(&clock);
    let extent = header.extent(random.below(2) == 0);
    let conduct = Conduct { most_live: MOST_LIVE, ..Conduct::AMONG_OTHERS };
    let threads = (0..2 + random.below(2)).map(|_| {
        let mut random = Random(random.next());
        let (rig, oracle, clock) = (rig.clone(), Arc::clone(&oracle), Arc::clone(&clock));
        shuttle::thread::spawn(move || {
            let mut worker = Worker::new(rig.clone(), oracle, conduct, clock);
            worker.meets_faults |= extent.faults;
            let drawn = std::iter::repeat_with(|| draw(&mut random, extent));
            for operation in drawn.filter(is_in_schedules).take(OPERATIONS) {
                worker.perform(&operation);
                if let Some(violation) = rig.machine.take_violations().first() {
                    panic!("after {operation:?}: {violation}");
                }
            }
            worker.finish();
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    rig.machine.faults().clear();
    oracle.compare(&rig);
    rig.finish();
}

fn is_in_schedules(operation: &Operation) -> bool {
    let is_left_out = matches!(
        operation,
        Operation::BeginCapture { .. } | Operation::PauseTag { kept: Kept::Disk, .. }
    );
    !is_left_out
}
