//! A profile agrees with the heap it is of, whatever the heap does: for each strategy, on devices
//! with and without room, over streams that use each other's blocks.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use genesis::base::size::{KIB, MIB};
use genesis::base::{DeviceOrdinal, StreamHandle};
use genesis::config::PoolType;
use genesis::heap::PartState;
use genesis::observe::{EventStream, Keeping, Profiler};
use genesis_profile::model::{Action, Levels, Profile};
use simgpu::StoreKind;
use support::{A, B, C, DEVICE, Plan, Random, Rig, Subject};

fn ticks() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(100, Relaxed)
}

/// A heap, and the profile that is made of it.
struct Observed {
    rig: Rig,
    profiler: Profiler,
    events: &'static EventStream,
}

impl Observed {
    fn new(plan: Plan) -> Self {
        let events = Box::leak(Box::new(EventStream::with_clock(ticks)));
        let rig = plan.events(events).start();
        Self { rig, profiler: Profiler::new(), events }
    }

    fn start(&self, history_events: usize) {
        let heap = &self.rig.heap;
        let keeping = Keeping { history_events, has_sites: true, ..Keeping::default() };
        self.profiler.start(self.events, keeping, &**heap).unwrap();
    }

    fn describe(&self) -> Profile {
        self.profiler.describe().unwrap()
    }

    /// Compares everything that the profile and the heap both know.
    fn check(&self) {
        let profile = self.describe();
        let statistics = self.rig.statistics();
        let now = profile.devices[0].now;
        let expected = Levels {
            requested_bytes: statistics.requested_bytes.current,
            allocated_bytes: statistics.allocated_bytes.current,
            active_bytes: statistics.active_bytes.current,
            reserved_bytes: statistics.reserved_bytes.current,
        };
        assert_eq!(now, expected);
        let mut known = BTreeMap::new();
        for region in self.rig.heap.regions() {
            for pair in region.parts.windows(2) {
                assert_eq!(pair[0].address + pair[0].bytes, pair[1].address, "a hole");
            }
            let live = region.parts.iter().filter(|part| part.state == PartState::Live);
            known.extend(live.map(|part| (part.address, (part.bytes, part.requested_bytes))));
        }
        let seen: BTreeMap<_, _> = profile
            .live
            .iter()
            .map(|block| (block.address, (block.block_bytes, block.requested_bytes)))
            .collect();
        assert_eq!(seen, known);
        let of_streams: u64 = profile.streams.iter().map(|stream| stream.now.allocated_bytes).sum();
        assert_eq!(of_streams, now.allocated_bytes);
        let of_sizes: u64 = profile.sizes.iter().map(|size| size.counts.live_bytes).sum();
        assert_eq!(of_sizes, now.allocated_bytes);
        replay(&profile);
    }
}

/// Makes the history happen again: it leads from its start to what is there now.
fn replay(profile: &Profile) {
    let mut levels = profile.history.start.first().copied().unwrap_or_default();
    let start_live = profile.history.start_live.iter();
    let mut live: HashMap<u64, u64> =
        start_live.map(|block| (block.address, block.block_bytes)).collect();
    assert_eq!(live.values().sum::<u64>(), levels.allocated_bytes);
    let mut latest_ns = 0;
    for event in &profile.history.events {
        assert!(event.time_ns >= latest_ns, "time goes back");
        latest_ns = event.time_ns;
        let (requested, bytes) = (event.requested_bytes, event.block_bytes);
        match event.action {
            Action::Allocate | Action::AllocateMiss => {
                assert_eq!(live.insert(event.address, bytes), None, "handed out twice");
                levels.requested_bytes += requested;
                levels.allocated_bytes += bytes;
                levels.active_bytes += bytes;
            }
            Action::Free => {
                assert_eq!(live.remove(&event.address), Some(bytes), "freed, and not live");
                levels.requested_bytes -= requested;
                levels.allocated_bytes -= bytes;
                levels.active_bytes -= bytes;
            }
            Action::Pending => levels.active_bytes += bytes,
            Action::Ready => levels.active_bytes -= bytes,
            Action::Reserve => levels.reserved_bytes += bytes,
            Action::Release => levels.reserved_bytes -= bytes,
            _ => {}
        }
    }
    assert_eq!(levels, profile.devices[0].now);
    assert_eq!(live.len(), profile.live.len());
    assert!(profile.duration_ns >= latest_ns);
}

/// Allocates, frees and shares blocks, with a check now and then.
fn work(observed: &Observed, rounds: usize, largest_bytes: u64) {
    let mut random = Random(7);
    let mut live: Vec<(u64, StreamHandle)> = Vec::new();
    for round in 0..rounds {
        let stream = [A, B, C][random.below(3) as usize];
        match random.below(10) {
            0..=4 => {
                let bytes = 1 + random.below(largest_bytes);
                if let Ok(address) = observed.rig.heap.allocate(bytes, DEVICE, stream) {
                    live.push((address, stream));
                }
            }
            5..=8 if !live.is_empty() => {
                let (address, _) = live.swap_remove(random.below(live.len() as u64) as usize);
                observed.rig.free(address);
            }
            9 if !live.is_empty() => {
                let (address, own) = live[random.below(live.len() as u64) as usize];
                if own != stream {
                    observed.rig.record(address, stream);
                }
            }
            _ => {
                observed.rig.run(stream);
                observed.rig.heap.empty_cache(DEVICE).unwrap();
            }
        }
        if round % 500 == 499 {
            observed.check();
        }
    }
    live.into_iter().for_each(|(address, _)| observed.rig.free(address));
    observed.check();
}

#[test]
fn a_profile_agrees_with_the_heap() {
    for &pool_type in PoolType::ALL {
        for (device_bytes, largest_bytes) in [(4096 * MIB, 4 * MIB), (64 * MIB, 8 * MIB)] {
            let plan = Subject::new(pool_type, StoreKind::AddressesOnly).plan();
            let observed = Observed::new(plan.capacity(device_bytes));
            // What is there before is known.
            let before: Vec<u64> =
                (1..20).map(|n| observed.rig.allocate(n * 10 * KIB, A)).collect();
            observed.start(1 << 20);
            observed.check();
            work(&observed, 3000, largest_bytes);
            before.into_iter().for_each(|address| observed.rig.free(address));
            observed.check();
            observed.profiler.stop(None).unwrap();
            observed.rig.finish();
        }
    }
}

/// A history that is shorter than the run leads to the same end.
#[test]
fn a_short_history_agrees_with_the_heap() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let observed = Observed::new(subject.plan().capacity(256 * MIB));
    observed.start(1);
    work(&observed, 30_000, 4 * MIB);
    assert!(observed.describe().history.dropped_events > 0);
    observed.profiler.stop(None).unwrap();
    observed.rig.finish();
}

/// Removes a range that lies in `homes`, each of which begins at its key and has so many bytes: whole ones,
/// or the edge of one.
fn remove(homes: &mut BTreeMap<u64, u64>, range: Range<u64>) {
    assert!(is_covered(homes, range.start, range.end), "no memory at {range:#x?}");
    let first = homes.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
    let within: Vec<(u64, u64)> =
        homes.range(first..range.end).map(|(&start, &bytes)| (start, start + bytes)).collect();
    for (start, end) in within {
        homes.remove(&start);
        let left = [(start, end.min(range.start)), (start.max(range.end), end)];
        homes.extend(
            left.iter().filter(|(start, end)| start < end).map(|&(at, end)| (at, end - at)),
        );
    }
}

/// Elastic's memory has one home at a time, and what is at home is what is reserved, at every
/// moment of the history but while memory is on its way.
#[test]
fn homes_of_elastic_are_what_is_reserved() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let observed = Observed::new(subject.plan().capacity(64 * MIB));
    observed.start(1 << 20);
    work(&observed, 5000, 8 * MIB);
    let profile = observed.describe();
    let mut homes: BTreeMap<u64, u64> = BTreeMap::new();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut moves = 0;
    for event in &profile.history.events {
        let (address, bytes) = (event.address, event.block_bytes);
        match event.action {
            Action::Map => {
                assert_eq!(homes.insert(address, bytes), None);
                moves += 1;
            }
            Action::Unmap => remove(&mut homes, address..address + bytes),
            Action::Allocate | Action::AllocateMiss => {
                live.insert(address, bytes);
                assert!(is_covered(&homes, address, address + bytes), "live where no memory is");
            }
            Action::Free => drop(live.remove(&address)),
            _ => {}
        }
    }
    assert!(moves > 100, "{moves}");
    assert_eq!(homes.values().sum::<u64>(), profile.devices[0].now.reserved_bytes);
    observed.profiler.stop(None).unwrap();
    observed.rig.finish();
}

fn is_covered(homes: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    let mut at = start;
    while at < end {
        match homes.range(..=at).next_back() {
            Some((&home, &bytes)) if home + bytes > at => at = home + bytes,
            _ => return false,
        }
    }
    true
}

/// Threads that work while a profile begins and ends.
#[test]
fn threads_are_seen_whenever_a_profile_begins() {
    let subject = Subject::new(PoolType::Elastic, StoreKind::AddressesOnly);
    let mut plan = subject.plan().capacity(8192 * MIB);
    plan.machine.detect_races = false;
    let observed = Observed::new(plan);
    let (is_over, allocations) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Also when a check fails: the scope waits for its threads.
        let _stop = OnDrop(|| is_over.store(true, Relaxed));
        for thread in 0..4 {
            let (heap, is_over, allocations) = (&observed.rig.heap, &is_over, &allocations);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let stream = StreamHandle(0x1_0000 * (thread as usize + 1));
                let mut live = Vec::new();
                while !is_over.load(Relaxed) {
                    let bytes = 1 + random.below(MIB);
                    live.push(heap.allocate(bytes, DeviceOrdinal(0), stream).unwrap());
                    allocations.fetch_add(1, Relaxed);
                    if live.len() > 100 {
                        let index = random.below(live.len() as u64) as usize;
                        heap.free(live.swap_remove(index)).unwrap();
                    }
                }
            });
        }
        for _ in 0..10 {
            observed.start(1 << 14);
            let enough = allocations.load(Relaxed) + 2000;
            let started = Instant::now();
            while allocations.load(Relaxed) < enough {
                assert!(started.elapsed() < PATIENCE, "the threads stand still");
                std::thread::yield_now();
            }
            // One allocation of each thread may have begun before the profile.
            let seen = observed.describe().devices[0].allocations;
            assert!(seen >= 2000 - 4, "{seen} allocations seen");
            observed.profiler.stop(None).unwrap();
        }
    });
    observed.start(1 << 14);
    observed.check();
    observed.profiler.stop(None).unwrap();
}

/// A busy machine may take a while for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls a function when it goes.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
