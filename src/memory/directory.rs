//! From an address to the block that starts there, in O(1), without a lock and without hashing.
//!
//! Two radix trees over the 57 bits of an address, as in a processor's page tables and in
//! tcmalloc's page map (Ghemawat and Menage, "TCMalloc: Thread-Caching Malloc", section
//! "Central heap"). Two blocks of the large class start more than a mebibyte apart, so their
//! tree has one entry for each mebibyte, which holds the block's offset in it; the tree of the
//! small class has one entry for each 512 bytes:
//!
//! ```text
//! large    56 ....... 45 | 44 ....... 33 | 32 ...... 20 | 19 ............... 0
//!          root, 2^12      upper, 2^12     leaf, 2^13     in the entry
//! small    56 ........ 42 | 41 ...... 29 | 28 ...... 16 | 15 .... 9 | 8 .... 0
//!          root, 2^15      upper, 2^13     lower, 2^13    leaf, 2^7   in the unit
//! ```
//!
//! Nodes are made on first use and live as long as the directory. Their number depends on the
//! address space touched, and addresses are reused. Large blocks cost 8 KiB for each gibibyte,
//! small ones at most 1.6 % of the addresses they start in.
//!
//! **Threads.** Any thread may read at any time. An entry is written only by a thread that
//! holds the lock of the lane it names, or that removes the addresses from that lane's table.
//! An entry may be out of date, so a reader takes that lock and checks the block before it
//! relies on the entry.

use std::ops::Range;

use once_cell::race::OnceBox;

use crate::base::size::{MIB, SizeClass};
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Index of a block in its lane's table.
pub type Slot = u32;

/// The slot of no block.
pub const NO_SLOT: Slot = Slot::MAX;

const ADDRESS_BITS: u32 = 57;
/// Addresses are multiples of 512.
const UNIT_BITS: u32 = 9;

/// The bits of an address that index each level of a tree; those of the last level start at
/// `LEAF_SHIFT`.
mod small {
    pub(super) const LEAF_SHIFT: u32 = super::UNIT_BITS;
    pub(super) const LEAF_BITS: u32 = 7;
    pub(super) const LOWER_SHIFT: u32 = LEAF_SHIFT + LEAF_BITS;
    pub(super) const INNER_BITS: u32 = 13;
    pub(super) const UPPER_SHIFT: u32 = LOWER_SHIFT + INNER_BITS;
    pub(super) const ROOT_SHIFT: u32 = UPPER_SHIFT + INNER_BITS;
    pub(super) const ROOT_BITS: u32 = super::ADDRESS_BITS - ROOT_SHIFT;
}

mod large {
    pub(super) const LEAF_SHIFT: u32 = super::MIB.ilog2();
    pub(super) const LEAF_BITS: u32 = 13;
    pub(super) const UPPER_SHIFT: u32 = LEAF_SHIFT + LEAF_BITS;
    pub(super) const UPPER_BITS: u32 = 12;
    pub(super) const ROOT_SHIFT: u32 = UPPER_SHIFT + UPPER_BITS;
    pub(super) const ROOT_BITS: u32 = super::ADDRESS_BITS - ROOT_SHIFT;
}

type SmallLeaf = [AtomicU64; 1 << small::LEAF_BITS];
type SmallLower = [OnceBox<SmallLeaf>; 1 << small::INNER_BITS];
type SmallUpper = [OnceBox<SmallLower>; 1 << small::INNER_BITS];
type SmallRoot = [OnceBox<SmallUpper>; 1 << small::ROOT_BITS];
type LargeLeaf = [AtomicU64; 1 << large::LEAF_BITS];
type LargeUpper = [OnceBox<LargeLeaf>; 1 << large::UPPER_BITS];
type LargeRoot = [OnceBox<LargeUpper>; 1 << large::ROOT_BITS];

/// Where a block's record is: a lane, and a slot of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the lane, below 2^20.
    pub lane: u32,
    /// Slot in the lane's block table.
    pub slot: Slot,
}

/// A word, from its high bits: lane + 1, so that no entry is 0; the block's offset in its
/// mebibyte, in units of 512 bytes; the slot.
const LANE_SHIFT: u32 = 43;
const PLACE_SHIFT: u32 = 32;
const PLACE_BITS: u32 = large::LEAF_SHIFT - UNIT_BITS;

impl Entry {
    #[inline]
    fn encode(self, address: u64) -> u64 {
        (u64::from(self.lane) + 1) << LANE_SHIFT
            | place(address) << PLACE_SHIFT
            | u64::from(self.slot)
    }

    /// The entry in `word`, if it is for a block at `address`.
    #[inline]
    fn decode(word: u64, address: u64) -> Option<Self> {
        let lane = (word >> LANE_SHIFT) as u32;
        let is_there = word >> PLACE_SHIFT & ((1 << PLACE_BITS) - 1) == place(address);
        (lane != 0 && is_there).then(|| Self { lane: lane - 1, slot: word as u32 })
    }
}

/// The offset of `address` in its mebibyte, in units of 512 bytes.
#[inline]
fn place(address: u64) -> u64 {
    address >> UNIT_BITS & ((1 << PLACE_BITS) - 1)
}

/// The offset in its mebibyte of the block of `word`, in bytes.
#[inline]
fn offset_bytes(word: u64) -> u64 {
    (word >> PLACE_SHIFT & ((1 << PLACE_BITS) - 1)) << UNIT_BITS
}

/// The map from block addresses to their records.
#[derive(Debug)]
pub struct Directory {
    small: Box<SmallRoot>,
    large: Box<LargeRoot>,
}

impl Directory {
    /// A directory with no entry.
    pub fn new() -> Self {
        Self { small: boxed_array(), large: boxed_array() }
    }

    /// The block that starts at `address`, if there is one.
    #[inline]
    pub fn get(&self, address: u64) -> Option<Entry> {
        if !is_representable(address) {
            return None;
        }
        self.get_large(address).or_else(|| self.get_small(address))
    }

    #[inline]
    fn get_large(&self, address: u64) -> Option<Entry> {
        let word = self.known_large_word(address)?;
        Entry::decode(word.load(Ordering::Acquire), address)
    }

    #[inline]
    fn get_small(&self, address: u64) -> Option<Entry> {
        let upper = self.small[index(address, small::ROOT_SHIFT, small::ROOT_BITS)].get()?;
        let lower = upper[index(address, small::UPPER_SHIFT, small::INNER_BITS)].get()?;
        let leaf = lower[index(address, small::LOWER_SHIFT, small::INNER_BITS)].get()?;
        let word = &leaf[index(address, small::LEAF_SHIFT, small::LEAF_BITS)];
        Entry::decode(word.load(Ordering::Acquire), address)
    }

    /// Makes `entry` the entry of the block of `class` that starts at `address`, which is
    /// representable.
    #[inline]
    pub fn set(&self, address: u64, class: SizeClass, entry: Entry) {
        debug_assert!(is_representable(address));
        let word = match class {
            SizeClass::Small => self.small_word(address),
            SizeClass::Large => self.large_word(address),
        };
        word.store(entry.encode(address), Ordering::Release);
    }

    /// Forgets the large blocks that started in `range`. Small blocks may start there next, and a
    /// small block is found only where no large one is. A large block that starts outside of
    /// `range` in a mebibyte that it overlaps stays, even if another thread adds it just now.
    pub fn forget(&self, range: Range<u64>) {
        let mut mebibyte = range.start & !(MIB - 1);
        while mebibyte < range.end {
            let Some(word) = self.known_large_word(mebibyte) else {
                // No large block ever started in this leaf's addresses.
                mebibyte = ((mebibyte >> large::UPPER_SHIFT) + 1) << large::UPPER_SHIFT;
                continue;
            };
            let known = word.load(Ordering::Acquire);
            if range.contains(&(mebibyte + offset_bytes(known))) {
                let _ = word.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Acquire);
            }
            mebibyte += MIB;
        }
    }

    #[inline]
    fn small_word(&self, address: u64) -> &AtomicU64 {
        let upper = &self.small[index(address, small::ROOT_SHIFT, small::ROOT_BITS)];
        let upper = upper.get_or_init(boxed_array);
        let lower = &upper[index(address, small::UPPER_SHIFT, small::INNER_BITS)];
        let lower = lower.get_or_init(boxed_array);
        let leaf = &lower[index(address, small::LOWER_SHIFT, small::INNER_BITS)];
        let leaf = leaf.get_or_init(boxed_array);
        &leaf[index(address, small::LEAF_SHIFT, small::LEAF_BITS)]
    }

    /// The word of the mebibyte that `address` lies in, if a large block was ever near it.
    #[inline]
    fn known_large_word(&self, address: u64) -> Option<&AtomicU64> {
        let upper = self.large[index(address, large::ROOT_SHIFT, large::ROOT_BITS)].get()?;
        let leaf = upper[index(address, large::UPPER_SHIFT, large::UPPER_BITS)].get()?;
        Some(&leaf[index(address, large::LEAF_SHIFT, large::LEAF_BITS)])
    }

    #[inline]
    fn large_word(&self, address: u64) -> &AtomicU64 {
        let upper = &self.large[index(address, large::ROOT_SHIFT, large::ROOT_BITS)];
        let upper = upper.get_or_init(boxed_array);
        let leaf = &upper[index(address, large::UPPER_SHIFT, large::UPPER_BITS)];
        let leaf = leaf.get_or_init(boxed_array);
        &leaf[index(address, large::LEAF_SHIFT, large::LEAF_BITS)]
    }
}

/// Returns true if a block can start at `address`: aligned to 512 bytes and inside the trees.
#[inline]
pub fn is_representable(address: u64) -> bool {
    address.is_multiple_of(1 << UNIT_BITS) && address >> ADDRESS_BITS == 0
}

#[inline]
fn index(address: u64, shift: u32, bits: u32) -> usize {
    (address >> shift) as usize & ((1 << bits) - 1)
}

/// An array made in place on the heap: the nodes are too large for a small thread's stack.
#[cold]
fn boxed_array<T: Default, const N: usize>() -> Box<[T; N]> {
    let elements: Box<[T]> = std::iter::repeat_with(T::default).take(N).collect();
    match elements.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the iterator yields exactly N elements"),
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "directory_models.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_exactly_what_was_set() {
        for class in SizeClass::ALL {
            let directory = Directory::new();
            let addresses = [0, MIB + 512, 0x7f00_0000_0000, 0x7f00_0010_0200, (1 << 57) - 512];
            for (slot, &address) in addresses.iter().enumerate() {
                assert_eq!(directory.get(address), None);
                let entry = Entry { lane: (1 << 20) - 1, slot: slot as u32 };
                directory.set(address, class, entry);
            }
            for (slot, &address) in addresses.iter().enumerate() {
                let found = directory.get(address).unwrap();
                assert_eq!(found, Entry { lane: (1 << 20) - 1, slot: slot as u32 });
                assert_eq!(directory.get(address + 1), None, "inside a unit");
                assert_eq!(directory.get(address ^ 1024), None, "beside it");
            }
            directory.set(512, class, Entry { lane: 7, slot: u32::MAX });
            assert_eq!(directory.get(512), Some(Entry { lane: 7, slot: u32::MAX }));
        }
    }

    #[test]
    fn small_blocks_take_over_addresses_of_large_ones() {
        let directory = Directory::new();
        let start = 5 * MIB + 512;
        directory.set(start, SizeClass::Large, Entry { lane: 1, slot: 1 });
        directory.set(start + 2 * MIB, SizeClass::Large, Entry { lane: 1, slot: 2 });
        directory.forget(start..start + 2 * MIB);
        assert_eq!(directory.get(start), None);
        directory.set(start, SizeClass::Small, Entry { lane: 2, slot: 3 });
        directory.set(start + 512, SizeClass::Small, Entry { lane: 2, slot: 4 });
        assert_eq!(directory.get(start), Some(Entry { lane: 2, slot: 3 }));
        assert_eq!(directory.get(start + 512), Some(Entry { lane: 2, slot: 4 }));
    }

    /// A driver, or the host's allocator, may put segments of all sizes side by side.
    #[test]
    fn large_blocks_beside_small_ones_are_not_forgotten() {
        let directory = Directory::new();
        let (before, behind) = (Entry { lane: 1, slot: 1 }, Entry { lane: 1, slot: 2 });
        directory.set(3 * MIB + 4096, SizeClass::Large, before);
        directory.set(5 * MIB + 8192, SizeClass::Large, behind);
        directory.forget(5 * MIB + 4096..5 * MIB + 8192);
        directory.forget(4 * MIB + 8192..5 * MIB + 512);
        assert_eq!(directory.get(3 * MIB + 4096), Some(before));
        assert_eq!(directory.get(5 * MIB + 8192), Some(behind));
        directory.forget(3 * MIB..5 * MIB + 8704);
        assert_eq!(directory.get(3 * MIB + 4096), None);
        assert_eq!(directory.get(5 * MIB + 8192), None);
    }

    #[test]
    fn any_word_may_be_asked_for() {
        let directory = Directory::new();
        for address in [u64::MAX, 1 << 57, (1 << 57) - 1, 3] {
            assert_eq!(directory.get(address), None);
        }
    }
}
