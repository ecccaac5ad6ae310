//! Schedules of threads, drawn by shuttle: the threads of a model take turns at each atomic and each
//! lock, in an order that a seed decides.
//!
//! Half of the seeds draw each step alone; the others draw priorities, which change at few steps
//! (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010):
//! that finds what needs one thread to be overtaken by all that another one does.
//!
//! `GENESIS_TEST_SCHEDULES=FIRST..END` names the seeds; without it a few are taken, from the clock.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// A heap's calls need more than the few pages that shuttle gives a thread.
const STACK_BYTES: usize = 1 << 20;
/// Steps of one run, after which threads are taken to wait for each other for ever.
const MOST_STEPS: usize = 5_000_000;
/// So many seeds if none are named.
const USUAL_SEEDS: u64 = 500;
/// At so many steps priorities change; the places are drawn from the length of a first run.
const CHANGES: usize = 3;
const RUNS_OF_PRIORITIES: usize = 2;

/// Runs `model` once for each seed, which it is told: it may draw from it what its threads do.
pub fn explore(model: impl Fn(u64) + Clone + Send + Sync + 'static) {
    for seed in seeds() {
        let failing = Failing(seed);
        let (model, mut config) = (model.clone(), Config::new());
        config.stack_size = STACK_BYTES;
        config.max_steps = shuttle::MaxSteps::FailAfter(MOST_STEPS);
        config.silence_warnings = true;
        if seed.is_multiple_of(2) {
            let scheduler = RandomScheduler::new_from_seed(seed, 1);
            Runner::new(scheduler, config).run(move || model(seed));
        } else {
            let scheduler = PctScheduler::new_from_seed(seed, CHANGES, RUNS_OF_PRIORITIES);
            Runner::new(scheduler, config).run(move || model(seed));
        }
        drop(failing);
    }
}

fn seeds() -> Range<u64> {
    if let Ok(text) = std::env::var("GENESIS_TEST_SCHEDULES") {
        let (first, end) = text.split_once("..").expect("GENESIS_TEST_SCHEDULES is FIRST..END");
        return first.parse().expect("a number")..end.parse().expect("a number");
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = since.as_secs() * USUAL_SEEDS;
    first..first + USUAL_SEEDS
}

/// Names the seed if its run fails.
struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to see this again: GENESIS_TEST_SCHEDULES={}..{}", self.0, self.0 + 1);
        }
    }
}
