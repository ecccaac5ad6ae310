//! A program that runs for long holds no more after hours than after its warm-up.
//!
//! Recorded programs run again and again on one heap: in several threads at once, each new and on new
//! streams, which end with it; with sizes that grow and shrink; with private pools, a profile that
//! is switched on and off, and memory given back. After each *cycle* nothing is live, and what the
//! process and the machine hold is read ([`Level`]). Cycles come in *periods*, of which each does the
//! same and gives everything back at its end. So neither the most that a level was in a period, nor
//! what it is after it, may be above that of a period at the beginning. Which thread is first is drawn
//! by the system, hence an allowance, which a leak in each cycle uses up in time.
//!
//! `GENESIS_TEST_SOAK_SECONDS` says for how long each strategy runs; `cargo xtask campaign soak` sets
//! it. Without it there are two periods after a warm-up, of the first calls of each program.
//!
//! Streams whose end is not told are no part of this: their lanes stay until there are as many as
//! there can be.

mod support;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use genesis::base::StreamHandle;
use genesis::base::size::MIB;
use genesis::config::PoolType;
use genesis::heap::PoolId;
use genesis::observe::{EventStream, Keeping, Profiler};
use genesis_replay::program::{Call, Kind, Program};

use support::host_memory::{self, Counting};
use support::replay::{perform, recorded, rig_for_events};
use support::{A, DEVICE, Rig};

#[global_allocator]
static COUNTING: Counting = Counting;

/// One uses two streams, of one all sizes drift, and two have many small segments, which Arena gives
/// back and gets again at other addresses.
const PROGRAMS: [&str; 4] = ["fsdp_streams", "alternating", "gpt2_train", "diffusion_buckets"];
/// So many calls of each program are made in a run without a length.
const SHORT_CALLS: usize = 3_000;
/// The sizes of requests in the cycles of a period, in percent of what was recorded.
const SIZES_PERCENT: [u64; 4] = [100, 140, 60, 90];
/// Threads of a cycle.
const THREADS: usize = 3;
/// A period has each size and each program as the first one so many times. After one, a heap has
/// nearly all it needs.
const ROUNDS: usize = 4;
/// In a run with a length, the first period and those in the first eighth of the time are a warm-up;
/// later ones are compared with its last. A new stream gets any lane, and a lane's tables grow when it
/// first meets the program with the most blocks. So it takes many periods until all have grown.
const WARM_UP_PART: u32 = 8;
/// After the warm-up of such a run single tables of lanes grow still, and the directory gets nodes of
/// 64 KiB for 512 MiB of addresses that small blocks are at for the first time. So host memory may grow
/// so many times as much; a leak has the time to be more.
const LONG_TIMES: i64 = 8;
/// After so many cycles cached memory is given back.
const CYCLES_TO_EMPTY: usize = 3;
const POOL: PoolId = PoolId(7, 7);
const BLOCK_BYTES: u64 = 3 * MIB;

/// By how much a level may be above the first period's, or that of the warm-up's last: so much, or so
/// many percent if that is more.
type Allowance = (i64, i64);

/// What may grow: by how much while the heap caches memory, and by how much once all is given back.
#[rustfmt::skip]
const LEVELS: [(Level, Allowance, Allowance); 9] = [
    (Level::ResidentBytes, (24 << 20, 25), (24 << 20, 15)),
    // For each program, and more in a run with a length: see `LONG_TIMES`.
    (Level::HostBytes, (1 << 20, 0), (512 << 10, 0)),
    (Level::Descriptors, (0, 0), (0, 0)),
    // One that was waited for may not be gone yet.
    (Level::Threads, (3, 0), (3, 0)),
    // When none is idle, up to so many are made at once (`order::events`).
    (Level::Events, (256, 50), (256, 50)),
    (Level::Views, (64, 100), (0, 0)),
    (Level::Handles, (64, 100), (0, 0)),
    (Level::Reservations, (8, 100), (0, 0)),
    (Level::ReservedAddressBytes, (0, 100), (0, 0)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Level {
    /// Of the process, as the kernel counts them.
    ResidentBytes,
    /// What the process has of the host's allocator: tables above all.
    HostBytes,
    Descriptors,
    Threads,
    /// The rest is the simulated machine's.
    Events,
    Views,
    Handles,
    Reservations,
    ReservedAddressBytes,
}

/// What a cycle does not give back, for tests of this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leak {
    Nothing,
    Descriptor,
    Event,
    Addresses,
    HostMemory,
    Thread,
    /// The heap is not told of streams that end, so their lanes stay.
    Ends,
}

#[test]
fn exact() {
    soak(PoolType::Exact);
}

#[test]
fn caching() {
    soak(PoolType::Caching);
}

#[test]
fn arena() {
    soak(PoolType::Arena);
}

#[test]
fn elastic() {
    soak(PoolType::Elastic);
}

/// Whatever is not given back is noticed.
#[test]
fn leaks_are_noticed() {
    let _alone = alone();
    for (leak, level) in [
        (Leak::Descriptor, Level::Descriptors),
        (Leak::Event, Level::Events),
        (Leak::Addresses, Level::Reservations),
        (Leak::HostMemory, Level::HostBytes),
        (Leak::Thread, Level::Threads),
        (Leak::Ends, Level::HostBytes),
    ] {
        let grown = Soak::new(PoolType::Caching, &["alternating"], leak).run(None).unwrap_err();
        assert!(grown.iter().any(|line| line.starts_with(&format!("{level:?}"))), "{grown:?}");
    }
}

fn soak(pool_type: PoolType) {
    let seconds = env::var("GENESIS_TEST_SOAK_SECONDS").ok();
    let time = seconds.map(|seconds| Duration::from_secs(seconds.parse().expect("seconds")));
    let _alone = alone();
    let soak = Soak::new(pool_type, &PROGRAMS, Leak::Nothing);
    // While the machine does other work, too, threads still meet new lanes in the second period.
    soak.period(SHORT_CALLS);
    if let Err(grown) = soak.run(time) {
        panic!("{pool_type:?}:\n{}", grown.join("\n"));
    }
}

/// The levels are the whole process's, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

type Levels = HashMap<Level, i64>;

/// What was read in one period.
struct Period {
    /// The most after any cycle.
    most: Levels,
    /// After everything was given back.
    bare: Levels,
}

/// Events of several threads are put in order by it.
fn ticks() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(1, Relaxed)
}

struct Soak {
    rig: Rig,
    events: &'static EventStream,
    profiler: Profiler,
    programs: Vec<Program>,
    leak: Leak,
    /// What the host's allocator had handed out before there was a heap.
    before_bytes: i64,
}

impl Soak {
    fn new(pool_type: PoolType, names: &[&str], leak: Leak) -> Self {
        let programs = names.iter().map(|name| recorded(name)).collect();
        let before_bytes = host_memory::process_bytes();
        let events = Box::leak(Box::new(EventStream::with_clock(ticks)));
        let rig = rig_for_events(pool_type, events);
        Self { rig, events, profiler: Profiler::new(), programs, leak, before_bytes }
    }

    /// Runs for `time`, or two periods; returns what has grown, a line for each level.
    fn run(self, time: Option<Duration>) -> Result<(), Vec<String>> {
        let most_calls = if time.is_some() { usize::MAX } else { SHORT_CALLS };
        let began = Instant::now();
        let mut first = self.period(most_calls);
        while time.is_some_and(|time| began.elapsed() < time / WARM_UP_PART) {
            first = self.period(most_calls);
        }
        for number in 1.. {
            let period = self.period(most_calls);
            let grown = self.grown(&first, &period, time.is_some());
            if !grown.is_empty() {
                return Err(grown);
            }
            if time.is_none_or(|time| began.elapsed() >= time) {
                eprintln!("{number} periods after the warm-up:");
                LEVELS
                    .iter()
                    .for_each(|&(level, ..)| eprintln!("{}", line(level, &first, &period)));
                break;
            }
        }
        self.rig.finish();
        Ok(())
    }

    fn period(&self, most_calls: usize) -> Period {
        let firsts = 0..self.programs.len();
        let round = || {
            SIZES_PERCENT
                .iter()
                .flat_map(|&percent| firsts.clone().map(move |first| (first, percent)))
        };
        let cycles = (0..ROUNDS).flat_map(|_| round());
        let levels: Vec<Levels> = cycles
            .enumerate()
            .map(|(number, (first, percent))| {
                self.cycle(number, first, percent, most_calls);
                self.levels()
            })
            .collect();
        self.rig.heap.empty_cache(DEVICE).unwrap();
        let most = |level: Level| levels.iter().map(|levels| levels[&level]).max().unwrap_or(0);
        let most = LEVELS.iter().map(|&(level, ..)| (level, most(level))).collect();
        Period { most, bare: self.levels() }
    }

    fn cycle(&self, number: usize, first: usize, percent: u64, most_calls: usize) {
        let heap = &self.rig.heap;
        let is_profiled = number.is_multiple_of(2);
        if is_profiled {
            let keeping = Keeping { history_events: 1_000, ..Keeping::default() };
            self.profiler.start(self.events, keeping, &**heap).unwrap();
        }
        self.use_pool();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let program = &self.programs[(first + thread) % self.programs.len()];
                scope.spawn(move || self.replay(program, percent, most_calls));
            }
        });
        if is_profiled {
            self.profiler.stop(None).unwrap();
            self.profiler.describe().unwrap();
        }
        if number.is_multiple_of(CYCLES_TO_EMPTY) {
            heap.empty_cache(DEVICE).unwrap();
        }
        self.leak();
    }

    /// A private pool is begun, used on a stream that lasts, and released.
    fn use_pool(&self) {
        let (heap, stream) = (&self.rig.heap, A);
        heap.begin_pool(DEVICE, POOL, Arc::new(move |of| of == stream)).unwrap();
        let block = self.rig.allocate(BLOCK_BYTES, stream);
        heap.end_pool(DEVICE, POOL).unwrap();
        heap.free(block).unwrap();
        heap.release_pool(DEVICE, POOL).unwrap();
    }

    /// The program on streams of its own, which end with it.
    fn replay(&self, program: &Program, percent: u64, most_calls: usize) {
        let streams: Vec<_> = (0..program.stream_count).map(|_| self.new_stream()).collect();
        let mut pointers = vec![0; program.slot_count];
        let calls = program.calls.iter().chain(&program.leftovers).take(most_calls);
        for call in calls.filter(|call| call.kind != Kind::EmptyCache) {
            let requested_bytes = (call.requested_bytes * percent / 100).max(1);
            let (call, slot) = (Call { requested_bytes, ..*call }, call.slot as usize);
            let stream = streams[usize::from(call.stream)];
            perform(&self.rig.heap, &call, stream, &mut pointers[slot]).unwrap();
            if call.kind == Kind::Free {
                pointers[slot] = 0;
            }
        }
        for pointer in pointers.into_iter().filter(|&pointer| pointer != 0) {
            self.rig.free(pointer);
        }
        streams.into_iter().for_each(|stream| self.end_stream(stream));
    }

    fn new_stream(&self) -> StreamHandle {
        StreamHandle(self.rig.machine.stream_create(DEVICE.0, false).unwrap())
    }

    fn end_stream(&self, stream: StreamHandle) {
        if self.leak != Leak::Ends {
            self.rig.heap.forget_stream(stream).unwrap();
        }
        self.rig.machine.stream_destroy(DEVICE.0, stream.0).unwrap();
    }

    fn leak(&self) {
        let machine = &self.rig.machine;
        match self.leak {
            Leak::Nothing | Leak::Ends => {}
            Leak::Descriptor => std::mem::forget(fs::File::open("/dev/null").unwrap()),
            Leak::Event => (0..20).for_each(|_| _ = machine.event_create(0, false).unwrap()),
            Leak::Addresses => _ = machine.reserve(0, 2 * MIB, 0).unwrap(),
            Leak::HostMemory => _ = Box::leak(vec![0_u8; 64 << 10].into_boxed_slice()),
            Leak::Thread => drop(thread::spawn(|| thread::sleep(Duration::from_secs(3600)))),
        }
    }

    /// The levels that are above what `first` allows, a line for each.
    fn grown(&self, first: &Period, now: &Period, is_long: bool) -> Vec<String> {
        let host_times = self.programs.len() as i64 * if is_long { LONG_TIMES } else { 1 };
        let is_above = |level: Level, before: i64, now: i64, (least, percent): Allowance| {
            let times = if level == Level::HostBytes { host_times } else { 1 };
            now > before + (before * percent / 100).max(least * times)
        };
        let grown = LEVELS.iter().filter(|&&(level, in_use, bare)| {
            is_above(level, first.most[&level], now.most[&level], in_use)
                || is_above(level, first.bare[&level], now.bare[&level], bare)
        });
        grown.map(|&(level, ..)| line(level, first, now)).collect()
    }

    fn levels(&self) -> Levels {
        let census = self.rig.machine.census();
        let count = |folder: &str| fs::read_dir(folder).unwrap().count() as i64;
        let level = |level| match level {
            Level::ResidentBytes => resident_bytes(),
            Level::HostBytes => host_memory::process_bytes() - self.before_bytes,
            Level::Descriptors => count("/proc/self/fd"),
            Level::Threads => count("/proc/self/task"),
            Level::Events => census.events as i64,
            Level::Views => census.mappings as i64,
            Level::Handles => (census.handles + census.allocations) as i64,
            Level::Reservations => census.reservations as i64,
            Level::ReservedAddressBytes => census.reserved_bytes as i64,
        };
        LEVELS.iter().map(|&(of, ..)| (of, level(of))).collect()
    }
}

fn resident_bytes() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: i64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
    kilobytes << 10
}

fn line(level: Level, first: &Period, now: &Period) -> String {
    let of = |period: &Period| format!("{} ({})", period.most[&level], period.bare[&level]);
    format!("{level:?}: at most (and bare) {} at first, {} now", of(first), of(now))
}
