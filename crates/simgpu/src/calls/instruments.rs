//! What a test reads of a machine: what was asked of it, and what is alive in it.

use crate::code::Result;
use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Mapping, Origin};
use crate::usage::Usage;

/// What is alive in a machine; all zero when everything was freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Allocations of `cuMemAlloc`.
    pub allocations: usize,
    /// Allocations of other processes, opened by `cuIpcOpenMemHandle`.
    pub opened: usize,
    /// Handles of `cuMemCreate` not released.
    pub handles: usize,
    /// Reservations.
    pub reservations: usize,
    /// Mappings of handles.
    pub mappings: usize,
    /// Events.
    pub events: usize,
    /// Pieces of pinned host memory.
    pub host_allocations: usize,
    /// Their bytes.
    pub host_bytes: u64,
    /// Physical memory in use on all devices, in bytes.
    pub used_bytes: u64,
    /// Reserved address space, in bytes.
    pub reserved_bytes: u64,
}

impl Machine {
    /// What was asked of `device`, from the making of the machine on.
    pub fn usage(&self, device: u32) -> Result<Usage> {
        self.lock().usage(device)
    }

    /// How much of the memory of `device` this process uses, in bytes.
    pub fn used_bytes(&self, device: u32) -> Result<u64> {
        self.lock().device(device).map(|entry| entry.used_bytes)
    }

    /// The most physical memory of `device` that was in use at once, in bytes, after the machine
    /// was made or [`Self::reset_peak`] was last called.
    pub fn peak_used_bytes(&self, device: u32) -> Result<u64> {
        self.lock().device(device).map(|entry| entry.peak_used_bytes)
    }

    /// Sets the peak of `device` to what is in use now.
    pub fn reset_peak(&self, device: u32) -> Result<()> {
        let mut state = self.lock();
        let entry = state.device_mut(device)?;
        entry.peak_used_bytes = entry.used_bytes;
        Ok(())
    }

    /// What is alive now.
    pub fn census(&self) -> Census {
        self.lock().census()
    }
}

impl State {
    fn census(&self) -> Census {
        let is_opened = |one: &Mapping| matches!(one.origin, Origin::Opened { .. });
        let opened = self.space.mappings().filter(|(_, one)| is_opened(one)).count();
        let allocated = self.space.mappings().filter(|(_, one)| one.is_allocation()).count();
        let allocations = allocated - opened;
        Census {
            allocations,
            opened,
            handles: self.physical.iter().filter(|(_, memory)| !memory.released).count(),
            reservations: self.space.reservations().count(),
            mappings: self.space.mappings().count() - allocated,
            events: self.events.len(),
            host_allocations: self.host_memory.count() + self.registered.count(),
            host_bytes: self.host_memory.bytes() + self.registered.bytes(),
            used_bytes: self.devices.iter().map(|device| device.used_bytes).sum(),
            reserved_bytes: self.space.reservations().map(|(_, bytes)| bytes).sum(),
        }
    }
}
