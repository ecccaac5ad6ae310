//! Free blocks by class of size: find one that fits well, in constant time.
//!
//! This is the structure of TLSF (Masmano, Ripoll, Crespo, Real: "TLSF: a New Dynamic Memory
//! Allocator for Real-Time Systems", 2004), with a look into the request's own bin added. In
//! the words of Wilson, Johnstone, Neely and Boles ("Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995) it is a segregated fit with good fit instead of best fit.
//!
//! 1. **Bins.** Sizes are counted in units of 512 bytes. Below 64 units each size has a bin of
//!    its own; above, each doubling is cut into 32 bins of equal width. Every block of a later
//!    bin is larger than every block of an earlier one.
//! 2. **Bitmaps.** A bit per bin tells which are not empty, and a bit per word of those which
//!    words are not zero: the next bin that holds anything is two counts of zeros away.
//! 3. **Lists.** The blocks of a bin form a list through their links. Parts of segments enter
//!    at its head and whole segments, which can still be given back or serve another stream,
//!    at its tail, so a search meets parts first, and of those the one freed last.
//!
//! [`Segregated::find`] takes the smallest block that fits of the first few in the request's
//! own bin, otherwise the first of the next bin in use. What that wastes against best fit is
//! below the width of a bin, 1/32 of the size, unless the own bin holds more blocks than are
//! looked at. Only when no larger bin is in use is the own bin searched to its end, because a
//! miss costs far more. So a search finds nothing only if nothing fits.
//!
//! ```text
//! heads[bin] = the first of its list;  links = [previous, next]
//! previous of the first = the last;  next of the last = NO_SLOT
//! bit b of words[w] is set      ⇔  heads[64 w + b] ≠ NO_SLOT
//! bit w of words_in_use is set  ⇔  words[w] ≠ 0
//! ```
//!
//! It is used under its lane's lock, and allocates nothing after it has been made. It neither
//! splits nor joins blocks. It does not keep a bin in order: that is [`BestFit`]'s, whose
//! searches take O(log n).
//!
//! [`BestFit`]: super::best_fit::BestFit

use std::ops::RangeInclusive;

use super::best_fit::SplitFree;
use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{Block, BlockTable, NO_SLOT, Slot, State};

const PREVIOUS: usize = 0;
const NEXT: usize = 1;
/// Bins per doubling, as an exponent.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
/// Enough for sizes below 2^48 bytes, i.e. 2^39 units.
const BINS: usize = STEPS * (39 - STEP_BITS as usize + 1);
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = BINS.div_ceil(WORD_BITS);
/// How many blocks of its own bin a search looks at.
const OWN_BIN_LOOKS: usize = 8;

/// The free blocks of one lane that are searched by size.
#[derive(Debug)]
pub struct Segregated {
    bins: Box<Bins>,
    split: SplitFree,
}

#[derive(Debug)]
struct Bins {
    words_in_use: u32,
    words: [u64; WORDS],
    heads: [Slot; BINS],
}

impl Segregated {
    /// No free block.
    pub fn new() -> Self {
        let bins = Bins { words_in_use: 0, words: [0; WORDS], heads: [NO_SLOT; BINS] };
        Self { bins: Box::new(bins), split: SplitFree::default() }
    }

    /// A free block of at least `bytes`, mostly little larger than the smallest such; it stays
    /// here. `bytes` is below 2^48.
    #[inline]
    pub fn find(&self, blocks: &BlockTable, bytes: u64) -> Option<Slot> {
        let bin = bin_of(bytes);
        let first = self.bins.heads[bin];
        if first != NO_SLOT {
            let slot = smallest(blocks, first, bytes, OWN_BIN_LOOKS);
            if slot != NO_SLOT {
                return Some(slot);
            }
        }
        match self.bins.next_in_use(bin + 1) {
            Some(larger) => Some(self.bins.heads[larger]),
            None => self.find_in_all(blocks, bin, bytes),
        }
    }

    /// The smallest of all blocks of `bin` with at least `bytes`.
    #[cold]
    fn find_in_all(&self, blocks: &BlockTable, bin: usize, bytes: u64) -> Option<Slot> {
        let slot = smallest(blocks, self.bins.heads[bin], bytes, usize::MAX);
        (slot != NO_SLOT).then_some(slot)
    }

    /// Shows `visit` the free blocks with sizes in `bytes`, in no order.
    pub fn visit(
        &self,
        blocks: &BlockTable,
        bytes: &RangeInclusive<u64>,
        visit: &mut impl FnMut(Slot, &Block),
    ) {
        let last_bin = if *bytes.end() >> 48 == 0 { bin_of(*bytes.end()) } else { BINS - 1 };
        let mut next = bin_of(*bytes.start());
        while let Some(bin) = self.bins.next_in_use(next).filter(|&bin| bin <= last_bin) {
            for (slot, block) in list(blocks, self.bins.heads[bin]) {
                if bytes.contains(&block.bytes) {
                    visit(slot, block);
                }
            }
            next = bin + 1;
        }
    }

    /// The largest free block, in bytes; 0 when there is none. Linear in the blocks of one bin.
    pub fn largest_bytes(&self, blocks: &BlockTable) -> u64 {
        let Some(word) = self.bins.words_in_use.checked_ilog2() else {
            return 0;
        };
        let bin = word as usize * WORD_BITS + self.bins.words[word as usize].ilog2() as usize;
        list(blocks, self.bins.heads[bin]).map(|(_, block)| block.bytes).max().unwrap_or(0)
    }

    /// Takes in a free block of less than 2^48 bytes.
    #[inline]
    pub fn insert(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let bytes = blocks.get(slot).bytes;
        let is_part = !blocks.is_whole_segment(slot);
        if is_part {
            self.split.blocks.add(1);
            self.split.bytes.add(bytes);
        }
        let bin = bin_of(bytes);
        let first = self.bins.heads[bin];
        if first == NO_SLOT {
            blocks.get_mut(slot).links = [slot, NO_SLOT];
            self.bins.heads[bin] = slot;
            self.bins.mark(bin);
            return;
        }
        let last = std::mem::replace(&mut blocks.get_mut(first).links[PREVIOUS], slot);
        if is_part {
            blocks.get_mut(slot).links = [last, first];
            self.bins.heads[bin] = slot;
        } else {
            blocks.get_mut(slot).links = [last, NO_SLOT];
            blocks.get_mut(last).links[NEXT] = slot;
        }
    }

    /// Takes out a block that is here.
    #[inline]
    pub fn remove(&mut self, blocks: &mut BlockTable, slot: Slot) {
        let Block { bytes, links: [previous, next], .. } = *blocks.get(slot);
        if !blocks.is_whole_segment(slot) {
            self.split.blocks.take(1);
            self.split.bytes.take(bytes);
        }
        let bin = bin_of(bytes);
        let first = self.bins.heads[bin];
        if first == slot {
            self.bins.heads[bin] = next;
            if next == NO_SLOT {
                self.bins.unmark(bin);
            } else {
                blocks.get_mut(next).links[PREVIOUS] = previous;
            }
        } else {
            blocks.get_mut(previous).links[NEXT] = next;
            let after = if next == NO_SLOT { first } else { next };
            blocks.get_mut(after).links[PREVIOUS] = previous;
        }
    }

    /// The free blocks here that are parts of segments.
    pub fn split(&self) -> SplitFree {
        self.split
    }

    /// Makes the peaks of [`Self::split`] what is there now.
    pub fn reset_peaks(&mut self) {
        self.split.blocks.reset_peak();
        self.split.bytes.reset_peak();
    }

    /// The number of blocks here, after checking the module's equations, that each block is
    /// free and in its bin, and the counts of parts.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        let (mut count, mut parts, mut parts_bytes) = (0, 0, 0);
        for (bin, &first) in self.bins.heads.iter().enumerate() {
            let is_marked = self.bins.words[bin / WORD_BITS] >> (bin % WORD_BITS) & 1 == 1;
            if is_marked != (first != NO_SLOT) {
                return Err(format!("bin {bin}: its bit says {is_marked}"));
            }
            let mut last = NO_SLOT;
            for (slot, block) in list(blocks, first) {
                if block.state != State::Free || bin_of(block.bytes) != bin {
                    return Err(format!("block {slot} is in bin {bin}: {block:?}"));
                }
                if slot != first && block.links[PREVIOUS] != last {
                    return Err(format!("block {slot} does not follow block {last}"));
                }
                last = slot;
                count += 1;
                if !blocks.is_whole_segment(slot) {
                    parts += 1;
                    parts_bytes += block.bytes;
                }
            }
            if first != NO_SLOT && blocks.get(first).links[PREVIOUS] != last {
                return Err(format!("bin {bin}: its first block does not know its last, {last}"));
            }
        }
        for (word, &bits) in self.bins.words.iter().enumerate() {
            if (self.bins.words_in_use >> word & 1 == 1) != (bits != 0) {
                return Err(format!("word {word} of the bits is {bits:#x}, and its bit wrong"));
            }
        }
        if (parts, parts_bytes) != (self.split.blocks.current, self.split.bytes.current) {
            return Err(format!("{parts} parts of {parts_bytes} bytes, counted {:?}", self.split));
        }
        Ok(count)
    }
}

impl Bins {
    /// The first bin from `bin` on that is not empty.
    #[inline]
    fn next_in_use(&self, bin: usize) -> Option<usize> {
        let word = bin / WORD_BITS;
        let bits = *self.words.get(word)? & (u64::MAX << (bin % WORD_BITS));
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

    #[inline]
    fn mark(&mut self, bin: usize) {
        self.words[bin / WORD_BITS] |= 1 << (bin % WORD_BITS);
        self.words_in_use |= 1 << (bin / WORD_BITS);
    }

    #[inline]
    fn unmark(&mut self, bin: usize) {
        let word = &mut self.words[bin / WORD_BITS];
        *word &= !(1 << (bin % WORD_BITS));
        self.words_in_use &= !(u32::from(*word == 0) << (bin / WORD_BITS));
    }
}

/// The bin of blocks of `bytes`, which is below 2^48.
#[inline]
fn bin_of(bytes: u64) -> usize {
    let units = bytes / ALIGNMENT_BYTES;
    let doublings = (units | 1).ilog2().saturating_sub(STEP_BITS);
    (doublings as usize) * STEPS + (units >> doublings) as usize
}

/// The smallest block of at least `bytes` among the first `looks` of the list from `first`,
/// and the earliest of its size.
#[inline]
fn smallest(blocks: &BlockTable, first: Slot, bytes: u64, looks: usize) -> Slot {
    let (mut found, mut found_bytes) = (NO_SLOT, u64::MAX);
    for (slot, block) in list(blocks, first).take(looks) {
        if block.bytes >= bytes && block.bytes < found_bytes {
            (found, found_bytes) = (slot, block.bytes);
            if found_bytes == bytes {
                break;
            }
        }
    }
    found
}

/// The blocks from `slot` on in its list.
#[inline]
fn list(blocks: &BlockTable, slot: Slot) -> impl Iterator<Item = (Slot, &Block)> {
    let present = |slot: Slot| (slot != NO_SLOT).then(|| (slot, blocks.get(slot)));
    std::iter::successors(present(slot), move |(_, block)| present(block.links[NEXT]))
}
