//! The hooks that need no C++: `set_init_fn`, `set_reset_fn`, `set_memory_fraction_fn`,
//! `set_base_alloc_fn` and `set_record_stream_fn` take the addresses of these functions.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{hook, report};
use crate::base::{Result, Status};
use crate::config::LogLevel;
use crate::driver::Backend;
use crate::ffi::{
    ALL_DEVICES, allocation, boundary, genesis_stream, memory, ordinal, pointer, stream_handle,
    write_optional,
};
use crate::heap::StreamName;
use crate::instance::{self, EVENTS};

/// For `set_init_fn`: PyTorch starts to use CUDA and sees `device_count` devices.
///
/// Reads the environment, so that a wrong setting is reported now and not by the first tensor.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_init(device_count: c_int) {
    hook("genesis_torch_init", || {
        let heap = instance::heap()?;
        if !report::find_profilers() {
            let unknown = "torch.profiler will show no CUDA memory: this PyTorch does not have the \
                           functions c10::reportMemoryUsageToProfiler and \
                           c10::reportOutOfMemoryToProfiler";
            heap.log().write(LogLevel::Warn, &unknown);
        }
        let own_count = heap.device_count();
        if usize::try_from(device_count) != Ok(own_count) {
            let seen = format!("PyTorch sees {device_count} devices, genesis {own_count}");
            heap.log().write(LogLevel::Warn, &seen);
        }
        let backend = heap.backend();
        if backend != Backend::Cuda {
            let useless = format!(
                "PyTorch is using CUDA, genesis the backend {}: no kernel can use its memory",
                backend.name()
            );
            heap.log().write(LogLevel::Warn, &useless);
        }
        Ok(())
    });
}

/// For the constructor: `genesis_malloc` for a caller whose streams last as long as the process, as
/// PyTorch's do. A stream is identified by its handle, without asking the driver for its number.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn genesis_torch_malloc(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    let serve = || allocation::serve(size, device, stream, super::identify);
    let served = if EVENTS.is_on() { in_events(stream, serve) } else { serve() };
    match served {
        Ok(address) => {
            if report::is_wanted() {
                report::see(address).into_iter().for_each(report::allocated);
            }
            pointer(address)
        }
        Err(error) => super::fail_allocation(error, size, device),
    }
}

/// `genesis_malloc_alone` for a caller whose streams last as long as the process, as PyTorch's do.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_malloc_alone(
    size: usize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    allocation::serve_alone(size, device, stream, super::identify)
}

/// Runs `call`, of which all events have the call site of now and this stream.
#[cold]
#[inline(never)]
fn in_events<T>(stream: genesis_stream, call: impl FnOnce() -> T) -> T {
    EVENTS.during(StreamName::of(stream_handle(stream)).0, call)
}

/// For the constructor: `genesis_free` for a block of `genesis_torch_malloc`. PyTorch's profilers
/// and trace callbacks are told.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn genesis_torch_free(
    ptr: *mut c_void,
    size: usize,
    device: c_int,
    stream: genesis_stream,
) {
    let seen = if report::is_wanted() { report::see(ptr as u64) } else { None };
    seen.into_iter().for_each(report::freeing);
    let free = || allocation::genesis_free(ptr, size, device, stream);
    if EVENTS.seeks_free_sites() {
        in_events(stream, free)
    } else {
        free()
    }
    seen.into_iter().for_each(report::freed);
}

/// For `set_reset_fn`: returns all cached memory of all devices to the driver.
///
/// PyTorch calls it for `torch.cuda.empty_cache()` and before it captures a graph.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_reset() {
    let empty = || hook("genesis_torch_reset", || memory::empty_cache(ALL_DEVICES));
    if EVENTS.seeks_free_sites() { in_events(null_mut(), empty) } else { empty() }
}

/// For `set_memory_fraction_fn`: limits the memory held on `device` to a part of all its memory,
/// from 0 to 1; with 0 nothing more can be allocated.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_memory_fraction_set(fraction: f64, device: c_int) {
    hook("genesis_torch_memory_fraction_set", || {
        // PyTorch allows 0, which is an error elsewhere; this fraction is 0 bytes of any device.
        let fraction = if fraction == 0.0 { f64::MIN_POSITIVE } else { fraction };
        instance::heap()?.set_memory_fraction(ordinal(device)?, fraction)
    });
}

/// For `set_base_alloc_fn`: returns the start of the driver's allocation that contains the live
/// block at `ptr`, and writes its size in bytes to `size`, which may be NULL.
///
/// Another process with which the memory is shared sees this allocation: a handle stands for a
/// whole allocation of the driver, and PyTorch sends the offset with it. For memory of others it
/// returns NULL, or throws a RuntimeError if PyTorch is the caller, as PyTorch's own allocator
/// does.
///
/// # Safety
/// `size` is NULL or points to a writable `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn genesis_torch_base_get(
    ptr: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    let base = boundary::call(|| {
        let segment = instance::heap()?.segment_containing(ptr as u64)?;
        // SAFETY: the caller's contract.
        unsafe { write_optional(size, (segment.end - segment.start) as usize) };
        Ok(pointer(segment.start))
    });
    match base {
        Ok(base) => base,
        Err(error) => super::fail(error),
    }
}

/// For `set_record_stream_fn`: records that work on `stream` uses the block that contains `ptr`;
/// see `genesis_block_record_stream`. The stream lasts as long as the process. A default stream
/// stands for that of every device in use, because PyTorch does not pass the device.
///
/// Memory of others is ignored: PyTorch calls this for any tensor, also for one that shares the
/// memory of another process or library.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_record_stream(ptr: *mut c_void, stream: genesis_stream) {
    hook("genesis_torch_record_stream", || {
        if ptr.is_null() {
            return Ok(());
        }
        record_stream(ptr as u64, stream)
    });
}

fn record_stream(address: u64, stream: genesis_stream) -> Result<()> {
    let heap = instance::heap()?;
    match heap.block_containing(address) {
        Ok(block) => heap.record_lasting_stream(block.address, stream_handle(stream)),
        Err(error) if matches!(error.status, Status::ForeignPointer | Status::DoubleFree) => Ok(()),
        Err(error) => Err(error),
    }
}
