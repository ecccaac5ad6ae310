//! Allocating, freeing, and the block at an address.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle, torch, write_required};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::callsite;
use crate::heap::{Heap, LiveBlock, Stream};
use crate::instance;

/// A live block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockInfo {
    /// The pointer to the block.
    pub address: *mut c_void,
    /// The size requested, in bytes.
    pub requested_bytes: usize,
    /// The size of the block, in bytes.
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
/// Returns a pointer aligned to 512 bytes; NULL for size 0 (no error) or on failure (last error
/// set). Contents are undefined. Any thread; any device may be current.
///
/// A stream is identified by the driver's number for it, which takes a call of the driver
/// (GENESIS_STREAM_IDS). The default streams are those of `device`.
///
/// If PyTorch is the caller, a failure throws PyTorch's own exception: torch.OutOfMemoryError if
/// memory is short, else RuntimeError.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn genesis_malloc(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    match serve(size, device, stream, Heap::identify) {
        Ok(address) => pointer(address),
        Err(error) => torch::fail_allocation(error, size, device),
    }
}

/// The address of a new block, 0 for size 0, on the stream that `identify` returns. An error is
/// the thread's last.
#[inline(always)]
pub(super) fn serve(
    size: usize,
    device: c_int,
    stream: genesis_stream,
    identify: impl FnOnce(&Heap, DeviceOrdinal, StreamHandle) -> Result<Stream>,
) -> Result<u64> {
    boundary::call(|| {
        let stream = stream_handle(stream);
        if size == 0 {
            // It is only recorded, and never fails.
            return match (instance::heap_if_made(), ordinal(device)) {
                (Ok(Some(heap)), Ok(device)) => heap.allocate(0, device, stream),
                _ => Ok(0),
            };
        }
        let heap = instance::heap()?;
        let device = ordinal(device)?;
        heap.allocate_on(size as u64, device, identify(heap, device, stream)?)
    })
}

/// Frees the block at `ptr`; NULL does nothing.
///
/// Only `ptr` is read. The other arguments exist because PyTorch passes them; the shorter call
/// `genesis_free(ptr, device, stream)` does the same. A pointer that is not a live block's changes
/// nothing and sets the last error. Any thread. Calls the driver only if
/// `genesis_block_record_stream` was called for the block or the strategy is Naive.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_free(
    ptr: *mut c_void,
    size: usize,
    device: c_int,
    stream: genesis_stream,
) {
    // Callers with three arguments leave some of these undefined.
    let _ = (size, device, stream);
    let _ = boundary::call(|| {
        if ptr.is_null() {
            return Ok(());
        }
        instance::heap()?.free(ptr as u64)
    });
}

/// Allocates like `genesis_malloc`, with `name` within `scope` as the call site in place of the
/// stack. Call sites are recorded only while a profile is made or `GENESIS_DEBUG` is on; at other
/// times the names cost nothing. Either may be NULL or ""; if both are, the stack is the call site.
/// A failure returns NULL and sets the last error, also if PyTorch is the caller.
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
    let text = |text: *const c_char| {
        if text.is_null() {
            return "".into();
        }
        // SAFETY: not null, and a string by the caller's contract.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
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

/// Allocates like `genesis_malloc` a block that has its memory, one handle of the driver's, to
/// itself: it can be paused alone (`genesis_block_pause`), and registered with devices that take no
/// memory of several handles. `size` is rounded up to whole granules of the driver. It belongs to
/// no private pool. A failure returns NULL and sets the last error, also if PyTorch is the caller:
/// `GENESIS_STATUS_NOT_SUPPORTED` under other strategies than Elastic. Give it back with
/// `genesis_block_release` if its memory is to go to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_malloc_alone(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    serve_alone(size, device, stream, Heap::identify)
}

/// `genesis_malloc_alone` on the stream that `identify` returns.
pub(super) fn serve_alone(
    size: usize,
    device: c_int,
    stream: genesis_stream,
    identify: impl FnOnce(&Heap, DeviceOrdinal, StreamHandle) -> Result<Stream>,
) -> *mut c_void {
    let allocated = boundary::call(|| {
        let (heap, device) = (instance::heap()?, ordinal(device)?);
        let stream = identify(heap, device, stream_handle(stream))?;
        heap.allocate_alone(size as u64, device, stream)
    });
    allocated.map_or(std::ptr::null_mut(), pointer)
}

/// Records that work on `stream`, other than the block's own, uses the block at `ptr`. Once freed,
/// the block is not reused before all work queued on `stream` by then has completed. The stream may
/// be of any device and must exist until the block is freed. A default stream is that of the
/// calling thread's current context.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_record_stream(ptr: *mut c_void, stream: genesis_stream) -> Status {
    boundary::status(|| instance::heap()?.record_stream(ptr as u64, stream_handle(stream)))
}

/// Frees the block at `ptr`, which may be NULL, and at once returns the memory that this leaves
/// wholly free to the driver. Use it for a block after which none of its size will follow. Memory
/// that shares a segment with live blocks stays cached.
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

/// Returns the physical memory of the block at `ptr` to the driver until `genesis_block_resume`, or
/// until its tag is resumed. Its contents are dropped; its address stays. The block must have been
/// allocated under a tag and have its memory to itself (`genesis_malloc_alone`), otherwise the result
/// is `GENESIS_STATUS_INVALID_ARGUMENT`. Until then no work may access the block, but it may be
/// freed. Does nothing if it is paused.
///
/// Waits for all devices; otherwise fails as `genesis_tag_pause` does, with nothing changed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_pause(ptr: *mut c_void) -> Status {
    boundary::status(|| instance::heap()?.pause_block(address_of(ptr)?))
}

/// The address of a block that must be named.
fn address_of(ptr: *mut c_void) -> Result<u64> {
    if ptr.is_null() { Err(Error::invalid_argument("the block is null")) } else { Ok(ptr as u64) }
}

/// Restores the physical memory of the block at `ptr`, at the same address and with undefined
/// contents. Does nothing if it is not paused. Fails as `genesis_tag_resume` does: then it is still
/// paused.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_block_resume(ptr: *mut c_void) -> Status {
    boundary::status(|| instance::heap()?.resume_block(address_of(ptr)?))
}

/// Writes the live block that contains `ptr` to `info`; `ptr` need not be its start.
///
/// Returns `GENESIS_STATUS_FOREIGN_POINTER` for memory that is not the library's, and
/// `GENESIS_STATUS_DOUBLE_FREE` for memory of the library in which no block is live.
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
