//! Every strategy on the driver: random work whose bytes are checked, and the time of a call that
//! is served from the cache.
//!
//! Blocks of random sizes are allocated on several streams and filled there, each with a number of
//! its own. Some are used on a second stream and recorded. Before a block is freed, windows of it
//! are copied into a log. All this is in stream order and without waiting. A block handed out too
//! early or twice, or whose pages moved wrongly, shows in the log as another block's number. The
//! log is read once in a while, when the device is idle. Streams are held back now and then, so
//! that a block handed out too early shows (not for a strategy that waits at every free, nor on
//! the simulated driver, whose race detector needs no delay).
//!
//! Under Elastic, what is live at the end sleeps and wakes before it is checked: its contents go to
//! page-locked memory and come back.
//!
//! Each strategy has a process of its own: the driver's free memory before and after shows what was
//! not given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use genesis::base::{Backup, DeviceOrdinal, Status, StreamHandle};
use genesis::config::{LogLevel, PoolType, Settings, StrategySettings};
use genesis::driver::cuda;
use genesis::heap::{Heap, Keeping, Surroundings};
use genesis::observe::Log;
use serde::{Deserialize, Serialize};

use crate::driver::{Driver, Event, Gate, Stream};

const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
const STREAMS: usize = 4;
/// The largest block: sizes are spread evenly over their magnitudes.
const LARGEST_BLOCK_BITS: u32 = 26;
/// The most bytes live at once: min(this, free memory of the device / [`MOST_LIVE_PART`]).
const MOST_LIVE_BYTES: u64 = 4 << 30;
const MOST_LIVE_PART: u64 = 16;
/// The beginning, the middle and the end of each block are checked.
const WINDOWS: usize = 3;
const WINDOW_BYTES: u64 = 512;
/// Blocks checked between two looks at the log.
const LOG_BLOCKS: usize = 2048;
/// A stream is held back once in so many steps, for half as many.
const STEPS_BETWEEN_GATES: u64 = 64;
/// The size that is allocated and freed to time the hot path.
const HOT_BYTES: u64 = 1 << 20;
const HOT_PAIRS: u32 = 1000;
const HOT_BATCHES: usize = 101;
/// No further batch is begun after this time: a strategy that caches nothing asks the driver each
/// time.
const MOST_HOT_TIME: Duration = Duration::from_millis(200);
/// Under which everything is allocated that is to sleep.
const TAG: &str = "sleeping";

/// The results of one strategy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) strategy: String,
    pub(crate) allocations: u64,
    /// Blocks whose bytes were not the ones written: a defect, unless 0.
    pub(crate) wrong_blocks: u64,
    pub(crate) checked_blocks: u64,
    pub(crate) live_peak_bytes: u64,
    pub(crate) reserved_peak_bytes: u64,
    pub(crate) driver_calls: u64,
    /// Free memory of the driver at the start, minus that after all was released.
    pub(crate) missing_bytes: u64,
    /// Median time of an allocation and its free, served from the cache.
    pub(crate) hot_pair_ns: f64,
    /// Where the strategy can pause memory.
    pub(crate) sleep: Option<Sleep>,
}

/// Memory paused and resumed, with its contents in host memory that was page-locked before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sleep {
    pub(crate) bytes: u64,
    pub(crate) pause_ns: f64,
    pub(crate) resume_ns: f64,
}

/// The names of all strategies.
pub(crate) fn strategies() -> impl Iterator<Item = &'static str> {
    PoolType::ALL.iter().map(|strategy| strategy.name())
}

/// Runs the strategy called `name` for `limit`.
pub(crate) fn run(name: &str, limit: Duration) -> Result<Trial, String> {
    let strategy = PoolType::ALL.iter().find(|strategy| strategy.name() == name);
    let pool_type = *strategy.ok_or_else(|| format!("{name} is no strategy"))?;
    let platform = cuda::open().map_err(|error| error.to_string())?;
    let settings = Settings {
        strategy: StrategySettings::new(pool_type),
        log: LogLevel::Error,
        ..Settings::default()
    };
    let heap = Heap::new(platform, &settings, Surroundings::new(Arc::new(Log::new(settings.log))));
    let driver = Driver::open()?;
    let holds_back = pool_type != PoolType::Naive && !driver.is_simulated();
    let can_sleep = pool_type == PoolType::Elastic;
    if can_sleep {
        heap.set_default_tag(TAG, Backup::Pinned);
    }
    let mut trial = Run::new(&driver, &heap, holds_back)?;
    // Streams, the log and the driver's own needs come first, so that they are not missed.
    let free_before = driver.memory_info()?.0;
    let ending = Instant::now() + limit;
    while Instant::now() < ending {
        trial.step()?;
    }
    let sleep = can_sleep.then(|| trial.sleep()).transpose()?;
    trial.finish()?;
    heap.set_default_tag("", Backup::None);
    let hot_pair_ns = hot_pair_ns(&heap, trial.streams[0])?;
    said(heap.empty_cache(DEVICE))?;
    said(heap.validate())?;
    let statistics = said(heap.statistics(DEVICE))?;
    let free_after = driver.memory_info()?.0;
    Ok(Trial {
        strategy: name.to_owned(),
        allocations: trial.allocations,
        wrong_blocks: trial.wrong_blocks,
        checked_blocks: trial.checked_blocks,
        live_peak_bytes: statistics.requested_bytes.peak,
        reserved_peak_bytes: statistics.reserved_bytes.peak,
        driver_calls: statistics.driver_calls,
        missing_bytes: free_before.saturating_sub(free_after),
        hot_pair_ns,
        sleep,
    })
}

fn said<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn handle(stream: Stream) -> StreamHandle {
    StreamHandle(stream.0)
}

fn hot_pair_ns(heap: &Heap, stream: Stream) -> Result<f64, String> {
    let mut batches = Vec::new();
    let began = Instant::now();
    while batches.len() < HOT_BATCHES && (batches.is_empty() || began.elapsed() < MOST_HOT_TIME) {
        let started = Instant::now();
        for _ in 0..HOT_PAIRS {
            let address = said(heap.allocate(HOT_BYTES, DEVICE, handle(stream)))?;
            said(heap.free(address))?;
        }
        batches.push(started.elapsed().as_nanos() as f64 / f64::from(HOT_PAIRS));
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[batches.len() / 2])
}

/// A live block.
#[derive(Debug)]
struct Block {
    address: u64,
    bytes: u64,
    value: u32,
    /// The stream of the last work on it.
    stream: usize,
}

/// The work on a heap so far.
struct Run<'a> {
    driver: &'a Driver,
    heap: &'a Heap,
    streams: Vec<Stream>,
    event: Event,
    holds_back: bool,
    gate: Option<Gate>,
    most_live_bytes: u64,
    live_bytes: u64,
    blocks: Vec<Block>,
    /// Memory of the device for the windows of [`LOG_BLOCKS`] blocks.
    log_address: u64,
    /// The value expected of each block in the log.
    logged: Vec<u32>,
    random: u64,
    allocations: u64,
    checked_blocks: u64,
    wrong_blocks: u64,
}

impl<'a> Run<'a> {
    fn new(driver: &'a Driver, heap: &'a Heap, holds_back: bool) -> Result<Self, String> {
        let streams: Result<Vec<Stream>, _> =
            (0..STREAMS).map(|_| driver.stream_create()).collect();
        let log_bytes = (LOG_BLOCKS * WINDOWS) as u64 * WINDOW_BYTES;
        Ok(Self {
            driver,
            heap,
            streams: streams?,
            event: driver.event_create(false)?,
            holds_back,
            gate: None,
            most_live_bytes: MOST_LIVE_BYTES.min(driver.memory_info()?.0 / MOST_LIVE_PART),
            live_bytes: 0,
            blocks: Vec::new(),
            log_address: driver.allocate(log_bytes)?,
            logged: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15,
            allocations: 0,
            checked_blocks: 0,
            wrong_blocks: 0,
        })
    }

    /// A number below `bound` (xorshift: Marsaglia, "Xorshift RNGs", 2003).
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Allocates, or uses on another stream, or frees: more of the last when much is live.
    fn step(&mut self) -> Result<(), String> {
        if self.holds_back {
            self.move_gate()?;
        }
        let is_full = self.live_bytes >= self.most_live_bytes;
        let is_filling = self.below(self.most_live_bytes) >= self.live_bytes;
        match self.below(8) {
            _ if self.blocks.is_empty() => self.allocate(),
            0 => self.use_elsewhere(),
            _ if is_full || !is_filling => self.free(),
            1..=2 => self.free(),
            _ => self.allocate(),
        }
    }

    /// Now and then holds a stream back, or lets it go on.
    fn move_gate(&mut self) -> Result<(), String> {
        if self.gate.is_some() {
            if self.below(STEPS_BETWEEN_GATES / 2) == 0 {
                self.gate = None;
            }
        } else if self.below(STEPS_BETWEEN_GATES) == 0 {
            let index = self.below(STREAMS as u64) as usize;
            self.gate = Some(Gate::close(self.driver, self.streams[index])?);
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<(), String> {
        let bits = self.below(u64::from(LARGEST_BLOCK_BITS)) as u32;
        // Whole words, so that fills reach the end.
        let bytes = ((1 << bits) + self.below(1 << bits)).next_multiple_of(4);
        let stream = self.below(STREAMS as u64) as usize;
        let address = match self.heap.allocate(bytes, DEVICE, handle(self.streams[stream])) {
            Ok(address) => address,
            // A device that is shared may be short of memory at any time.
            Err(error) if error.status == Status::OutOfMemory => return self.free(),
            Err(error) => return Err(error.to_string()),
        };
        self.allocations += 1;
        let value = self.allocations as u32;
        self.driver.fill(address, bytes, value, self.streams[stream])?;
        self.live_bytes += bytes;
        self.blocks.push(Block { address, bytes, value, stream });
        Ok(())
    }

    /// Has another stream write the block, after the last that did. The stream it was allocated on
    /// does not wait for that: the heap must not reuse the block too early.
    fn use_elsewhere(&mut self) -> Result<(), String> {
        let index = self.below(self.blocks.len() as u64) as usize;
        let next = self.below(STREAMS as u64) as usize;
        let block = &mut self.blocks[index];
        let (last, other) = (self.streams[block.stream], self.streams[next]);
        self.driver.event_record(self.event, last)?;
        self.driver.stream_wait(other, self.event)?;
        block.value = !block.value;
        block.stream = next;
        self.driver.fill(block.address, block.bytes, block.value, other)?;
        said(self.heap.record_stream(block.address, handle(other)))
    }

    fn free(&mut self) -> Result<(), String> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let index = self.below(self.blocks.len() as u64) as usize;
        let block = self.blocks.swap_remove(index);
        let stream = self.streams[block.stream];
        let window_bytes = WINDOW_BYTES.min(block.bytes);
        let last = block.bytes - window_bytes;
        for (number, offset) in [0, last / 2 / 4 * 4, last].into_iter().enumerate() {
            let to = self.window(self.logged.len(), number);
            // Windows of small blocks are filled up with what is expected.
            self.driver.fill(to, WINDOW_BYTES, block.value, stream)?;
            self.driver.copy(to, block.address + offset, window_bytes, stream)?;
        }
        self.logged.push(block.value);
        self.live_bytes -= block.bytes;
        said(self.heap.free(block.address))?;
        if self.logged.len() == LOG_BLOCKS { self.read_log() } else { Ok(()) }
    }

    fn window(&self, entry: usize, number: usize) -> u64 {
        self.log_address + (entry * WINDOWS + number) as u64 * WINDOW_BYTES
    }

    fn read_log(&mut self) -> Result<(), String> {
        self.gate = None;
        self.driver.synchronize()?;
        let words = WINDOWS * WINDOW_BYTES as usize / 4;
        let log = self.driver.read(self.log_address, self.logged.len() * words)?;
        for (found, expected) in log.chunks(words).zip(self.logged.drain(..)) {
            self.checked_blocks += 1;
            self.wrong_blocks += u64::from(found.iter().any(|word| *word != expected));
        }
        Ok(())
    }

    /// All that is live sleeps and wakes, twice: then the host memory is there already.
    fn sleep(&mut self) -> Result<Sleep, String> {
        self.gate = None;
        self.driver.synchronize()?;
        let (bytes, kept) = (self.live_bytes, Keeping::default());
        self.heap.set_retains_backups(true);
        let mut found = Sleep { bytes, pause_ns: 0.0, resume_ns: 0.0 };
        for _ in 0..2 {
            let started = Instant::now();
            said(self.heap.pause_tags(Some(TAG), kept))?;
            let paused = Instant::now();
            said(self.heap.resume_tags(Some(TAG)))?;
            found.pause_ns = (paused - started).as_nanos() as f64;
            found.resume_ns = paused.elapsed().as_nanos() as f64;
        }
        self.heap.set_retains_backups(false);
        Ok(found)
    }

    /// Frees and checks everything that is left.
    fn finish(&mut self) -> Result<(), String> {
        while !self.blocks.is_empty() {
            self.free()?;
        }
        self.read_log()
    }
}
