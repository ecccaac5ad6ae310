//! The functions that ONNX Runtime's CUDA provider calls for its memory if its options name them.
//!
//! `gpu_external_alloc` is a `void *(size_t)`, `gpu_external_free` a `void (void *)` and
//! `gpu_external_empty_cache` a `void (void)`: they take no device and no stream. The stream is the
//! legacy default one: a provider with an external allocator computes there and refuses
//! `user_compute_stream`. Each device has a set of functions of its own.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::{boundary, ordinal, pointer, write_required};
use crate::base::{DeviceOrdinal, Error, Result, Status, StreamHandle};
use crate::instance;

/// The stream on which the provider computes.
const LEGACY_DEFAULT_STREAM: StreamHandle = StreamHandle(0);

/// The functions for the memory of one device, in the types of the options of ONNX Runtime's CUDA
/// provider: `gpu_external_` and the member's name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnnxruntimeFunctions {
    /// Allocates for use on the legacy default stream; NULL for size 0 or on failure.
    pub alloc: extern "C" fn(size: usize) -> *mut c_void,
    /// Frees a block.
    pub free: extern "C" fn(ptr: *mut c_void),
    /// Returns all cached memory of the device to the driver.
    pub empty_cache: extern "C" fn(),
}

/// The functions of the devices with these numbers.
macro_rules! sets {
    ($($device:literal)*) => {
        [$(OnnxruntimeFunctions {
            alloc: alloc::<$device>,
            free,
            empty_cache: empty_cache::<$device>,
        }),*]
    };
}

static SETS: [OnnxruntimeFunctions; 32] =
    sets!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

/// Writes the functions for the memory of `device`, one of the first 32, to `functions`. They stay
/// valid.
///
/// # Safety
/// `functions` is NULL, which is an error, or points to a writable `genesis_onnxruntime_functions`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_onnxruntime_functions_get(
    device: c_int,
    functions: *mut OnnxruntimeFunctions,
) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(functions, || functions_of(ordinal(device)?)) })
}

fn functions_of(device: DeviceOrdinal) -> Result<OnnxruntimeFunctions> {
    let found = SETS.get(device.index()).copied();
    let line =
        || format!("ONNX Runtime is served on the first {} devices, not {device}", SETS.len());
    found.ok_or_else(|| Error::new(Status::InvalidDevice, line()))
}

extern "C" fn alloc<const DEVICE: u32>(size: usize) -> *mut c_void {
    let allocated = boundary::call(|| {
        if size == 0 {
            return Ok(0);
        }
        let device = DeviceOrdinal(DEVICE);
        instance::heap()?.allocate(size as u64, device, LEGACY_DEFAULT_STREAM)
    });
    allocated.map_or(null_mut(), pointer)
}

extern "C" fn free(ptr: *mut c_void) {
    let _ = boundary::call(|| {
        if ptr.is_null() {
            return Ok(());
        }
        instance::heap()?.free(ptr as u64)
    });
}

extern "C" fn empty_cache<const DEVICE: u32>() {
    let _ = boundary::call(|| instance::heap()?.empty_cache(DeviceOrdinal(DEVICE)).map(drop));
}
