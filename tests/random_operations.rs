//! Random operations on each strategy, against a naive oracle and the race detector: millions
//! nightly, [`PART_ON_EVERY_CHANGE`] times fewer on every change.
//!
//! Three devices, six streams each, some of which end and come again. First one thread with streams
//! that stand still until a random moment, where the oracle knows every figure exactly; then
//! several threads on the same streams. Every live block is touched on its streams, and the
//! machine's race detector judges each touch. Each thread also has an arena and a pool of blocks of
//! one size on each device, and pinned host memory that streams copy from. At the end everything goes
//! back and the machine must be empty.
//!
//! What one thread does is a list of operations, drawn beforehand. Short lists are run as well, in
//! which driver calls fail, or whose blocks have real bytes that are compared. A list that fails is
//! made as short as it still fails, and written to a file; once that lies in `tests/regressions`,
//! it is run with the tests for ever.
//!
//! With `GENESIS_DEBUG=all` there are fewer operations, and the log must find nothing.
//!
//! The seed comes from `GENESIS_TEST_SEED` or the clock and is printed when a test fails.
//! `GENESIS_TEST_LISTS=FIRST..END` says which seeds the nightly rounds take: a list for each, or a
//! run of two or eight threads.

#[path = "random_operations/list.rs"]
mod list;
#[path = "random_operations/operation.rs"]
mod operation;
#[path = "random_operations/oracle.rs"]
mod oracle;
#[path = "random_operations/overtaken.rs"]
mod overtaken;
#[cfg(feature = "shuttle")]
#[path = "random_operations/schedules.rs"]
mod schedules;
mod support;
#[path = "random_operations/worker.rs"]
mod worker;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use genesis::base::DeviceOrdinal;
use genesis::base::size::MIB;
use genesis::config::PoolType;

use list::{Header, List};
use operation::Operation;
use oracle::Oracle;
use support::{Random, Rig, tier};
use worker::{Conduct, Worker};

/// Devices and their memory: little enough that it runs short all the time.
const DEVICES: usize = 3;
const CAPACITY_BYTES: u64 = 256 * MIB;
const ALONE_OPERATIONS: u64 = 600_000;
/// Of all threads together.
const THREADS_OPERATIONS: u64 = 400_000;
/// While the program is debugged, each costs several waits.
const DEBUGGED_OPERATIONS: u64 = 100_000;
/// On every change operations are so many times fewer, each time from another seed.
const PART_ON_EVERY_CHANGE: u64 = 20;
/// Short lists of each strategy, and their operations.
const SHORT_LISTS: u64 = 100;
const SHORT_LIST_OPERATIONS: u64 = 1_000;
/// Lists that are overtaken, and their operations.
const OVERTAKEN_LISTS: u64 = 400;
const OVERTAKEN_OPERATIONS: u64 = 500;
/// The lists of a nightly round whose seeds nobody has named.
const ROUND_LISTS: u64 = 1_000;
/// Its runs of several threads, and the operations of all threads of a run.
const ROUND_RUNS: u64 = 10;
const RUN_OPERATIONS: u64 = 20_000;
/// As many threads as processors mostly, and more than there are.
const RUN_THREADS: [u64; 2] = [2, 8];
/// The folder of lists that failed once.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");

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

/// Short lists, whose thread is overtaken by another one at each of its driver calls.
#[test]
fn overtaken_lists() {
    let seed = Seed::pick("overtaken_lists");
    overtake_lists(seed.value..seed.value + part_of(OVERTAKEN_LISTS));
}

/// Lists that failed once.
#[test]
fn regressions() {
    let files = std::fs::read_dir(REGRESSIONS).unwrap();
    let paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        if let Some(failure) = List::read(&path).failure(false) {
            panic!("{}: {failure}", path.display());
        }
    }
}

/// Short lists, each with settings of its own; in some of them driver calls fail.
#[test]
fn short_lists() {
    let seed = Seed::pick("short_lists");
    let lists = PoolType::ALL.len() as u64 * part_of(SHORT_LISTS);
    run_lists(seed.value..seed.value + lists);
}

/// A round: as many lists as there is time for.
#[test]
#[ignore = "nightly"]
fn round_of_short_lists() {
    let seed = Seed::pick("round_of_short_lists");
    run_lists(named_seeds().unwrap_or(seed.value..seed.value + ROUND_LISTS));
}

/// A round of runs with threads. A seed decides what each does, and not when.
#[test]
#[ignore = "nightly"]
fn round_of_threads() {
    let seed = Seed::pick("round_of_threads");
    for value in named_seeds().unwrap_or(seed.value..seed.value + ROUND_RUNS) {
        let seed = Seed { value, test: "round_of_threads" };
        let mut random = Random(seed.value);
        let pool_type = PoolType::ALL[random.below(PoolType::ALL.len() as u64) as usize];
        let header = Header::draw(&mut random, pool_type, false);
        let threads = RUN_THREADS[random.below(2) as usize];
        run_threads(&header, &mut random, (threads, RUN_OPERATIONS));
    }
}

/// A failing list becomes the shortest one that fails in the same way: here a program's own
/// mistake, the use of memory that it has given back.
#[test]
fn a_failing_list_is_made_short() {
    let seed = Seed::pick("a_failing_list_is_made_short");
    let mut random = Random(seed.value);
    let header = Header::draw(&mut random, PoolType::Caching, false);
    let mut list = List::draw(&mut random, header, (300, false));
    let unknown = Operation::Fault { call: "no such".into(), nth: 1, forever: false, code: 2 };
    list.operations.insert(170, unknown.clone());
    assert_eq!(list.shrink().operations, [unknown]);
}

/// The instruments themselves: a program that uses blocks on streams the heap was not told of
/// is exactly what a heap that ignores `record_stream` would make of a correct one.
#[test]
fn the_detector_finds_a_stream_that_was_not_recorded() {
    for pool_type in [PoolType::Round, PoolType::Exact, PoolType::Caching, PoolType::Elastic] {
        let seed = Seed::pick("the_detector_finds_a_stream_that_was_not_recorded");
        let mut random = Random(seed.value);
        let mut header = Header::draw(&mut random, pool_type, false);
        header.options.clear();
        let (clock, oracle) = (Arc::new(AtomicU64::new(0)), Arc::new(Oracle::new(DEVICES)));
        let rig = header.start(&clock);
        let mut worker = Worker::new(rig.clone(), oracle, Conduct::FORGETFUL, clock);
        for operation in List::draw(&mut random, header, (30_000, false)).operations {
            worker.perform(&operation);
        }
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

/// One thread alone, then several; afterwards nothing is live.
fn run(pool_type: PoolType, name: &'static str) {
    let seed = Seed::pick(name);
    let mut random = Random(seed.value);
    let header = Header::draw(&mut random, pool_type, false);
    let list = List::draw(&mut random, header, (part_of(ALONE_OPERATIONS), false));
    let rig = succeed(&list, seed.value);
    assert_everything_happened(&rig);
    rig.finish();
    for threads in tier::some_or_all(&[4][..], &[2, 4, 8]) {
        run_threads(&list.header, &mut random, (*threads, part_of(THREADS_OPERATIONS)));
    }
}

/// A correct program is found nothing wrong with.
fn run_debugged(pool_type: PoolType, name: &'static str) {
    let seed = Seed::pick(name);
    let mut random = Random(seed.value);
    let mut header = Header::draw(&mut random, pool_type, false);
    let debugging = [("GENESIS_DEBUG", "all"), ("GENESIS_QUARANTINE_SIZE", "64MiB")];
    header.options.extend(debugging.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut list = List::draw(&mut random, header, (part_of(DEBUGGED_OPERATIONS), false));
    // It stays debugged.
    list.operations.retain(|operation| !matches!(operation, Operation::Set { .. }));
    let rig = succeed(&list, seed.value);
    assert_eq!(rig.heap.leak_report(), None);
    for ordinal in (0..DEVICES as u32).map(DeviceOrdinal) {
        let statistics = rig.heap.statistics(ordinal).unwrap();
        // So few operations as on every change may have enough memory.
        assert!(statistics.out_of_memory_events > 0 || !tier::is_full(), "{statistics:?}");
    }
    rig.finish();
    run_threads(&list.header, &mut random, (4, part_of(DEBUGGED_OPERATIONS)));
}

/// Several threads at once, with so many operations together.
fn run_threads(header: &Header, random: &mut Random, (threads, operations): (u64, u64)) {
    let clock = Arc::new(AtomicU64::new(0));
    let rig = header.start(&clock);
    let oracle = Arc::new(Oracle::new(DEVICES));
    let is_debugged = rig.heap.is_debugging();
    let extent = header.extent(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let mut random = Random(random.next());
            let (rig, oracle, clock) = (rig.clone(), oracle.clone(), clock.clone());
            scope.spawn(move || {
                let mut worker = Worker::new(rig.clone(), oracle, Conduct::AMONG_OTHERS, clock);
                for done in 1..=operations / threads {
                    let operation = Operation::draw(&mut random, extent);
                    if !(is_debugged && matches!(operation, Operation::Set { .. })) {
                        worker.perform(&operation);
                    }
                    if let Some(violation) = rig.machine.take_violations().first() {
                        panic!("after {operation:?}: {violation}");
                    }
                    if done % 1_000 == 0 {
                        worker.check();
                    }
                }
                worker.finish();
            });
        }
    });
    oracle.compare(&rig);
    rig.finish();
}

/// The seeds of a nightly round.
fn named_seeds() -> Option<Range<u64>> {
    let text = std::env::var("GENESIS_TEST_LISTS").ok()?;
    let (first, end) = text.split_once("..").expect("GENESIS_TEST_LISTS is FIRST..END");
    Some(first.parse().unwrap()..end.parse().unwrap())
}

/// Runs the list that each of the seeds means.
fn run_lists(seeds: Range<u64>) {
    for seed in seeds {
        let mut random = Random(seed);
        let pool_type = PoolType::ALL[random.below(PoolType::ALL.len() as u64) as usize];
        let (real_bytes, faults) = (random.below(4) == 0, random.below(2) == 0);
        let mut header = Header::draw(&mut random, pool_type, real_bytes);
        header.at_once = random.below(2) == 0;
        header.most_live = 4 << random.below(6);
        succeed(&List::draw(&mut random, header, (SHORT_LIST_OPERATIONS, faults)), seed).finish();
    }
}

/// Runs the list that each of the seeds means, and another thread beside it.
fn overtake_lists(seeds: Range<u64>) {
    for value in seeds {
        let _seed = Seed { value, test: "overtaken_lists" };
        let mut random = Random(value);
        let pool_type = PoolType::ALL[random.below(PoolType::ALL.len() as u64) as usize];
        let (real_bytes, faults) = (random.below(4) == 0, random.below(2) == 0);
        let mut header = Header::draw(&mut random, pool_type, real_bytes);
        header.at_once = random.below(2) == 0;
        header.most_live = 4 << random.below(6);
        let list = List::draw(&mut random, header, (OVERTAKEN_OPERATIONS, faults));
        overtaken::run(&list, random, faults);
    }
}

/// Runs a list; if it fails, makes it short, and tells where that is.
fn succeed(list: &List, seed: u64) -> Rig {
    let rig = std::thread::scope(|scope| scope.spawn(|| list.run()).join());
    rig.unwrap_or_else(|_| {
        let short = list.shrink();
        let failure = short.failure(false).unwrap_or_default();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("list-{seed}.jsonl"));
        std::fs::write(&path, short.to_text(&failure)).unwrap();
        panic!("{failure}\nThese operations show it: {}", path.display())
    })
}

/// Of `count` operations or events of a full run, as many as there are in this one.
fn part_of(count: u64) -> u64 {
    count / tier::some_or_all(PART_ON_EVERY_CHANGE, 1)
}

/// A run that never ran short, or never moved memory between streams, would prove little. In a part
/// of a run a limit may be in force most of the time; and under Exact, which serves a request from a
/// block of its very size alone, fewer than one request in twenty may be a hit.
fn assert_everything_happened(rig: &Rig) {
    for ordinal in (0..DEVICES as u32).map(DeviceOrdinal) {
        let statistics = rig.heap.statistics(ordinal).unwrap();
        let keeps_blocks = rig.heap.settings().strategy.pool_type != PoolType::Naive;
        let usage = rig.heap.tag_usage(ordinal).unwrap();
        assert!(usage.iter().all(|usage| (usage.live_bytes, usage.live_blocks) == (0, 0)));
        assert!(statistics.reserved_bytes.peak <= CAPACITY_BYTES, "{statistics:?}");
        assert!(statistics.allocations > part_of(20_000), "{statistics:?}");
        assert!(statistics.out_of_memory_events > 0, "{statistics:?}");
        if tier::is_full() {
            let stopped: u64 = usage.iter().map(|usage| usage.refusals).sum();
            assert!(stopped > 0, "{usage:?}");
            assert!(statistics.retries > 50, "{statistics:?}");
            assert!(statistics.cross_stream_reuses > 0 || !keeps_blocks, "{statistics:?}");
            assert!(statistics.hits > 1_000 || !keeps_blocks, "{statistics:?}");
        }
    }
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
