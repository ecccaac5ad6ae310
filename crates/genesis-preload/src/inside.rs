//! The recursion guard: is the thread in a call that this library has made?
//!
//! CUDA's runtime calls the driver by pointers that were taken over, so what this library passes
//! to the runtime comes back at the driver's level. Such a call passes, and is not counted again.

use std::cell::Cell;

thread_local! {
    // No destructor, because ending threads may still call.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, calls of the thread pass.
pub(crate) struct Inside(());

/// Enters a function of CUDA's or of Genesis's.
#[inline]
pub(crate) fn enter() -> Inside {
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

/// Returns true if the thread is in a call that this library has made.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() != 0
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
