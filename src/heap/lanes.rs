//! All lanes of the heap, and how a stream finds its own without a lock.
//!
//! Lanes live in an arena of fixed capacity and are never dropped, so an index found in the
//! address directory is always valid. Each device has an index from stream to lane: an open
//! hash table of lane numbers in atomics. Readers probe it freely; writers hold its lock.
//! An entry is a hint: the lane itself has its key, so a stale entry is skipped, and a reader that
//! finds nothing looks again under the lock.
//!
//! A lane that no call can name any more, because its stream or its pool has ended, is *left*. Once
//! it holds no block it is reassigned to the next stream. Left lanes stand in a queue, of which a new
//! stream tries the first few; so it takes as long with many lanes as with one. Most ends of streams
//! are not told, though: once a device has [`MAX_LANES`] lanes, any that holds no block is
//! reassigned. So a program can make and drop streams without end.
//!
//! A stream gets its lane locked: no other can take it before it is used. So a thread that comes too
//! late to a lane was overtaken by one that got in, and threads cannot keep each other from the last
//! lane.

use std::collections::VecDeque;
use std::sync::Arc;

use once_cell::race::OnceBox;

use super::lane::{Lane, LaneGuard};
use super::owner::{LaneKey, Newcomer, Owner};
use crate::base::DeviceOrdinal;
use crate::base::hash::spread;
use crate::base::lock::{Lock, rank};
use crate::base::nodes::boxed_array;
use crate::base::sync::IS_MODEL;
use crate::base::sync::atomic::{AtomicU32, Ordering};
use crate::config::Settings;
use crate::memory::Directory;
use crate::observe::EventStream;

/// The most lanes of a device, i.e. streams that hold memory of it at the same time.
pub(super) const MAX_LANES: usize = match (IS_MODEL, cfg!(test)) {
    (false, _) => 4096,
    // Of whole heaps, and of lanes alone, which run out.
    (true, false) => 64,
    (true, true) => 16,
};
/// Entries of a device's index: at most half are used, and at most half of those stale, so
/// probes are short and rebuilding is rare.
const INDEX_ENTRIES: usize = 4 * MAX_LANES;

/// How many left lanes a new stream tries at most. So there are about an eighth more lanes than are
/// needed, however many of those that are left hold memory.
const MOST_TRIED: usize = 8;

/// All lanes, by index.
#[derive(Debug)]
pub(super) struct Lanes {
    arena: Box<[OnceBox<Lane>]>,
    count: Lock<u32, { rank::DEVICE }>,
    directory: Arc<Directory>,
    observer: &'static EventStream,
}

/// The lanes of one device, by stream.
#[derive(Debug)]
pub(super) struct LaneIndex {
    device: DeviceOrdinal,
    /// Lane index + 1; 0: never used.
    entries: Box<[AtomicU32; INDEX_ENTRIES]>,
    /// Held while entries are changed.
    used: Lock<Used, { rank::LANES }>,
}

/// How much of an index is in use.
#[derive(Debug, Default)]
struct Used {
    /// Entries that are not 0, stale ones included.
    entries: usize,
    /// Lanes of the device.
    lanes: usize,
    /// Which of them is tried next for reassignment. Each has its turn, so that a new stream keeps
    /// its lane for long.
    hand: usize,
    /// How many are made for streams to come.
    coming: usize,
    /// Those that are left, by index. Those tried and not empty go to the end.
    left: VecDeque<u32>,
}

/// A lane with its lock held.
type Locked<'a> = (&'a Lane, LaneGuard<'a>);

impl Lanes {
    pub(super) fn new(
        directory: Arc<Directory>,
        device_count: usize,
        observer: &'static EventStream,
    ) -> Self {
        let capacity = MAX_LANES * device_count;
        let arena = std::iter::repeat_with(OnceBox::new).take(capacity).collect();
        Self { arena, count: Lock::new(0), directory, observer }
    }

    /// The lane at an index that [`Self::add`] assigned.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Lane> {
        self.arena.get(index as usize)?.get()
    }

    /// The lanes of `device`.
    pub(super) fn of(&self, device: DeviceOrdinal) -> impl Iterator<Item = &Lane> + Clone {
        // Lanes are added in order, so the first gap is the end.
        let lanes = self.arena.iter().map_while(OnceBox::get);
        lanes.filter(move |lane| lane.device == device)
    }

    /// All lanes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.arena.iter().map_while(OnceBox::get)
    }

    fn add(&self, device: DeviceOrdinal, owner: &Owner, settings: &Settings) -> Option<&Lane> {
        let mut count = self.count.lock();
        let place = self.arena.get(*count as usize)?;
        let directory = Arc::clone(&self.directory);
        let lane = place.get_or_init(|| {
            let place = (*count, device);
            Box::new(Lane::new(place, *owner, settings, directory, self.observer))
        });
        *count += 1;
        Some(lane)
    }
}

impl LaneIndex {
    pub(super) fn new(device: DeviceOrdinal) -> Self {
        Self { device, entries: boxed_array(AtomicU32::default), used: Lock::default() }
    }

    /// The lane of the stream `key`, if it has been seen before.
    #[inline(always)]
    pub(super) fn find<'a>(&self, lanes: &'a Lanes, key: LaneKey) -> Option<&'a Lane> {
        let lane = self.lane_at(lanes, first_entry(key))?;
        if lane.key() == key { Some(lane) } else { self.find_further(lanes, key) }
    }

    /// [`Self::find`] of a key whose first entry is another one's.
    #[inline(never)]
    fn find_further<'a>(&self, lanes: &'a Lanes, key: LaneKey) -> Option<&'a Lane> {
        // At most half of the entries are used, so the probe ends.
        let mut known = probe(key).map_while(|index| self.lane_at(lanes, index));
        known.find(|lane| lane.key() == key)
    }

    /// The lane of an entry; `None` if that was never used.
    #[inline]
    fn lane_at<'a>(&self, lanes: &'a Lanes, index: usize) -> Option<&'a Lane> {
        lanes.get(self.entries[index].load(Ordering::Acquire).checked_sub(1)?)
    }

    /// The lane of the newcomer, with its lock held: known, made ready for the next stream to come,
    /// left and empty, new, or one that held nothing and is reassigned. `None` if there are
    /// [`MAX_LANES`] lanes and all hold memory.
    #[cold]
    pub(super) fn find_or_add<'a>(
        &self,
        lanes: &'a Lanes,
        newcomer: &Newcomer<'_>,
    ) -> Option<Locked<'a>> {
        let key = newcomer.owner.key;
        let mut used = self.used.lock();
        while let Some(lane) = self.find(lanes, key) {
            // Without success if its stream was ended a moment ago: then it is not found again.
            if let Some(state) = lane.lock_for(key) {
                return Some((lane, state));
            }
        }
        let (lane, state) = self
            .receive(&mut used, lanes, newcomer)
            .or_else(|| used.take_left(lanes, newcomer))
            .or_else(|| self.add(&mut used, lanes, newcomer))
            .or_else(|| self.take_any(&mut used, lanes, newcomer))?;
        if (used.entries + 1) * 2 > INDEX_ENTRIES {
            self.rebuild(lanes);
            used.entries = used.lanes;
        } else {
            self.insert(lane);
            used.entries += 1;
        }
        Some((lane, state))
    }

    /// Records that `lane`, of that index, is left (see [`Lane::leave`]).
    pub(super) fn add_left(&self, lane: u32) {
        self.used.lock().left.push_back(lane);
    }

    /// The next of the lanes made for streams to come.
    fn receive<'a>(
        &self,
        used: &mut Used,
        lanes: &'a Lanes,
        newcomer: &Newcomer<'_>,
    ) -> Option<Locked<'a>> {
        if used.coming == 0 {
            return None;
        }
        let receive = |lane: &'a Lane| Some((lane, lane.receive(&newcomer.owner)?));
        let received = lanes.of(self.device).find_map(receive)?;
        used.coming -= 1;
        Some(received)
    }

    fn add<'a>(
        &self,
        used: &mut Used,
        lanes: &'a Lanes,
        newcomer: &Newcomer<'_>,
    ) -> Option<Locked<'a>> {
        if used.lanes == MAX_LANES {
            return None;
        }
        let Newcomer { owner, settings, .. } = newcomer;
        let lane = lanes.add(self.device, owner, settings)?;
        used.lanes += 1;
        used.coming += usize::from(owner.key.stream.is_coming());
        Some((lane, lane.lock()))
    }

    /// Any lane that holds nothing. Linear in the number of lanes.
    fn take_any<'a>(
        &self,
        used: &mut Used,
        lanes: &'a Lanes,
        newcomer: &Newcomer<'_>,
    ) -> Option<Locked<'a>> {
        let all = lanes.of(self.device).cycle().skip(used.hand).take(used.lanes);
        let mut round = (1..).zip(all);
        let (steps, lane, (state, before)) =
            round.find_map(|(steps, lane)| Some((steps, lane, lane.rekey(newcomer)?)))?;
        used.hand = (used.hand + steps) % used.lanes;
        used.coming -= usize::from(before.stream.is_coming());
        used.left.retain(|&left| left != lane.index);
        Some((lane, state))
    }

    /// The queue of lanes that are left.
    #[cfg(test)]
    pub(super) fn left(&self) -> Vec<u32> {
        self.used.lock().left.iter().copied().collect()
    }

    fn insert(&self, lane: &Lane) {
        for index in probe(lane.key()) {
            if self.entries[index].load(Ordering::Relaxed) == 0 {
                self.entries[index].store(lane.index + 1, Ordering::Release);
                return;
            }
        }
    }

    /// Drops stale entries. Readers may miss meanwhile, and then wait for the lock.
    fn rebuild(&self, lanes: &Lanes) {
        for entry in self.entries.iter() {
            entry.store(0, Ordering::Release);
        }
        for lane in lanes.of(self.device) {
            self.insert(lane);
        }
    }
}

impl Used {
    /// A left lane that holds nothing, if one of the first is.
    fn take_left<'a>(&mut self, lanes: &'a Lanes, newcomer: &Newcomer<'_>) -> Option<Locked<'a>> {
        for _ in 0..self.left.len().min(MOST_TRIED) {
            let lane = self.left.pop_front().and_then(|index| lanes.get(index))?;
            // Else it was reassigned between its end and its place in the queue.
            if lane.is_left() {
                if let Some((state, _)) = lane.rekey(newcomer) {
                    return Some((lane, state));
                }
                self.left.push_back(lane.index);
            }
        }
        None
    }
}

/// The first entry to look at for `key`.
#[inline]
fn first_entry(key: LaneKey) -> usize {
    let mixed = key.stream.0 ^ (u64::from(key.pool.0) << 32);
    (spread(mixed) >> 40) as usize % INDEX_ENTRIES
}

/// The entries to look at for `key`, in order.
fn probe(key: LaneKey) -> impl Iterator<Item = usize> {
    let start = first_entry(key);
    (0..INDEX_ENTRIES).map(move |step| (start + step) % INDEX_ENTRIES)
}
