//! Threads on a device that is short of memory, where their memory moves from one to the other.
//!
//! The race detector judges each use. A thread knows its own blocks only; that no two overlap is
//! seen by a ledger of all, and by the heap's own check at the end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use genesis::base::size::{KIB, MIB};
use genesis::base::{Status, StreamHandle};
use genesis::config::LogLevel;
use simgpu::{Call, Progress, Work};

use crate::ADDRESSES;
use crate::support::{A, B, C, DEVICE, Random, Rig};

const CAPACITY_BYTES: u64 = 128 * MIB;
const THREADS: usize = 4;
const STREAMS: [StreamHandle; THREADS] = [A, B, C, StreamHandle(0xD000)];
const OPERATIONS: usize = 20_000;
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
        for stream in streams {
            let worker = Worker {
                rig: rig.clone(),
                ledger: &ledger,
                live_bytes: &live_bytes,
                random: Random(random.next()),
                stream,
                live: Vec::new(),
                served: 0,
            };
            scope.spawn(move || worker.run());
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

/// A thread's program: blocks of any size on one stream, as many as there is room for.
struct Worker<'a> {
    rig: Rig,
    ledger: &'a Mutex<BTreeMap<u64, u64>>,
    /// Of all threads.
    live_bytes: &'a AtomicU64,
    random: Random,
    stream: StreamHandle,
    live: Vec<(u64, u64)>,
    served: usize,
}

impl Worker<'_> {
    fn run(mut self) {
        let mut allocations = 0;
        let mut most_live_bytes = 0;
        for operation in 0..OPERATIONS {
            if operation % PHASE == 0 {
                allocations = 30 + 40 * self.random.below(2);
                most_live_bytes = LIVE_BYTES[usize::from(self.random.below(8) == 0)];
                std::thread::yield_now();
            }
            match self.random.below(100) {
                part if part < allocations => self.allocate(most_live_bytes),
                0..85 => self.free(),
                _ => drop(self.rig.machine.advance(0, self.stream.0, 4).unwrap()),
            }
        }
        while !self.live.is_empty() {
            self.free();
        }
        assert!(self.served > OPERATIONS / 100, "{} requests were served", self.served);
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
        match self.rig.heap.allocate(bytes, DEVICE, self.stream) {
            Ok(address) => {
                self.claim(address, bytes);
                let machine = &self.rig.machine;
                machine.touch(0, self.stream.0, Work::write(address, bytes, "")).unwrap();
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
