//! Whether a lane's live peak rises from cycle to cycle, so that what fits in one cycle does not in the next.
//!
//! A program may grow for as long as it runs: lengths that drift, a store that gets larger. Memory
//! that was moved to fit one of its cycles would have to be moved again in the next, for ever. But
//! more memory will be needed soon anyway.
//!
//! The peak is compared at each trough (`heap::trough`). It is the lane's: the device's also rises when
//! several threads happen to need much at the same time. It *rises* while it has become higher, by more
//! than a part of it, in `ENOUGH` of the last sixteen cycles. Sizes drawn at random set a new record in
//! the n-th cycle with a chance of 1/n: of 15 such programs one counts as rising, for some of its first
//! cycles. If it took more of them, a program that grows would move memory until then, and come to rest
//! later or never: what has moved has broken up the layout.

/// So many of the cycles in [`RisingPeak::rises`].
const ENOUGH: u32 = 6;
/// A peak is higher if it is by more than this part of it, so programs that keep a few bytes of each
/// step do not rise. At that pace what is held early is live after one to three thousand cycles.
const RISE_PART: u64 = 16384;

/// A lane's live peak, followed from trough to trough.
#[derive(Debug, Default)]
pub(super) struct RisingPeak {
    /// At the last trough, in bytes.
    peak: u64,
    /// Which of the last sixteen cycles raised it, a bit for each; the lowest is the last.
    rises: u16,
}

impl RisingPeak {
    /// A cycle has ended, and the live peak is `peak` bytes.
    pub(super) fn end_cycle(&mut self, peak: u64) {
        let is_higher = peak > self.peak + peak / RISE_PART;
        self.rises = self.rises << 1 | u16::from(is_higher);
        self.peak = peak;
    }

    pub(super) fn is_rising(&self) -> bool {
        self.rises.count_ones() >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::{GIB, MIB};

    /// In how many cycles the peak was rising, if that of each is one of `peaks`.
    fn rising(peaks: impl Iterator<Item = u64>) -> usize {
        let (mut rising_peak, mut highest) = (RisingPeak::default(), 0);
        let is_rising = |peak: &u64| {
            highest = highest.max(*peak);
            rising_peak.end_cycle(highest);
            rising_peak.is_rising()
        };
        peaks.filter(is_rising).count()
    }

    #[test]
    fn a_program_that_grows_has_a_rising_peak() {
        assert_eq!(rising((0..100).map(|cycle| GIB + cycle * MIB)), 95);
        assert_eq!(rising((0..100).map(|cycle| GIB + cycle / 2 * MIB)), 90, "each second cycle");
    }

    #[test]
    fn a_program_that_repeats_itself_or_keeps_a_few_bytes_has_none() {
        assert_eq!(rising((0..100).map(|_| GIB)), 0);
        assert_eq!(rising((0..100).map(|cycle| GIB + cycle * 512)), 0);
    }

    #[test]
    fn it_rises_no_more_soon_after_the_program_has_stopped_growing() {
        assert_eq!(rising((0..1000).map(|cycle| GIB + cycle.min(50) * MIB)), 51 - 5 + 10);
    }

    #[test]
    fn sizes_at_random_seldom_raise_it() {
        let is_rising = |seed: u64| {
            // Knuth's linear congruential generator.
            let next = |random: &u64| Some(random.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
            let randoms = std::iter::successors(Some(seed << 32 | seed), next).skip(8).take(200);
            rising(randoms.map(|random| GIB + (random >> 33))) > 0
        };
        let count = (0..1000).filter(|&seed| is_rising(seed)).count();
        assert!((1..100).contains(&count), "{count} of 1000");
    }
}
