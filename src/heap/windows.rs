//! Windows that served a lane's requests before.
//!
//! A program that repeats itself misses at the same requests in each cycle, and Elastic's search for
//! windows (`super::elastic`) finds the same ones. So a lane remembers, for each size and for the
//! window before, which window was found. The one before is part of the question because a cycle has
//! many requests of one size.
//!
//! A window is sure only after the search has found it several times, and all are forgotten as soon
//! as a request needs the driver. So a program that has not come to rest is left to the search, and
//! moves and holds the same memory as if nothing were remembered, but for little.

use std::ops::Range;

/// So many windows are remembered, a power of two: more than any of the recorded programs needs in a
/// pass.
const PLACES: usize = 256;
/// A window is in one of so many places side by side.
const CHOICES: usize = 4;
/// A window is sure once it was found so often in a row. With 2 or 3, llama7b_lora_ckpt held more on
/// 1.02 times its live peak, and moved memory in more passes.
const SURE_TIMES: u32 = 4;

/// Windows that were found, each by its first shadow.
#[derive(Debug, Default)]
pub(super) struct KnownWindows {
    /// Empty until the first is remembered. A later one may take the place of an earlier one.
    places: Vec<Known>,
    /// The last window that was found or taken.
    last: u64,
}

/// One window, and what it was found for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// The window before.
    before: u64,
    /// The size of the block.
    bytes: u64,
    /// The address of its first shadow.
    shadow: u64,
    /// How often it was found in a row.
    times: u32,
}

impl KnownWindows {
    /// The window for a block of `bytes` after the last window, if it is sure.
    pub(super) fn find(&self, bytes: u64) -> Option<u64> {
        let choices = self.places.get(self.choices(bytes))?;
        let known = choices.iter().find(|known| known.answers(self.last, bytes))?;
        (known.times >= SURE_TIMES).then_some(known.shadow)
    }

    /// The window that begins with `shadow` was found for a block of `bytes`.
    pub(super) fn found(&mut self, bytes: u64, shadow: u64) {
        if self.places.is_empty() {
            self.places = vec![Known::default(); PLACES];
        }
        let (before, choices) = (self.last, self.choices(bytes));
        let preferred = |known: &&mut Known| (!known.answers(before, bytes), known.times);
        if let Some(known) = self.places[choices].iter_mut().min_by_key(preferred) {
            let again = Known { before, bytes, shadow, times: known.times };
            let times = if *known == again { known.times.saturating_add(1) } else { 1 };
            *known = Known { times, ..again };
        }
        self.pass(shadow);
    }

    /// The window that begins with `shadow` is the last one.
    pub(super) fn pass(&mut self, shadow: u64) {
        self.last = shadow;
    }

    /// Forgets all windows: the lane is about to get other memory, so its next cycle will differ.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.last = 0;
    }

    /// Where the window for a block of `bytes` after the last window may be.
    fn choices(&self, bytes: u64) -> Range<usize> {
        // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let mixed = (self.last ^ bytes.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (mixed >> (u64::BITS - (PLACES / CHOICES).ilog2())) as usize * CHOICES;
        start..start + CHOICES
    }
}

impl Known {
    fn answers(&self, before: u64, bytes: u64) -> bool {
        self.before == before && self.bytes == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_sure_once_it_was_found_several_times_in_a_row() {
        let mut windows = KnownWindows::default();
        // A cycle of two requests of one size.
        let cycle = |windows: &mut KnownWindows, second: u64| {
            windows.found(100, 0x1000);
            windows.found(100, second);
        };
        for _ in 0..SURE_TIMES {
            assert_eq!(windows.find(100), None);
            cycle(&mut windows, 0x2000);
        }
        // The first window of the first cycle came after none.
        assert_eq!(windows.find(100), None);
        cycle(&mut windows, 0x2000);
        assert_eq!(windows.find(100), Some(0x1000));
        windows.pass(0x1000);
        assert_eq!(windows.find(100), Some(0x2000));
        assert_eq!(windows.find(101), None);
        // Another one in its place has to be found as often.
        windows.found(100, 0x3000);
        windows.pass(0x1000);
        assert_eq!(windows.find(100), None);
    }

    #[test]
    fn the_windows_of_a_long_cycle_do_not_displace_each_other() {
        let mut windows = KnownWindows::default();
        let cycle = 1..=PLACES as u64 / 2;
        for _ in 0..=SURE_TIMES {
            cycle.clone().for_each(|number| windows.found(number << 20, number << 30));
        }
        let is_sure = |&number: &u64| {
            let is_sure = windows.find(number << 20) == Some(number << 30);
            windows.pass(number << 30);
            is_sure
        };
        let (least, sure) = (PLACES / 2 * 15 / 16, cycle.filter(is_sure).count());
        assert!(sure >= least, "{sure} windows of {}", PLACES / 2);
    }

    #[test]
    fn nothing_is_sure_after_other_memory_came() {
        let mut windows = KnownWindows::default();
        for _ in 0..=SURE_TIMES {
            windows.found(100, 0x1000);
        }
        assert_eq!(windows.find(100), Some(0x1000));
        windows.forget();
        assert_eq!(windows.find(100), None);
    }
}
