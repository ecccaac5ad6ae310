//! The real functions: what a program would have called without this library.
//!
//! The real function of a row is the first of these:
//!
//! 1. the next definition of its symbol in the loader's order of search (RTLD_NEXT: another
//!    interposer's, or CUDA's),
//! 2. the first in any loaded object, because CUDA's libraries are often loaded privately,
//! 3. what a lookup of the program's has shown.
//!
//! An object from which a function was taken is never unloaded, so the function stays when a
//! program closes the library.
//!
//! Several copies of the runtime in one process share the driver's state; calls that pass go to
//! the one found first.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::elf::Object;
use crate::real_dlsym::next_symbol;
use crate::symbols::SYMBOLS;
use crate::{inside, symbols};

/// `CUDA_ERROR_NOT_INITIALIZED`, the answer if there is no driver at all.
const NO_DRIVER: c_int = 3;
/// `cudaErrorInsufficientDriver`, the answer if there is no runtime at all.
const NO_RUNTIME: c_int = 35;

static FOUND: [AtomicPtr<c_void>; symbols::COUNT] =
    [const { AtomicPtr::new(ptr::null_mut()) }; symbols::COUNT];

/// The real function of row `row`.
#[inline]
pub(crate) fn function(row: usize) -> Option<*mut c_void> {
    let found = FOUND[row].load(Acquire);
    if found.is_null() { search(row) } else { Some(found) }
}

/// Finds the real functions of all rows, as far as they are loaded.
pub(crate) fn find_all() {
    for row in 0..symbols::COUNT {
        function(row);
    }
}

#[cold]
fn search(row: usize) -> Option<*mut c_void> {
    let found = find(SYMBOLS[row].name)?;
    FOUND[row].store(found, Release);
    Some(found)
}

/// A lookup has led to `address` for row `row`: its real function, if none is known.
pub(crate) fn learn(row: usize, address: *mut c_void) {
    if function(row).is_some() {
        return;
    }
    if let Some(object) = Object::containing(address as usize) {
        object.pin();
    }
    FOUND[row].store(address, Release);
}

/// The real function of that name.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    let next = next_symbol(name);
    if !next.is_null() {
        return Some(next);
    }
    // The program must not be told of an error of a lookup that was not its own.
    // SAFETY: the text is not used.
    unsafe { libc::dlerror() };
    let (object, address) = Object::defining_after(find as *const () as usize, name)?;
    object.pin();
    Some(address)
}

/// Calls the real function of row `row`, which must have the type `F`.
#[inline]
pub(crate) fn call<F: Copy>(row: usize, call: impl FnOnce(F) -> c_int) -> c_int {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let Some(function) = function(row) else {
        let is_runtime = SYMBOLS[row].name.to_bytes().starts_with(b"cuda");
        return if is_runtime { NO_RUNTIME } else { NO_DRIVER };
    };
    let _inside = inside::enter();
    // SAFETY: the function that CUDA declares under this name, with this type; both pointers are
    // of one size.
    call(unsafe { std::mem::transmute_copy(&function) })
}

/// [`call`], with the type of the row's replacement.
#[inline]
pub(crate) fn call_like<F: Copy>(
    _replacement: F,
    row: usize,
    call: impl FnOnce(F) -> c_int,
) -> c_int {
    self::call(row, call)
}

/// Calls the real function of that name with these arguments.
macro_rules! real {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        const ROW: usize = $crate::symbols::row(stringify!($name));
        let replacement: unsafe extern "C" fn($($crate::next::real!(@any $argument)),*) -> c_int =
            $name;
        // SAFETY: what the caller of our function promised to CUDA's.
        $crate::next::call_like(replacement, ROW, |real| unsafe { real($($argument),*) })
    }};
    (@any $argument:expr) => { _ };
}
pub(crate) use real;

/// [`real`], counted as a call that went to CUDA.
macro_rules! pass {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        $crate::report::passed($crate::symbols::row(stringify!($name)));
        $crate::next::real!($name($($argument),*))
    }};
}
pub(crate) use pass;
