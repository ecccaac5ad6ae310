//! Threads on a device that is short of memory, where their memory moves from one to the other.
//!
//! The race detector judges each use. A thread knows its own blocks only; that no two overlap is
//! seen by a ledger of all, and by the heap's own check at the end.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use genesis::base::size::{KIB, MIB};
use genesis::base::{Status, StreamHandle};
use genesis::config::{LogLevel, StreamIds};
use simgpu::{Call, Progress, Work};

use crate::ADDRESSES;
use crate::support::overtaking::overtake;
use crate::support::{A, B, C, DEVICE, Random, Rig};

const CAPACITY_BYTES: u64 = 128 * MIB;
const THREADS: usize = 4;
const STREAMS: [StreamHandle; THREADS] = [A, B, C, StreamHandle(0xD000)];
const OPERATIONS: usize = 20_000;
/// Runs in which a thread is overtaken, and its operations.
const OVERTAKEN_RUNS: usize = 20;
const OVERTAKEN_OPERATIONS: usize = 1_000;
/// What all threads together may keep live, in bytes: what moving memory can always serve, or
/// so much that now and then it cannot.
const LIVE_BYTES: [u64; 2] = [CAPACITY_BYTES / 4 * 3, CAPACITY_BYTES / 8 * 7];
/// For so many operations in a row a thread mostly allocates, or mostly frees.
const PHASE: usize = 100;

#[test]
fn on_a_stream_each() {
    run("on_a_stream_each", STREAMS, Progress::Automatic);
}

#[test]
fn on_a_stream_each_that_lags() {
    run("on_a_stream_each_that_lags", STREAMS, Progress::Manual);
}

#[test]
fn on_one_stream() {
    run("on_one_stream", [A; THREADS], Progress::Manual);
}

/// Two threads, one of which takes its steps where the other one calls the driver. They use the same
/// streams, which have nothing to do.
#[test]
fn one_overtaken_by_another() {
    let seed = seed();
    println!("GENESIS_TEST_SEED={seed} cargo test --test elastic threads::one_overtaken");
    let mut random = Random(seed);
    for _ in 0..OVERTAKEN_RUNS {
        let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
        plan.machine.progress = Progress::Automatic;
        plan.settings.log = LogLevel::Off;
        plan.settings.stream_ids = StreamIds::Off;
        let rig = plan.start();
        let (ledger, live_bytes) = (Mutex::default(), AtomicU64::new(0));
        let mut workers = [(); 2]
            .map(|()| Worker::new(&rig, &ledger, &live_bytes, Random(random.next()), &STREAMS));
        let [overtaken, overtaking] = &mut workers;
        let all = || (0..OVERTAKEN_OPERATIONS).for_each(|_| overtaken.step());
        overtake(&rig, Random(random.next()), all, |steps| {
            steps.for_each(|()| overtaking.step());
        });
        for worker in workers {
            worker.end();
        }
        rig.finish();
    }
}

fn run(test: &str, streams: [StreamHandle; THREADS], progress: Progress) {
    let seed = seed();
    println!("GENESIS_TEST_SEED={seed} cargo test --test elastic threads::{test}");
    // Calls of the driver that take time make other orders of steps likely.
    for takes_time in [false, true] {
        run_once(seed, streams, progress, takes_time);
    }
}

fn run_once(seed: u64, streams: [StreamHandle; THREADS], progress: Progress, takes_time: bool) {
    let mut random = Random(seed);
    let mut plan = ADDRESSES.plan().capacity(CAPACITY_BYTES);
    plan.machine.progress = progress;
    plan.machine.takes_time = takes_time;
    plan.settings.log = LogLevel::Off;
    let rig = plan.start();
    let (ledger, live_bytes) = (Mutex::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for stream in &streams {
            let mut worker = Worker::new(
                &rig,
                &ledger,
                &live_bytes,
                Random(random.next()),
                slice::from_ref(stream),
            );
            scope.spawn(move || {
                (0..OPERATIONS).for_each(|_| worker.step());
                let served = worker.end();
                assert!(served > OPERATIONS / 100, "{served} requests were served");
            });
        }
    });
    let usage = rig.usage();
    // How much depends on how the threads fall.
    assert!(usage.count(Call::Map) > OPERATIONS as u64 / 100, "memory has to move: {usage:?}");
    if streams[0] != streams[1] {
        assert!(rig.statistics().cross_stream_reuses > 100, "{:?}", rig.statistics());
    }
    rig.finish();
}

/// A thread's program: blocks of any size on its streams, as many as there is room for.
struct Worker<'a> {
    rig: Rig,
    ledger: &'a Mutex<BTreeMap<u64, u64>>,
    /// Of all threads.
    live_bytes: &'a AtomicU64,
    random: Random,
    /// Its blocks are on one of these.
    streams: &'a [StreamHandle],
    live: Vec<(u64, u64)>,
    served: usize,
    steps: usize,
    /// Of a hundred steps of this phase, those that allocate.
    allocations: u64,
    most_live_bytes: u64,
}

impl<'a> Worker<'a> {
    fn new(
        rig: &Rig,
        ledger: &'a Mutex<BTreeMap<u64, u64>>,
        live_bytes: &'a AtomicU64,
        random: Random,
        streams: &'a [StreamHandle],
    ) -> Self {
        let rig = rig.clone();
        let live = Vec::new();
        let [served, steps] = [0; 2];
        let [allocations, most_live_bytes] = [0; 2];
        Self {
            rig,
            ledger,
            live_bytes,
            random,
            streams,
            live,
            served,
            steps,
            allocations,
            most_live_bytes,
        }
    }

    fn step(&mut self) {
        if self.steps.is_multiple_of(PHASE) {
            self.allocations = 30 + 40 * self.random.below(2);
            self.most_live_bytes = LIVE_BYTES[usize::from(self.random.below(8) == 0)];
            std::thread::yield_now();
        }
        self.steps += 1;
        match self.random.below(100) {
            part if part < self.allocations => self.allocate(self.most_live_bytes),
            0..85 => self.free(),
            _ => {
                let stream = self.draw_stream();
                self.rig.machine.advance(0, stream.0, 4).unwrap();
            }
        }
    }

    fn draw_stream(&mut self) -> StreamHandle {
        self.streams[self.random.below(self.streams.len() as u64) as usize]
    }

    /// Frees everything; returns how many requests were served.
    fn end(mut self) -> usize {
        while !self.live.is_empty() {
            self.free();
        }
        self.served
    }

    fn allocate(&mut self, most_live_bytes: u64) {
        let bytes = match self.random.below(4) {
            0 => 1 + self.random.below(64 * KIB),
            1 => 1 + self.random.below(2 * MIB),
            _ => 1 + self.random.below(12 * MIB),
        };
        if self.live_bytes.load(Relaxed) + bytes > most_live_bytes {
            return self.free();
        }
        let stream = self.draw_stream();
        match self.rig.heap.allocate(bytes, DEVICE, stream) {
            Ok(address) => {
                self.claim(address, bytes);
                let machine = &self.rig.machine;
                machine.touch(0, stream.0, Work::write(address, bytes, "")).unwrap();
                self.live.push((address, bytes));
                self.live_bytes.fetch_add(bytes, Relaxed);
                self.served += 1;
            }
            Err(error) => {
                assert_eq!(error.status, Status::OutOfMemory, "{error}");
                self.free();
            }
        }
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let index = self.random.below(self.live.len() as u64) as usize;
        let (address, bytes) = self.live.swap_remove(index);
        self.live_bytes.fetch_sub(bytes, Relaxed);
        self.ledger.lock().unwrap().remove(&address);
        self.rig.free(address);
    }

    fn claim(&self, start: u64, bytes: u64) {
        let mut ledger = self.ledger.lock().unwrap();
        let end = start + bytes;
        let before = ledger.range(..end).next_back();
        assert!(before.is_none_or(|(_, &other_end)| other_end <= start), "{start:#x} overlaps");
        ledger.insert(start, end);
    }
}

fn seed() -> u64 {
    match std::env::var("GENESIS_TEST_SEED") {
        Ok(text) => text.parse().expect("GENESIS_TEST_SEED is a number"),
        Err(_) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_nanos() as u64
        }
    }
}
