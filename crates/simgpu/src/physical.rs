//! Physical memory: what a handle or an allocation stands for.
//!
//! A piece of memory is alive while its handle is held or a mapping shows it; plain
//! allocations are born with their handle released and one mapping. Invariant, per device:
//! `used_bytes` = Σ bytes of its living memory ≤ what was available when it was claimed.

use crate::machine::State;
use crate::store::Extent;
use crate::{Code, Result};

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) device: u32,
    /// The context of a plain allocation; handles are of their device alone.
    pub(crate) context: Option<u32>,
    /// What it counts for, in bytes.
    pub(crate) bytes: u64,
    /// Its place in the store; small allocations share their page's.
    pub(crate) extent: Option<Extent>,
    /// How many mappings show it.
    pub(crate) mappings: u32,
    /// Whether there is no handle (any more).
    pub(crate) released: bool,
}

impl State {
    /// Counts `bytes` of `device` as used, if there are so many.
    pub(crate) fn claim(&mut self, device: u32, bytes: u64) -> Result<()> {
        let entry = self.device_mut(device)?;
        if bytes > entry.available_bytes.saturating_sub(entry.used_bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        entry.used_bytes += bytes;
        entry.peak_used_bytes = entry.peak_used_bytes.max(entry.used_bytes);
        Ok(())
    }

    /// Undoes [`Self::claim`].
    pub(crate) fn disclaim(&mut self, device: u32, bytes: u64) {
        if let Some(entry) = self.devices.get_mut(device as usize) {
            entry.used_bytes -= bytes;
        }
    }

    /// The memory of a handle that is still held.
    pub(crate) fn held_memory(&self, handle: u64) -> Result<&Memory> {
        let memory = self.physical.get(handle).filter(|memory| !memory.released);
        memory.ok_or(Code::INVALID_VALUE)
    }

    /// One mapping of `key` is gone.
    pub(crate) fn drop_mapping(&mut self, key: u64) {
        if let Some(memory) = self.physical.get_mut(key) {
            memory.mappings -= 1;
        }
        self.reclaim_if_dead(key);
    }

    /// Ends the life of memory that no handle and no mapping holds.
    pub(crate) fn reclaim_if_dead(&mut self, key: u64) {
        let is_dead = |memory: &&Memory| memory.released && memory.mappings == 0;
        if self.physical.get(key).filter(is_dead).is_none() {
            return;
        }
        let Some(memory) = self.physical.remove(key) else { return };
        self.disclaim(memory.device, memory.bytes);
        if let Some(extent) = memory.extent {
            self.store.destroy(extent);
        }
        if let Some(detector) = &mut self.detector {
            detector.forget(key);
        }
    }
}
