//! Windows that served a lane's requests before.
//!
//! A program that repeats itself misses at the same requests in each cycle, and Elastic's search for
//! windows (`super::elastic`) finds the same ones. So a lane remembers, for each size and for the two
//! windows before, which window was found. Those before are part of the question because a cycle has
//! many requests of one size. With one alone, many of fsdp_streams' misses have no sure window.
//!
//! Even so a question may have several answers, of which mostly only one is free. So all windows that were
//! found are kept. One that is free while another is found has to be found anew as often.
//!
//! A window is sure only after the search has found it several times, and all are forgotten as soon
//! as a request needs the driver. So a program that has not come to rest is left to the search, and
//! moves and holds the same memory as if nothing were remembered, but for little.

use std::ops::Range;

use crate::base::hash::spread;

/// So many windows are remembered, a power of two: more than any of the recorded programs needs in a
/// pass.
const PLACES: usize = 512;
/// A window is in one of so many places side by side.
const CHOICES: usize = 4;
/// A window is sure once it was found so often, each time that it was free. With 2 or 3,
/// llama7b_lora_ckpt held more on 1.02 times its live peak, and moved memory in more passes.
const SURE_TIMES: u32 = 4;
/// … and one of memory that other lanes have: how they need it themselves has to come to rest too. With 4,
/// 600 composed programs moved more, a few of them several times as much.
const SURE_TIMES_OF_OTHERS: u32 = 8;

/// Windows that were found, each by its first shadow.
#[derive(Debug, Default)]
pub(super) struct KnownWindows {
    /// Empty until the first is remembered. A later one may take the place of an earlier one.
    places: Vec<Known>,
    /// The last two windows that were found or taken, the latest first.
    last: [u64; 2],
}

/// An answer to a question: a window that is sure if it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SureWindow {
    /// The address of its first shadow.
    pub(super) shadow: u64,
    /// Whether it may be of memory that other lanes have.
    pub(super) may_be_of_others: bool,
}

/// One window, and what it was found for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// The two windows before, the latest first.
    before: [u64; 2],
    /// The size of the block.
    bytes: u64,
    /// The address of its first shadow.
    shadow: u64,
    /// How often it was found; counted anew whenever another one is found while this one is free.
    times: u32,
}

impl KnownWindows {
    /// The windows that are sure for a block of `bytes` after the last two windows.
    pub(super) fn sure(&self, bytes: u64) -> impl Iterator<Item = SureWindow> {
        let sure = self.answers(bytes).filter(|known| known.times >= SURE_TIMES);
        sure.map(|&Known { shadow, times, .. }| SureWindow {
            shadow,
            may_be_of_others: times >= SURE_TIMES_OF_OTHERS,
        })
    }

    /// The windows that were found for a block of `bytes` after the last two windows, by their first
    /// shadows.
    pub(super) fn known(&self, bytes: u64) -> impl Iterator<Item = u64> {
        self.answers(bytes).map(|known| known.shadow)
    }

    fn answers(&self, bytes: u64) -> impl Iterator<Item = &Known> {
        let choices = self.places.get(self.choices(bytes)).unwrap_or_default();
        choices.iter().filter(move |known| known.answers(self.last, bytes))
    }

    /// The window that begins with `shadow` was found for a block of `bytes`, though those of `passed_over`
    /// were free.
    pub(super) fn found(&mut self, bytes: u64, shadow: u64, passed_over: &[u64]) {
        if self.places.is_empty() {
            self.places = vec![Known::default(); PLACES];
        }
        let (before, choices) = (self.last, self.choices(bytes));
        let choices = &mut self.places[choices];
        let answers = choices.iter_mut().filter(|known| known.answers(before, bytes));
        answers
            .filter(|known| passed_over.contains(&known.shadow))
            .for_each(|known| known.times = 0);
        let is_it = |known: &Known| known.answers(before, bytes) && known.shadow == shadow;
        if let Some(known) = choices.iter_mut().min_by_key(|known| (!is_it(known), known.times)) {
            let times = if is_it(known) { known.times.saturating_add(1) } else { 1 };
            *known = Known { before, bytes, shadow, times };
        }
        self.pass(shadow);
    }

    /// The window that begins with `shadow` is the last one.
    pub(super) fn pass(&mut self, shadow: u64) {
        self.last = [shadow, self.last[0]];
    }

    /// Forgets all windows: the lane is about to get other memory, so its next cycle will differ.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.last = [0; 2];
    }

    /// Where the window for a block of `bytes` after the last two windows may be.
    fn choices(&self, bytes: u64) -> Range<usize> {
        let [last, before] = self.last;
        let mixed = [before, last]
            .into_iter()
            .fold(bytes, |mixed, part| spread(mixed.rotate_left(32) ^ part));
        let start = (mixed >> (u64::BITS - (PLACES / CHOICES).ilog2())) as usize * CHOICES;
        start..start + CHOICES
    }
}

impl Known {
    fn answers(&self, before: [u64; 2], bytes: u64) -> bool {
        self.before == before && self.bytes == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window that is sure for a block of `bytes`.
    fn sure(windows: &KnownWindows, bytes: u64) -> Option<u64> {
        windows.sure(bytes).next().map(|sure| sure.shadow)
    }

    #[test]
    fn a_window_is_sure_once_it_was_found_several_times() {
        let mut windows = KnownWindows::default();
        // A cycle of two requests of one size.
        let cycle = |windows: &mut KnownWindows, second: u64| {
            windows.found(100, 0x1000, &[]);
            windows.found(100, second, &[]);
        };
        for _ in 0..SURE_TIMES {
            assert_eq!(sure(&windows, 100), None);
            cycle(&mut windows, 0x2000);
        }
        // In the first cycle there were none before.
        assert_eq!(sure(&windows, 100), None);
        cycle(&mut windows, 0x2000);
        assert_eq!(sure(&windows, 100), Some(0x1000));
        windows.pass(0x1000);
        assert_eq!(sure(&windows, 100), Some(0x2000));
        assert_eq!(sure(&windows, 101), None);
    }

    #[test]
    fn a_window_that_is_free_and_not_found_is_sure_no_more() {
        let mut windows = KnownWindows::default();
        let mut found = |window, passed_over: &[u64]| {
            windows.pass(0x1000);
            windows.pass(0x2000);
            windows.found(100, window, passed_over);
            windows.pass(0x1000);
            windows.pass(0x2000);
            windows.sure(100).map(|sure| sure.shadow).collect::<Vec<u64>>()
        };
        for _ in 1..SURE_TIMES {
            assert!(found(0x3000, &[]).is_empty());
            assert!(found(0x4000, &[]).is_empty(), "while the other is in use");
        }
        assert_eq!(found(0x3000, &[]), [0x3000]);
        assert_eq!(found(0x4000, &[]), [0x3000, 0x4000]);
        assert_eq!(found(0x5000, &[0x4000]), [0x3000]);
        for _ in 1..SURE_TIMES {
            assert_eq!(found(0x4000, &[]), [0x3000]);
        }
        assert_eq!(found(0x4000, &[]), [0x3000, 0x4000]);
    }

    #[test]
    fn the_two_windows_before_are_part_of_the_question() {
        let mut windows = KnownWindows::default();
        let cycle = [0x1000, 0x2000, 0x1000, 0x3000, 0x1000, 0x4000];
        for _ in 0..=SURE_TIMES {
            cycle.iter().for_each(|&window| windows.found(100, window, &[]));
        }
        for window in cycle {
            assert_eq!(sure(&windows, 100), Some(window));
            windows.pass(window);
        }
    }

    #[test]
    fn windows_of_other_lanes_memory_have_to_be_found_more_often() {
        let mut windows = KnownWindows::default();
        for times in 0..SURE_TIMES_OF_OTHERS + 4 {
            let sure = windows.sure(100).next();
            // The first two were found after none or one.
            assert_eq!(sure.is_some(), times >= SURE_TIMES + 2, "found {times} times");
            let may_be_of_others = sure.is_some_and(|sure| sure.may_be_of_others);
            assert_eq!(may_be_of_others, times >= SURE_TIMES_OF_OTHERS + 2, "found {times} times");
            windows.found(100, 0x1000, &[]);
        }
    }

    #[test]
    fn the_windows_of_a_long_cycle_do_not_displace_each_other() {
        let mut windows = KnownWindows::default();
        let cycle = 1..=PLACES as u64 / 2;
        for _ in 0..=SURE_TIMES {
            cycle.clone().for_each(|number| windows.found(number << 20, number << 30, &[]));
        }
        let is_sure = |&number: &u64| {
            let is_sure = sure(&windows, number << 20) == Some(number << 30);
            windows.pass(number << 30);
            is_sure
        };
        let (least, sure) = (PLACES / 2 * 15 / 16, cycle.filter(is_sure).count());
        assert!(sure >= least, "{sure} windows of {}", PLACES / 2);
    }

    #[test]
    fn nothing_is_sure_after_other_memory_came() {
        let mut windows = KnownWindows::default();
        for _ in 0..SURE_TIMES + 2 {
            windows.found(100, 0x1000, &[]);
        }
        assert_eq!(sure(&windows, 100), Some(0x1000));
        windows.forget();
        assert_eq!(sure(&windows, 100), None);
    }
}
