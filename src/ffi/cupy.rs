//! Malloc and free for CuPy's `CFunctionAllocator`, which passes a parameter of the user's first.
//!
//! CuPy passes no stream, so the parameter is the stream: there is one allocator for each stream
//! (`genesis.cupy` makes them), with the handle in place of an address. CuPy keeps the addresses of
//! both functions and calls free from destructors, which may run after the interpreter has ended;
//! nothing here needs an interpreter.
//!
//! **The interpreter's lock.** CuPy calls with the lock held. If a call has to wait for the device,
//! work there may run Python code on the host, which waits for the lock. So the lock is released
//! while a driver call blocks (`callsite::without_lock`). CuPy is not affected: other threads may
//! run before and after each call anyway, because malloc is called from Python code and free where
//! an object is destroyed. Other callers that hold the lock, such as PyTorch, keep it: C or C++
//! code may hold a lock of its own, and another thread may hold the interpreter's lock and want
//! that one, which would be a deadlock. Such callers release the lock before they call, as `ctypes`
//! and most of PyTorch's functions do.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{boundary, genesis_stream, ordinal, pointer, stream_handle};
use crate::base::blocking::letting_go;
use crate::callsite;
use crate::instance;

/// Allocates like `genesis_malloc`, for CuPy. A failure returns NULL and sets the last error.
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

/// Frees like `genesis_free`, for CuPy. Only `ptr` is read.
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
