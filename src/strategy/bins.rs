//! Bins of sizes, and the search for the next bin that holds a block.
//!
//! Sizes are counted in units of 512 bytes. Below 64 units each size has a bin of its own; above,
//! each doubling is cut into 32 bins of equal width. Every block of a later bin is larger than
//! every block of an earlier one. This is the mapping of TLSF (Masmano, Ripoll, Crespo, Real:
//! "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", 2004).
//!
//! A bit per bin tells which bins are not empty, and a bit per word of those which words are not
//! zero: the next bin that holds a block is two counts of zeros away.
//!
//! ```text
//! heads[bin] = a block of the bin, or NO_SLOT
//! bit b of words[w] is set      ⇔  heads[64 w + b] ≠ NO_SLOT
//! bit w of words_in_use is set  ⇔  words[w] ≠ 0
//! ```
//!
//! How a bin's blocks hang together is the free list's choice: a list in [`lists`], a tree in
//! [`best_fit`].
//!
//! [`lists`]: super::lists
//! [`best_fit`]: super::best_fit

use std::ops::RangeInclusive;

use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{NO_SLOT, Slot};

/// Bins per doubling, as an exponent.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
/// Sizes are below two to this power, in bytes.
const SIZE_BITS: u32 = 48;
const UNIT_BITS: u32 = SIZE_BITS - ALIGNMENT_BYTES.ilog2();
const BINS: usize = STEPS * (UNIT_BITS - STEP_BITS + 1) as usize;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = BINS.div_ceil(WORD_BITS);

/// One block of each bin, from which the others are reached.
#[derive(Debug)]
pub(super) struct Bins {
    words_in_use: u32,
    words: [u64; WORDS],
    heads: [Slot; BINS],
}

impl Bins {
    /// Empty bins.
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { words_in_use: 0, words: [0; WORDS], heads: [NO_SLOT; BINS] })
    }

    /// The head of `bin`, or [`NO_SLOT`].
    #[inline]
    pub(super) fn head(&self, bin: usize) -> Slot {
        self.heads[bin]
    }

    /// Makes `slot` the head of `bin`, which was empty.
    #[inline]
    pub(super) fn fill(&mut self, bin: usize, slot: Slot) {
        self.heads[bin] = slot;
        self.words[bin / WORD_BITS] |= 1 << (bin % WORD_BITS);
        self.words_in_use |= 1 << (bin / WORD_BITS);
    }

    /// Makes `slot` the head of `bin`, which stays in use.
    #[inline]
    pub(super) fn set_head(&mut self, bin: usize, slot: Slot) {
        self.heads[bin] = slot;
    }

    /// Empties `bin`.
    #[inline]
    pub(super) fn clear(&mut self, bin: usize) {
        self.heads[bin] = NO_SLOT;
        let word = &mut self.words[bin / WORD_BITS];
        *word &= !(1 << (bin % WORD_BITS));
        self.words_in_use &= !(u32::from(*word == 0) << (bin / WORD_BITS));
    }

    /// The first bin from `bin` on that is not empty.
    #[inline]
    pub(super) fn next_in_use(&self, bin: usize) -> Option<usize> {
        let word = bin / WORD_BITS;
        // One look is enough where all blocks are smaller.
        if self.words_in_use >> word == 0 {
            return None;
        }
        let bits = self.words[word] & (u64::MAX << (bin % WORD_BITS));
        if bits != 0 {
            return Some(word * WORD_BITS + bits.trailing_zeros() as usize);
        }
        let words = self.words_in_use & (u32::MAX << word << 1);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some(word * WORD_BITS + self.words[word].trailing_zeros() as usize)
    }

    /// The head of the last bin that is not empty.
    pub(super) fn last_head(&self) -> Option<Slot> {
        let word = self.words_in_use.checked_ilog2()? as usize;
        Some(self.heads[word * WORD_BITS + self.words[word].ilog2() as usize])
    }

    /// The heads of all bins for sizes in `bytes` that are not empty.
    pub(super) fn heads_for(&self, bytes: &RangeInclusive<u64>) -> impl Iterator<Item = Slot> {
        let last = if *bytes.end() >> SIZE_BITS == 0 { bin_of(*bytes.end()) } else { BINS - 1 };
        let in_use = move |bin: usize| self.next_in_use(bin).filter(|&bin| bin <= last);
        std::iter::successors(in_use(bin_of(*bytes.start())), move |bin| in_use(bin + 1))
            .map(|bin| self.heads[bin])
    }

    /// All bins with their heads, after checking the module's equations.
    pub(super) fn validate(&self) -> Result<impl Iterator<Item = (usize, Slot)>, String> {
        for (bin, &head) in self.heads.iter().enumerate() {
            let is_marked = self.words[bin / WORD_BITS] >> (bin % WORD_BITS) & 1 == 1;
            if is_marked != (head != NO_SLOT) {
                return Err(format!("bin {bin}: its bit says {is_marked}"));
            }
        }
        for (word, &bits) in self.words.iter().enumerate() {
            if (self.words_in_use >> word & 1 == 1) != (bits != 0) {
                return Err(format!("word {word} of the bits is {bits:#x}, and its bit wrong"));
            }
        }
        Ok(self.heads.iter().copied().enumerate().filter(|&(_, head)| head != NO_SLOT))
    }
}

/// The bin of blocks of `bytes`, which is below 2^48.
#[inline]
pub(super) fn bin_of(bytes: u64) -> usize {
    let units = bytes / ALIGNMENT_BYTES;
    let doublings = (units | 1).ilog2().saturating_sub(STEP_BITS);
    (doublings as usize) * STEPS + (units >> doublings) as usize
}
