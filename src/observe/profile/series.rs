//! The levels of one device over the whole run, in a bounded number of intervals. When the last one
//! is used up, neighbours are joined and intervals become twice as long. Each interval has the
//! highest value of each level, so a peak is never lost.

use genesis_profile::model::{Levels, Timeline};

/// The most intervals.
const INTERVALS: usize = 4096;
/// The length of the first ones.
const SHORTEST_NS: u64 = 10_000;

/// The levels of one device over time.
#[derive(Clone, Debug)]
pub(super) struct Series {
    interval_ns: u64,
    peaks: Vec<Levels>,
    /// The end of the last interval.
    end_ns: u64,
    now: Levels,
}

impl Series {
    /// A series from time 0 on that begins with the levels `start`.
    pub(super) fn new(start: Levels) -> Self {
        Self { interval_ns: SHORTEST_NS, peaks: vec![start], end_ns: SHORTEST_NS, now: start }
    }

    /// Sets the levels from `time_ns` on, which is not before the last time.
    #[inline]
    pub(super) fn set(&mut self, time_ns: u64, levels: Levels) {
        if time_ns >= self.end_ns {
            self.proceed(time_ns);
        }
        self.now = levels;
        if let Some(peak) = self.peaks.last_mut() {
            raise(peak, levels);
        }
    }

    /// Extends the series to `time_ns` with the present levels.
    fn proceed(&mut self, time_ns: u64) {
        let mut index = (time_ns / self.interval_ns) as usize;
        while index >= INTERVALS {
            let joined = self.peaks.chunks(2).map(|pair| {
                let mut peak = pair[0];
                pair.iter().for_each(|other| raise(&mut peak, *other));
                peak
            });
            self.peaks = joined.collect();
            self.interval_ns *= 2;
            index = (time_ns / self.interval_ns) as usize;
        }
        if index >= self.peaks.len() {
            self.peaks.resize(index + 1, self.now);
        }
        self.end_ns = self.peaks.len() as u64 * self.interval_ns;
    }

    /// The timeline until `end_ns`.
    pub(super) fn describe(&self, device: u32, end_ns: u64) -> Timeline {
        let mut whole = self.clone();
        whole.proceed(end_ns);
        Timeline { device, interval_ns: whole.interval_ns, peaks: whole.peaks }
    }
}

/// Raises `peak` to `levels`.
pub(super) fn raise(peak: &mut Levels, levels: Levels) {
    peak.requested_bytes = peak.requested_bytes.max(levels.requested_bytes);
    peak.allocated_bytes = peak.allocated_bytes.max(levels.allocated_bytes);
    peak.active_bytes = peak.active_bytes.max(levels.active_bytes);
    peak.reserved_bytes = peak.reserved_bytes.max(levels.reserved_bytes);
}
