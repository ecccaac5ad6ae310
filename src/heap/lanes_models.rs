//! Lanes that run out, under drawn schedules: streams that come and go find lanes, and keep them
//! for as long as they hold a block.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::lane::{Lane, LaneGuard};
use super::lanes::MAX_LANES;
use super::lanes_tests::{House, common};
use crate::base::size::SizeClass;
use crate::base::sync::{schedules, waiting};
use crate::memory::Segment;
use crate::order::StreamKey;

/// The first key of streams that come once all lanes are taken.
const LATE: u64 = 1 << 20;
/// So many of each thread that the index is made anew.
const STREAMS: u64 = MAX_LANES as u64;

/// How often threads came to a lane too late, and how often in time. These are no steps of a model.
#[derive(Debug, Default)]
struct Tries {
    late: AtomicUsize,
    won: AtomicUsize,
}

/// What comes of a try to enter a lane.
enum Entry<'a> {
    In(&'a Lane, LaneGuard<'a>),
    /// It was reassigned a moment before.
    Late,
    /// All hold memory.
    Full,
}

impl House {
    /// The lane of the stream `key`, as the heap finds it.
    fn enter(&self, key: u64) -> Entry<'_> {
        match self.index.find(&self.lanes, common(key)) {
            Some(lane) => {
                let state = lane.lock_for(common(key));
                state.map_or(Entry::Late, |state| Entry::In(lane, state))
            }
            None => {
                let added = self.index.find_or_add(&self.lanes, &self.newcomer(key));
                added.map_or(Entry::Full, |(lane, state)| Entry::In(lane, state))
            }
        }
    }
}

/// All lanes, of which all but `left` hold memory.
fn nearly_full(left: usize) -> Arc<House> {
    let house = House::new();
    for key in 0..MAX_LANES as u64 {
        let lane = house.lane(key + 1).unwrap();
        if key >= left as u64 {
            house.occupy(lane);
        }
    }
    Arc::new(house)
}

/// A block of the stream `key` is allocated and freed, as the heap does it.
fn visit(house: &House, key: u64, tries: &Tries) {
    let (lane, slot) = loop {
        match house.enter(key) {
            Entry::In(lane, mut state) => {
                tries.won.fetch_add(1, Relaxed);
                let segment = Segment { address: key << 30, bytes: 512, class: SizeClass::Small };
                break (lane, state.blocks.insert(segment));
            }
            Entry::Late => {
                let late = tries.late.fetch_add(1, Relaxed) + 1;
                assert!(late <= tries.won.load(Relaxed), "nobody got the lane that was taken");
            }
            Entry::Full => waiting::yield_now(),
        }
    };
    waiting::yield_now();
    let mut state = lane.lock();
    assert_eq!(lane.key(), common(key), "a lane that holds a block was reassigned");
    state.blocks.remove(slot);
}

/// Runs `act` in so many threads, each told its number.
fn run_threads(count: u64, act: impl Fn(u64) + Clone + Send + 'static) {
    let threads = (0..count).map(|thread| {
        let act = act.clone();
        shuttle::thread::spawn(move || act(thread))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Whoever comes too late to a lane does so because another stream got in. So threads cannot take a
/// lane from each other for ever without using it.
#[test]
fn a_lane_is_taken_only_by_who_uses_it() {
    schedules::explore(|seed| {
        let (house, tries) = (nearly_full(1), Arc::new(Tries::default()));
        run_threads(2 + seed % 2, move |thread| {
            (0..2).for_each(|round| visit(&house, LATE + 2 * thread + round, &tries));
        });
    });
}

/// Many streams come and go, some of which end, while the index is made anew: afterwards each lane
/// is found by its key, and no two have one.
#[test]
fn streams_that_come_and_go_are_found() {
    schedules::explore(|seed| {
        let (house, tries) = (nearly_full(3), Arc::new(Tries::default()));
        let inside = Arc::clone(&house);
        run_threads(2, move |thread| {
            for round in 0..STREAMS {
                let key = LATE + STREAMS * thread + round;
                visit(&inside, key, &tries);
                if (seed >> (round % 16)) & 1 == 0 {
                    inside.end_stream(key);
                }
            }
        });
        let keys: HashSet<u64> = house.lanes.iter().map(|lane| lane.stream().0).collect();
        assert_eq!(keys.len(), MAX_LANES, "two lanes have one key");
        for key in keys.into_iter().filter(|&key| key < StreamKey::of_ended(0).0) {
            assert!(house.find(key).is_some(), "{key}");
        }
    });
}

/// Streams come and end in several threads: there are never many more lanes than streams, and who
/// has a lane keeps it. The same handle means another stream after an end.
#[test]
fn lanes_of_ended_streams_serve_the_next() {
    schedules::explore(|seed| {
        let (house, tries) = (Arc::new(House::new()), Arc::new(Tries::default()));
        let (inside, threads) = (Arc::clone(&house), 2 + seed % 2);
        run_threads(threads, move |thread| {
            for round in 0..4 {
                let key = 1 + thread + (seed + round) % 2 * threads;
                visit(&inside, key, &tries);
                inside.end_stream(key);
            }
        });
        // A stream that came between another's end and its place in the queue got a new one.
        let count = house.lanes.iter().count() as u64;
        assert!(count <= 2 * threads, "{count} lanes for {threads} streams at a time");
    });
}
