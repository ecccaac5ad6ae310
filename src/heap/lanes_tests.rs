//! More streams than there can be lanes: which lanes are reassigned, and what the index finds.

use std::sync::Arc;

use simgpu::{Config, Machine, StoreKind};

use super::captures::Captures;
use super::lanes::{LaneIndex, Lanes, MAX_LANES};
use super::owner::{LaneKey, Newcomer, Owner};
use super::pools::PoolNumber;
use crate::base::size::SizeClass;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::config::{PoolType, Settings};
use crate::driver::simulated::SimulatedDevice;
use crate::memory::{Directory, Segment};
use crate::observe::{EventStream, Watermark};
use crate::order::{Contexts, OWN_CONTEXT, Stream, StreamKey, StreamName};

const DEVICE: DeviceOrdinal = DeviceOrdinal(0);

const SEGMENT: Segment = Segment { address: 1 << 40, bytes: 2 << 20, class: SizeClass::Large };

/// The key of the lane for a stream outside of all pools.
pub(super) fn common(stream: u64) -> LaneKey {
    LaneKey { stream: StreamKey(stream), pool: PoolNumber::COMMON }
}

/// The owner of that lane.
fn owner(stream: u64) -> Owner {
    Owner { key: common(stream), name: StreamName(stream), context: OWN_CONTEXT, lasts: false }
}

/// The lanes of two devices, and the index of the first.
pub(super) struct House {
    pub(super) lanes: Lanes,
    pub(super) index: LaneIndex,
    settings: Settings,
    pub(super) contexts: Contexts,
    captures: Arc<Captures>,
}

impl House {
    pub(super) fn new() -> Self {
        let machine = Machine::new(Config::new(StoreKind::AddressesOnly, 1, 1 << 30)).unwrap();
        Self {
            lanes: Lanes::new(Arc::new(Directory::new()), 2, EventStream::silent()),
            index: LaneIndex::new(DEVICE),
            settings: Settings::default(),
            contexts: Contexts::new(Arc::new(SimulatedDevice::new(machine, 0))),
            captures: Arc::default(),
        }
    }

    /// The stream `key`, which wants a lane.
    pub(super) fn newcomer(&self, key: u64) -> Newcomer<'_> {
        let Self { settings, contexts, captures, .. } = self;
        Newcomer { owner: owner(key), settings, contexts, captures }
    }

    /// The index of the lane for the stream `key`, which is made if needed.
    pub(super) fn lane(&self, key: u64) -> Option<u32> {
        let (lane, _state) = self.index.find_or_add(&self.lanes, &self.newcomer(key))?;
        assert_eq!(lane.key(), common(key));
        assert_eq!(self.find(key), Some(lane.index));
        Some(lane.index)
    }

    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.find(&self.lanes, common(key)).map(|lane| lane.index)
    }

    /// The stream `key` ends, as the heap is told of it.
    pub(super) fn end_stream(&self, key: u64) {
        let stream = Stream { handle: StreamHandle(key as usize), key: StreamKey(key) };
        for lane in self.lanes.iter() {
            if lane.end_stream(stream, StreamKey::of_ended(key), &self.contexts) {
                self.index.add_left(lane.index);
            }
        }
    }

    /// Takes the one segment out of the lane for the driver, making it first if the lane is empty.
    fn lend_to_driver(&self, lane: u32) {
        let lane = self.lanes.get(lane).unwrap();
        let mut state = lane.lock();
        let state = &mut *state;
        let held = state.blocks.iter().next().map(|(slot, _)| slot);
        let slot = held.unwrap_or_else(|| {
            let slot = state.blocks.insert(SEGMENT);
            state.strategy.give(&mut state.blocks, slot);
            slot
        });
        assert_eq!(lane.begin_leave(state, slot), SEGMENT);
    }

    /// Gives the lane a block, so that it is not reassigned.
    pub(super) fn occupy(&self, lane: u32) {
        let address = (u64::from(lane) + 1) << 24;
        let segment = Segment { address, bytes: 512, class: SizeClass::Small };
        self.lanes.get(lane).unwrap().lock().blocks.insert(segment);
    }

    /// Takes the block away that [`Self::occupy`] gave it.
    fn vacate(&self, lane: u32) {
        let mut state = self.lanes.get(lane).unwrap().lock();
        let slot = state.blocks.iter().next().map(|(slot, _)| slot).unwrap();
        state.blocks.remove(slot);
    }
}

#[test]
fn a_stream_finds_its_lane_again() {
    let house = House::new();
    assert_eq!(house.find(1), None);
    // Keys that may collide: they differ only in bits that the hash may drop.
    let keys: Vec<u64> = (0..500).map(|n| n << 52 | n << 20 | 0x8000).collect();
    let lanes: Vec<u32> = keys.iter().map(|&key| house.lane(key).unwrap()).collect();
    for (key, lane) in keys.iter().zip(&lanes) {
        assert_eq!(house.lane(*key), Some(*lane));
    }
    assert_eq!(house.lanes.of(DEVICE).count(), 500);
    assert_eq!(house.lanes.of(DeviceOrdinal(1)).count(), 0);
}

#[test]
fn empty_lanes_go_to_new_streams_and_full_ones_stay() {
    let house = House::new();
    for key in 0..MAX_LANES as u64 {
        let lane = house.lane(key + 1).unwrap();
        if key % 2 == 0 {
            house.occupy(lane);
        }
    }
    for key in 10_000..10_000 + MAX_LANES as u64 {
        house.lane(key).unwrap();
    }
    assert_eq!(house.lanes.of(DEVICE).count(), MAX_LANES, "none was added");
    for key in 0..MAX_LANES as u64 {
        assert_eq!(house.find(key + 1).is_some(), key % 2 == 0, "stream {key}");
    }
    // A stale entry of the index is not used.
    let last = house.lane(20_000).unwrap();
    assert_eq!(house.lanes.get(last).unwrap().key(), common(20_000));
}

#[test]
fn there_is_an_end_when_all_hold_memory() {
    let house = House::new();
    for key in 1..=MAX_LANES as u64 {
        house.occupy(house.lane(key).unwrap());
    }
    assert_eq!(house.lane(9999), None);
    assert_eq!(house.lane(17), house.find(17), "those there are go on");
    // Another device has lanes of its own.
    let other = LaneIndex::new(DeviceOrdinal(1));
    let found = other.find_or_add(&house.lanes, &house.newcomer(17));
    assert_eq!(found.unwrap().0.device, DeviceOrdinal(1));
}

#[test]
fn a_lane_with_a_request_on_its_way_stays() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    let _ = lane.begin_climb(&mut lane.lock());
    assert!(lane.rekey(&house.newcomer(2)).is_none());
    lane.end_climb(true);
    let stale = lane.key();
    assert!(lane.rekey(&house.newcomer(2)).is_some());
    assert!(lane.lock_for(stale).is_none(), "whoever found it by its old key looks again");
    assert!(lane.lock_for(common(2)).is_some());
}

#[test]
fn what_a_climb_has_crossed_is_not_forgotten_before_its_end() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    let cross_and_forget = || {
        let mut state = lane.lock();
        state.note_watermark(Watermark::Crossed);
        state.forget_crossing();
    };
    for has_crossed in [false, true, false] {
        cross_and_forget();
        assert!(!lane.lock().has_crossed, "no climb is under way");
        let _ = lane.begin_climb(&mut lane.lock());
        if has_crossed {
            cross_and_forget();
        }
        assert_eq!(lane.end_climb(true), has_crossed);
    }
}

#[test]
fn a_lane_stays_while_its_stream_is_captured() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    house.captures.see(true, |now| lane.set_capturing(now));
    assert!(lane.rekey(&house.newcomer(2)).is_none());
    assert!(house.captures.is_any());
    house.captures.see(false, |now| lane.set_capturing(now));
    assert!(lane.rekey(&house.newcomer(2)).is_some());
}

#[test]
fn streams_that_end_leave_their_lanes_to_others() {
    let house = House::new();
    for key in 1..=2 * MAX_LANES as u64 {
        assert_eq!(house.lane(key), Some(0), "stream {key}");
        house.end_stream(key);
        assert_eq!(house.find(key), None);
    }
    // The same handle means another stream each time.
    for _ in 0..10 {
        assert_eq!(house.lane(7), Some(0));
        house.end_stream(7);
    }
}

#[test]
fn a_left_lane_stays_until_it_is_empty() {
    let house = House::new();
    let left: Vec<u32> = (1..=40).map(|key| house.lane(key).unwrap()).collect();
    left.iter().for_each(|&lane| house.occupy(lane));
    (1..=40).for_each(|key| house.end_stream(key));
    let others: Vec<u32> = (100..105).map(|key| house.lane(key).unwrap()).collect();
    assert_eq!(others, [40, 41, 42, 43, 44], "the left ones hold memory");
    // Not many are tried at once, but each in its turn.
    house.vacate(20);
    let last = (200..210).map(|key| house.lane(key).unwrap()).find(|&lane| lane < 40);
    assert_eq!(last, Some(20));
    house.vacate(20 + 1);
    house.end_stream(100);
    let two: Vec<u32> = (300..310).map(|key| house.lane(key).unwrap()).collect();
    assert!(two.contains(&21) && two.contains(&40), "{two:?}");
}

/// Its pool ends, and then its stream.
#[test]
fn a_lane_that_is_left_twice_stands_in_the_queue_once() {
    let house = House::new();
    let lane = house.lane(1).unwrap();
    let left = house.lanes.get(lane).unwrap();
    assert!(left.leave(&mut left.lock()));
    house.index.add_left(lane);
    house.end_stream(1);
    assert_eq!(house.lane(2), Some(lane));
    house.end_stream(2);
    assert_eq!(house.index.left(), [lane]);
}

#[test]
fn a_lane_reassigned_while_it_stood_in_the_queue_leaves_it() {
    let house = House::new();
    let keys = 1..=MAX_LANES as u64;
    keys.clone().for_each(|key| house.occupy(house.lane(key).unwrap()));
    // More are left than are tried, so the one that is empty is found by looking at all.
    keys.take(12).for_each(|key| house.end_stream(key));
    house.vacate(11);
    assert_eq!(house.lane(10_000), Some(11));
    let mut left = house.index.left();
    left.sort_unstable();
    assert_eq!(left, (0..11).collect::<Vec<_>>());
}

/// As when it is reassigned after its stream's end, before it is put into the queue.
#[test]
fn a_lane_in_the_queue_that_is_not_left_stays() {
    let house = House::new();
    let lane = house.lane(1).unwrap();
    house.index.add_left(lane);
    assert_eq!(house.lane(2), Some(lane + 1));
    assert_eq!(house.find(1), Some(lane));
}

#[test]
fn an_ended_stream_without_memory_gives_its_event_back() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    let own = house.contexts.own();
    let event = own.record(StreamHandle(0)).unwrap();
    let mut state = lane.lock();
    let epoch = state.fence.end_epoch();
    state.fence.renew(own, event, epoch);
    drop(state);
    house.end_stream(1);
    assert!(!lane.lock().fence.has_event());
    assert_eq!(own.record(StreamHandle(0)).unwrap(), event, "no other was made");
}

/// Nobody says that a capture ended whose stream is gone.
#[test]
fn a_capture_seen_long_ago_keeps_no_lane() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    house.captures.see(true, |now| lane.set_capturing(now));
    house.captures.grow_old();
    assert!(lane.rekey(&house.newcomer(2)).is_some());
    assert!(!lane.was_capturing(), "the other stream's capture is this one's");
    assert_eq!(house.captures.seen.load(SeqCst), 0);
}

#[test]
fn a_lane_whose_memory_may_come_back_keeps_its_stream() {
    let house = House::new();
    for key in 0..MAX_LANES as u64 {
        house.lane(key).unwrap();
    }
    (1..MAX_LANES as u32).for_each(|lane| house.occupy(lane));
    let lane = house.lanes.get(0).unwrap();
    house.lend_to_driver(0);
    let another = MAX_LANES as u64;
    assert_eq!(house.lane(another), None, "the driver may refuse what the first lane gave it");
    lane.end_leave(Some(SEGMENT));
    assert_eq!((lane.key(), lane.lock().blocks.is_empty()), (common(0), false));
    house.lend_to_driver(0);
    lane.end_leave(None);
    assert_eq!(house.lane(another), Some(0));
}

#[test]
fn a_lane_reassigned_has_the_strategy_of_its_new_pool() {
    let house = House::new();
    let lane = house.lanes.get(house.lane(1).unwrap()).unwrap();
    for (pool_type, max_split_size_bytes) in [
        (PoolType::Elastic, None),
        (PoolType::Caching, Some(0)),
        (PoolType::Caching, None),
        (PoolType::Exact, None),
    ] {
        let mut settings = house.settings.clone();
        settings.strategy.pool_type = pool_type;
        settings.max_split_size_bytes = max_split_size_bytes;
        let newcomer = Newcomer { settings: &settings, ..house.newcomer(2) };
        let (state, _) = lane.rekey(&newcomer).unwrap();
        assert!(state.strategy.suits(&settings), "{pool_type:?}");
    }
}
