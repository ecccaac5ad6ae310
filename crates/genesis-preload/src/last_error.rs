//! `cudaGetLastError`: errors that this library answers are remembered like the runtime's own.
//!
//! Each thread remembers the last error of ours. The runtime's own is cleared then, so an error
//! that the runtime remembers afterwards is later than ours.

use std::cell::Cell;
use std::ffi::c_int;

use crate::next::real;

thread_local! {
    // No destructor, because ending threads may still call.
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// A call of the runtime ends with `code`, answered by this library.
pub(crate) fn set(code: c_int) {
    real!(cudaGetLastError());
    LAST.set(code);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetLastError() -> c_int {
    let own = LAST.take();
    match real!(cudaGetLastError()) {
        0 => own,
        later => later,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaPeekAtLastError() -> c_int {
    match real!(cudaPeekAtLastError()) {
        0 => LAST.get(),
        later => later,
    }
}
