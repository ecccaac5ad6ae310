//! `cuMemAlloc` and `cuMemFree`.
//!
//! Sizes are rounded to 512 bytes. Below one granule an allocation gets a part of a page of one
//! granule, which it shares with others, and counts for its rounded size; from one granule up
//! it gets granules of its own and counts for them. One empty page is kept, so that a lone
//! small allocation coming and going does not map and unmap.

use std::collections::BTreeMap;

use crate::address_space::{Mapping, Origin};
use crate::machine::{Machine, State};
use crate::physical::Memory;
use crate::ranges::Ranges;
use crate::store::Extent;
use crate::{Call, Code, Result};

/// Allocations are aligned to this and small ones rounded to it, in bytes.
const BLOCK_BYTES: u64 = 512;

/// The pages of a device's small allocations.
#[derive(Debug)]
pub(crate) struct SmallPages {
    pub(crate) page_bytes: u64,
    pub(crate) free: Ranges,
    pub(crate) pages: BTreeMap<u64, Extent>,
    /// The one page kept although it is empty.
    spare: Option<u64>,
}

impl SmallPages {
    pub(crate) fn new(page_bytes: u64) -> Self {
        let free = Ranges::with_seams(page_bytes);
        Self { page_bytes, free, pages: BTreeMap::new(), spare: None }
    }
}

impl Machine {
    /// `bytes` (not 0) of mapped memory of `context`, accessible to its device, at an address
    /// that is a multiple of 512.
    pub fn allocate(&self, context: u32, bytes: u64) -> Result<u64> {
        let mut state = self.enter(context, Call::Allocate)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = state.allocate(context, device, bytes)?;
        state.charge_size(device, Call::Allocate, bytes, 0);
        Ok(address)
    }

    /// Gives back an allocation by its exact address, after all work of its context: not after
    /// that of other contexts or of a peer, which no manual promises. Refused while a stream of
    /// its device captures, also to a thread in relaxed mode.
    pub fn free(&self, context: u32, address: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Free)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        let mapping = state.space.get(address).filter(|mapping| mapping.is_allocation());
        let key = mapping.ok_or(Code::INVALID_VALUE)?.memory;
        let memory = state.physical.get(key).ok_or(Code::INVALID_VALUE)?;
        let (owner, bytes) = (memory.device, memory.bytes);
        let owning = memory.context.ok_or(Code::INVALID_VALUE)?;
        state.forbid_while_device_captures(owner)?;
        state.wait_for_context(owning, true)?;
        state.free(owner, address)?;
        state.charge_size(device, Call::Free, bytes, 0);
        Ok(())
    }
}

impl State {
    fn allocate(&mut self, context: u32, device: u32, bytes: u64) -> Result<u64> {
        let granule = self.device(device)?.config.granularity_bytes;
        let rounded = bytes.checked_next_multiple_of(BLOCK_BYTES).ok_or(Code::OUT_OF_MEMORY)?;
        let is_small = rounded < granule;
        let multiple = if is_small { BLOCK_BYTES } else { granule };
        let counted = bytes.checked_next_multiple_of(multiple).ok_or(Code::OUT_OF_MEMORY)?;
        self.claim(device, counted)?;
        let placed = if is_small {
            self.place_small(device, counted).map(|address| (address, None))
        } else {
            self.place_pages(device, counted).map(|(address, extent)| (address, Some(extent)))
        };
        let (address, extent) = placed.inspect_err(|_| self.disclaim(device, counted))?;
        let memory = self.physical.insert(Memory {
            device,
            context: Some(context),
            bytes: counted,
            extent,
            mappings: 1,
            released: true,
        });
        let origin = if is_small {
            Origin::SmallAllocation
        } else {
            Origin::LargeAllocation { range_bytes: counted }
        };
        let mapping = Mapping { bytes, memory, access: 1 << device, origin, touched: Vec::new() };
        self.space.insert(address, mapping);
        Ok(address)
    }

    /// Address space and accessible memory of `bytes`, whole granules.
    fn place_pages(&mut self, device: u32, bytes: u64) -> Result<(u64, Extent)> {
        let granule = self.device(device)?.config.granularity_bytes;
        let address = self.space.take(bytes, granule)?;
        let placed = self.store.create(device, bytes).and_then(|extent| {
            let mapped = self.store.map(address, extent, true);
            mapped.inspect_err(|_| self.store.destroy(extent)).map(|()| (address, extent))
        });
        placed.inspect_err(|_| self.space.give(address, bytes))
    }

    fn place_small(&mut self, device: u32, bytes: u64) -> Result<u64> {
        let small = &mut self.device_mut(device)?.small;
        let page_bytes = small.page_bytes;
        if let Some(address) = small.free.take(bytes, BLOCK_BYTES) {
            let page = address & !(page_bytes - 1);
            small.spare = small.spare.filter(|&spare| spare != page);
            return Ok(address);
        }
        let (page, extent) = self.place_pages(device, page_bytes)?;
        let small = &mut self.device_mut(device)?.small;
        small.pages.insert(page, extent);
        small.free.give(page, page_bytes);
        small.free.take(bytes, BLOCK_BYTES).ok_or(Code::OUT_OF_MEMORY)
    }

    /// Ends all allocations of a context whose work is over.
    pub(crate) fn free_all(&mut self, context: u32) -> Result<()> {
        let is_its = |memory: u64| {
            self.physical.get(memory).is_some_and(|memory| memory.context == Some(context))
        };
        let mappings = self.space.mappings();
        let of_context = mappings.filter(|(_, mapping)| is_its(mapping.memory));
        let addresses: Vec<u64> = of_context.map(|(address, _)| address).collect();
        let device = self.contexts[context as usize].device;
        addresses.into_iter().try_for_each(|address| self.free(device, address))
    }

    /// Gives back the page kept although it is empty, so that small allocations come to lie as
    /// they did at first.
    pub(crate) fn drop_spare_page(&mut self, device: u32) -> Result<()> {
        let small = &mut self.device_mut(device)?.small;
        let Some(page) = small.spare.take() else { return Ok(()) };
        let page_bytes = small.page_bytes;
        self.drop_page(device, page, page_bytes)
    }

    /// Ends an allocation whose context has finished its work.
    fn free(&mut self, owner: u32, address: u64) -> Result<()> {
        let mapping = self.space.get(address).ok_or(Code::INVALID_VALUE)?;
        if let Origin::LargeAllocation { range_bytes } = mapping.origin {
            self.store.unmap(address, range_bytes)?;
            self.space.give(address, range_bytes);
        }
        let mapping = self.space.remove(address).ok_or(Code::INVALID_VALUE)?;
        self.check_untouched(address, &mapping);
        if mapping.origin == Origin::SmallAllocation {
            let bytes = self.physical.get(mapping.memory).map_or(0, |memory| memory.bytes);
            self.free_small(owner, address, bytes)?;
        }
        self.drop_mapping(mapping.memory);
        Ok(())
    }

    fn free_small(&mut self, device: u32, address: u64, bytes: u64) -> Result<()> {
        let small = &mut self.device_mut(device)?.small;
        let (start, free_bytes) = small.free.give(address, bytes);
        if free_bytes < small.page_bytes {
            return Ok(());
        }
        if small.spare.is_none() {
            small.spare = Some(start);
            return Ok(());
        }
        self.drop_page(device, start, free_bytes)
    }

    /// Gives back an empty page.
    fn drop_page(&mut self, device: u32, start: u64, free_bytes: u64) -> Result<()> {
        let small = &mut self.device_mut(device)?.small;
        let Some(extent) = small.pages.remove(&start) else { return Ok(()) };
        small.free.remove(start, free_bytes);
        if self.store.unmap(start, free_bytes).is_ok() {
            self.space.give(start, free_bytes);
            self.store.destroy(extent);
        } else {
            // The host would not take the page out: keep it, empty.
            let small = &mut self.device_mut(device)?.small;
            small.pages.insert(start, extent);
            small.free.give(start, free_bytes);
        }
        Ok(())
    }
}
