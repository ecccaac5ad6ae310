//! What the tests of the heap share: a simulated machine, a heap over it, and short words for
//! what tests do with them.
//!
//! A [`Plan`] says what machine and settings a test wants, with defaults that suit most: one
//! device of 1 GiB, the race detector on, streams that stand still until the test runs them.
//! [`Plan::start`] makes the [`Rig`]. A test ends with [`Rig::finish`], which gives everything
//! back and checks that the machine agrees: nothing leaked, nothing raced, nothing torn.
#![allow(dead_code)] // each test binary uses a part of it

pub mod host_memory;
pub mod overtaking;
pub mod replay;
#[cfg(feature = "shuttle")]
pub mod schedules;
pub mod tier;
pub mod turns;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use genesis::base::size::GIB;
use genesis::base::{DeviceOrdinal, Result, Status, StreamHandle};
use genesis::config::{LogLevel, PoolType, Settings, StrategySettings};
use genesis::driver::simulated::SimulatedDevice;
use genesis::driver::{Backend, Device, Platform};
use genesis::heap::{Heap, Surroundings};
use genesis::observe::{EventStream, Log, Statistics};
use simgpu::{Config, Machine, Progress, StoreKind, Usage, Work};

/// The device of all tests that need one only.
pub const DEVICE: DeviceOrdinal = DeviceOrdinal(0);
/// How long a request waits for a capture of another thread.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Three streams; the machine makes a stream of any handle it is given.
pub const A: StreamHandle = StreamHandle(0xA000);
/// See [`A`].
pub const B: StreamHandle = StreamHandle(0xB000);
/// See [`A`].
pub const C: StreamHandle = StreamHandle(0xC000);

/// What a suite runs for: a strategy on a store, with other settings than the default ones.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub pool_type: PoolType,
    pub store: StoreKind,
    pub vary: fn(&mut Settings),
}

impl Subject {
    /// A strategy on a store, with default settings.
    pub const fn new(pool_type: PoolType, store: StoreKind) -> Self {
        Self { pool_type, store, vary: |_| () }
    }

    /// Whether freed blocks are kept for reuse.
    pub fn keeps_blocks(self) -> bool {
        self.pool_type != PoolType::Naive
    }

    /// Whether blocks are cut from larger segments and joined again.
    pub fn splits_blocks(self) -> bool {
        matches!(self.pool_type, PoolType::Caching | PoolType::Arena | PoolType::Elastic)
    }

    pub fn plan(self) -> Plan {
        let mut settings = Settings {
            strategy: StrategySettings::new(self.pool_type),
            log: LogLevel::Error,
            ..Settings::default()
        };
        (self.vary)(&mut settings);
        let mut machine = Config::new(self.store, 1, GIB);
        machine.progress = Progress::Manual;
        machine.detect_races = true;
        Plan { settings, machine, clock: None, events: None }
    }
}

/// A machine and the settings of a heap, before either is made.
pub struct Plan {
    pub settings: Settings,
    pub machine: Config,
    pub clock: Option<genesis::heap::Clock>,
    pub events: Option<&'static EventStream>,
}

impl Plan {
    pub fn devices(mut self, count: usize, capacity_bytes: u64) -> Self {
        let device = simgpu::DeviceConfig { capacity_bytes, ..self.machine.devices[0].clone() };
        self.machine.devices = vec![device; count];
        self
    }

    pub fn capacity(self, bytes: u64) -> Self {
        let count = self.machine.devices.len();
        self.devices(count, bytes)
    }

    pub fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    pub fn events(mut self, events: &'static EventStream) -> Self {
        self.events = Some(events);
        self
    }

    pub fn start(self) -> Rig {
        let machine = Machine::new(self.machine).expect("a machine");
        let ordinals = 0..machine.config().devices.len() as u32;
        let devices = ordinals
            .map(|n| Arc::new(SimulatedDevice::new(Arc::clone(&machine), n)) as Arc<dyn Device>)
            .collect();
        let platform = Platform { backend: Backend::Sim, devices, notice: None };
        let log = Arc::new(Log::new(self.settings.log));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        log.set_sink(Some(Arc::new(move |_, line| written.lock().unwrap().push(line.into()))));
        let mut surroundings = Surroundings::new(log);
        if let Some(clock) = self.clock {
            surroundings.clock = clock;
        }
        if let Some(events) = self.events {
            surroundings.events = events;
        }
        let heap = Heap::new(platform, &self.settings, surroundings);
        Rig { machine, heap: Arc::new(heap), lines }
    }
}

/// A heap over a machine.
#[derive(Clone)]
pub struct Rig {
    pub machine: Arc<Machine>,
    pub heap: Arc<Heap>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Rig {
    /// Memory on device 0, which there is.
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: StreamHandle) -> u64 {
        let address = self.heap.allocate(bytes, DEVICE, stream).unwrap();
        assert!(bytes == 0 || (address != 0 && address.is_multiple_of(512)), "{address:#x}");
        address
    }

    /// The status with which a request on device 0 is refused.
    #[track_caller]
    pub fn refusal(&self, bytes: u64, stream: StreamHandle) -> Status {
        status_of(self.heap.allocate(bytes, DEVICE, stream))
    }

    #[track_caller]
    pub fn free(&self, address: u64) {
        self.heap.free(address).unwrap();
    }

    #[track_caller]
    pub fn record(&self, address: u64, stream: StreamHandle) {
        self.heap.record_stream(address, stream).unwrap();
    }

    /// Enqueues work on `stream` of device 0 that writes the block at `address`.
    #[track_caller]
    pub fn touch(&self, address: u64, stream: StreamHandle) {
        let bytes = self.heap.block_containing(address).unwrap().requested_bytes;
        self.machine.touch(0, stream.0, Work::write(address, bytes, "a test")).unwrap();
    }

    /// Allocates on device 0 and enqueues work on the block.
    #[track_caller]
    pub fn allocate_and_touch(&self, bytes: u64, stream: StreamHandle) -> u64 {
        let address = self.allocate(bytes, stream);
        self.touch(address, stream);
        address
    }

    /// Completes the work of a stream of device 0, and what it waits for. The host is not told.
    #[track_caller]
    pub fn run(&self, stream: StreamHandle) {
        self.machine.run_to_idle(0, stream.0).unwrap();
    }

    pub fn usage(&self) -> Usage {
        self.machine.usage(0).unwrap()
    }

    /// All driver calls made for device 0 so far, but those that only ask which stream a handle
    /// means: each call that names a stream makes one.
    pub fn calls(&self) -> u64 {
        let usage = self.usage();
        usage.calls.iter().sum::<u64>() - usage.count(simgpu::Call::StreamGetId)
    }

    pub fn statistics(&self) -> Statistics {
        self.heap.statistics(DEVICE).unwrap()
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.statistics().reserved_bytes.current
    }

    /// What the heap has logged so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Checks the heap, the machine and the race detector's findings.
    #[track_caller]
    pub fn check(&self) {
        self.heap.validate().unwrap();
        self.machine.validate().unwrap();
        if let Some(violation) = self.machine.take_violations().first() {
            panic!("{violation}");
        }
    }

    /// Frees what is live, gives everything back, and checks that nothing is left.
    #[track_caller]
    pub fn finish(self) {
        self.check();
        for ordinal in (0..self.heap.device_count() as u32).map(DeviceOrdinal) {
            for block in self.heap.largest_allocations(ordinal, 0).unwrap() {
                self.free(block.address);
            }
            self.heap.empty_cache(ordinal).unwrap();
            let statistics = self.heap.statistics(ordinal).unwrap();
            assert_eq!(statistics.reserved_bytes.current, 0, "device {ordinal}");
            assert_eq!(statistics.allocations, statistics.frees, "device {ordinal}");
            assert_eq!(statistics.active_bytes.current, 0, "device {ordinal}");
        }
        let census = self.machine.census();
        assert_eq!((census.allocations, census.used_bytes), (0, 0), "{census:?}");
        self.check();
    }
}

/// A heap of the memory of `device` alone, with no machine that the test sees: of the host, mostly.
pub fn heap_over(device: Arc<dyn Device>, pool_type: PoolType) -> Heap {
    let platform = Platform { backend: Backend::Host, devices: vec![device], notice: None };
    let settings = Settings {
        strategy: StrategySettings::new(pool_type),
        log: LogLevel::Off,
        ..Settings::default()
    };
    Heap::new(platform, &settings, Surroundings::new(Arc::new(Log::new(LogLevel::Off))))
}

/// Returns true if every byte is `value`: compared as memory, not one by one.
pub fn is_filled(bytes: &[u8], value: u8) -> bool {
    let Some((first, rest)) = bytes.split_first() else { return true };
    *first == value && *rest == bytes[..rest.len()]
}

/// The status of a result that must be an error.
#[track_caller]
pub fn status_of<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.unwrap_err().status
}

/// A small generator of random numbers (SplitMix64: Steele, Lea, Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014), so that a seed means the same run for ever.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
