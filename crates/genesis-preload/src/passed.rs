//! Calls that pass and are counted: kinds of memory that Genesis does not have.
//!
//! Host memory, managed memory and arrays are CUDA's. If one needs memory of the device and there
//! is too little, Genesis gives back what it caches, and CUDA is asked again.

use std::ffi::{c_int, c_uint, c_void};

use crate::memory::with_cache_emptied;
use crate::next::{pass, real};
use crate::runtime::Extent;

/// Functions of CUDA's with their arguments; those marked `on_device` take memory of the device.
macro_rules! passed {
    ($($(#[$kind:ident])? fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            passed!(@call $($kind)? $name($($argument),*))
        }
    )*};
    (@call on_device $name:ident($($argument:ident),*)) => {{
        crate::report::passed(crate::symbols::row(stringify!($name)));
        with_cache_emptied(|| real!($name($($argument),*)))
    }};
    (@call $name:ident($($argument:ident),*)) => { pass!($name($($argument),*)) };
}

passed! {
    #[on_device] fn cuArrayCreate_v2(array: *mut usize, description: *const c_void);
    #[on_device] fn cuArray3DCreate_v2(array: *mut usize, description: *const c_void);
    #[on_device] fn cuMipmappedArrayCreate(
        array: *mut usize,
        description: *const c_void,
        levels: c_uint,
    );
    #[on_device] fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint);
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(pointer: *mut c_void);
    #[on_device] fn cudaMallocArray(
        array: *mut usize,
        description: *const c_void,
        width: usize,
        height: usize,
        flags: c_uint,
    );
    #[on_device] fn cudaMalloc3DArray(
        array: *mut usize,
        description: *const c_void,
        extent: Extent,
        flags: c_uint,
    );
    #[on_device] fn cudaMallocMipmappedArray(
        array: *mut usize,
        description: *const c_void,
        extent: Extent,
        levels: c_uint,
        flags: c_uint,
    );
    #[on_device] fn cudaMallocManaged(address: *mut u64, bytes: usize, flags: c_uint);
    fn cudaMallocHost(pointer: *mut *mut c_void, bytes: usize);
    fn cudaHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cudaFreeHost(pointer: *mut c_void);
}
