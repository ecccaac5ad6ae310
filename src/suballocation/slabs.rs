//! The blocks of a fixed-size pool: which are free, and who has the others.
//!
//! ```text
//! a slab is one block of the source: count × stride bytes
//! owners[i] = FREE, or who uses block i
//! free  = blocks that were freed, the newest last;  fresh..count of the last slab never were taken
//! live  = capacity - free blocks - fresh ones
//! ```
//!
//! Both ends of a block's life are O(1). Finding a block's slab is a binary search in as many slabs
//! as the pool has grown, and nothing for the first.

/// Who uses a block: a number that the pool gives meaning, or one of these.
pub(super) type Owner = u16;
/// Nobody.
pub(super) const FREE: Owner = 0;

/// A block, by slab and index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    slab: u32,
    index: u32,
}

#[derive(Debug)]
struct Slab {
    /// The block of the source.
    block: u64,
    /// The first block of the pool, which is aligned.
    address: u64,
    owners: Vec<Owner>,
}

#[derive(Debug)]
pub(super) struct Slabs {
    /// From one block to the next, in bytes.
    stride_bytes: u64,
    slabs: Vec<Slab>,
    /// The slabs' first bytes, rising, with their indices.
    by_address: Vec<(u64, u32)>,
    free: Vec<Place>,
    /// The blocks of the last slab from here on were never taken.
    fresh: u32,
    live: u64,
    peak_live: u64,
}

impl Slabs {
    pub(super) fn new(stride_bytes: u64) -> Self {
        let (slabs, by_address, free) = (Vec::new(), Vec::new(), Vec::new());
        Self { stride_bytes, slabs, by_address, free, fresh: 0, live: 0, peak_live: 0 }
    }

    /// Takes a free block for `owner`, the one that was freed last; returns its address.
    #[inline(always)]
    pub(super) fn take(&mut self, owner: Owner) -> Option<u64> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.take_fresh()?,
        };
        let slab = self.slabs.get_mut(place.slab as usize)?;
        *slab.owners.get_mut(place.index as usize)? = owner;
        self.live += 1;
        self.peak_live = self.peak_live.max(self.live);
        Some(slab.address + u64::from(place.index) * self.stride_bytes)
    }

    fn take_fresh(&mut self) -> Option<Place> {
        let slab = self.slabs.last()?;
        let index = self.fresh;
        if index as usize == slab.owners.len() {
            return None;
        }
        self.fresh += 1;
        Some(Place { slab: self.slabs.len() as u32 - 1, index })
    }

    /// Makes a block free that is not.
    pub(super) fn put(&mut self, place: Place) {
        self.set_owner(place, FREE);
        self.free.push(place);
        self.live -= 1;
    }

    /// Makes the block at `address` free if `owner` uses it.
    #[inline(always)]
    pub(super) fn put_of(&mut self, address: u64, owner: Owner) -> Option<()> {
        let place = self.find(address)?;
        let used = self.slabs.get_mut(place.slab as usize)?.owners.get_mut(place.index as usize)?;
        if *used != owner {
            return None;
        }
        *used = FREE;
        self.free.push(place);
        self.live -= 1;
        Some(())
    }

    /// The block that begins at `address`, free or not.
    #[inline(always)]
    pub(super) fn find(&self, address: u64) -> Option<Place> {
        let (slab, place) = match &*self.slabs {
            [only] => (only, 0),
            slabs => {
                let after = self.by_address.partition_point(|&(start, _)| start <= address);
                let (_, slab) = *self.by_address.get(after.checked_sub(1)?)?;
                (slabs.get(slab as usize)?, slab)
            }
        };
        let offset = address.checked_sub(slab.address)?;
        let index = if self.stride_bytes.is_power_of_two() {
            offset >> self.stride_bytes.trailing_zeros()
        } else {
            offset / self.stride_bytes
        };
        let is_block = index < slab.owners.len() as u64 && index * self.stride_bytes == offset;
        is_block.then_some(Place { slab: place, index: index as u32 })
    }

    pub(super) fn owner(&self, place: Place) -> Owner {
        self.slabs[place.slab as usize].owners[place.index as usize]
    }

    pub(super) fn set_owner(&mut self, place: Place, owner: Owner) {
        self.slabs[place.slab as usize].owners[place.index as usize] = owner;
    }

    /// Adds a slab of `count` blocks, which is not 0, in `block` of the source.
    pub(super) fn add(&mut self, block: u64, alignment_bytes: u64, count: u32) {
        // What is left of the last slab is free like what was freed.
        while let Some(place) = self.take_fresh() {
            self.free.push(place);
        }
        let slab = self.slabs.len() as u32;
        let address = block.next_multiple_of(alignment_bytes);
        self.slabs.push(Slab { block, address, owners: vec![FREE; count as usize] });
        let at = self.by_address.partition_point(|&(start, _)| start < address);
        self.by_address.insert(at, (address, slab));
        self.fresh = 0;
        // So that a free never asks for memory.
        self.free.reserve(self.capacity() as usize - self.free.len());
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
        self.slabs.iter().map(|slab| slab.owners.len() as u64).sum()
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }

    pub(super) fn peak_live(&self) -> u64 {
        self.peak_live
    }

    /// Checks the module's equations.
    pub(super) fn validate(&self) -> Result<(), String> {
        let owned = |slab: &Slab| slab.owners.iter().filter(|&&owner| owner != FREE).count() as u64;
        let live: u64 = self.slabs.iter().map(owned).sum();
        let fresh = self.slabs.last().map_or(0, |slab| slab.owners.len() as u64);
        let fresh = fresh - u64::from(self.fresh);
        if live != self.live || live + self.free.len() as u64 + fresh != self.capacity() {
            return Err(format!(
                "{live} live blocks, {} counted, {} freed and {fresh} fresh of {}",
                self.live,
                self.free.len(),
                self.capacity()
            ));
        }
        match self.free.iter().find(|&&place| self.owner(place) != FREE) {
            Some(place) => Err(format!("{place:?} is free and has an owner")),
            None => Ok(()),
        }
    }
}
