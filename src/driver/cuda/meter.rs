//! How many driver calls a device has made, and how long they took.
//!
//! Counted in several places, each on its own cache lines, because threads on different streams share
//! nothing else when they record an event. Each of the first threads has a place of its own, to which it
//! adds without locked instructions, of which an event would need three. Later threads share the other
//! places.
//!
//! Some calls about events and streams take hardly longer than to read the processor's clock before and
//! after, and there may be several in every block's life. So of these *short calls* a sample is timed,
//! each for [`SAMPLED`] of them. The sum is right in the long run; a single one that takes long, because
//! the stream's queue is full, counts [`SAMPLED`] times or not at all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::loader::RawResult;
use crate::base::{CachePadded, hash, thread};
use crate::driver::{Call, Usage, ticks};

/// How many of the places are each for one of the first threads, …
const OWN_SHARDS: usize = 16;
/// … and how many for all others.
const COMMON_SHARDS: usize = 16;
/// One of so many short calls is timed.
const SAMPLED: u64 = 8;
/// After one short call that is timed, the 5th, the 8th or the 13th is the next, so a program's rhythm does
/// not choose them.
const STEP: u64 = hash::FACTOR;
/// After this time the rate of the processor's clock is known well: to a hundred-thousandth.
const SETTLED: Duration = Duration::from_millis(10);

/// The calls of one device. For any thread; a sum may lack calls that are under way.
#[derive(Debug)]
pub(super) struct Meter {
    own: [CachePadded<Shard>; OWN_SHARDS],
    common: [CachePadded<Shard>; COMMON_SHARDS],
    /// When the meter was made, by both clocks.
    made: (Instant, u64),
    /// Nanoseconds and ticks that passed together, once they tell the rate well. It stays: a clock may
    /// jump later, and the processor's begins anew after a sleep of the machine.
    rate: OnceCell<(u128, u128)>,
    /// The most nanoseconds that were ever told.
    told_ns: AtomicU64,
}

/// The calls of some of the threads.
#[derive(Debug)]
struct Shard {
    calls: [AtomicU64; Call::COUNT],
    /// In driver calls, in ticks of the processor's clock.
    ticks: AtomicU64,
    /// How many short calls there were, times [`STEP`], modulo 2^64.
    sampling: AtomicU64,
}

impl Shard {
    const fn new() -> Self {
        Self {
            calls: [const { AtomicU64::new(0) }; Call::COUNT],
            ticks: AtomicU64::new(0),
            sampling: AtomicU64::new(0),
        }
    }
}

/// Where the calls of one piece of work are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made<'a> {
    shard: &'a Shard,
    /// Whether other threads may count there.
    is_shared: bool,
}

impl Made<'_> {
    /// Counts one.
    pub(super) fn count(self, call: Call) {
        self.add(&self.shard.calls[call as usize], 1);
    }

    /// Counts a short call. Returns true if it is to be timed.
    fn is_sampled(self) -> bool {
        self.add(&self.shard.sampling, STEP) < u64::MAX / SAMPLED
    }

    /// Counts the time since `started`, in ticks, `weight` times.
    fn time_since(self, started: u64, weight: u64) {
        let passed = ticks().saturating_sub(started);
        self.add(&self.shard.ticks, passed * weight);
    }

    /// Returns the sum.
    fn add(self, counter: &AtomicU64, n: u64) -> u64 {
        if self.is_shared {
            return counter.fetch_add(n, Relaxed).wrapping_add(n);
        }
        let sum = counter.load(Relaxed).wrapping_add(n);
        counter.store(sum, Relaxed);
        sum
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            own: [const { CachePadded(Shard::new()) }; OWN_SHARDS],
            common: [const { CachePadded(Shard::new()) }; COMMON_SHARDS],
            made: (Instant::now(), ticks()),
            rate: OnceCell::new(),
            told_ns: AtomicU64::new(0),
        }
    }

    /// Runs one driver function and counts it.
    pub(super) fn counted(&self, call: Call, run: impl FnOnce() -> RawResult) -> RawResult {
        self.timed(|made| {
            made.count(call);
            run()
        })
    }

    /// Runs `work`, whose time counts as spent in the driver. It counts the calls that it makes.
    pub(super) fn timed<R>(&self, work: impl FnOnce(Made<'_>) -> R) -> R {
        let (made, started) = (self.place(), ticks());
        let result = work(made);
        made.time_since(started, 1);
        result
    }

    /// [`Self::timed`] of short calls.
    #[inline(always)]
    pub(super) fn sampled<R>(&self, work: impl FnOnce(Made<'_>) -> R) -> R {
        let made = self.place();
        let started = made.is_sampled().then(ticks);
        let result = work(made);
        if let Some(started) = started {
            made.time_since(started, SAMPLED);
        }
        result
    }

    /// Where the calling thread counts.
    fn place(&self) -> Made<'_> {
        // Numbers count from 1, and none comes again: a place of its own has one writer for good.
        let index = thread::number() as usize - 1;
        match self.own.get(index) {
            Some(shard) => Made { shard, is_shared: false },
            None => self.common_place(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn common_place(&self, index: usize) -> Made<'_> {
        Made { shard: &self.common[index % COMMON_SHARDS], is_shared: true }
    }

    /// All calls so far.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            calls: std::array::from_fn(|call| self.sum(|shard| &shard.calls[call])),
            nanoseconds: self.nanoseconds(),
        }
    }

    /// The system's clock, in nanoseconds.
    pub(super) fn clock_ns(&self) -> u64 {
        self.made.0.elapsed().as_nanos() as u64
    }

    /// The time spent in driver calls. A rate that is better known makes it no less than it was said
    /// to be.
    fn nanoseconds(&self) -> u64 {
        let (elapsed_ns, passed) = self.rate();
        let nanoseconds = u128::from(self.sum(|shard| &shard.ticks)) * elapsed_ns / passed;
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        self.told_ns.fetch_max(nanoseconds, Relaxed).max(nanoseconds)
    }

    /// Nanoseconds and ticks that passed together.
    fn rate(&self) -> (u128, u128) {
        self.rate.get().copied().unwrap_or_else(|| {
            let (instant, started) = self.made;
            let passed = ticks().saturating_sub(started).max(1);
            let elapsed = instant.elapsed();
            let rate = (elapsed.as_nanos(), u128::from(passed));
            if elapsed >= SETTLED { *self.rate.get_or_init(|| rate) } else { rate }
        })
    }

    fn sum(&self, count: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.own.iter().chain(&self.common).map(|shard| count(shard).load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate of the processor's clock is known better with time, but time spent is never less.
    #[test]
    fn the_time_spent_never_falls() {
        let meter = Meter::new();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(5));
        meter.counted(Call::Create, || {
            pause();
            0
        });
        let mut last_ns = 0;
        for _ in 0..20_000 {
            let nanoseconds = meter.usage().nanoseconds;
            assert!(nanoseconds >= last_ns, "{nanoseconds} after {last_ns}");
            last_ns = nanoseconds;
        }
        assert!(last_ns >= 4_900_000);
    }

    /// An eighth of the short calls is timed, at no rhythm, …
    #[test]
    fn a_sample_of_the_short_calls_is_timed() {
        let meter = Meter::new();
        let is_sampled = || meter.place().is_sampled();
        let gaps: Vec<usize> =
            (0..1_000).map(|_| (0..).take_while(|_| !is_sampled()).count()).collect();
        assert!(gaps[1..].iter().all(|gap| [4, 7, 12].contains(gap)), "{gaps:?}");
        let calls: usize = gaps.iter().map(|gap| gap + 1).sum();
        assert!(calls.abs_diff(8_000) <= 16, "{calls} calls for 1000 that are timed");
    }

    /// … and the time of each counts for eight.
    #[test]
    fn a_short_call_that_is_timed_counts_for_all() {
        let (meter, mut timed) = (Meter::new(), 0);
        let counted = || meter.sum(|shard| &shard.ticks);
        let passed = |work: &dyn Fn()| {
            let started = ticks();
            work();
            ticks() - started
        };
        for _ in 0..80 {
            let (before, inside) = (counted(), std::cell::Cell::new(0));
            let sleep = || std::thread::sleep(Duration::from_micros(50));
            let around = passed(&|| meter.sampled(|_| inside.set(passed(&sleep))));
            let counted = counted() - before;
            if counted > 0 {
                timed += 1;
                let bounds = inside.get() * SAMPLED..=around * SAMPLED;
                assert!(bounds.contains(&counted), "{counted} is not in {bounds:?}");
            }
        }
        assert!((9..=11).contains(&timed), "{timed} of 80");
    }

    /// The first threads count in places of their own, later ones together.
    #[test]
    fn calls_of_many_threads_are_all_counted() {
        let meter = Meter::new();
        std::thread::scope(|scope| {
            for _ in 0..2 * (OWN_SHARDS + COMMON_SHARDS) {
                scope.spawn(|| {
                    (0..1_000).for_each(|_| assert_eq!(meter.counted(Call::Map, || 0), 0))
                });
            }
        });
        assert_eq!(
            meter.usage().calls[Call::Map as usize],
            2_000 * (OWN_SHARDS + COMMON_SHARDS) as u64
        );
    }

    /// A clock that jumps, or one that begins anew, changes nothing that was measured.
    #[test]
    fn a_clock_that_jumps_makes_no_time_spent() {
        let mut meter = Meter::new();
        std::thread::sleep(2 * SETTLED);
        meter.counted(Call::Create, || {
            std::thread::sleep(SETTLED);
            0
        });
        let before_ns = meter.usage().nanoseconds;
        let long_ago = meter.made.0.checked_sub(Duration::from_secs(600)).unwrap();
        meter.made = (long_ago, u64::MAX);
        assert_eq!(meter.usage().nanoseconds, before_ns);
    }
}
