//! The blocks freed last, one for each of a few sizes, ready to be handed out as they are.
//!
//! Programs ask again for the sizes they have just freed. A block that comes back soon need
//! not be joined with its neighbours and cut out of them again, nor enter and leave the
//! structure that is searched. Putting the joining off is the *quick lists* of Weinstock and
//! Wulf ("Quick Fit: An Efficient Algorithm for Heap Storage Allocation", 1988); the survey of
//! Wilson, Johnstone, Neely and Boles ("Dynamic Storage Allocation: A Survey and Critical
//! Review", 1995) discusses it under "deferred coalescing", with its price: blocks that wait
//! are holes that cannot serve larger requests, and where blocks lie comes to depend on what
//! was freed before, so that a periodic program need not repeat its addresses. The price is
//! bounded here by keeping one block a size, and few sizes, and the owner can have all of them
//! back ([`Recent::pop`]) before a request is given up.
//!
//! A direct-mapped cache: a size has exactly one place, found by a multiplicative hash, and a
//! block that is put in displaces whatever was there, of the same size or another. A block in
//! here is `Free`, has no part in any list, and its neighbours are not joined with it:
//! whoever joins blocks asks [`Recent::holds`] first. That is also why blocks leave one at a
//! time, each to be joined before the next: one that had left and not been joined would look
//! to its neighbours like any free block.
//!
//! ```text
//! entries[place_of(bytes)] = (bytes, slot)  ⇔  slot is held;  block.bytes = bytes
//! bit p of occupied is set                  ⇔  entries[p] is not empty
//! ```
//!
//! Entries carry the size, so that no block is looked at to find that there is none. Nothing is
//! allocated. It is used under its lane's lock, and counts nothing.

use crate::base::size::ALIGNMENT_BYTES;
use crate::memory::{BlockTable, NO_SLOT, Slot, State};

const PLACE_BITS: u32 = 6;
const PLACES: usize = 1 << PLACE_BITS;

/// The most recently freed blocks of one lane, by exact size.
#[derive(Debug)]
pub struct Recent {
    occupied: u64,
    entries: [Entry; PLACES],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// 0 marks a place without a block.
    block_bytes: u64,
    slot: Slot,
}

const EMPTY: Entry = Entry { block_bytes: 0, slot: NO_SLOT };

impl Recent {
    /// No block.
    pub fn new() -> Self {
        Self { occupied: 0, entries: [EMPTY; PLACES] }
    }

    /// Takes in a free block; gives the one displaced, which is in no structure any more.
    #[inline]
    pub fn put(&mut self, blocks: &BlockTable, slot: Slot) -> Option<Slot> {
        let block_bytes = blocks.get(slot).bytes;
        let place = place_of(block_bytes);
        self.occupied |= 1 << place;
        let displaced = std::mem::replace(&mut self.entries[place], Entry { block_bytes, slot });
        (displaced.slot != NO_SLOT).then_some(displaced.slot)
    }

    /// Takes out the block of exactly `block_bytes`, which is not 0, if there is one.
    #[inline]
    pub fn take(&mut self, block_bytes: u64) -> Option<Slot> {
        let place = place_of(block_bytes);
        (self.entries[place].block_bytes == block_bytes).then(|| self.clear(place))
    }

    /// Takes out any block.
    #[inline]
    pub fn pop(&mut self) -> Option<Slot> {
        (self.occupied != 0).then(|| self.clear(self.occupied.trailing_zeros() as usize))
    }

    /// Whether the block in `slot`, of `block_bytes`, is here.
    #[inline]
    pub fn holds(&self, block_bytes: u64, slot: Slot) -> bool {
        self.entries[place_of(block_bytes)].slot == slot
    }

    /// Takes out the block in `slot`, of `block_bytes`; says whether it was here.
    #[inline]
    pub fn withdraw(&mut self, block_bytes: u64, slot: Slot) -> bool {
        let is_here = self.holds(block_bytes, slot);
        if is_here {
            self.clear(place_of(block_bytes));
        }
        is_here
    }

    /// The blocks here with their sizes in bytes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, u64)> {
        let held = self.entries.iter().filter(|entry| entry.slot != NO_SLOT);
        held.map(|entry| (entry.slot, entry.block_bytes))
    }

    /// All blocks here together, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.iter().map(|(_, block_bytes)| block_bytes).sum()
    }

    /// The number of blocks here, after checking the module's equations.
    pub fn validate(&self, blocks: &BlockTable) -> Result<usize, String> {
        for (place, entry) in self.entries.iter().enumerate() {
            let is_occupied = self.occupied >> place & 1 == 1;
            if is_occupied != (entry.slot != NO_SLOT) || is_occupied != (entry.block_bytes != 0) {
                return Err(format!("place {place}: its bit says {is_occupied}: {entry:?}"));
            }
        }
        for (slot, block_bytes) in self.iter() {
            let block = blocks.get(slot);
            if block.state != State::Free || block.bytes != block_bytes {
                return Err(format!("block {slot} is not as when it was put in: {block:?}"));
            }
            if !self.holds(block_bytes, slot) {
                return Err(format!("block {slot} is in the wrong place"));
            }
        }
        Ok(self.iter().count())
    }

    /// Takes out what is in `place`.
    #[inline]
    fn clear(&mut self, place: usize) -> Slot {
        self.occupied &= !(1 << place);
        std::mem::replace(&mut self.entries[place], EMPTY).slot
    }
}

/// Where blocks of `block_bytes` are kept. Fibonacci hashing (Knuth, TAOCP 3, 6.4).
#[inline]
fn place_of(block_bytes: u64) -> usize {
    let hash = (block_bytes / ALIGNMENT_BYTES).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - PLACE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::size::SizeClass;
    use crate::memory::{Directory, Segment};

    /// One free block of each size, in bytes; slots in the order given.
    fn blocks_of(sizes: &[u64]) -> BlockTable {
        let mut blocks = BlockTable::new(0, Arc::new(Directory::new()));
        for (n, &bytes) in (1..).zip(sizes) {
            blocks.insert(Segment { address: n << 40, bytes, class: SizeClass::Small });
        }
        blocks
    }

    #[test]
    fn a_block_comes_back_for_its_exact_size_only() {
        let blocks = blocks_of(&[4096, 4096, 8192]);
        let mut recent = Recent::new();
        assert_eq!(recent.put(&blocks, 0), None);
        assert_eq!(recent.put(&blocks, 1), Some(0), "the newest stays");
        assert_eq!(recent.put(&blocks, 2), None);
        assert_eq!(recent.validate(&blocks), Ok(2));
        assert_eq!(recent.held_bytes(), 4096 + 8192);
        assert_eq!(recent.take(512), None);
        assert_eq!(recent.take(4096), Some(1));
        assert_eq!(recent.take(4096), None);
        assert_eq!(recent.take(8192), Some(2));
        assert_eq!(recent.validate(&blocks), Ok(0));
    }

    #[test]
    fn a_particular_block_can_be_withdrawn() {
        let blocks = blocks_of(&[4096, 4096]);
        let mut recent = Recent::new();
        recent.put(&blocks, 0);
        assert!(recent.holds(4096, 0) && !recent.holds(4096, 1));
        assert!(!recent.withdraw(4096, 1), "not the block that is there");
        assert!(recent.withdraw(4096, 0));
        assert!(!recent.withdraw(4096, 0));
        assert_eq!(recent.held_bytes(), 0);
    }

    /// Far more sizes than places: each block is here, displaced or taken, exactly once.
    #[test]
    fn every_block_put_in_comes_out_once() {
        let sizes: Vec<u64> = (1..=1000).map(|n| n * 512).collect();
        let blocks = blocks_of(&sizes);
        let mut recent = Recent::new();
        let mut out: Vec<Slot> = Vec::new();
        for slot in 0..1000 {
            out.extend(recent.put(&blocks, slot));
            if slot % 3 == 0 {
                out.extend(recent.take(u64::from(slot / 2 + 1) * 512));
            }
            recent.validate(&blocks).unwrap();
        }
        assert_eq!(recent.iter().count() + out.len(), 1000);
        out.extend(std::iter::from_fn(|| recent.pop()));
        out.sort_unstable();
        assert!(out.into_iter().eq(0..1000));
        assert_eq!(recent.validate(&blocks), Ok(0));
    }

    #[test]
    fn validation_notices_a_block_that_has_changed() {
        let mut blocks = blocks_of(&[4096]);
        let mut recent = Recent::new();
        recent.put(&blocks, 0);
        blocks.get_mut(0).bytes = 8192;
        assert!(recent.validate(&blocks).is_err());
        blocks.get_mut(0).bytes = 4096;
        blocks.get_mut(0).state = State::Live;
        assert!(recent.validate(&blocks).is_err());
    }
}
