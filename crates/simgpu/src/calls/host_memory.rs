//! Page-locked host memory, the machine's own or the program's, and synchronous copies between it
//! and devices.
//!
//! A copy is work on the device's legacy stream, as `cuMemcpyDtoH` and `cuMemcpyHtoD` are. It
//! comes after the work of blocking streams, and races with work of other streams that the host
//! does not know to be complete. When the call returns, the host knows that it is complete.
//! With real bytes it moves them under the machine's lock, so that neither side can be unmapped
//! meanwhile. With addresses only it moves nothing and checks the same.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::state::State;
use crate::tables::STREAM_LEGACY;
use crate::touch::{Access, Work};

impl Machine {
    /// `bytes` of page-locked host memory, as a host address.
    pub fn host_allocate(&self, context: u32, bytes: u64) -> Result<u64> {
        let mut state = self.enter(context, Call::HostAllocate)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        state.require_host_memory(bytes)?;
        let address = state.store.host_allocate(bytes)?;
        state.host_memory.insert(address, bytes);
        state.charge_size(device, Call::HostAllocate, bytes, 0);
        Ok(address)
    }

    /// Frees memory from [`Self::host_allocate`], by its exact address. It waits for nothing: a touch
    /// that the host does not know to be complete is a violation.
    pub fn host_free(&self, context: u32, address: u64) -> Result<()> {
        let mut state = self.enter(context, Call::HostFree)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        let piece = state.host_memory.remove(address).ok_or(Code::INVALID_VALUE)?;
        state.let_host_memory_go(address, &piece);
        state.store.host_free(address, piece.bytes);
        state.charge_size(device, Call::HostFree, piece.bytes, 0);
        Ok(())
    }

    /// Page-locks `[address, address + bytes)`, memory of the program's, no part of which is. It need
    /// not be aligned.
    pub fn host_register(&self, context: u32, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.enter(context, Call::HostRegister)?;
        let device = state.context_device(context)?;
        if bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        if state.registered.overlaps(address, bytes) || state.host_memory.overlaps(address, bytes) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        state.require_host_memory(bytes)?;
        state.registered.insert(address, bytes);
        state.charge_size(device, Call::HostRegister, bytes, 0);
        Ok(())
    }

    /// Undoes [`Self::host_register`], by the exact address.
    pub fn host_unregister(&self, context: u32, address: u64) -> Result<()> {
        let mut state = self.enter(context, Call::HostUnregister)?;
        let device = state.context_device(context)?;
        let removed = state.registered.remove(address);
        let piece = removed.ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
        state.let_host_memory_go(address, &piece);
        state.charge_size(device, Call::HostUnregister, piece.bytes, 0);
        Ok(())
    }

    /// Copies `bytes` (not 0) of device memory, mapped without a gap and accessible to the device
    /// of `context`, into one piece of pinned memory, and waits for it. `LAUNCH_TIMEOUT` if it can
    /// never finish: it then stays queued and moves nothing.
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

    /// [`Self::copy_to_host`] in the other direction.
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

    /// For a library that plays the driver: counts and charges a synchronous copy of `bytes` that
    /// the library makes by [`Self::copy_touch`] and [`Self::wait_within_call`].
    pub fn count_copy(&self, context: u32, call: Call, bytes: u64) -> Result<()> {
        let mut state = self.enter(context, call)?;
        let device = state.context_device(context)?;
        state.charge_size(device, call, bytes, 0);
        Ok(())
    }
}

impl State {
    fn require_host_memory(&self, bytes: u64) -> Result<()> {
        let pinned_bytes = self.host_memory.bytes() + self.registered.bytes();
        if bytes > self.config.host_memory_bytes.saturating_sub(pinned_bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        Ok(())
    }

    fn check_copy(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        let is_good = bytes > 0
            && [&self.host_memory, &self.registered]
                .iter()
                .any(|memory| memory.contains(host_address, bytes))
            && self.is_accessible(device_address, bytes);
        if is_good { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// The device's side of a copy: a touch on the legacy stream, and a wait for it.
    pub(crate) fn copy_work(
        &mut self,
        context: u32,
        call: Call,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<()> {
        let work = Work::new(address, bytes, access, call.name());
        let device = self.context_device(context)?;
        let slot = self.stream(context, STREAM_LEGACY, call)?;
        self.forbid_stream_wait(slot)?;
        self.enqueue_copy(slot, STREAM_LEGACY, work)?;
        self.wait_within_call(context, STREAM_LEGACY)?;
        self.charge_size(device, call, bytes, 0);
        Ok(())
    }
}
