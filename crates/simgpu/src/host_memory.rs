//! Page-locked host memory, and synchronous copies between it and devices.
//!
//! A copy is work on the device's legacy stream, as `cuMemcpyDtoH` and `cuMemcpyHtoD` are: it
//! comes after the work of blocking streams, races with work of other streams that the host
//! does not know to be complete, and is complete, to the host's knowledge, when the call
//! returns. With real bytes it moves them, under the machine's lock, so that neither side can
//! be unmapped meanwhile; with addresses only it moves nothing and checks the same.

use std::collections::BTreeMap;

use crate::machine::{Machine, State};
use crate::stream_table::STREAM_LEGACY;
use crate::touch::{Access, Rights, Work};
use crate::{Call, Code, Result};

/// The pieces of pinned memory, by address. `bytes` is the sum of their sizes.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    pieces: BTreeMap<u64, u64>,
    bytes: u64,
}

impl HostMemory {
    /// How many pieces there are.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Their sizes together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes every piece out.
    pub(crate) fn drain(&mut self) -> BTreeMap<u64, u64> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Whether the sum is right and no two pieces overlap.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut previous_end = 0;
        let disjoint = self.pieces.iter().all(|(&address, &bytes)| {
            let is_apart = previous_end <= address;
            previous_end = address + bytes;
            is_apart
        });
        disjoint && self.bytes == self.pieces.values().sum::<u64>()
    }

    fn insert(&mut self, address: u64, bytes: u64) {
        self.pieces.insert(address, bytes);
        self.bytes += bytes;
    }

    fn remove(&mut self, address: u64) -> Option<u64> {
        let bytes = self.pieces.remove(&address)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// Whether `[address, address + bytes)` lies in one piece.
    fn contains(&self, address: u64, bytes: u64) -> bool {
        self.pieces.range(..=address).next_back().is_some_and(|(&start, &piece_bytes)| {
            let end = (address - start).checked_add(bytes);
            end.is_some_and(|end| end <= piece_bytes)
        })
    }
}

impl Machine {
    /// `bytes` of page-locked host memory, as a host address.
    pub fn host_allocate(&self, context: u32, bytes: u64) -> Result<u64> {
        let mut state = self.enter(context, Call::HostAllocate)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let pinned_bytes = state.host_memory.bytes();
        if bytes > state.config.host_memory_bytes.saturating_sub(pinned_bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = state.store.host_allocate(bytes)?;
        state.host_memory.insert(address, bytes);
        state.charge_size(device, Call::HostAllocate, bytes, 0);
        Ok(address)
    }

    /// Gives back memory from [`Self::host_allocate`], by its exact address.
    pub fn host_free(&self, context: u32, address: u64) -> Result<()> {
        let mut state = self.enter(context, Call::HostFree)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        let bytes = state.host_memory.remove(address).ok_or(Code::INVALID_VALUE)?;
        state.store.host_free(address, bytes);
        state.charge_size(device, Call::HostFree, bytes, 0);
        Ok(())
    }

    /// Copies `bytes` (not 0) of device memory, mapped without a gap and accessible to the device
    /// of `context`, into one piece of pinned memory, and waits for it. `LAUNCH_TIMEOUT` if it can
    /// never finish: it stays queued then, and moves nothing.
    pub fn copy_to_host(
        &self,
        context: u32,
        host_address: u64,
        device_address: u64,
        bytes: u64,
    ) -> Result<()> {
        let (mut state, _) = self.enter_work(context, STREAM_LEGACY, Some(Call::CopyToHost))?;
        state.check_copy(host_address, device_address, bytes)?;
        state.copy_work(context, Call::CopyToHost, device_address, bytes, Access::Read)?;
        state.store.copy(host_address, device_address, bytes);
        Ok(())
    }

    /// [`Self::copy_to_host`] the other way round.
    pub fn copy_to_device(
        &self,
        context: u32,
        device_address: u64,
        host_address: u64,
        bytes: u64,
    ) -> Result<()> {
        let (mut state, _) = self.enter_work(context, STREAM_LEGACY, Some(Call::CopyToDevice))?;
        state.check_copy(host_address, device_address, bytes)?;
        state.copy_work(context, Call::CopyToDevice, device_address, bytes, Access::Write)?;
        state.store.copy(device_address, host_address, bytes);
        Ok(())
    }

    /// For whoever plays the driver: counts and charges a synchronous copy of `bytes` whose
    /// parts are made of [`Self::copy_touch`] and [`Self::wait_within_call`].
    pub fn count_copy(&self, context: u32, call: Call, bytes: u64) -> Result<()> {
        let mut state = self.enter(context, call)?;
        let device = state.context_device(context)?;
        state.charge_size(device, call, bytes, 0);
        Ok(())
    }
}

impl State {
    fn check_copy(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        let is_good = bytes > 0
            && self.host_memory.contains(host_address, bytes)
            && self.is_accessible(device_address, bytes);
        if is_good { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// What a copy is on the device's side: a touch on the legacy stream, waited for.
    pub(crate) fn copy_work(
        &mut self,
        context: u32,
        call: Call,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<()> {
        let work = Work { address, bytes, access, rights: Rights::Own, label: call.name() };
        let device = self.context_device(context)?;
        let slot = self.stream(context, STREAM_LEGACY, call)?;
        self.forbid_stream_wait(slot)?;
        self.enqueue_copy(slot, STREAM_LEGACY, work)?;
        self.wait_within_call(context, STREAM_LEGACY)?;
        self.charge_size(device, call, bytes, 0);
        Ok(())
    }
}
