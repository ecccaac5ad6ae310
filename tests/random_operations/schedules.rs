//! Whole heaps under drawn schedules (the feature `shuttle`): two or three threads with random
//! operations, and in half of the runs driver calls that fail. A seed decides what the threads do and
//! in which order they take their steps.
//!
//! Without captures, pauses and what waits for a time: a device knows the thread that captures, a
//! pause copies in threads of its own, and clocks are no part of a schedule.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use genesis::config::PoolType;

use crate::DEVICES;
use crate::list::Header;
use crate::operation::{Extent, Operation};
use crate::oracle::Oracle;
use crate::support::{Random, schedules::explore};
use crate::worker::{Conduct, Worker};

/// Operations of each thread.
const OPERATIONS: usize = 30;
/// Live blocks of each thread, at most.
const MOST_LIVE: usize = 8;

#[test]
fn whole_heaps() {
    explore(|seed| {
        let mut random = Random(seed);
        let pool_type = PoolType::ALL[random.below(PoolType::ALL.len() as u64) as usize];
        let header = Header::draw(&mut random, pool_type, false);
        let (clock, oracle) = (Arc::new(AtomicU64::new(0)), Arc::new(Oracle::new(DEVICES)));
        let rig = header.start(&clock);
        let is_elastic = pool_type == PoolType::Elastic;
        let extent = Extent { faults: random.below(2) == 0, is_elastic };
        let conduct = Conduct { most_live: MOST_LIVE, ..Conduct::AMONG_OTHERS };
        let threads = (0..2 + random.below(2)).map(|_| {
            let mut random = Random(random.next());
            let (rig, oracle, clock) = (rig.clone(), Arc::clone(&oracle), Arc::clone(&clock));
            shuttle::thread::spawn(move || {
                let mut worker = Worker::new(rig.clone(), oracle, conduct, clock);
                worker.meets_faults |= extent.faults;
                let drawn = std::iter::repeat_with(|| Operation::draw(&mut random, extent));
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
    });
}

fn is_in_schedules(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::BeginCapture { .. }
            | Operation::PauseTag { .. }
            | Operation::PauseBlock { .. }
            | Operation::ResumeTag
            | Operation::ResumeBlock
    )
}
