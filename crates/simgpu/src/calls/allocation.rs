//! `cuMemAlloc` and `cuMemFree`.
//!
//! Sizes are rounded to 512 bytes. Below one granule an allocation gets a part of a page of one
//! granule, which it shares with others; from one granule up it gets granules of its own. Either
//! way whole granules count as used: "a partially used page counts as full", says PyTorch's pull
//! request 17120 of GPUs from Pascal on, whose pages are 2 MiB. One empty page is kept, so that a
//! lone small allocation that comes and goes does not map and unmap. It does not count as used,
//! as if the driver freed it whenever memory is short.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::store::Extent;
use crate::tables::{Mapping, Memory, Origin, Sharing};

/// Allocations are aligned to this and small ones rounded to it, in bytes.
const BLOCK_BYTES: u64 = 512;

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

    /// Frees an allocation by its exact address, after all work of its context has completed (not
    /// that of other contexts or of a peer, which no manual promises). Refused while a stream of
    /// its device captures, even to a thread in relaxed mode.
    pub fn free(&self, context: u32, address: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Free)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        let is_own = |one: &&Mapping| !matches!(one.origin, Origin::Opened { .. } | Origin::Handle);
        let mapping = state.space.get(address).filter(is_own);
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
        let (address, extent) = if is_small {
            (self.place_small(device, counted)?, None)
        } else {
            let (address, extent) = self.take_pages(device, counted)?;
            (address, Some(extent))
        };
        let memory = self.physical.insert(Memory {
            device,
            context: Some(context),
            bytes: counted,
            extent,
            mappings: 1,
            released: true,
            piece: None,
            sharing: Sharing::None,
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

    /// [`Self::place_pages`], counted as used.
    fn take_pages(&mut self, device: u32, bytes: u64) -> Result<(u64, Extent)> {
        self.take_physical(device, bytes)?;
        self.place_pages(device, bytes).inspect_err(|_| self.give_physical(device, bytes))
    }

    /// Address space and accessible memory of `bytes`, whole granules.
    pub(super) fn place_pages(&mut self, device: u32, bytes: u64) -> Result<(u64, Extent)> {
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
            if small.spare == Some(page) {
                if let Err(code) = self.take_physical(device, page_bytes) {
                    self.device_mut(device)?.small.free.give(address, bytes);
                    return Err(code);
                }
                self.device_mut(device)?.small.spare = None;
            }
            return Ok(address);
        }
        let (page, extent) = self.take_pages(device, page_bytes)?;
        let small = &mut self.device_mut(device)?.small;
        small.pages.insert(page, extent);
        small.free.give(page, page_bytes);
        small.free.take(bytes, BLOCK_BYTES).ok_or(Code::OUT_OF_MEMORY)
    }

    /// Frees all allocations of a context whose work is over.
    pub(crate) fn free_all(&mut self, context: u32) -> Result<()> {
        let is_its = |memory: u64| {
            self.physical.get(memory).is_some_and(|memory| memory.context == Some(context))
        };
        let mappings = self.space.mappings();
        let of_context = mappings
            .filter(|(_, one)| is_its(one.memory) && !matches!(one.origin, Origin::Opened { .. }));
        let addresses: Vec<u64> = of_context.map(|(address, _)| address).collect();
        let device = self.contexts[context as usize].device;
        addresses.into_iter().try_for_each(|address| self.free(device, address))
    }

    /// Returns the page kept although it is empty, so that small allocations get the same
    /// addresses as at first.
    pub(crate) fn drop_spare_page(&mut self, device: u32) -> Result<()> {
        let small = &mut self.device_mut(device)?.small;
        let Some(page) = small.spare.take() else { return Ok(()) };
        let page_bytes = small.page_bytes;
        self.drop_page(device, page, page_bytes)
    }

    /// Frees an allocation whose context has finished its work.
    fn free(&mut self, owner: u32, address: u64) -> Result<()> {
        let mapping = self.space.get(address).ok_or(Code::INVALID_VALUE)?;
        let origin = mapping.origin;
        if let Origin::LargeAllocation { range_bytes } | Origin::Managed { range_bytes } = origin {
            self.store.unmap(address, range_bytes)?;
            self.space.give(address, range_bytes);
        }
        if let Origin::Managed { range_bytes } = origin {
            self.free_pages(address, range_bytes);
        }
        let mapping = self.space.remove(address).ok_or(Code::INVALID_VALUE)?;
        self.check_untouched(address, &mapping);
        self.forget_note(address, mapping.memory);
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
        let page_bytes = small.page_bytes;
        if free_bytes < page_bytes {
            return Ok(());
        }
        self.give_physical(device, page_bytes);
        let small = &mut self.device_mut(device)?.small;
        if small.spare.is_none() {
            small.spare = Some(start);
            return Ok(());
        }
        self.drop_page(device, start, free_bytes)
    }

    /// Returns an empty page to the store.
    fn drop_page(&mut self, device: u32, start: u64, free_bytes: u64) -> Result<()> {
        let small = &mut self.device_mut(device)?.small;
        let Some(extent) = small.pages.remove(&start) else { return Ok(()) };
        small.free.remove(start, free_bytes);
        if self.store.unmap(start, free_bytes).is_ok() {
            self.space.give(start, free_bytes);
            self.store.destroy(extent);
        } else {
            // The host refused to unmap the page: keep it, empty, and count it as used.
            self.count_kept(device, free_bytes);
            let entry = self.device_mut(device)?;
            entry.small.pages.insert(start, extent);
            entry.small.free.give(start, free_bytes);
        }
        Ok(())
    }
}
