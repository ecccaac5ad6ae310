//! `cumem_allocator.so`: the library in which PyTorch finds `my_malloc` and `my_free`, by which
//! vLLM's `CuMemAllocator` gets memory.
//!
//! vLLM finds the library by the name of its file among those that the process has mapped, and
//! PyTorch its functions by theirs. Both names are too general for `libgenesis.so`, so this library
//! has them, and nothing else: it passes calls to the functions that `genesis.vllm` has set, which
//! talk to vLLM's Python and to `libgenesis.so`. Without them there is no memory.

use std::ffi::{c_int, c_void};
use std::sync::RwLock;

/// `my_malloc`.
type Allocate = unsafe extern "C" fn(isize, c_int, *mut c_void) -> *mut c_void;
/// `my_free`.
type Free = unsafe extern "C" fn(*mut c_void, isize, c_int, *mut c_void);

static FUNCTIONS: RwLock<Option<(Allocate, Free)>> = RwLock::new(None);

fn functions() -> Option<(Allocate, Free)> {
    FUNCTIONS.read().ok().and_then(|functions| *functions)
}

/// From now on `my_malloc` and `my_free` are these; if either is NULL, neither does anything.
///
/// # Safety
/// The functions are good until they are set again and all calls have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_cumem_functions_set(
    allocate: Option<Allocate>,
    free: Option<Free>,
) {
    if let Ok(mut functions) = FUNCTIONS.write() {
        *functions = allocate.zip(free);
    }
}

/// Returns `size` bytes of memory of `device` for use on `stream`; NULL if there are none.
///
/// # Safety
/// None of the arguments is read here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn my_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match functions() {
        // SAFETY: the contract of `genesis_cumem_functions_set`.
        Some((allocate, _)) => unsafe { allocate(size, device, stream) },
        None => std::ptr::null_mut(),
    }
}

/// Takes back what `my_malloc` returned.
///
/// # Safety
/// None of the arguments is read here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn my_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    if let Some((_, free)) = functions() {
        // SAFETY: the contract of `genesis_cumem_functions_set`.
        unsafe { free(ptr, size, device, stream) }
    }
}
