//! From an address to the block that starts there, in O(1), without a lock and without hashing.
//!
//! A radix tree over the 57 bits of an address, as in a processor's page tables and in
//! tcmalloc's page map (Ghemawat and Menage, "TCMalloc: Thread-Caching Malloc", section
//! "Central heap"), with one entry for every 512 bytes that start a block:
//!
//! ```text
//! address  56 ........ 42 | 41 ...... 29 | 28 ...... 16 | 15 .... 9 | 8 .. 0
//!          root, 2^15      upper, 2^13     lower, 2^13    leaf, 2^7   in the unit
//! ```
//!
//! Inner nodes are made on first use and live as long as the directory: there are as many as
//! the address space touched needs, and addresses are reused. A leaf is 1 KiB and covers
//! 64 KiB, so the whole costs at most 1.6 % of memory cut into 512-byte blocks, and next to
//! nothing for large blocks.
//!
//! **Threads.** Any thread may read at any time. An entry is written only by a thread that
//! holds the lock of the lane it names, and never cleared: it may be out of date. A reader
//! therefore takes that lock and checks the block before it believes what it read.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use super::Slot;

const UNIT_BITS: u32 = 9;
const LEAF_BITS: u32 = 7;
const INNER_BITS: u32 = 13;
const ROOT_BITS: u32 = 15;
const LEAF_SHIFT: u32 = UNIT_BITS;
const LOWER_SHIFT: u32 = LEAF_SHIFT + LEAF_BITS;
const UPPER_SHIFT: u32 = LOWER_SHIFT + INNER_BITS;
const ROOT_SHIFT: u32 = UPPER_SHIFT + INNER_BITS;
const ADDRESS_BITS: u32 = ROOT_SHIFT + ROOT_BITS;

type Leaf = [AtomicU64; 1 << LEAF_BITS];
type Lower = [OnceBox<Leaf>; 1 << INNER_BITS];
type Upper = [OnceBox<Lower>; 1 << INNER_BITS];
type Root = [OnceBox<Upper>; 1 << ROOT_BITS];

/// Where a block's record is: which lane's table, and which slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the lane.
    pub lane: u32,
    /// Slot in the lane's block table.
    pub slot: Slot,
}

impl Entry {
    fn encode(self) -> u64 {
        (u64::from(self.lane) + 1) << 32 | u64::from(self.slot)
    }

    fn decode(word: u64) -> Option<Self> {
        let lane = (word >> 32) as u32;
        (lane != 0).then(|| Self { lane: lane - 1, slot: word as u32 })
    }
}

/// The map from block addresses to their records.
#[derive(Debug)]
pub struct Directory {
    root: Box<Root>,
}

impl Directory {
    /// A directory with no entry.
    pub fn new() -> Self {
        Self { root: boxed_array() }
    }

    /// The block that starts at `address`, if there is one.
    #[inline]
    pub fn get(&self, address: u64) -> Option<Entry> {
        if !is_representable(address) {
            return None;
        }
        let upper = self.root[index(address, ROOT_SHIFT, ROOT_BITS)].get()?;
        let lower = upper[index(address, UPPER_SHIFT, INNER_BITS)].get()?;
        let leaf = lower[index(address, LOWER_SHIFT, INNER_BITS)].get()?;
        Entry::decode(leaf[index(address, LEAF_SHIFT, LEAF_BITS)].load(Ordering::Acquire))
    }

    /// Makes `entry` the block that starts at `address`, which is representable.
    #[inline]
    pub fn set(&self, address: u64, entry: Entry) {
        self.word(address).store(entry.encode(), Ordering::Release);
    }

    #[inline]
    fn word(&self, address: u64) -> &AtomicU64 {
        debug_assert!(is_representable(address));
        let upper = self.root[index(address, ROOT_SHIFT, ROOT_BITS)].get_or_init(boxed_array);
        let lower = upper[index(address, UPPER_SHIFT, INNER_BITS)].get_or_init(boxed_array);
        let leaf = lower[index(address, LOWER_SHIFT, INNER_BITS)].get_or_init(boxed_array);
        &leaf[index(address, LEAF_SHIFT, LEAF_BITS)]
    }
}

/// Whether an address can start a block: aligned to a unit and inside the tree.
#[inline]
pub fn is_representable(address: u64) -> bool {
    address % (1 << UNIT_BITS) == 0 && address >> ADDRESS_BITS == 0
}

#[inline]
fn index(address: u64, shift: u32, bits: u32) -> usize {
    (address >> shift) as usize & ((1 << bits) - 1)
}

/// An array made in place on the heap: the nodes are too large for a small thread's stack.
fn boxed_array<T: Default, const N: usize>() -> Box<[T; N]> {
    let elements: Box<[T]> = std::iter::repeat_with(T::default).take(N).collect();
    match elements.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the iterator yields exactly N elements"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_exactly_what_was_set() {
        let directory = Directory::new();
        let addresses = [0, 512, 0x7f00_0000_0000, 0x7f00_0000_0200, (1 << 57) - 512];
        for (slot, &address) in addresses.iter().enumerate() {
            assert_eq!(directory.get(address), None);
            directory.set(address, Entry { lane: u32::MAX - 1, slot: slot as u32 });
        }
        for (slot, &address) in addresses.iter().enumerate() {
            let found = directory.get(address).unwrap();
            assert_eq!(found, Entry { lane: u32::MAX - 1, slot: slot as u32 });
            assert_eq!(directory.get(address + 1), None, "inside a unit");
        }
        directory.set(512, Entry { lane: 7, slot: 8 });
        assert_eq!(directory.get(512), Some(Entry { lane: 7, slot: 8 }));
        assert_eq!(directory.get(0).unwrap().slot, 0);
    }

    #[test]
    fn any_word_may_be_asked_for() {
        let directory = Directory::new();
        for address in [u64::MAX, 1 << 57, (1 << 57) - 1, 3] {
            assert_eq!(directory.get(address), None);
        }
    }
}
