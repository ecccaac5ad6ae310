//! Blocks shared with other processes.

use std::ffi::{c_int, c_void};

use super::{boundary, ordinal, pointer, write_optional, write_required};
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::instance::sharing;

/// Stands for the exporter's ordinal.
const SAME_DEVICE: c_int = -1;

/// Names a block in another process. It may be copied and sent any way that keeps its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockHandle {
    /// What only the library reads. The first 40 are the same in all handles of a block while it is
    /// shared without interruption.
    pub bytes: [u8; 64],
}

/// Writes to `handle` what another process of the same user on the same machine can import the live
/// block at `ptr` by, its first byte.
///
/// Each handle keeps the block: genesis_free then marks it as freed, and its memory is reused only
/// after the last use elsewhere has ended. A handle is for one import. Its hold passes to the process
/// that imports it, and ends when that process has closed the block or has ended, however that
/// happened. A handle that nobody imports keeps the block until genesis_block_discard or the end of
/// this process. While a block is shared its tag cannot be paused (GENESIS_STATUS_BUSY).
///
/// The library orders no streams of two processes. Let the importer wait for what was queued here:
/// by an event of CUDA's for several processes, or by a wait on the host before the handle is sent.
///
/// Memory is shared in the driver's units: the importer can also reach what lies around the block in
/// its segment (Caching) or in its extents (Elastic). Elastic's extents must be made for it:
/// GENESIS_HANDLE_TYPE=posix, which `genesis.torch.enable()` sets. The first export starts a thread.
///
/// GENESIS_STATUS_FOREIGN_POINTER and _DOUBLE_FREE: `ptr` is no live block.
/// GENESIS_STATUS_INVALID_ARGUMENT: it is a block of another process. GENESIS_STATUS_BUSY: it is
/// paused. GENESIS_STATUS_NOT_SUPPORTED: its memory cannot be shared; the last error says why.
///
/// # Safety
/// `handle` is NULL, which is an error, or points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_block_export(
    ptr: *const c_void,
    handle: *mut BlockHandle,
) -> Status {
    let export = || Ok(BlockHandle { bytes: sharing::export(ptr as u64)?.encode() });
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(handle, export) })
}

/// Maps the block that `handle` names for `device` (-1: the ordinal it has in the exporting process;
/// both must be the same GPU), and writes its address here to `ptr`, and its size in bytes to `size`
/// unless that is NULL.
///
/// A block that is mapped already is only counted, and so is a block of this process itself, whose
/// own address is returned. genesis_block_close ends each import; genesis_free refuses the address.
/// The memory counts for the exporter, in its statistics and limits. The exporter may end first:
/// Elastic's memory stays, that of other strategies becomes undefined.
///
/// GENESIS_STATUS_INVALID_ARGUMENT: the bytes are no handle, or what it names is gone.
/// GENESIS_STATUS_NOT_SUPPORTED: the exporter cannot be reached or cannot share the block, or the
/// block is imported for another device. GENESIS_STATUS_DRIVER_FAILED and _OUT_OF_MEMORY: the driver
/// did not map it; then nothing is imported, and the handle is used up.
///
/// # Safety
/// `handle` is NULL, which is an error, or points to a handle; `ptr` is NULL, which is an error, or
/// points to a writable pointer; `size` is NULL or points to a writable size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_block_import(
    handle: *const BlockHandle,
    device: c_int,
    ptr: *mut *mut c_void,
    size: *mut usize,
) -> Status {
    boundary::demanding(|| {
        // SAFETY: the caller's contract.
        unsafe {
            let mut bytes = 0;
            write_required(ptr, || {
                let imported = import(handle, device)?;
                bytes = imported.bytes;
                Ok(pointer(imported.address))
            })?;
            write_optional(size, bytes as usize);
        }
        Ok(())
    })
}

/// Ends one import of the block at `ptr`. After the last one the library waits for all work of the
/// device, unmaps the block and tells the exporter. While a stream of the device is captured it does
/// so later, at the next import or close.
///
/// GENESIS_STATUS_FOREIGN_POINTER: no block is imported there.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_close(ptr: *mut c_void) -> Status {
    boundary::status(|| sharing::close(ptr as u64))
}

/// Ends the hold of a handle that nobody will import, in the exporting process or any other. Does
/// nothing for a handle that was imported.
///
/// GENESIS_STATUS_INVALID_ARGUMENT: the bytes are no handle, or the exporter has ended.
///
/// # Safety
/// `handle` is NULL, which is an error, or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_block_discard(handle: *const BlockHandle) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| sharing::discard(unsafe { bytes_of(handle) }?))
}

/// A block that was imported.
pub(super) struct Imported {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) device: c_int,
}

/// # Safety
/// `handle` is NULL or points to a handle.
pub(super) unsafe fn import(handle: *const BlockHandle, device: c_int) -> Result<Imported> {
    let wanted: Option<DeviceOrdinal> = match device {
        SAME_DEVICE => None,
        device => Some(ordinal(device)?),
    };
    // SAFETY: the caller's contract.
    let (address, handle) = sharing::import(unsafe { bytes_of(handle) }?, wanted)?;
    let device = wanted.map_or(handle.device, |wanted| wanted.0) as c_int;
    Ok(Imported { address, bytes: handle.bytes, device })
}

/// # Safety
/// `handle` is NULL or points to a handle, which outlives the result.
unsafe fn bytes_of<'a>(handle: *const BlockHandle) -> Result<&'a [u8]> {
    // SAFETY: the caller's contract.
    let handle = unsafe { handle.as_ref() };
    handle
        .map(|handle| &handle.bytes[..])
        .ok_or_else(|| Error::invalid_argument("the handle is null"))
}
