//! The blocks of a fixed-size pool: which are free, and who has the others.
//!
//! ```text
//! a slab is one block of the source: count × stride bytes; the blocks of all slabs are numbered
//! entries[n] = IS_LIVE + who uses block n, or the number of the free block below it on the stack
//! free       = the number of the block on top, the one that was freed last
//! fresh      = the first block that was never taken; from there on none is on the stack
//! live       = takes - frees = fresh - blocks on the stack
//! ```
//!
//! A fresh block is taken only when the stack is empty, that is, when all before it are live. So
//! `fresh` is also the most blocks that were live at one time.
//!
//! Both ends of a block's life are O(1) with one slab, and call nothing, so that they need no frame
//! on the stack. Which of the later slabs has an address is found by binary search. The number of a
//! block is its offset divided by the stride, exactly: the offset times the inverse of the stride's
//! odd part modulo 2^64, rotated right by the stride's zeros, is less than count if and only if a
//! block begins there (H. S. Warren, Hacker's Delight, 10-17).

use std::num::NonZeroU64;

/// Who uses a block: a number that the pool gives meaning, or one of these.
pub(super) type Owner = u16;
/// Nobody.
pub(super) const FREE: Owner = 0;

/// In an entry: somebody uses the block.
const IS_LIVE: u32 = 1 << 31;
/// As the number of a block: none. No pool has so many.
const NONE: u32 = IS_LIVE - 1;

/// A block, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

#[derive(Debug)]
struct Slab {
    /// The block of the source.
    block: u64,
    /// The first block of the pool, which is aligned.
    address: u64,
    /// Its number.
    first: u32,
}

#[derive(Debug)]
pub(super) struct Slabs {
    /// From one block to the next, in bytes.
    stride_bytes: u64,
    /// Of the stride's odd part, modulo 2^64.
    inverse: u64,
    /// The stride's zeros.
    zeros: u32,
    /// The address of block 0.
    address: u64,
    /// How many blocks the first slab has, and each other one.
    counts: (u32, u32),
    entries: Vec<u32>,
    free: u32,
    fresh: u32,
    takes: u64,
    frees: u64,
    slabs: Vec<Slab>,
    /// The slabs' first bytes, rising, with their indices.
    by_address: Vec<(u64, u32)>,
}

impl Slabs {
    pub(super) fn new(stride_bytes: NonZeroU64) -> Self {
        let zeros = stride_bytes.trailing_zeros();
        Self {
            stride_bytes: stride_bytes.get(),
            inverse: inverse(stride_bytes.get() >> zeros),
            zeros,
            address: 0,
            counts: (0, 0),
            entries: Vec::new(),
            free: NONE,
            fresh: 0,
            takes: 0,
            frees: 0,
            slabs: Vec::new(),
            by_address: Vec::new(),
        }
    }

    /// Takes a free block for `owner`, the one that was freed last; returns its address.
    #[inline(always)]
    pub(super) fn take(&mut self, owner: Owner) -> Option<u64> {
        let mut number = self.free;
        if let Some(entry) = self.entries.get_mut(number as usize) {
            self.free = *entry;
            *entry = IS_LIVE | u32::from(owner);
        } else {
            number = self.fresh;
            *self.entries.get_mut(number as usize)? = IS_LIVE | u32::from(owner);
            self.fresh += 1;
        }
        self.takes += 1;
        let (first, first_number) = if number < self.counts.0 {
            (self.address, 0)
        } else {
            let later = (number - self.counts.0).checked_div(self.counts.1)?;
            let slab = self.slabs.get(later as usize + 1)?;
            (slab.address, slab.first)
        };
        Some(first + u64::from(number - first_number) * self.stride_bytes)
    }

    /// Makes a block free that is not.
    pub(super) fn put(&mut self, Place(number): Place) {
        self.entries[number as usize] = self.free;
        self.free = number;
        self.frees += 1;
    }

    /// Makes the block at `address` free if it is in the first slab and `owner` uses it.
    #[inline(always)]
    pub(super) fn put_of(&mut self, address: u64, owner: Owner) -> Option<()> {
        let number = self.in_first(address);
        if number >= u64::from(self.counts.0) {
            return None;
        }
        let entry = self.entries.get_mut(number as usize)?;
        if *entry != IS_LIVE | u32::from(owner) {
            return None;
        }
        *entry = self.free;
        self.free = number as u32;
        self.frees += 1;
        Some(())
    }

    /// The block that begins at `address`, free or not.
    pub(super) fn find(&self, address: u64) -> Option<Place> {
        let number = self.in_first(address);
        if number < u64::from(self.counts.0) {
            return Some(Place(number as u32));
        }
        self.find_later(address)
    }

    /// The number of the block at `address` if the first slab has it; else no less than its count.
    #[inline(always)]
    fn in_first(&self, address: u64) -> u64 {
        self.number_at(address.wrapping_sub(self.address))
    }

    #[inline(always)]
    fn number_at(&self, offset: u64) -> u64 {
        offset.wrapping_mul(self.inverse).rotate_right(self.zeros)
    }

    #[cold]
    fn find_later(&self, address: u64) -> Option<Place> {
        let after = self.by_address.partition_point(|&(start, _)| start <= address);
        let (start, index) = *self.by_address.get(after.checked_sub(1)?)?;
        let number = self.number_at(address - start);
        let count = if index == 0 { self.counts.0 } else { self.counts.1 };
        let slab = self.slabs.get(index as usize)?;
        (number < u64::from(count)).then(|| Place(slab.first + number as u32))
    }

    pub(super) fn owner(&self, Place(number): Place) -> Owner {
        let entry = self.entries[number as usize];
        if entry & IS_LIVE == 0 { FREE } else { entry as Owner }
    }

    /// Gives a block that is not free to another owner.
    pub(super) fn set_owner(&mut self, Place(number): Place, owner: Owner) {
        self.entries[number as usize] = IS_LIVE | u32::from(owner);
    }

    /// Adds a slab of `count` blocks, which is not 0, in `block` of the source. All but the first
    /// have the same count. Returns false, with nothing changed, if they are more than can be
    /// numbered.
    pub(super) fn add(&mut self, block: u64, alignment_bytes: u64, count: u32) -> bool {
        let first = self.entries.len() as u32;
        if count >= NONE - first {
            return false;
        }
        let address = block.next_multiple_of(alignment_bytes);
        let index = self.slabs.len() as u32;
        if index == 0 {
            (self.address, self.counts.0) = (address, count);
        } else {
            self.counts.1 = count;
        }
        self.slabs.push(Slab { block, address, first });
        let at = self.by_address.partition_point(|&(start, _)| start < address);
        self.by_address.insert(at, (address, index));
        self.entries.resize(self.entries.len() + count as usize, NONE);
        true
    }

    /// The blocks of the source.
    pub(super) fn blocks_of_source(&self) -> impl Iterator<Item = u64> {
        self.slabs.iter().map(|slab| slab.block)
    }

    /// The first block of the pool.
    pub(super) fn first_block(&self) -> Option<u64> {
        self.by_address.first().map(|&(address, _)| address)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn live(&self) -> u64 {
        self.takes - self.frees
    }

    pub(super) fn peak_live(&self) -> u64 {
        self.fresh.into()
    }

    /// How many blocks were freed.
    pub(super) fn frees(&self) -> u64 {
        self.frees
    }

    /// Checks the module's equations.
    pub(super) fn validate(&self) -> Result<(), String> {
        let live = self.entries.iter().filter(|&&entry| entry & IS_LIVE != 0).count() as u64;
        let (mut stacked, mut number) = (0, self.free);
        while number != NONE && stacked <= u64::from(self.fresh) {
            let entry = self.entries.get(number as usize).copied().unwrap_or(IS_LIVE);
            if entry & IS_LIVE != 0 || number >= self.fresh {
                return Err(format!("block {number} is on the stack, and live or fresh"));
            }
            (stacked, number) = (stacked + 1, entry);
        }
        let fresh = u64::from(self.fresh);
        if live != self.live() || live + stacked != fresh || fresh > self.capacity() {
            return Err(format!(
                "{live} live blocks, {} counted, {stacked} freed, {fresh} ever taken of {}",
                self.live(),
                self.capacity()
            ));
        }
        Ok(())
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the bits that
/// are right, of which `odd` itself has three.
fn inverse(odd: u64) -> u64 {
    let step = |found: u64| found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
    (0..5).fold(odd, |found, _| step(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginnings_of_blocks_are_found() {
        for stride_bytes in [1, 2, 3, 7, 8, 24, 96, 1000, 4096, 6144, (1 << 30) - 1, 1 << 40] {
            let mut slabs = Slabs::new(NonZeroU64::new(stride_bytes).unwrap());
            let start = 1u64 << 44;
            assert!(slabs.add(start, 1, 37));
            let later = start + 64 * stride_bytes + 5;
            assert!(slabs.add(later, 1, 11));
            for (start, first, count) in [(start, 0, 37), (later, 37, 11)] {
                for number in 0..count {
                    let address = start + u64::from(number) * stride_bytes;
                    assert_eq!(slabs.find(address), Some(Place(first + number)), "{stride_bytes}");
                    let inside = [1, stride_bytes / 2, stride_bytes - 1];
                    for offset in inside.into_iter().filter(|offset| *offset % stride_bytes > 0) {
                        assert_eq!(slabs.find(address + offset), None, "{stride_bytes}");
                    }
                }
                let end = start + u64::from(count) * stride_bytes;
                let others = [start.wrapping_sub(stride_bytes), end, end + stride_bytes, 0];
                others.iter().for_each(|&other| assert_eq!(slabs.find(other), None, "{other}"));
            }
        }
    }

    #[test]
    fn more_blocks_than_numbers_are_refused() {
        let mut slabs = Slabs::new(NonZeroU64::MIN);
        assert!(!slabs.add(1 << 44, 1, NONE) && slabs.add(1 << 44, 1, 3));
        assert!(!slabs.add(1 << 45, 1, NONE - 3), "{slabs:?}");
        assert_eq!((slabs.capacity(), slabs.validate()), (3, Ok(())));
    }
}
