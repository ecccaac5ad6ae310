//! What CuPy's `CFunctionAllocator` calls: malloc and free, with a parameter of the caller's first.
//!
//! CuPy passes no stream. The parameter is its stream: whoever makes the allocator makes one for
//! each stream (`genesis.cupy` does), and passes the handle where CuPy expects an address. CuPy
//! keeps bare addresses of both functions and calls the second from destructors, which may run when
//! the interpreter is gone; nothing here needs one.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{boundary, genesis_stream, instance, ordinal, pointer, stream_handle};

/// Allocates like `genesis_malloc`, for CuPy: NULL for size 0 and where it failed.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cupy_malloc(
    stream: genesis_stream,
    size: usize,
    device: c_int,
) -> *mut c_void {
    let allocated = boundary::call(|| {
        if size == 0 {
            return Ok(0);
        }
        instance::heap()?.allocate(size as u64, ordinal(device)?, stream_handle(stream))
    });
    allocated.map_or(null_mut(), pointer)
}

/// Frees like `genesis_free`, for CuPy. Only `ptr` is looked at.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_cupy_free(stream: genesis_stream, ptr: *mut c_void, device: c_int) {
    let _ = (stream, device);
    let _ = boundary::call(|| {
        if ptr.is_null() {
            return Ok(());
        }
        instance::heap()?.free(ptr as u64)
    });
}
