//! The real functions: what a program would have called without this library.
//!
//! For a row that is the next definition of its symbol in the order in which the loader searches
//! (RTLD_NEXT: another interposer, or CUDA itself), else the first in any object that is loaded,
//! as CUDA's libraries often are loaded privately, else what a lookup of the program's has shown.
//! An object from which a function was taken is not unloaded any more, so the function stays when
//! a program closes the library.
//!
//! Several copies of the runtime in one process share the driver's state; calls that pass go to
//! the one found first.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::elf::Object;
use crate::table::ROWS;
use crate::{inside, lookups};

/// `CUDA_ERROR_NOT_INITIALIZED`, where there is no driver at all.
const NO_DRIVER: c_int = 3;
/// `cudaErrorInsufficientDriver`, where there is no runtime at all.
const NO_RUNTIME: c_int = 35;

static FOUND: [AtomicPtr<c_void>; ROWS.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; ROWS.len()];

/// The real function of row `row`.
#[inline]
pub(crate) fn function(row: usize) -> Option<*mut c_void> {
    let found = FOUND[row].load(Acquire);
    if found.is_null() { search(row) } else { Some(found) }
}

/// Finds the real functions of all rows, as far as they are loaded.
pub(crate) fn find_all() {
    for row in 0..ROWS.len() {
        function(row);
    }
}

#[cold]
fn search(row: usize) -> Option<*mut c_void> {
    let found = find(ROWS[row].name)?;
    FOUND[row].store(found, Release);
    Some(found)
}

/// A lookup has led to `address` for row `row`, which is its real function if none is known.
pub(crate) fn learn(row: usize, address: *mut c_void) {
    if function(row).is_some() || is_own(address) {
        return;
    }
    if let Some(object) = Object::containing(address as usize) {
        object.pin();
    }
    FOUND[row].store(address, Release);
}

/// The real function of that name.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    let next = lookups::next_symbol(name);
    if !next.is_null() {
        return Some(next);
    }
    // The program, if it asks, is not to hear of a lookup that was none of its own.
    // SAFETY: the text is not used.
    unsafe { libc::dlerror() };
    let (object, address) = Object::defining_after(find as *const () as usize, name)?;
    object.pin();
    Some(address)
}

/// Whether `address` is in this library.
pub(crate) fn is_own(address: *mut c_void) -> bool {
    ROWS.iter().any(|row| row.replacement == address.cast_const())
}

/// Calls the real function of row `row`, whose type is that of `replacement`.
#[inline]
pub(crate) fn call<F: Copy>(row: usize, _replacement: F, call: impl FnOnce(F) -> c_int) -> c_int {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let Some(function) = function(row) else {
        let is_runtime = ROWS[row].name.to_bytes().starts_with(b"cuda");
        return if is_runtime { NO_RUNTIME } else { NO_DRIVER };
    };
    let _inside = inside::enter();
    // SAFETY: the function that CUDA declares under this name, as is its replacement; both
    // pointers are of one size.
    call(unsafe { std::mem::transmute_copy(&function) })
}

/// Calls the real function of that name with these arguments.
macro_rules! real {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        const ROW: usize = $crate::table::row(stringify!($name));
        let replacement: unsafe extern "C" fn($($crate::next::real!(@any $argument)),*) -> c_int =
            $name;
        // SAFETY: what the caller of our function promised to CUDA's.
        $crate::next::call(ROW, replacement, |real| unsafe { real($($argument),*) })
    }};
    (@any $argument:expr) => { _ };
}
pub(crate) use real;

/// [`real`], counted as a call that went to CUDA.
macro_rules! pass {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        $crate::report::passed($crate::table::row(stringify!($name)));
        $crate::next::real!($name($($argument),*))
    }};
}
pub(crate) use pass;
