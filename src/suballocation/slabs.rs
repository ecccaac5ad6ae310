//! The blocks of a fixed-size pool: which are free, and who has the others.
//!
//! ```text
//! a slab is one block of the source: count × stride bytes; the blocks of all slabs are numbered
//! entry of block n  = its address          the own stream uses it
//!                     IS_OTHERS + owner    another stream does
//!                     !address             free: of the block below it on the stack, 0 for none
//! top               = !address of the block on top, the one that was freed last
//! fresh             = the first block that was never taken; from there on none is on the stack
//! ```
//!
//! A fresh block is taken only when the stack is empty, that is, when all before it are live. So
//! `fresh` is also the most blocks that were live at one time. How many are live is not counted with
//! each call, but when it is asked for.
//!
//! The number of a block of the first slab is its offset times 2^64 / stride, rounded up, divided by
//! 2^64. For beginnings of blocks that is exact: the rounding adds less than stride / 2^64 for each
//! block, in all less than 1. Any other address finds a block that does not begin there, whose entry
//! is therefore something else. So one comparison sees that an address is a block, live, and the own
//! stream's.
//!
//! [`Front`] is what most calls need: the first slab, and the stack of all. A call that finds what it
//! wants there changes it through a shared reference, in about twenty instructions without a branch
//! that is taken. Which of the later slabs has an address is found by binary search.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;

/// Who uses a block: a number that the pool gives meaning, or one of these.
pub(super) type Owner = u16;
/// Nobody.
pub(super) const FREE: Owner = 0;
/// The own stream.
pub(super) const OWN: Owner = 1;

/// In an entry: the block is free. No address has it: processors have 57 bits.
const IS_FREE: u64 = 1 << 63;
/// In an entry that is not free: a stream other than the own one uses the block.
const IS_OTHERS: u64 = 1 << 62;
/// As what is below a free block, or on top: none.
const NONE: u64 = !0;
/// No pool has more blocks.
const MOST_BLOCKS: usize = (1 << 31) - 2;

/// A block, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// The first slab, and the stack of free blocks. Without blocks if that slab is not for quick calls. It
/// lies in one line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Front {
    /// The address of block 0.
    address: u64,
    /// Its stride's reciprocal: 2^64 / stride, rounded up.
    reciprocal: u64,
    top: Cell<u64>,
    entries: Box<[Cell<u64>]>,
    /// A block was freed since this was last asked.
    has_freed: Cell<bool>,
}

#[derive(Debug)]
struct Slab {
    /// The block of the source.
    block: u64,
    /// The first block of the pool, which is aligned.
    address: u64,
    /// Its number.
    first: usize,
    count: usize,
}

#[derive(Debug)]
pub(super) struct Slabs {
    front: Rc<Front>,
    /// From one block to the next, in bytes.
    stride_bytes: u64,
    /// Of the blocks that are not the front's.
    later_entries: Vec<Cell<u64>>,
    fresh: usize,
    slabs: Vec<Slab>,
    /// The slabs' first bytes, rising, with their indices.
    by_address: Vec<(u64, usize)>,
}

impl Front {
    /// Takes the block that was freed last for the own stream, if it is here.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<u64> {
        let address = !self.top.get();
        let entry = self.entry(address)?;
        self.top.set(entry.get());
        entry.set(address);
        Some(address)
    }

    /// Makes the block at `address` free if the own stream uses it and it is here.
    #[inline(always)]
    pub(super) fn put(&self, address: u64) -> Option<()> {
        let entry = self.entry(address).filter(|entry| entry.get() == address)?;
        self.free(entry, address);
        Some(())
    }

    /// Makes the block at `address`, of that entry, free.
    #[inline(always)]
    fn free(&self, entry: &Cell<u64>, address: u64) {
        entry.set(self.top.get());
        self.top.set(!address);
        self.has_freed.set(true);
    }

    /// The entry of the block that begins at `address`; for any other address that of some block, or
    /// none.
    #[inline(always)]
    fn entry(&self, address: u64) -> Option<&Cell<u64>> {
        self.entries.get(self.number(address) as usize)
    }

    #[inline(always)]
    fn number(&self, address: u64) -> u64 {
        let offset = address.wrapping_sub(self.address);
        ((u128::from(offset) * u128::from(self.reciprocal)) >> 64) as u64
    }
}

impl Slabs {
    /// None yet.
    pub(super) fn new(stride_bytes: NonZeroU64) -> Self {
        Self {
            front: Rc::new(Front { top: Cell::new(NONE), ..Front::default() }),
            stride_bytes: stride_bytes.get(),
            later_entries: Vec::new(),
            fresh: 0,
            slabs: Vec::new(),
            by_address: Vec::new(),
        }
    }

    /// What most calls need. It stays the same once a slab was added.
    pub(super) fn front(&self) -> &Rc<Front> {
        &self.front
    }

    /// Takes a free block for the own stream, the one that was freed last; returns its address.
    #[inline]
    pub(super) fn take_own(&mut self) -> Option<u64> {
        self.front.take().or_else(|| self.take(OWN))
    }

    /// Takes a free block for `owner`, the one that was freed last; returns its address.
    pub(super) fn take(&mut self, owner: Owner) -> Option<u64> {
        let top = self.front.top.get();
        if top != NONE {
            let entry = self.entry(self.find(!top)?)?;
            self.front.top.set(entry.replace(live_entry(!top, owner)));
            return Some(!top);
        }
        let place = Place(self.fresh);
        let address = self.address(place)?;
        self.entry(place)?.set(live_entry(address, owner));
        self.fresh += 1;
        Some(address)
    }

    /// Makes a block free that is not.
    pub(super) fn put(&mut self, place: Place) {
        if let (Some(entry), Some(address)) = (self.entry(place), self.address(place)) {
            self.front.free(entry, address);
        }
    }

    /// Makes the block at `address` free if the own stream uses it.
    #[inline]
    pub(super) fn put_own(&mut self, address: u64) -> Option<()> {
        self.front.put(address).or_else(|| self.put_later(address))
    }

    fn put_later(&mut self, address: u64) -> Option<()> {
        let entry = self.entry(self.find(address)?)?;
        (entry.get() == address).then(|| self.front.free(entry, address))
    }

    /// The block that begins at `address`, free or not.
    pub(super) fn find(&self, address: u64) -> Option<Place> {
        let after = self.by_address.partition_point(|&(start, _)| start <= address);
        let &(start, index) = self.by_address.get(after.checked_sub(1)?)?;
        let slab = self.slabs.get(index)?;
        let offset = address - start;
        let number = (offset / self.stride_bytes) as usize;
        let begins = offset.is_multiple_of(self.stride_bytes);
        (begins && number < slab.count).then(|| Place(slab.first + number))
    }

    /// The address of a block, if there is one of that number.
    fn address(&self, Place(number): Place) -> Option<u64> {
        let after = self.slabs.partition_point(|slab| slab.first <= number);
        let slab = self.slabs.get(after.checked_sub(1)?)?;
        let number = number - slab.first;
        (number < slab.count).then(|| slab.address + number as u64 * self.stride_bytes)
    }

    fn entry(&self, Place(number): Place) -> Option<&Cell<u64>> {
        match number.checked_sub(self.front.entries.len()) {
            Some(later) => self.later_entries.get(later),
            None => self.front.entries.get(number),
        }
    }

    pub(super) fn owner(&self, place: Place) -> Owner {
        match self.entry(place).map_or(NONE, Cell::get) {
            entry if entry & IS_FREE != 0 => FREE,
            entry if entry & IS_OTHERS != 0 => entry as Owner,
            _ => OWN,
        }
    }

    /// Gives a block to another owner, who is not `FREE`.
    pub(super) fn set_owner(&mut self, place: Place, owner: Owner) {
        if let (Some(entry), Some(address)) = (self.entry(place), self.address(place)) {
            entry.set(live_entry(address, owner));
        }
    }

    /// Adds a slab of `count` blocks, which is not 0, in `block` of the source. Returns false, with
    /// nothing changed, if they are more than can be numbered.
    pub(super) fn add(&mut self, block: u64, alignment_bytes: u64, count: u32) -> bool {
        let (first, count) = (self.capacity() as usize, count as usize);
        if count > MOST_BLOCKS - first {
            return false;
        }
        let address = block.next_multiple_of(alignment_bytes);
        debug_assert!(address + self.stride_bytes * count as u64 <= IS_OTHERS);
        // The reciprocal of 1 is too large a number by 1.
        if first == 0 && self.stride_bytes > 1 {
            self.front = Rc::new(Front {
                address,
                reciprocal: u64::MAX / self.stride_bytes + 1,
                top: Cell::new(NONE),
                entries: std::iter::repeat_n(Cell::new(NONE), count).collect(),
                has_freed: Cell::new(false),
            });
        } else {
            self.later_entries.resize(self.later_entries.len() + count, Cell::new(NONE));
        }
        let at = self.by_address.partition_point(|&(start, _)| start < address);
        self.by_address.insert(at, (address, self.slabs.len()));
        self.slabs.push(Slab { block, address, first, count });
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
        (self.front.entries.len() + self.later_entries.len()) as u64
    }

    /// How many are live, found by looking at each.
    pub(super) fn live(&self) -> u64 {
        let entries = self.front.entries.iter().chain(&self.later_entries);
        entries.filter(|entry| entry.get() & IS_FREE == 0).count() as u64
    }

    pub(super) fn peak_live(&self) -> u64 {
        self.fresh as u64
    }

    /// Returns true if a block was freed since this was last asked.
    pub(super) fn take_freed(&mut self) -> bool {
        self.front.has_freed.replace(false)
    }

    /// Checks the module's equations.
    pub(super) fn validate(&self) -> Result<(), String> {
        let (mut stacked, mut top) = (0, self.front.top.get());
        while top != NONE && stacked <= self.fresh {
            let place = self.find(!top).filter(|place| place.0 < self.fresh);
            let below = place.and_then(|place| self.entry(place)).map(Cell::get);
            let Some(below) = below.filter(|below| below & IS_FREE != 0) else {
                return Err(format!("{:#x} is on the stack, and live, fresh or no block", !top));
            };
            (stacked, top) = (stacked + 1, below);
        }
        let (live, fresh) = (self.live(), self.fresh as u64);
        if live + stacked as u64 != fresh || fresh > self.capacity() {
            return Err(format!(
                "{live} live blocks, {stacked} freed, {fresh} ever taken of {}",
                self.capacity()
            ));
        }
        let own = |&number: &usize| self.owner(Place(number)) == OWN;
        let is_wrong = |&number: &usize| {
            self.address(Place(number)) != self.entry(Place(number)).map(Cell::get)
        };
        match (0..self.capacity() as usize).filter(own).find(is_wrong) {
            Some(number) => Err(format!("block {number} has another's entry")),
            None => Ok(()),
        }
    }
}

/// The entry of the block at `address`, which `owner` uses.
fn live_entry(address: u64, owner: Owner) -> u64 {
    if owner == OWN { address } else { IS_OTHERS | u64::from(owner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginnings_of_blocks_are_found_taken_and_put_back() {
        for stride_bytes in [1, 2, 3, 7, 8, 24, 96, 1000, 4096, 6144, (1 << 30) - 1, 1 << 40] {
            let mut slabs = Slabs::new(NonZeroU64::new(stride_bytes).unwrap());
            let start = 1u64 << 44;
            assert!(slabs.add(start, 1, 37));
            let later = start + 64 * stride_bytes + 5;
            assert!(slabs.add(later, 1, 11));
            let taken: Vec<u64> = (0..48).map(|_| slabs.take(OWN).unwrap()).collect();
            assert_eq!((slabs.take(OWN), slabs.live()), (None, 48));
            for (start, first, count) in [(start, 0, 37), (later, 37, 11)] {
                for number in 0..count {
                    let address = start + number as u64 * stride_bytes;
                    assert_eq!(taken[first + number], address, "{stride_bytes}");
                    assert_eq!(slabs.find(address), Some(Place(first + number)), "{stride_bytes}");
                    let inside = [1, stride_bytes / 2, stride_bytes - 1];
                    for offset in inside.into_iter().filter(|offset| *offset % stride_bytes > 0) {
                        assert_eq!(slabs.find(address + offset), None, "{stride_bytes}");
                        assert_eq!(slabs.front().put(address + offset), None, "{stride_bytes}");
                    }
                }
                let end = start + count as u64 * stride_bytes;
                for other in [start.wrapping_sub(stride_bytes), end, end + stride_bytes, 0] {
                    assert_eq!((slabs.find(other), slabs.front().put(other)), (None, None));
                }
            }
            let quick = |slabs: &Slabs, address| slabs.front().put(address).is_some();
            let in_front = taken.iter().filter(|&&address| quick(&slabs, address)).count();
            assert_eq!(in_front, if stride_bytes == 1 { 0 } else { 37 });
            assert_eq!(slabs.validate(), Ok(()));
        }
    }

    #[test]
    fn a_block_is_taken_from_the_front_only_if_it_is_on_top() {
        let mut slabs = Slabs::new(NonZeroU64::new(64).unwrap());
        assert_eq!((slabs.front().take(), slabs.front().put(0)), (None, None), "no slab yet");
        assert!(slabs.add(1 << 44, 1, 2) && slabs.add(1 << 45, 1, 2));
        assert_eq!(slabs.front().take(), None, "fresh blocks are not on the stack");
        let taken: Vec<u64> = (0..4).map(|_| slabs.take(OWN).unwrap()).collect();
        assert_eq!((slabs.front().put(taken[0]), slabs.front().put(taken[0])), (Some(()), None));
        assert_eq!((slabs.put_own(taken[3]), slabs.put_own(taken[3])), (Some(()), None));
        assert!(slabs.take_freed() && !slabs.take_freed());
        assert_eq!((slabs.front().take(), slabs.validate()), (None, Ok(())));
        assert_eq!((slabs.take(OWN), slabs.front().take()), (Some(taken[3]), Some(taken[0])));
        slabs.set_owner(slabs.find(taken[0]).unwrap(), 7);
        assert_eq!(slabs.front().put(taken[0]), None, "another stream uses it");
        assert_eq!((slabs.live(), slabs.peak_live(), slabs.validate()), (4, 4, Ok(())));
    }

    #[test]
    fn more_blocks_than_numbers_are_refused() {
        let mut slabs = Slabs::new(NonZeroU64::MIN);
        assert!(!slabs.add(1 << 44, 1, MOST_BLOCKS as u32 + 1) && slabs.add(1 << 44, 1, 3));
        assert!(!slabs.add(1 << 45, 1, MOST_BLOCKS as u32 - 2), "{slabs:?}");
        assert_eq!((slabs.capacity(), slabs.validate()), (3, Ok(())));
    }
}
