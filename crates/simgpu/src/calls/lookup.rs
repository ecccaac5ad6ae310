//! What memory there is, and what lies at an address.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;

/// Free and total memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What can still be allocated.
    pub free_bytes: u64,
    /// The device's capacity, also while a fault script limits it.
    pub total_bytes: u64,
}

/// Memory found by an address; see [`Machine::address_range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The device whose memory it is.
    pub device: u32,
    /// Where the allocation or the mapping starts.
    pub base: u64,
    /// Its size in bytes, as requested.
    pub bytes: u64,
}

impl Machine {
    /// Free and total memory of the device of `context`.
    pub fn memory_info(&self, context: u32) -> Result<MemoryInfo> {
        let mut state = self.enter(context, Call::MemoryInfo)?;
        let device = state.context_device(context)?;
        let free_bytes = state.free_bytes(device)?;
        Ok(MemoryInfo { free_bytes, total_bytes: state.device(device)?.config.capacity_bytes })
    }

    /// The allocation or mapping that contains `address`.
    pub fn address_range(&self, context: u32, address: u64) -> Result<AddressRange> {
        let state = self.enter(context, Call::AddressRange)?;
        let (base, mapping) = state.space.containing(address).ok_or(Code::INVALID_VALUE)?;
        let memory = state.physical.get(mapping.memory).ok_or(Code::INVALID_VALUE)?;
        Ok(AddressRange { device: memory.device, base, bytes: mapping.bytes })
    }
}

/// For a library that plays the driver; none of these is a call of its own.
impl Machine {
    /// The allocation or mapping that contains `address`.
    pub fn find(&self, address: u64) -> Option<AddressRange> {
        let state = self.lock();
        let (base, mapping) = state.space.containing(address)?;
        let device = state.physical.get(mapping.memory)?.device;
        Some(AddressRange { device, base, bytes: mapping.bytes })
    }

    /// All device addresses there can be, as start and bytes.
    pub fn address_span(&self) -> (u64, u64) {
        self.lock().space.span()
    }

    /// Returns true if `[address, address + bytes)` is mapped without a gap and at least one
    /// device has access everywhere. With real bytes, the host can then read and write it.
    pub fn is_accessible(&self, address: u64, bytes: u64) -> bool {
        self.lock().is_accessible(address, bytes)
    }
}

impl State {
    pub(crate) fn is_accessible(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut next = address;
        while next < end {
            match self.space.containing(next) {
                Some((base, mapping)) if mapping.access != 0 => next = base + mapping.bytes,
                _ => return false,
            }
        }
        true
    }
}
