//! Random operations on each strategy, against a naive oracle and the race detector: a million
//! nightly, [`PART_ON_EVERY_CHANGE`] times fewer on every change.
//!
//! Three devices, four streams each. First one thread with streams that stand still until a
//! random moment, where the oracle knows every figure exactly; then four threads on the same
//! streams. Every live block is touched on its streams, and the machine's race detector judges
//! each touch. At the end everything goes back and the machine must be empty.
//!
//! With `GENESIS_DEBUG=all` there are fewer operations, and the log must find nothing.
//!
//! The seed comes from `GENESIS_TEST_SEED` or the clock and is printed when a test fails.

#[path = "random_operations/oracle.rs"]
mod oracle;
mod support;
#[path = "random_operations/worker.rs"]
mod worker;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use genesis::base::DeviceOrdinal;
use genesis::base::size::MIB;
use genesis::config::{DebugModes, ElasticPolicy, PoolType, Settings};
use simgpu::{Progress, StoreKind};

use oracle::Oracle;
use support::{Random, Rig, Subject, tier};
use worker::{Conduct, Worker};

/// Devices and their memory: little enough that it runs short all the time.
const DEVICES: usize = 3;
const CAPACITY_BYTES: u64 = 256 * MIB;
const ALONE_OPERATIONS: u64 = 600_000;
const THREADS: u64 = 4;
const OPERATIONS_PER_THREAD: u64 = 100_000;
/// While the program is debugged, each costs several waits.
const DEBUGGED_OPERATIONS: u64 = 100_000;
/// On every change operations are so many times fewer, each time from another seed.
const PART_ON_EVERY_CHANGE: u64 = 5;

#[test]
fn naive() {
    run(PoolType::Naive, "naive");
}

#[test]
fn round() {
    run(PoolType::Round, "round");
}

#[test]
fn exact() {
    run(PoolType::Exact, "exact");
}

#[test]
fn caching() {
    run(PoolType::Caching, "caching");
}

#[test]
fn arena() {
    run(PoolType::Arena, "arena");
}

#[test]
fn elastic() {
    run(PoolType::Elastic, "elastic");
}

#[test]
fn naive_debugged() {
    run_debugged(PoolType::Naive, "naive_debugged");
}

#[test]
fn exact_debugged() {
    run_debugged(PoolType::Exact, "exact_debugged");
}

#[test]
fn caching_debugged() {
    run_debugged(PoolType::Caching, "caching_debugged");
}

#[test]
fn arena_debugged() {
    run_debugged(PoolType::Arena, "arena_debugged");
}

#[test]
fn elastic_debugged() {
    run_debugged(PoolType::Elastic, "elastic_debugged");
}

/// The instruments themselves: a program that uses blocks on streams the heap was not told of
/// is exactly what a heap that ignores `record_stream` would make of a correct one.
#[test]
fn the_detector_finds_a_stream_that_was_not_recorded() {
    for pool_type in [PoolType::Round, PoolType::Exact, PoolType::Caching, PoolType::Elastic] {
        let seed = Seed::pick("the_detector_finds_a_stream_that_was_not_recorded");
        let rig = start(pool_type, |_| {});
        let oracle = Arc::new(Oracle::new(DEVICES));
        let mut worker = Worker::new(rig.clone(), oracle, Random(seed.value), Conduct::FORGETFUL);
        worker.run(30_000);
        let violations = rig.machine.take_violations();
        assert!(!violations.is_empty(), "{pool_type:?}: 30,000 operations raced unseen");
    }
}

#[test]
fn the_oracle_finds_overlaps_and_double_uses() {
    let oracle = Oracle::new(1);
    oracle.hand_out(0, 4096, 8192, 4000).unwrap();
    oracle.hand_out(0, 8192, 8704, 1).unwrap();
    for (start, end) in [(4096, 8192), (0, 4608), (7680, 12288), (4608, 5120), (0, 16384)] {
        assert!(oracle.hand_out(0, start, end, 1).is_err(), "{start}..{end}");
    }
    assert!(oracle.hand_out(0, 8704 + 256, 9728, 1).is_err(), "not aligned to 512");
    oracle.hand_out(0, 8704, 9216, 1).unwrap();
}

fn run(pool_type: PoolType, name: &'static str) {
    let seed = Seed::pick(name);
    let mut random = Random(seed.value);
    let rig = start(pool_type, |settings| vary(settings, &mut random));
    let oracle = work(&rig, &mut random, ALONE_OPERATIONS, OPERATIONS_PER_THREAD);
    oracle.compare(&rig);
    assert_everything_happened(&rig);
    rig.finish();
}

/// A correct program is found nothing wrong with.
fn run_debugged(pool_type: PoolType, name: &'static str) {
    let seed = Seed::pick(name);
    let mut random = Random(seed.value);
    let rig = start(pool_type, |settings| {
        vary(settings, &mut random);
        settings.debug = DebugModes::ALL;
        settings.quarantine_size_bytes = 64 * MIB;
    });
    let oracle = work(&rig, &mut random, DEBUGGED_OPERATIONS, DEBUGGED_OPERATIONS / THREADS);
    oracle.compare(&rig);
    assert_eq!(rig.heap.leak_report(), None);
    for ordinal in (0..DEVICES as u32).map(DeviceOrdinal) {
        let statistics = rig.heap.statistics(ordinal).unwrap();
        assert!(statistics.out_of_memory_events > part_of(10), "{statistics:?}");
    }
    rig.finish();
}

/// Of `count` operations or events of a full run, as many as there are in this one.
fn part_of(count: u64) -> u64 {
    count / tier::some_or_all(PART_ON_EVERY_CHANGE, 1)
}

/// One thread alone, then several; afterwards nothing is live.
fn work(rig: &Rig, random: &mut Random, alone: u64, per_thread: u64) -> Arc<Oracle> {
    let oracle = Arc::new(Oracle::new(DEVICES));
    let mut worker = Worker::new(rig.clone(), oracle.clone(), random.clone(), Conduct::ALONE);
    worker.run(part_of(alone));
    worker.free_all();
    rig.check();

    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let random = Random(random.next());
            let mut worker =
                Worker::new(rig.clone(), oracle.clone(), random, Conduct::AMONG_OTHERS);
            scope.spawn(move || {
                worker.run(part_of(per_thread));
                worker.free_all();
            });
        }
    });
    oracle
}

/// A run that never ran short, or never moved memory between streams, would prove little.
fn assert_everything_happened(rig: &Rig) {
    for ordinal in (0..DEVICES as u32).map(DeviceOrdinal) {
        let statistics = rig.heap.statistics(ordinal).unwrap();
        let pool_type = rig.heap.settings().strategy.pool_type;
        let keeps_blocks = pool_type != PoolType::Naive;
        assert!(statistics.allocations > part_of(50_000), "{statistics:?}");
        assert!(statistics.out_of_memory_events > part_of(100), "{statistics:?}");
        // What a limit of a tag stops is not tried again.
        let usage = rig.heap.tag_usage(ordinal).unwrap();
        let stopped: u64 = usage.iter().map(|usage| usage.refusals).sum();
        assert!(stopped > part_of(20), "{usage:?}");
        assert!(usage.iter().all(|usage| (usage.live_bytes, usage.live_blocks) == (0, 0)));
        assert!(statistics.retries + stopped >= statistics.out_of_memory_events, "{statistics:?}");
        assert!(statistics.reserved_bytes.peak <= CAPACITY_BYTES, "{statistics:?}");
        // Elastic moves memory between streams only where the device has no more.
        let least_reuses = if pool_type == PoolType::Elastic { 1 } else { part_of(10) };
        assert!(statistics.cross_stream_reuses >= least_reuses || !keeps_blocks, "{statistics:?}");
        assert!(statistics.hits > part_of(5_000) || !keeps_blocks, "{statistics:?}");
    }
}

fn start(pool_type: PoolType, change: impl FnOnce(&mut Settings)) -> Rig {
    let subject = Subject::new(pool_type, StoreKind::AddressesOnly);
    let mut plan = subject.plan().devices(DEVICES, CAPACITY_BYTES).set(change);
    plan.settings.log = genesis::config::LogLevel::Off;
    plan.machine.progress = Progress::Manual;
    plan.start()
}

/// Settings that change what is released and when, each in force every other run.
fn vary(settings: &mut Settings, random: &mut Random) {
    let mut sometimes = || random.below(2) == 0;
    settings.cache_size_bytes = sometimes().then_some(64 * MIB);
    vary_collection(settings, &mut sometimes);
    settings.elastic_policy =
        if sometimes() { ElasticPolicy::Tight } else { ElasticPolicy::Balanced };
    settings.single_handle_size_bytes = sometimes().then_some(8 * MIB);
    settings.max_split_size_bytes = sometimes().then_some(32 * MIB);
    settings.memory_limit_bytes = sometimes().then_some(200 * MIB);
    settings.roundup_power2_divisions = if sometimes() { 4 } else { 0 };
}

/// What is collected, and when: these settings change at run time as well.
fn vary_collection(settings: &mut Settings, sometimes: &mut impl FnMut() -> bool) {
    settings.gc_threshold = sometimes().then_some(0.8);
    settings.gc_age_allocations = sometimes().then_some(2_000);
    settings.gc_age_seconds = sometimes().then_some(0.01);
}

/// The seed of a test, told to the reader if the test fails.
struct Seed {
    value: u64,
    test: &'static str,
}

impl Seed {
    fn pick(test: &'static str) -> Self {
        let value = match std::env::var("GENESIS_TEST_SEED") {
            Ok(text) => text.parse().expect("GENESIS_TEST_SEED is a number"),
            Err(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                since.as_nanos() as u64
            }
        };
        Self { value, test }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "to see this again: GENESIS_TEST_SEED={} cargo test --test random_operations {}",
                self.value, self.test
            );
        }
    }
}
