//! Which cached memory should go first when there is no room for all of it? The recorded programs,
//! with a cache of blocks that are reused by exact size (as MXNet's pools do), under several orders.
//!
//! `cargo run --release -p genesis-replay --example cache_order [TRACE …]` prints the table of
//! docs/benchmarks/cache_order.md: the driver time of three passes in milliseconds, by order and by how
//! much more than the live peak may be held.
//!
//! | order | the first to go is |
//! |---|---|
//! | age | unused for longest: what Genesis does |
//! | newest | unused for shortest, the best order for a loop that does not fit |
//! | rate | of the size least often asked for lately; among equals the oldest |
//! | idle | with most idle bytes × requests since it was freed, for its price in the driver |
//! | worth | worth least by GreedyDual-Size-Frequency (Cherkasova, HPL-98-69): rate × price / bytes, aged |
//! | oracle | of the size whose next request is furthest away: nobody can know it |
//!
//! A block counts as the driver rounds it; prices are those of cuMemAlloc and cuMemFree in simgpu's
//! tables, on lines through the published points.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use genesis_replay::gtr;
use genesis_replay::program::{Call, Kind, Program};
use genesis_replay::table::Table;

const MIB: u64 = 1 << 20;
const PASSES: usize = 3;
/// How much may be held, over the most that is live.
const ROOM: [f64; 4] = [1.02, 1.1, 1.25, 1.5];
/// A request counts half as much after so many others.
const HALF_LIFE: f64 = 5000.0;

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Age,
    Newest,
    Rate,
    Idle,
    Worth,
    Oracle,
}

const ORDERS: [(&str, Order); 6] = [
    ("age", Order::Age),
    ("newest", Order::Newest),
    ("rate", Order::Rate),
    ("idle", Order::Idle),
    ("worth", Order::Worth),
    ("oracle", Order::Oracle),
];

/// What is known of one size.
#[derive(Default)]
struct Size {
    /// When each free block of it was freed, the oldest first.
    free: VecDeque<u64>,
    /// How often it was asked for lately, and when that was reckoned.
    rate: f64,
    reckoned: u64,
    /// GreedyDual's clock when it was last used.
    floor: f64,
    /// When it is asked for, for the oracle.
    requests: VecDeque<u64>,
}

/// A cache of a device and stream's blocks.
struct Cache {
    order: Order,
    sizes: HashMap<u64, Size>,
    held_bytes: u64,
    limit_bytes: u64,
    clock: f64,
    driver_ns: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let files = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        paths = files.filter(|path| path.extension().is_some_and(|end| end == "zst")).collect();
        paths.sort();
    }
    let names = ORDERS.map(|(name, _)| name);
    let mut table = Table::new(&[&["program", "room"][..], &names[..]].concat());
    let mut sums = [0.0; ORDERS.len()];
    for path in &paths {
        let program = Program::prepare(&gtr::read_file(path)?)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        for room in ROOM {
            let mut row = vec![name.trim_end_matches(".gtr.zst").to_owned(), format!("{room}")];
            let times = ORDERS.map(|(_, order)| driver_ms(&program, order, room));
            for (sum, (time, age)) in
                sums.iter_mut().zip(times.iter().zip([times[0]; ORDERS.len()]))
            {
                *sum += (time.max(0.001) / age.max(0.001)).ln();
            }
            row.extend(times.map(|time| format!("{time:.0}")));
            table.add(row);
        }
    }
    let count = (paths.len() * ROOM.len()) as f64;
    let mut row = vec!["geometric mean over age".to_owned(), String::new()];
    row.extend(sums.map(|sum| format!("{:.2}", (sum / count).exp())));
    table.add(row);
    println!("{table}");
    Ok(())
}

/// The driver time of all passes, in milliseconds.
fn driver_ms(program: &Program, order: Order, room: f64) -> f64 {
    let live_peak_bytes = live_peak_bytes(program);
    let mut caches: HashMap<(u8, u16), Cache> = HashMap::new();
    let calls = || program.calls.iter().chain(&program.leftovers);
    let length = calls().count() as u64;
    for pass in 0..PASSES as u64 {
        for (index, call) in calls().enumerate() {
            let now = pass * length + index as u64 + 1;
            let cache = caches.entry((call.device, call.stream)).or_insert_with(|| {
                let peak_bytes = live_peak_bytes[&(call.device, call.stream)];
                let mut cache = Cache::new(order, (peak_bytes as f64 * room) as u64);
                if order == Order::Oracle {
                    cache.foresee(
                        calls().enumerate().filter(|(_, other)| {
                            (other.device, other.stream) == (call.device, call.stream)
                        }),
                        length,
                    );
                }
                cache
            });
            match call.kind {
                Kind::Allocate => cache.take(rounded(call.requested_bytes), now),
                Kind::Free => cache.give(rounded(call.requested_bytes), now),
                Kind::RecordStream | Kind::EmptyCache => {}
            }
        }
    }
    caches.values().map(|cache| cache.driver_ns).sum::<f64>() / 1e6
}

/// The most that is live of each device and stream, in rounded bytes.
fn live_peak_bytes(program: &Program) -> HashMap<(u8, u16), u64> {
    let mut levels: HashMap<(u8, u16), (u64, u64)> = HashMap::new();
    for call in program.calls.iter().chain(&program.leftovers) {
        let (live, peak) = levels.entry((call.device, call.stream)).or_default();
        match call.kind {
            Kind::Allocate => *live += rounded(call.requested_bytes),
            Kind::Free => *live -= rounded(call.requested_bytes),
            Kind::RecordStream | Kind::EmptyCache => {}
        }
        *peak = (*peak).max(*live);
    }
    levels.into_iter().map(|(key, (_, peak))| (key, peak)).collect()
}

/// As MXNet's Naive, Genesis's Exact, rounds.
fn rounded(bytes: u64) -> u64 {
    let multiple = if bytes > 2 * MIB { 2 * MIB } else { 4096 };
    bytes.next_multiple_of(multiple)
}

/// cuMemAlloc, on a line through 2 MiB and 1 GiB.
fn allocate_ns(bytes: u64) -> f64 {
    223_000.0 + bytes as f64 / MIB as f64 * (388_000.0 - 223_000.0) / 1022.0
}

/// cuMemFree, likewise.
fn free_ns(bytes: u64) -> f64 {
    75_000.0 + bytes as f64 / MIB as f64 * (481_000.0 - 75_000.0) / 1022.0
}

impl Cache {
    fn new(order: Order, limit_bytes: u64) -> Self {
        Self {
            order,
            sizes: HashMap::new(),
            held_bytes: 0,
            limit_bytes,
            clock: 0.0,
            driver_ns: 0.0,
        }
    }

    /// Notes the requests of all passes.
    fn foresee<'a>(&mut self, calls: impl Iterator<Item = (usize, &'a Call)>, length: u64) {
        for (index, call) in calls.filter(|(_, call)| call.kind == Kind::Allocate) {
            let size = self.sizes.entry(rounded(call.requested_bytes)).or_default();
            let passes = 0..PASSES as u64;
            size.requests.extend(passes.map(|pass| pass * length + index as u64 + 1));
        }
        for size in self.sizes.values_mut() {
            size.requests.make_contiguous().sort_unstable();
        }
    }

    fn take(&mut self, bytes: u64, now: u64) {
        let clock = self.clock;
        let size = self.sizes.entry(bytes).or_default();
        size.rate = size.rate_at(now) + 1.0;
        size.reckoned = now;
        size.floor = clock;
        while size.requests.front().is_some_and(|&next| next <= now) {
            size.requests.pop_front();
        }
        if size.free.pop_back().is_some() {
            return;
        }
        while self.held_bytes + bytes > self.limit_bytes && self.release_one(now) {}
        self.held_bytes += bytes;
        self.driver_ns += allocate_ns(bytes);
    }

    fn give(&mut self, bytes: u64, now: u64) {
        self.sizes.entry(bytes).or_default().free.push_back(now);
    }

    /// Releases the first block by the order; false if none is free.
    fn release_one(&mut self, now: u64) -> bool {
        let order = self.order;
        let free = self.sizes.iter().filter(|(_, size)| !size.free.is_empty());
        let first = free.min_by(|(a, first), (b, second)| {
            let (one, other) = (first.key(order, **a, now), second.key(order, **b, now));
            let oldest = first.free[0].cmp(&second.free[0]);
            one.total_cmp(&other).then(oldest).then(a.cmp(b))
        });
        let Some((&bytes, size)) = first else { return false };
        self.clock = self.clock.max(size.key(Order::Worth, bytes, now));
        if let Some(size) = self.sizes.get_mut(&bytes) {
            if order == Order::Newest {
                size.free.pop_back()
            } else {
                size.free.pop_front()
            };
        }
        self.held_bytes -= bytes;
        self.driver_ns += free_ns(bytes);
        true
    }
}

impl Size {
    fn rate_at(&self, now: u64) -> f64 {
        self.rate * 0.5_f64.powf((now - self.reckoned) as f64 / HALF_LIFE)
    }

    /// What is least goes first.
    fn key(&self, order: Order, bytes: u64, now: u64) -> f64 {
        match order {
            Order::Age => self.free.front().map_or(0.0, |&freed| freed as f64),
            Order::Newest => -self.free.back().map_or(0.0, |&freed| freed as f64),
            Order::Rate => self.rate_at(now),
            Order::Idle => {
                let age = self.free.front().map_or(0, |&freed| now - freed);
                -(age as f64 * bytes as f64 / (allocate_ns(bytes) + free_ns(bytes)))
            }
            Order::Worth => {
                let price = allocate_ns(bytes) + free_ns(bytes);
                self.floor + self.rate_at(now) * price / bytes as f64
            }
            Order::Oracle => -(self.requests.front().copied().unwrap_or(u64::MAX) as f64),
        }
    }
}
