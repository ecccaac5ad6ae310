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
//! Nodes are made on first use. The leaves of small blocks, at most 1.6 % of the addresses that such
//! blocks start in, go with their addresses and are used again ([`Nodes`]). The others live as long
//! as the directory, 8 KiB for each gibibyte of address space ever touched by large blocks and
//! 128 KiB by small ones.
//!
//! **Threads.** Any thread may read at any time. An entry is written only by a thread that
//! holds the lock of the lane it names, or that removes the addresses from that lane's table.
//! An entry may be out of date, or another block's whose leaf was used again, so a reader takes that
//! lock and checks the block before it relies on the entry.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::ops::Range;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::base::lock::{Lock, rank};
use crate::base::nodes::{Node, Nodes, Places, TakenOut, boxed_array};
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
    /// Addresses of a leaf.
    pub(super) const LEAF_BYTES: u64 = 1 << LOWER_SHIFT;
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

#[derive(Debug)]
struct SmallLeaf([AtomicU64; 1 << small::LEAF_BITS]);
type SmallLower = Places<SmallLeaf, { 1 << small::INNER_BITS }>;
type SmallUpper = [OnceBox<SmallLower>; 1 << small::INNER_BITS];
type SmallRoot = [OnceBox<SmallUpper>; 1 << small::ROOT_BITS];
type LargeLeaf = [AtomicU64; 1 << large::LEAF_BITS];
type LargeUpper = [OnceBox<LargeLeaf>; 1 << large::UPPER_BITS];
type LargeRoot = [OnceBox<LargeUpper>; 1 << large::ROOT_BITS];

impl Default for SmallLeaf {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::default()))
    }
}

impl Node for SmallLeaf {
    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Release));
    }
}

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
    small_leaves: Arc<Nodes<SmallLeaf>>,
    /// For each leaf that ranges have parts of, by its first address, how many do.
    shared_leaves: Lock<BTreeMap<u64, u32>, { rank::LEAF }>,
    large: Box<LargeRoot>,
}

impl Directory {
    /// A directory with no entry.
    pub fn new() -> Self {
        Self {
            small: empty_places(),
            small_leaves: Arc::new(Nodes::new()),
            shared_leaves: Lock::new(BTreeMap::new()),
            large: empty_places(),
        }
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
        let lower = self.known_small_lower(address)?;
        let leaf = lower.get(index(address, small::LOWER_SHIFT, small::INNER_BITS))?;
        let word = &leaf.0[index(address, small::LEAF_SHIFT, small::LEAF_BITS)];
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

    /// Says that blocks of `class` in `range`, which is new to its lane, will be set.
    pub fn expect(&self, range: &Range<u64>, class: SizeClass) {
        if class == SizeClass::Small && parts(range).next().is_some() {
            let mut shared = self.shared_leaves.lock();
            parts(range).for_each(|leaf| *shared.entry(leaf).or_insert(0) += 1);
        }
    }

    /// Forgets the blocks of `class` in `range`, which was expected as it is, and leaves its lane.
    /// Small ones in a leaf that others have parts of stay until the last of these goes.
    pub fn forget(&self, range: Range<u64>, class: SizeClass) {
        match class {
            SizeClass::Small => self.forget_small(range),
            SizeClass::Large => self.forget_large(range),
        }
    }

    /// Nobody writes to a leaf whose addresses are no lane's.
    fn forget_small(&self, range: Range<u64>) {
        for leaf in parts(&range) {
            let mut shared = self.shared_leaves.lock();
            let Place::Occupied(mut count) = shared.entry(leaf) else { continue };
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                // Before another range is expected there; it is given back after the lock is free.
                let taken = self.take_out(leaf);
                drop(shared);
                drop(taken);
            }
        }
        let mut leaf = range.start.next_multiple_of(small::LEAF_BYTES);
        while leaf + small::LEAF_BYTES <= range.end {
            if self.known_small_lower(leaf).is_some() {
                drop(self.take_out(leaf));
                leaf += small::LEAF_BYTES;
            } else {
                // No small block ever started in this node's addresses.
                leaf = ((leaf >> small::UPPER_SHIFT) + 1) << small::UPPER_SHIFT;
            }
        }
    }

    fn take_out(&self, leaf: u64) -> Option<TakenOut<'_, SmallLeaf>> {
        let lower = self.known_small_lower(leaf)?;
        lower.take_out(index(leaf, small::LOWER_SHIFT, small::INNER_BITS))
    }

    /// Small blocks may start there next, and a small block is found only where no large one is. A
    /// large block that starts outside of `range` in a mebibyte that it overlaps stays, even if
    /// another thread adds it just now.
    fn forget_large(&self, range: Range<u64>) {
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
        let upper = upper.get_or_init(empty_places);
        let lower = &upper[index(address, small::UPPER_SHIFT, small::INNER_BITS)];
        let lower = lower.get_or_init(|| Box::new(Places::new(Arc::clone(&self.small_leaves))));
        let leaf = lower.get_or_put(index(address, small::LOWER_SHIFT, small::INNER_BITS));
        &leaf.0[index(address, small::LEAF_SHIFT, small::LEAF_BITS)]
    }

    #[inline]
    fn known_small_lower(&self, address: u64) -> Option<&SmallLower> {
        let upper = self.small[index(address, small::ROOT_SHIFT, small::ROOT_BITS)].get()?;
        upper[index(address, small::UPPER_SHIFT, small::INNER_BITS)].get()
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
        let upper = upper.get_or_init(empty_places);
        let leaf = &upper[index(address, large::UPPER_SHIFT, large::UPPER_BITS)];
        let leaf = leaf.get_or_init(empty_places);
        &leaf[index(address, large::LEAF_SHIFT, large::LEAF_BITS)]
    }
}

#[cold]
fn empty_places<T: Default, const N: usize>() -> Box<[T; N]> {
    boxed_array(T::default)
}

/// Returns true if a block can start at `address`: aligned to 512 bytes and inside the trees.
#[inline]
pub fn is_representable(address: u64) -> bool {
    address.is_multiple_of(1 << UNIT_BITS) && address >> ADDRESS_BITS == 0
}

/// The leaves of small blocks that have a part of `range`, and other addresses: at most two.
fn parts(range: &Range<u64>) -> impl Iterator<Item = u64> {
    let leaf_of = |address: u64| {
        let is_inside = !address.is_multiple_of(small::LEAF_BYTES);
        is_inside.then_some(address & !(small::LEAF_BYTES - 1))
    };
    let first = leaf_of(range.start);
    first.into_iter().chain(leaf_of(range.end).filter(|&last| first != Some(last)))
}

#[inline]
fn index(address: u64, shift: u32, bits: u32) -> usize {
    (address >> shift) as usize & ((1 << bits) - 1)
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
        directory.forget(start..start + 2 * MIB, SizeClass::Large);
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
        directory.forget(5 * MIB + 4096..5 * MIB + 8192, SizeClass::Large);
        directory.forget(4 * MIB + 8192..5 * MIB + 512, SizeClass::Large);
        assert_eq!(directory.get(3 * MIB + 4096), Some(before));
        assert_eq!(directory.get(5 * MIB + 8192), Some(behind));
        directory.forget(3 * MIB..5 * MIB + 8704, SizeClass::Large);
        assert_eq!(directory.get(3 * MIB + 4096), None);
        assert_eq!(directory.get(5 * MIB + 8192), None);
    }

    /// A leaf serves other addresses once all of its own are gone, and never before.
    #[test]
    fn leaves_of_small_blocks_go_with_their_addresses() {
        use small::LEAF_BYTES;
        let directory = Directory::new();
        let entry = |slot| Entry { lane: 3, slot };
        let near_end = (1 << 57) - 4 * MIB;
        for start in [0, 7 * MIB, 0x7f00_0000_0000, (1 << 42) - MIB, near_end] {
            // The middle one has one whole leaf, and parts of two.
            let bounds = [0, 512, LEAF_BYTES - 512, 3 * LEAF_BYTES - 1024, 3 * LEAF_BYTES];
            let ranges: Vec<_> =
                bounds.windows(2).map(|pair| start + pair[0]..start + pair[1]).collect();
            let middle = ranges[2].clone();
            for range in &ranges {
                directory.expect(range, SizeClass::Small);
                directory.set(range.start, SizeClass::Small, entry(1));
            }
            directory.set(start + LEAF_BYTES, SizeClass::Small, entry(2));
            directory.set(middle.end - 512, SizeClass::Small, entry(3));
            directory.forget(middle.clone(), SizeClass::Small);
            assert_eq!(directory.get(start + LEAF_BYTES), None);
            for of in [&ranges[0], &ranges[1], &ranges[3]] {
                assert_eq!(directory.get(of.start), Some(entry(1)), "the others stay");
            }
            directory.forget(ranges[0].clone(), SizeClass::Small);
            assert_eq!(directory.get(ranges[1].start), Some(entry(1)), "it has the leaf alone");
            directory.forget(ranges[3].clone(), SizeClass::Small);
            directory.forget(ranges[1].clone(), SizeClass::Small);
            for gone in [&ranges[0], &ranges[1], &middle, &ranges[3]] {
                assert_eq!(directory.get(gone.start), None);
            }
        }
        assert_eq!(directory.small_leaves.count(), 3, "as many as at one time");
        assert!(directory.shared_leaves.lock().is_empty());
        directory.set(MIB, SizeClass::Small, entry(5));
        for place in (512..LEAF_BYTES).step_by(512) {
            assert_eq!(directory.get(MIB + place), None, "of an earlier use");
        }
        assert_eq!(directory.get(MIB), Some(entry(5)));
    }

    #[test]
    fn blocks_start_at_multiples_of_512_within_57_bits() {
        for address in [0, 512, (1 << 57) - 512] {
            assert!(is_representable(address), "{address:#x}");
        }
        for address in [1, 256, 513, 1 << 57, u64::MAX - 511] {
            assert!(!is_representable(address), "{address:#x}");
        }
    }

    #[test]
    fn any_word_may_be_asked_for() {
        let directory = Directory::new();
        for address in [u64::MAX, 1 << 57, (1 << 57) - 1, 3] {
            assert_eq!(directory.get(address), None);
        }
    }
}
