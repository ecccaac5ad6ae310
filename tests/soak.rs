//! A long run: recorded programs one after the other and side by side, with sizes that grow and
//! shrink, threads and streams that come and go. What the process, the device and the heap hold
//! for it is the same after each cycle: memory of the host, descriptors, threads, handles, mappings,
//! addresses, events.
//!
//! `GENESIS_TEST_SOAK_MINUTES` says how long; a few minutes show what grows with each cycle.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use genesis::base::size::{GIB, MIB};
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use genesis_replay::program::{Kind, Program};
use simgpu::{Progress, StoreKind};

use support::replay::recorded;
use support::{Random, Rig, Subject};

/// The programs of one cycle, each on as many threads and with sizes as [`ROUNDS`] say.
const PROGRAMS: [&str; 4] = ["alternating", "bert_large_var", "diffusion_buckets", "fsdp_streams"];
/// Threads, and sixteenths of the recorded sizes, up and down again.
const ROUNDS: [(usize, u64); 6] = [(1, 16), (2, 20), (4, 28), (3, 31), (2, 12), (1, 5)];
/// Streams that come for one request each cycle: more than there can be lanes, in the first cycles.
const VISITORS: usize = 1_500;
/// By then lanes, tables and the allocator of the host have all they need.
const WARM_UP_CYCLES: usize = 4;
/// At least so many cycles are judged.
const LEAST_CYCLES: usize = 4;
const USUAL_MINUTES: u64 = 3;
/// Room for all threads.
const DEVICE_BYTES: u64 = 1024 * GIB;

#[test]
#[ignore = "nightly"]
fn elastic_stays_as_it_is() {
    soak(PoolType::Elastic);
}

#[test]
#[ignore = "nightly"]
fn caching_stays_as_it_is() {
    soak(PoolType::Caching);
}

fn soak(pool_type: PoolType) {
    let programs = PROGRAMS.map(|name| Arc::new(recorded(name)));
    let devices = programs.iter().map(|program| program.device_count).max().unwrap_or(1);
    let mut plan = Subject::new(pool_type, StoreKind::AddressesOnly).plan();
    plan = plan.devices(devices, DEVICE_BYTES);
    plan.machine.detect_races = false;
    plan.machine.progress = Progress::Automatic;
    let rig = plan.start();
    let (began, mut random) = (Instant::now(), Random(7));
    let mut held = Vec::new();
    while held.len() < WARM_UP_CYCLES + LEAST_CYCLES || began.elapsed() < time() {
        cycle(&rig, &programs, &mut random);
        rig.check();
        held.push(Held::now(&rig));
    }
    let (warm_up, judged) = held.split_at(WARM_UP_CYCLES);
    let most = warm_up.iter().copied().reduce(Held::most).unwrap_or_default();
    println!("{pool_type:?}: {} cycles; after the first ones {most:?}", held.len());
    for (number, held) in judged.iter().enumerate() {
        held.assert_within(&most, number);
    }
    println!("{pool_type:?}: after the last one {:?}", judged.last());
    rig.finish();
}

fn time() -> Duration {
    let minutes = std::env::var("GENESIS_TEST_SOAK_MINUTES").ok();
    let minutes = minutes.map_or(USUAL_MINUTES, |text| text.parse().expect("minutes"));
    Duration::from_secs(60 * minutes)
}

/// Every program in every round, then the visitors.
fn cycle(rig: &Rig, programs: &[Arc<Program>], random: &mut Random) {
    for (threads, sixteenths) in ROUNDS {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let program = &programs[random.below(programs.len() as u64) as usize];
                scope.spawn(|| replay(rig, program, sixteenths));
            }
        });
    }
    for _ in 0..VISITORS {
        let stream = StreamHandle(rig.machine.stream_create(0, false).unwrap());
        let bytes = 1 + random.below(MIB);
        let address = rig.heap.allocate(bytes, DeviceOrdinal(0), stream).unwrap();
        rig.heap.free(address).unwrap();
        if random.below(2) == 0 {
            rig.heap.forget_stream(stream).unwrap();
        }
        rig.machine.stream_destroy(0, stream.0).unwrap();
    }
}

/// The program once, on streams of its own, with sizes of so many sixteenths.
fn replay(rig: &Rig, program: &Program, sixteenths: u64) {
    let make = |device| rig.machine.stream_create(device, false).unwrap();
    let streams: Vec<Vec<usize>> = (0..program.device_count as u32)
        .map(|device| (0..program.stream_count).map(|_| make(device)).collect())
        .collect();
    let mut pointers = vec![0; program.slot_count];
    for call in program.calls.iter().chain(&program.leftovers) {
        let stream = StreamHandle(streams[usize::from(call.device)][usize::from(call.stream)]);
        let device = DeviceOrdinal(u32::from(call.device));
        let pointer = &mut pointers[call.slot as usize];
        match call.kind {
            Kind::Allocate => {
                let bytes = (call.requested_bytes * sixteenths).div_ceil(16);
                *pointer = rig.heap.allocate(bytes, device, stream).unwrap();
            }
            Kind::Free => rig.heap.free(*pointer).unwrap(),
            Kind::RecordStream => rig.heap.record_stream(*pointer, stream).unwrap(),
            // What is given back hides what would stay.
            Kind::EmptyCache => {}
        }
    }
    for (device, streams) in (0..).zip(streams) {
        for stream in streams {
            rig.heap.forget_stream(StreamHandle(stream)).unwrap();
            rig.machine.stream_destroy(device, stream).unwrap();
        }
    }
}

/// What is held after a cycle, when nothing is live.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Of the host, resident.
    host_bytes: u64,
    descriptors: u64,
    threads: u64,
    handles: u64,
    mappings: u64,
    reservations: u64,
    address_bytes: u64,
    events: u64,
    device_bytes: u64,
}

impl Held {
    fn now(rig: &Rig) -> Self {
        let count = |folder: &str| std::fs::read_dir(folder).unwrap().count() as u64;
        let census = rig.machine.census();
        Self {
            host_bytes: resident_bytes(),
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            handles: (census.handles + census.allocations) as u64,
            mappings: census.mappings as u64,
            reservations: census.reservations as u64,
            address_bytes: census.reserved_bytes,
            events: census.events as u64,
            device_bytes: census.used_bytes,
        }
    }

    fn figures(&self) -> [(&'static str, u64); 9] {
        [
            ("host_bytes", self.host_bytes),
            ("descriptors", self.descriptors),
            ("threads", self.threads),
            ("handles", self.handles),
            ("mappings", self.mappings),
            ("reservations", self.reservations),
            ("address_bytes", self.address_bytes),
            ("events", self.events),
            ("device_bytes", self.device_bytes),
        ]
    }

    fn most(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            handles: self.handles.max(other.handles),
            mappings: self.mappings.max(other.mappings),
            reservations: self.reservations.max(other.reservations),
            address_bytes: self.address_bytes.max(other.address_bytes),
            events: self.events.max(other.events),
            device_bytes: self.device_bytes.max(other.device_bytes),
        }
    }

    /// An eighth more, because which programs run side by side is drawn; and a few of each, which
    /// threads that end just now still have.
    #[track_caller]
    fn assert_within(&self, most: &Self, number: usize) {
        for ((name, now), (_, most)) in self.figures().into_iter().zip(most.figures()) {
            let some = if name.ends_with("bytes") { 32 * MIB } else { 16 };
            assert!(now <= most / 8 * 9 + some, "cycle {number}: {name} {most}, later {now}");
        }
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}
