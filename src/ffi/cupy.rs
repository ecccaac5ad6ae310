//! What CuPy's `CFunctionAllocator` calls: malloc and free, with a parameter of the caller's first.
//!
//! CuPy passes no stream. The parameter is its stream: whoever makes the allocator makes one for
//! each stream (`genesis.cupy` does), and passes the handle where CuPy expects an address. CuPy
//! keeps bare addresses of both functions and calls the second from destructors, which may run when
//! the interpreter is gone; nothing here needs one.
//!
//! **The interpreter's lock.** CuPy calls with it held. Where one of these calls has to wait for a
//! device, work there may run Python code on the host, which waits for the lock: so it is let go of
//! meanwhile (`callsite::without_lock`). That changes nothing for CuPy: other threads may run before
//! and behind each call in any case, since malloc is called from Python code and free where an object
//! goes. It is *not* done for other callers who have the lock, such as PyTorch's: what is C or C++
//! may hold a lock of its own besides, which another thread wants with the interpreter's, and the two
//! would wait for each other for ever. They let go of it themselves before they come here, as
//! `ctypes` and most of PyTorch's functions do.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle};
use crate::base::blocking::letting_go;
use crate::callsite;
use crate::instance;

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
        let (heap, device, stream) = (instance::heap()?, ordinal(device)?, stream_handle(stream));
        letting_go(callsite::without_lock, || heap.allocate(size as u64, device, stream))
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
        let heap = instance::heap()?;
        letting_go(callsite::without_lock, || heap.free(ptr as u64))
    });
}
