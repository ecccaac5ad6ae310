//! Lists whose thread is overtaken by another one at each of its driver calls.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::DEVICES;
use crate::list::List;
use crate::operation::Operation;
use crate::oracle::Oracle;
use crate::support::overtaking::overtake;
use crate::support::{Random, Rig};
use crate::worker::{Conduct, Worker};

/// Performs `list` on a new heap. What the other thread does is drawn. Driver calls of both fail, if
/// `faults` is set.
pub fn run(list: &List, mut random: Random, faults: bool) {
    let (clock, oracle) = (Arc::new(AtomicU64::new(0)), Arc::new(Oracle::new(DEVICES)));
    let rig = list.header.start(&clock);
    let conduct = Conduct { most_live: list.header.most_live, ..Conduct::AMONG_OTHERS };
    let worker = || {
        let mut worker = Worker::new(rig.clone(), oracle.clone(), conduct, clock.clone());
        worker.meets_faults = faults;
        worker
    };
    let steps = Random(random.next());
    let overtaken = || {
        let mut worker = worker();
        list.operations.iter().for_each(|operation| perform(&mut worker, &rig, operation));
        worker.finish();
    };
    overtake(&rig, steps, overtaken, |steps| {
        let mut worker = worker();
        let extent = list.header.extent(faults);
        for () in steps {
            perform(&mut worker, &rig, &Operation::draw(&mut random, extent));
        }
        worker.finish();
    });
    rig.machine.faults().clear();
    oracle.compare(&rig);
    rig.finish();
}

fn perform(worker: &mut Worker, rig: &Rig, operation: &Operation) {
    worker.perform(operation);
    if let Some(violation) = rig.machine.take_violations().first() {
        panic!("after {operation:?}: {violation}");
    }
}
