//! How much memory is moved for a lane's requests, and whether its program is *restless*: whether that is
//! much, again and again.
//!
//! Elastic moves memory to hold less, because most programs come to rest: later cycles find the layout
//! that the first ones made, and move nothing. Some never do. Caches that grow by copies, or streams that
//! exchange blocks of ever other sizes, need other windows each time. They would move memory for as long
//! as they run, which may take longer than their work with it: on an H100, moving an extent of 32 MiB takes
//! as long as reading it ten times.
//!
//! ```text
//! at each miss   excess = max(0, excess + moved − allocated / USUAL_PART)       since the last miss
//! restless       once excess > RESTLESS_PEAKS × live peak
//! ```
//!
//! So a program may move much for a while, as in its first cycle, or a little for ever. A restless program
//! may hold more instead (`elastic::growth`), and gets a new layout once (`elastic::anew`). It stays
//! restless, because what it holds by then stays held. (A cumulative sum, as in Page, "Continuous
//! Inspection Schemes", 1954.)
//!
//! A restless program *has no cycles* while it allocates more than CYCLE_PEAKS live peaks without a trough,
//! as queues do whose entries come and go at random. No layout comes again there, so where it fills the
//! device its memory is packed instead: free blocks before the views of extents that are elsewhere are holes (`strategy::wilderness`),
//! windows pass over such views (`elastic::window`), and the highest extents move.

/// Moving this part of what is allocated is no excess.
const USUAL_PART: u64 = 8;
/// The excess of a restless program is more than so many times the live peak.
const RESTLESS_PEAKS: u64 = 2;
/// A restless program that has no cycles has allocated more than so many live peaks since its last trough.
const CYCLE_PEAKS: u64 = 4;

/// What a lane's requests have moved, in bytes.
#[derive(Debug, Default)]
pub(super) struct Moves {
    excess: u64,
    /// What the lane had allocated at the last miss, all blocks so far together.
    allocated: u64,
    /// The same at the last miss before the last trough.
    allocated_at_trough: u64,
    is_restless: bool,
    is_without_cycles: bool,
    /// Whether the lane has its new layout, as a restless one.
    is_laid_anew: bool,
}

impl Moves {
    /// A request has missed. The lane has `allocated` bytes in all blocks so far, and `peak` is the most
    /// that was live.
    pub(super) fn miss(&mut self, allocated: u64, peak: u64) {
        self.is_restless |= self.excess > peak.saturating_mul(RESTLESS_PEAKS);
        let since = allocated.saturating_sub(self.allocated);
        self.excess = self.excess.saturating_sub(since / USUAL_PART);
        self.allocated = allocated;
        let since_trough = allocated.saturating_sub(self.allocated_at_trough);
        let is_long = since_trough > peak.saturating_mul(CYCLE_PEAKS);
        self.is_without_cycles = self.is_restless && is_long;
    }

    /// The lane's live memory is at its usual low.
    pub(super) fn end_cycle(&mut self) {
        self.allocated_at_trough = self.allocated;
    }

    /// Extents of `bytes` were moved for it.
    pub(super) fn note(&mut self, bytes: u64) {
        self.excess = self.excess.saturating_add(bytes);
    }

    /// Returns true if the lane's free extents are to be laid side by side anew.
    pub(super) fn need_new_layout(&self) -> bool {
        self.is_restless && !self.is_laid_anew
    }

    /// [`Self::need_new_layout`], which they do not from now on.
    pub(super) fn take_new_layout(&mut self) -> bool {
        let is_needed = self.need_new_layout();
        self.is_laid_anew |= is_needed;
        is_needed
    }

    /// Returns true if the lane's program does not come to rest.
    pub(super) fn are_restless(&self) -> bool {
        self.is_restless
    }

    /// Returns true if the lane's program neither comes to rest nor has cycles.
    pub(super) fn are_without_cycles(&self) -> bool {
        self.is_without_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: u64 = 1600;

    /// Whether a lane is restless that moves so much while it allocates one live peak after another.
    fn is_restless(moved: impl IntoIterator<Item = u64>) -> bool {
        let mut moves = Moves::default();
        for (peaks, moved) in (1..).zip(moved) {
            moves.miss(peaks * PEAK, PEAK);
            moves.note(moved);
        }
        moves.miss(u64::MAX, PEAK);
        moves.are_restless()
    }

    #[test]
    fn a_program_that_moves_much_again_and_again_is_restless() {
        assert!(is_restless([500; 11]));
        assert!(!is_restless([500; 9]), "it has just begun");
        assert!(is_restless([1000, 0].repeat(10)));
        assert!(is_restless([vec![0; 100], vec![500; 11], vec![0; 100]].concat()), "it stays so");
    }

    #[test]
    fn a_restless_lane_is_laid_anew_once() {
        let mut moves = Moves::default();
        moves.note(100 * PEAK);
        assert!(!moves.take_new_layout());
        moves.miss(PEAK, PEAK);
        assert!(moves.need_new_layout() && moves.take_new_layout());
        moves.miss(2 * PEAK, PEAK);
        assert!(!moves.need_new_layout() && moves.are_restless());
    }

    #[test]
    fn a_restless_program_has_no_cycles_until_a_trough_comes() {
        let mut moves = Moves::default();
        let miss = |moves: &mut Moves, peaks: u64| {
            moves.miss(peaks * PEAK, PEAK);
            moves.are_without_cycles()
        };
        assert!(!miss(&mut moves, 100), "it is not restless");
        moves.note(100 * PEAK);
        assert!(miss(&mut moves, 101));
        moves.end_cycle();
        assert!(![102, 104, 105].map(|peaks| miss(&mut moves, peaks)).contains(&true));
        assert!(miss(&mut moves, 106));
    }

    #[test]
    fn a_program_that_comes_to_rest_is_not() {
        assert!(!is_restless([vec![1000; 3], vec![0; 30], vec![1000; 3], vec![0; 30]].concat()));
        assert!(!is_restless([200; 1000]), "a little for ever");
    }
}
