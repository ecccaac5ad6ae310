//! The part of the device contract that concerns other processes.
//!
//! A segment is shared by a handle of 64 bytes, which any process of the user can open while the
//! segment exists; an extent by a file descriptor, which keeps its memory alive. The rules are
//! those of CUDA's driver API manual on `cuIpc*` and on `cuMemExportToShareableHandle`. A device
//! that shares nothing needs none of these methods: each then returns `NOT_SUPPORTED`.

use std::os::fd::OwnedFd;

use super::call::{Call, Code, DriverError, MemoryHandle, Result};

/// The driver's name for a segment, for other processes: `CUipcMemHandle`.
pub type SegmentHandle = [u8; 64];

/// Memory shared with other processes. Errors and threads are as for [`super::Device`].
pub trait Sharing {
    /// The handle by which another process can open the segment at `address`, its first byte. The
    /// segment must not be freed while it is open elsewhere. The same segment may get the same
    /// handle again.
    fn share_allocation(&self, _address: u64) -> Result<SegmentHandle> {
        none(Call::ShareAllocation)
    }

    /// The address at which a segment of another process lies in this one. A second call with one
    /// handle is an error on some drivers. `INVALID_CONTEXT` in the process that made the handle.
    fn open_allocation(&self, _handle: &SegmentHandle) -> Result<u64> {
        none(Call::OpenAllocation)
    }

    /// Undoes [`Self::open_allocation`]. No work that uses the memory is queued.
    fn close_allocation(&self, _address: u64) -> Result<()> {
        none(Call::CloseAllocation)
    }

    /// A descriptor for an extent that was created as [`super::Shareable::PosixFd`].
    fn export(&self, _handle: MemoryHandle) -> Result<OwnedFd> {
        none(Call::Export)
    }

    /// The extent behind a descriptor of another process: a handle of this process, which may be
    /// mapped and is to be released. The descriptor is no longer needed.
    fn import(&self, _descriptor: &OwnedFd) -> Result<MemoryHandle> {
        none(Call::Import)
    }
}

fn none<T>(call: Call) -> Result<T> {
    Err(DriverError { call, code: Code::NOT_SUPPORTED })
}
