//! Allocating, freeing, and what is known of a block.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle, torch, write_required};
use crate::base::{DeviceOrdinal, Result, Status, StreamHandle};
use crate::callsite;
use crate::heap::{Heap, LiveBlock, Stream};
use crate::instance;

/// What is known of a live block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockInfo {
    /// The pointer that was handed out.
    pub address: *mut c_void,
    /// What was asked for, in bytes.
    pub requested_bytes: usize,
    /// The extent of the block, in bytes.
    pub allocated_bytes: usize,
    /// The stream it was allocated on.
    pub stream: genesis_stream,
    /// The device.
    pub device: c_int,
}

impl From<LiveBlock> for BlockInfo {
    fn from(block: LiveBlock) -> Self {
        Self {
            address: pointer(block.address),
            requested_bytes: block.requested_bytes as usize,
            allocated_bytes: block.allocated_bytes as usize,
            stream: block.stream.handle().0 as genesis_stream,
            device: block.device.0 as c_int,
        }
    }
}

/// Allocates `size` bytes on `device` for use on `stream`.
///
/// Returns a pointer aligned to 512 bytes, or NULL: without noise for size 0, else with a last
/// error. Contents are undefined. Any thread; any device may be current.
///
/// A stream is told by the driver's number for it, which takes a call of the driver
/// (GENESIS_STREAM_IDS); the default streams are those of `device`.
///
/// Where PyTorch is the caller, a failure is an exception of its own: torch.OutOfMemoryError
/// when memory is short, else RuntimeError.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn genesis_malloc(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    allocate(size, device, stream, Heap::identify)
}

/// `genesis_malloc` for a stream that `identify` tells.
#[inline(always)]
pub(super) fn allocate(
    size: usize,
    device: c_int,
    stream: genesis_stream,
    identify: impl FnOnce(&Heap, DeviceOrdinal, StreamHandle) -> Result<Stream>,
) -> *mut c_void {
    let allocated = boundary::call(|| {
        let stream = stream_handle(stream);
        if size == 0 {
            // It is only told; without noise, whatever is wrong.
            return match (instance::heap_if_made(), ordinal(device)) {
                (Ok(Some(heap)), Ok(device)) => heap.allocate(0, device, stream),
                _ => Ok(0),
            };
        }
        let (heap, device) = (instance::heap()?, ordinal(device)?);
        heap.allocate_on(size as u64, device, identify(heap, device, stream)?)
    });
    match allocated {
        Ok(address) => pointer(address),
        Err(error) => torch::fail_allocation(error, size),
    }
}

/// Frees the block at `ptr`, which may be NULL.
///
/// Only `ptr` is looked at: the other arguments are there because PyTorch passes them, and the
/// shorter call `genesis_free(ptr, device, stream)` is as good. A pointer that is not a live
/// block's is left alone and reported as the last error. Any thread; no driver call unless
/// `genesis_block_record_stream` was called for the block or the strategy is Naive.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_free(
    ptr: *mut c_void,
    size: usize,
    device: c_int,
    stream: genesis_stream,
) {
    // Whatever the caller passed in their place: with three arguments, not even these.
    let _ = (size, device, stream);
    let _ = boundary::call(|| {
        if ptr.is_null() {
            return Ok(());
        }
        instance::heap()?.free(ptr as u64)
    });
}

/// Allocates as `genesis_malloc` does, for what the caller calls `name` within `scope`: while a
/// profile or `GENESIS_DEBUG` wants to know where a block comes from, that is its call site, with
/// `name` innermost, and no stack is looked at. At other times it costs nothing. Either may be
/// NULL or ""; where both are, the stack is looked at. A failure is NULL and a last error,
/// whoever calls.
///
/// # Safety
/// `scope` and `name` are NULL or NUL-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_malloc_named(
    size: usize,
    device: c_int,
    stream: genesis_stream,
    scope: *const c_char,
    name: *const c_char,
) -> *mut c_void {
    let text = |text: *const c_char| match text.is_null() {
        true => "".into(),
        // SAFETY: not null, and a string by the caller's contract.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
    };
    let allocated = boundary::call(|| {
        let (device, stream) = (ordinal(device)?, stream_handle(stream));
        if size == 0 {
            return Ok(0);
        }
        let heap = instance::heap()?;
        if !instance::EVENTS.seeks_sites() {
            return heap.allocate(size as u64, device, stream);
        }
        let names = [text(name), text(scope)];
        if names.iter().all(|name| name.is_empty()) {
            return heap.allocate(size as u64, device, stream);
        }
        callsite::under(&instance::EVENTS, [&names[0], &names[1]], || {
            heap.allocate(size as u64, device, stream)
        })
    });
    allocated.map_or(std::ptr::null_mut(), pointer)
}

/// Notes that work on `stream`, other than the block's own, uses the block at `ptr`: once
/// freed, it is not reused before all work queued on `stream` by then has completed. The
/// stream, of whatever device, must exist until the block is freed; a default stream is that of
/// the calling thread's current context.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_record_stream(ptr: *mut c_void, stream: genesis_stream) -> Status {
    boundary::status(|| instance::heap()?.record_stream(ptr as u64, stream_handle(stream)))
}

/// Frees the block at `ptr`, which may be NULL, and gives the memory that this leaves wholly free
/// back to the driver at once: for a block that nothing of its size will follow. What shares a
/// segment with live blocks stays cached.
///
/// May wait for the device. Linear in the number of segments.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_release(ptr: *mut c_void) -> Status {
    boundary::status(|| {
        if ptr.is_null() {
            return Ok(());
        }
        instance::heap()?.free_directly(ptr as u64).map(drop)
    })
}

/// Writes to `info` what is known of the live block that contains `ptr`, which need not be
/// its start.
///
/// `GENESIS_STATUS_FOREIGN_POINTER` for memory that is not the library's,
/// `GENESIS_STATUS_DOUBLE_FREE` for memory that it holds and no live block has.
///
/// # Safety
/// `info` is NULL, which is an error, or points to a writable `genesis_block_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_block_info_get(
    ptr: *const c_void,
    info: *mut BlockInfo,
) -> Status {
    let get = || Ok(instance::heap()?.block_containing(ptr as u64)?.into());
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(info, get) })
}
