//! Virtual memory management: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and their family.
//!
//! The rules are CUDA's:
//! - sizes and addresses are multiples of the granularity;
//! - a handle is mapped whole, at offset 0, any number of times (anything else is refused as
//!   `NOT_SUPPORTED`, as driver 580 does; the documentation says `INVALID_VALUE`);
//! - access and unmapping concern whole mappings;
//! - a handle may be released while it is mapped; its memory lives until the last mapping goes;
//! - a reservation is freed by its exact address and size, with nothing mapped in it;
//! - at most `Config::most_mappings` mappings are accessible at once.
//!
//! Driver 580 (docs/benchmarks) lets some mistakes pass that are refused here: it maps over
//! the end of a reservation, sets access over a hole, and unmaps where nothing is mapped.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::config::HandleProperties;
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Mapping, Memory, Origin, Sharing};

impl Machine {
    /// What sizes and addresses must be multiples of, in bytes. Not a counted call: a constant
    /// of the device. `NOT_SUPPORTED` without virtual memory management.
    pub fn granularity(&self, device: u32) -> Result<u64> {
        self.lock().granule(device)
    }

    /// [`Self::granularity`] of handles with `properties`. `NOT_SUPPORTED` if the device cannot
    /// make them.
    pub fn granularity_with(&self, device: u32, properties: HandleProperties) -> Result<u64> {
        self.lock().granule_with(device, properties)
    }

    /// Reserves `bytes` of address space at a multiple of `alignment_bytes` (0: the
    /// granularity; otherwise a power of two). `OUT_OF_MEMORY`: no such range is left.
    pub fn reserve(&self, context: u32, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        let mut state = self.enter(context, Call::Reserve)?;
        let device = state.context_device(context)?;
        let granule = state.granule(device)?;
        let is_aligned = alignment_bytes == 0 || alignment_bytes.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(granule) || !is_aligned {
            return Err(Code::INVALID_VALUE);
        }
        let address = state.space.reserve(device, bytes, alignment_bytes.max(granule))?;
        state.charge_size(device, Call::Reserve, bytes, 0);
        Ok(address)
    }

    /// Frees a reservation: exact address and size, nothing mapped in it.
    pub fn unreserve(&self, context: u32, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Unreserve)?;
        let device = state.context_device(context)?;
        state.granule(device)?;
        state.space.unreserve(address, bytes)?;
        state.charge_size(device, Call::Unreserve, bytes, 0);
        Ok(())
    }

    /// `bytes` of physical memory of the device of `context`, mapped nowhere, as a handle.
    pub fn create(&self, context: u32, bytes: u64) -> Result<u64> {
        self.create_with(context, bytes, HandleProperties::default())
    }

    /// [`Self::create`] with `properties`; `NOT_SUPPORTED` if the device cannot make such a
    /// handle, `NOT_PERMITTED` without an IMEX channel for the fabric.
    pub fn create_with(
        &self,
        context: u32,
        bytes: u64,
        properties: HandleProperties,
    ) -> Result<u64> {
        let mut state = self.enter(context, Call::Create)?;
        let device = state.context_device(context)?;
        let granule = state.granule_with(device, properties)?;
        if bytes == 0 || !bytes.is_multiple_of(granule) {
            return Err(Code::INVALID_VALUE);
        }
        if properties.fabric && !state.device(device)?.config.imex_channel {
            return Err(Code::NOT_PERMITTED);
        }
        state.take_physical(device, bytes)?;
        let piece = if properties.posix { state.set_apart(device, bytes)? } else { None };
        let extent = if properties.posix {
            state.store.create_shareable(device, bytes, piece)
        } else {
            state.store.create(device, bytes)
        };
        let extent = Some(extent.inspect_err(|_| state.uncount(device, bytes, piece))?);
        let sharing = if properties.posix { Sharing::Exportable } else { Sharing::None };
        let (context, mappings, released) = (None, 0, false);
        let memory = Memory { device, context, bytes, extent, mappings, released, piece, sharing };
        state.charge_size(device, Call::Create, bytes, 0);
        Ok(state.physical.insert(memory))
    }

    /// Releases the handle. Its memory lives until its last mapping is gone.
    pub fn release(&self, context: u32, handle: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Release)?;
        let device = state.context_device(context)?;
        state.granule(device)?;
        state.forbid_in_capture()?;
        let bytes = state.held_memory(handle)?.bytes;
        state.release(handle);
        state.charge_size(device, Call::Release, bytes, 0);
        Ok(())
    }

    /// Maps the whole of a handle of `bytes` at `address`: inside a reservation, over nothing.
    /// No device has access yet.
    pub fn map(&self, context: u32, address: u64, bytes: u64, handle: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Map)?;
        let device = state.context_device(context)?;
        state.granule(device)?;
        let memory = state.held_memory(handle)?;
        let granule = state.granule(memory.device)?;
        if !address.is_multiple_of(granule) {
            return Err(Code::INVALID_VALUE);
        }
        if bytes != memory.bytes {
            return Err(Code::NOT_SUPPORTED);
        }
        let extent = memory.extent.ok_or(Code::INVALID_VALUE)?;
        state.space.check_vacant(address, bytes)?;
        state.store.map(address, extent, false)?;
        if let Some(memory) = state.physical.get_mut(handle) {
            memory.mappings += 1;
        }
        let origin = Origin::Handle;
        let touched = Vec::new();
        state.space.insert(address, Mapping { bytes, memory: handle, access: 0, origin, touched });
        state.charge_size(device, Call::Map, bytes, 1);
        Ok(())
    }

    /// Lets `devices` read and write `[address, address + bytes)`, which is whole mappings
    /// without a gap. The access of other devices does not change. `INVALID_DEVICE` for a device
    /// that is no peer of the memory's own; `OUT_OF_MEMORY` beyond
    /// [`crate::Config::most_mappings`].
    pub fn set_access(
        &self,
        context: u32,
        address: u64,
        bytes: u64,
        devices: &[u32],
    ) -> Result<()> {
        let mut guard = self.enter(context, Call::SetAccess)?;
        let state = &mut *guard;
        let device = state.context_device(context)?;
        state.granule(device)?;
        let mut access = 0u64;
        for &accessing in devices {
            state.device(accessing)?;
            access |= 1 << accessing;
        }
        if access == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mappings = state.space.check_whole(address, bytes)?;
        if !state.config.peer_access {
            state.check_owned(address, bytes, access)?;
        }
        let more = state.space.range(address, bytes).filter(|(_, mapping)| mapping.access == 0);
        let more = more.count() as u64;
        if state.space.accessible + more > state.config.most_mappings {
            return Err(Code::OUT_OF_MEMORY);
        }
        if let Err(code) = state.store.protect(address, bytes, true) {
            for (start, mapping) in state.space.range_mut(address, bytes) {
                let had_access = mapping.access != 0;
                // If undoing fails too, the mapping stays readable to the host; no harm.
                let _ = state.store.protect(start, mapping.bytes, had_access);
            }
            return Err(code);
        }
        for (_, mapping) in state.space.range_mut(address, bytes) {
            mapping.access |= access;
        }
        state.space.accessible += more;
        state.charge_size(device, Call::SetAccess, bytes, mappings);
        Ok(())
    }

    /// Drops the mappings that make up `[address, address + bytes)`, whole ones only. Waits for
    /// nothing: work that is still queued then touches unmapped memory, which is a violation.
    pub fn unmap(&self, context: u32, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.enter(context, Call::Unmap)?;
        let device = state.context_device(context)?;
        state.granule(device)?;
        state.forbid_in_capture()?;
        let mappings = state.space.check_whole(address, bytes)?;
        state.unmap(address, bytes)?;
        state.charge_size(device, Call::Unmap, bytes, mappings);
        Ok(())
    }
}

impl State {
    /// The memory of a handle that is still held.
    pub(crate) fn held_memory(&self, handle: u64) -> Result<&Memory> {
        let memory = self.physical.get(handle).filter(|memory| !memory.released);
        memory.ok_or(Code::INVALID_VALUE)
    }

    /// Drops whole mappings of handles.
    fn unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.store.unmap(address, bytes)?;
        while let Some((start, mapping)) = self.space.remove_first(address, address + bytes) {
            self.space.accessible -= u64::from(mapping.access != 0);
            self.check_untouched(start, &mapping);
            self.drop_mapping(mapping.memory);
        }
        Ok(())
    }

    /// Releases a handle.
    fn release(&mut self, handle: u64) {
        if let Some(memory) = self.physical.get_mut(handle) {
            memory.released = true;
        }
        self.reclaim_if_dead(handle);
    }

    /// Ends the handles of `device`, wherever they are mapped, and the reservations made on it,
    /// with everything mapped there.
    pub(crate) fn empty_virtual_memory(&mut self, device: u32) -> Result<()> {
        let reserved = self.space.reservations_of(device);
        let is_reserved = |address| {
            let holds = |&(start, bytes): &(u64, u64)| address >= start && address - start < bytes;
            reserved.iter().any(holds)
        };
        let is_its = |memory| self.physical.get(memory).is_some_and(|one| one.device == device);
        let mappings = self.space.mappings().filter(|&(address, mapping)| {
            !mapping.is_allocation() && (is_its(mapping.memory) || is_reserved(address))
        });
        let doomed: Vec<(u64, u64)> = mappings.map(|(start, one)| (start, one.bytes)).collect();
        for (address, bytes) in doomed {
            self.unmap(address, bytes)?;
        }
        for (address, bytes) in reserved {
            self.space.unreserve(address, bytes)?;
        }
        let handles = self
            .physical
            .iter()
            .filter(|(_, one)| one.device == device && one.context.is_none() && !one.released);
        let handles: Vec<u64> = handles.map(|(handle, _)| handle).collect();
        handles.into_iter().for_each(|handle| self.release(handle));
        Ok(())
    }

    pub(crate) fn granule(&self, device: u32) -> Result<u64> {
        let config = &self.device(device)?.config;
        if config.virtual_memory { Ok(config.granularity_bytes) } else { Err(Code::NOT_SUPPORTED) }
    }

    fn granule_with(&self, device: u32, properties: HandleProperties) -> Result<u64> {
        let granule = self.granule(device)?;
        let can_make = self.device(device)?.config.handles;
        if can_make.cover(properties) { Ok(granule) } else { Err(Code::NOT_SUPPORTED) }
    }

    /// Fails unless `access` names, for each mapping of a range, the memory's own device alone.
    fn check_owned(&self, address: u64, bytes: u64, access: u64) -> Result<()> {
        let is_owned = self.space.range(address, bytes).all(|(_, mapping)| {
            let memory = self.physical.get(mapping.memory);
            memory.is_some_and(|memory| access == 1 << memory.device)
        });
        if is_owned { Ok(()) } else { Err(Code::INVALID_DEVICE) }
    }
}
