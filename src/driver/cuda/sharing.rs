//! Sharing with other processes, by the driver.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::scope::require;
use crate::driver::{Call, Code, DriverError, MemoryHandle, Result, SegmentHandle, Sharing};

/// The kind of handle that is a file descriptor.
const POSIX: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the driver knows no other way to open a segment.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

// SAFETY of the calls below: as for the device's other calls. A segment's handle is passed by
// value and has the size and alignment of `cuda.h`; the driver refuses bytes it did not make.
impl Sharing for CudaDevice {
    fn share_allocation(&self, address: u64) -> Result<SegmentHandle> {
        let share = require(self.api.ipc_get_memory, Call::ShareAllocation)?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: see the head of this implementation.
        self.call(Call::ShareAllocation, || unsafe { share(&mut handle, address) })?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn open_allocation(&self, handle: &SegmentHandle) -> Result<u64> {
        let open = require(self.api.ipc_open_memory, Call::OpenAllocation)?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
        let mut address = 0;
        // SAFETY: see the head of this implementation.
        self.call(Call::OpenAllocation, || unsafe {
            open(&mut address, handle, LAZY_ENABLE_PEER_ACCESS)
        })?;
        Ok(address)
    }

    fn close_allocation(&self, address: u64) -> Result<()> {
        let close = require(self.api.ipc_close_memory, Call::CloseAllocation)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::CloseAllocation, || unsafe { close(address) })
    }

    fn export(&self, handle: MemoryHandle) -> Result<OwnedFd> {
        let export = require(self.api.memory_export, Call::Export)?;
        let mut descriptor: c_int = -1;
        let place: *mut c_void = (&raw mut descriptor).cast();
        // SAFETY: see the head of this implementation; for this kind the driver writes an int.
        self.call(Call::Export, || unsafe { export(place, handle.0, POSIX, 0) })?;
        if descriptor < 0 {
            return Err(DriverError { call: Call::Export, code: Code::NOT_SUPPORTED });
        }
        // SAFETY: the driver opened it for the caller, who owns it from here on.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import(&self, descriptor: &OwnedFd) -> Result<MemoryHandle> {
        let import = require(self.api.memory_import, Call::Import)?;
        // The driver takes the number itself in the place of a pointer.
        let raw = descriptor.as_raw_fd() as usize as *mut c_void;
        let mut handle = 0;
        // SAFETY: see the head of this implementation; the descriptor is open.
        self.call(Call::Import, || unsafe { import(&mut handle, raw, POSIX) })?;
        Ok(MemoryHandle(handle))
    }
}
