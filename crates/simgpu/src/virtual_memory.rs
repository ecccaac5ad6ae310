//! Virtual memory management: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and their family.
//!
//! The rules are CUDA's: sizes and addresses are multiples of the granularity; a handle is
//! mapped whole, at offset 0, any number of times; access and unmapping concern whole mappings;
//! a handle may be released while it is mapped and its memory lives until the last mapping
//! goes; a reservation is given back by its exact address and size with nothing mapped in it.
//! There may be so many accessible mappings and no more (`Config::most_mappings`).

use crate::address_space::{Mapping, Origin};
use crate::machine::{Machine, State};
use crate::physical::Memory;
use crate::{Call, Code, Result};

/// What a handle can be used for besides mapping it in this process: what is asked of one, or
/// what a device can make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleProperties {
    /// It can be shared with other processes as a file descriptor.
    pub posix: bool,
    /// It can be shared with other machines of one fabric.
    pub fabric: bool,
    /// Devices other than GPUs can reach its memory: GPUDirect RDMA.
    pub rdma: bool,
}

impl HandleProperties {
    /// Whether whoever can make these can make `wanted`.
    const fn cover(self, wanted: Self) -> bool {
        (self.posix || !wanted.posix)
            && (self.fabric || !wanted.fabric)
            && (self.rdma || !wanted.rdma)
    }
}

impl Machine {
    /// What sizes and addresses must be multiples of, in bytes. Not a counted call: a constant
    /// of the device. `NOT_SUPPORTED` without virtual memory management.
    pub fn granularity(&self, device: u32) -> Result<u64> {
        self.lock().granule(device)
    }

    /// [`Self::granularity`] of handles with `properties`. `NOT_SUPPORTED` where the device
    /// makes none.
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

    /// Gives back a reservation: exact address and size, nothing mapped in it.
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

    /// [`Self::create`] with `properties`; `NOT_SUPPORTED` where the device makes no such
    /// handle.
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
        state.claim(device, bytes)?;
        let extent = state.store.create(device, bytes);
        let extent = Some(extent.inspect_err(|_| state.disclaim(device, bytes))?);
        let memory = Memory { device, context: None, bytes, extent, mappings: 0, released: false };
        state.charge_size(device, Call::Create, bytes, 0);
        Ok(state.physical.insert(memory))
    }

    /// Gives the handle up. Its memory lives on until its last mapping is gone.
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
        if bytes != memory.bytes || !address.is_multiple_of(granule) {
            return Err(Code::INVALID_VALUE);
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
    /// without a gap. What other devices may do stays. `INVALID_DEVICE` for one that is no peer
    /// of the memory's own; `OUT_OF_MEMORY` beyond what [`crate::Config::most_mappings`] says.
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
                // What cannot be undone either stays readable: no worse than before the call.
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

    /// Drops the mappings that make up `[address, address + bytes)`, whole ones only. Does not
    /// wait for anything: what is still queued then touches nothing, which is a violation.
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

    /// Gives a handle up.
    fn release(&mut self, handle: u64) {
        if let Some(memory) = self.physical.get_mut(handle) {
            memory.released = true;
        }
        self.reclaim_if_dead(handle);
    }

    /// Ends the handles of `device`, wherever they are mapped, and the reservations made on it,
    /// with whatever is mapped there.
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

    fn granule(&self, device: u32) -> Result<u64> {
        let config = &self.device(device)?.config;
        if config.virtual_memory { Ok(config.granularity_bytes) } else { Err(Code::NOT_SUPPORTED) }
    }

    fn granule_with(&self, device: u32, properties: HandleProperties) -> Result<u64> {
        let granule = self.granule(device)?;
        let can_make = self.device(device)?.config.handles;
        if can_make.cover(properties) { Ok(granule) } else { Err(Code::NOT_SUPPORTED) }
    }

    /// Whether each mapping of a range is of memory whose own device alone `access` names.
    fn check_owned(&self, address: u64, bytes: u64, access: u64) -> Result<()> {
        let is_owned = self.space.range(address, bytes).all(|(_, mapping)| {
            let memory = self.physical.get(mapping.memory);
            memory.is_some_and(|memory| access == 1 << memory.device)
        });
        if is_owned { Ok(()) } else { Err(Code::INVALID_DEVICE) }
    }
}
