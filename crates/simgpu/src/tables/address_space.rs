//! The device address space: what is reserved and what is mapped where.
//!
//! One span for all devices. Invariants:
//! - free ranges, reservations and the ranges of plain allocations are disjoint and make up the
//!   span (small allocations lie in pages, see `physical`);
//! - every mapping of a handle lies inside one reservation;
//! - mappings are disjoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::{Code, Result};
use crate::ranges::Ranges;
use crate::touch::Touch;

#[derive(Debug)]
pub(crate) struct AddressSpace {
    base: u64,
    bytes: u64,
    free: Ranges,
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    /// How many mappings of handles at least one device has access to.
    pub(crate) accessible: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    bytes: u64,
    /// The device of the context that reserved it.
    device: u32,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    /// How many bytes may be touched, from its start.
    pub(crate) bytes: u64,
    /// The key of the memory it shows.
    pub(crate) memory: u64,
    /// Devices with access, as a bit set. For plain allocations only the owner: peers are a matter
    /// of contexts.
    pub(crate) access: u64,
    pub(crate) origin: Origin,
    /// The last touch of each stream through this mapping, while the detector is on.
    pub(crate) touched: Vec<Arc<Touch>>,
}

/// How a mapping came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuMemAlloc`, in a page shared with others.
    SmallAllocation,
    /// `cuMemAlloc`, with `range_bytes` of address space of its own.
    LargeAllocation { range_bytes: u64 },
    /// `cuMemAllocManaged`, with `range_bytes` of address space of its own.
    Managed { range_bytes: u64 },
    /// `cuIpcOpenMemHandle`, with `range_bytes` of address space of its own.
    Opened { range_start: u64, range_bytes: u64 },
    /// `cuMemMap`.
    Handle,
}

impl Mapping {
    pub(crate) fn is_allocation(&self) -> bool {
        self.origin != Origin::Handle
    }
}

impl AddressSpace {
    /// All of `[base, base + bytes)`, handed out from its start or from its end.
    pub(crate) fn new(base: u64, bytes: u64, descending: bool) -> Self {
        let mut free = if descending { Ranges::taken_from_end() } else { Ranges::default() };
        if bytes > 0 {
            free.give(base, bytes);
        }
        let (reservations, mappings) = (BTreeMap::new(), BTreeMap::new());
        Self { base, bytes, free, reservations, mappings, accessible: 0 }
    }

    /// The span, as start and bytes.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.base, self.bytes)
    }

    pub(crate) fn free(&self) -> &Ranges {
        &self.free
    }

    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> {
        self.reservations.iter().map(|(&address, reservation)| (address, reservation.bytes))
    }

    /// The reservations made on a device, as start and bytes.
    pub(crate) fn reservations_of(&self, device: u32) -> Vec<(u64, u64)> {
        let of_device = self.reservations.iter().filter(|(_, entry)| entry.device == device);
        of_device.map(|(&address, entry)| (address, entry.bytes)).collect()
    }

    pub(crate) fn mappings(&self) -> impl Iterator<Item = (u64, &Mapping)> {
        self.mappings.iter().map(|(&address, mapping)| (address, mapping))
    }

    /// Takes address space for an allocation.
    pub(crate) fn take(&mut self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        self.free.take(bytes, alignment_bytes).ok_or(Code::OUT_OF_MEMORY)
    }

    /// Returns what [`Self::take`] took.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        self.free.give(address, bytes);
    }

    pub(crate) fn reserve(&mut self, device: u32, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        let address = self.take(bytes, alignment_bytes)?;
        self.reservations.insert(address, Reservation { bytes, device });
        Ok(address)
    }

    pub(crate) fn unreserve(&mut self, address: u64, bytes: u64) -> Result<()> {
        let reserved_bytes = self.reservations.get(&address).map(|reservation| reservation.bytes);
        if reserved_bytes != Some(bytes) || self.overlaps(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        self.reservations.remove(&address);
        self.give(address, bytes);
        Ok(())
    }

    /// Fails unless a handle of `bytes` may be mapped at `address`: inside a reservation, over
    /// nothing.
    pub(crate) fn check_vacant(&self, address: u64, bytes: u64) -> Result<()> {
        let inside =
            self.reservations.range(..=address).next_back().is_some_and(|(&start, reservation)| {
                let offset = address - start;
                offset.checked_add(bytes).is_some_and(|end| end <= reservation.bytes)
            });
        if inside && !self.overlaps(address, bytes) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// How many mappings of handles make up `[address, address + bytes)`. Fails unless they are
    /// whole mappings without a gap.
    pub(crate) fn check_whole(&self, address: u64, bytes: u64) -> Result<u64> {
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let (mut next, mut count) = (address, 0);
        for (&start, mapping) in self.mappings.range(address..end) {
            if start != next || mapping.is_allocation() {
                return Err(Code::INVALID_VALUE);
            }
            next += mapping.bytes;
            count += 1;
        }
        if next == end && count > 0 { Ok(count) } else { Err(Code::INVALID_VALUE) }
    }

    /// The mappings of a range that passed [`Self::check_whole`].
    pub(crate) fn range(&self, address: u64, bytes: u64) -> impl Iterator<Item = (u64, &Mapping)> {
        self.mappings.range(address..address + bytes).map(|(&start, mapping)| (start, mapping))
    }

    /// [`Self::range`], for changing them.
    pub(crate) fn range_mut(
        &mut self,
        address: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (u64, &mut Mapping)> {
        self.mappings.range_mut(address..address + bytes).map(|(&start, mapping)| (start, mapping))
    }

    pub(crate) fn insert(&mut self, address: u64, mapping: Mapping) {
        self.mappings.insert(address, mapping);
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Mapping> {
        self.mappings.remove(&address)
    }

    /// Removes the first mapping in `[address, end)`.
    pub(crate) fn remove_first(&mut self, address: u64, end: u64) -> Option<(u64, Mapping)> {
        let (&start, _) = self.mappings.range(address..end).next()?;
        self.mappings.remove(&start).map(|mapping| (start, mapping))
    }

    pub(crate) fn get(&self, address: u64) -> Option<&Mapping> {
        self.mappings.get(&address)
    }

    pub(crate) fn get_mut(&mut self, address: u64) -> Option<&mut Mapping> {
        self.mappings.get_mut(&address)
    }

    /// The mapping that contains `address`, with its start.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((start, mapping))
    }

    /// Forgets what the race detector noted on mappings.
    pub(crate) fn forget_touches(&mut self) {
        self.mappings.values_mut().for_each(|mapping| mapping.touched.clear());
    }

    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.containing(address).is_some()
            || self.mappings.range(address..address + bytes).next().is_some()
    }
}
