//! `std::function<bool(cudaStream_t)>` as libstdc++ lays it out: called, copied and destroyed
//! from here.
//!
//! ```text
//! storage[2]   what is stored, or a pointer to it
//! manager      manager(&to, &from, 2) copies what is stored, manager(&it, &it, 3) destroys it
//! invoker      invoker(&storage, &arguments…) calls it
//! ```
//!
//! The layout has been part of libstdc++'s ABI since C++11. A function of another library, such as
//! libc++, cannot be recognised with certainty; it is refused if the two pointers are not addresses
//! in a loaded object.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null;

use super::catching::{self, Function, Thrown};
use crate::base::{Error, Result, StreamHandle};
use crate::process::Object;

/// The operations of a manager.
const COPY: usize = 2;
const DESTROY: usize = 3;

/// A C++ function object, the only owner of what it stores.
#[repr(C)]
#[derive(Debug)]
pub(super) struct StdFunction {
    storage: [usize; 2],
    manager: usize,
    invoker: usize,
}

// What it stores is not tied to a thread: PyTorch calls and destroys it on any thread that needs
// memory or ends the pool. Two calls at once are not allowed, so `&StdFunction` has none.

impl StdFunction {
    /// A copy of the function at `source`.
    ///
    /// # Safety
    /// `source` is null or points to a `std::function<bool(cudaStream_t)>`.
    pub(super) unsafe fn copy_of(source: *const c_void) -> Result<Self> {
        if source.is_null() {
            return Err(Error::invalid_argument("the filter of a private pool is null"));
        }
        // SAFETY: not null; by the contract a struct of this layout is there.
        let Self { storage, manager, invoker } = unsafe { &*source.cast::<Self>() };
        if *manager == 0 {
            return Err(Error::invalid_argument("the filter of a private pool is empty"));
        }
        if !is_code(*manager) || !is_code(*invoker) {
            return Err(Error::invalid_argument(
                "the filter of a private pool is not a std::function of libstdc++",
            ));
        }
        let mut storage_copy = *storage;
        // SAFETY: the manager copies from one function's storage to another's, which has no owner
        // yet.
        let copied = unsafe {
            catching::call(
                function(*manager),
                storage_copy.as_mut_ptr().cast(),
                storage.as_ptr().cast(),
                COPY,
            )
        };
        match copied {
            Ok(_) => Ok(Self { storage: storage_copy, manager: *manager, invoker: *invoker }),
            Err(Thrown) => {
                Err(Error::invalid_argument("copying the filter of a private pool threw"))
            }
        }
    }

    /// Calls it with `stream`.
    pub(super) fn call(&mut self, stream: StreamHandle) -> std::result::Result<bool, Thrown> {
        let storage = self.storage.as_mut_ptr().cast();
        // SAFETY: the invoker's own storage, and a reference to the one argument.
        unsafe { catching::call(function(self.invoker), storage, (&raw const stream.0).cast(), 0) }
    }
}

impl Drop for StdFunction {
    fn drop(&mut self) {
        let storage = self.storage.as_mut_ptr();
        // SAFETY: the owner destroys what it stores, once. If the destructor throws, it is not
        // destroyed, and the error has no receiver.
        let _ = unsafe {
            catching::call(
                function(self.manager),
                storage.cast(),
                storage.cast_const().cast(),
                DESTROY,
            )
        };
    }
}

fn is_code(address: usize) -> bool {
    address != 0 && Object::containing(address).is_some()
}

/// # Safety
/// There is a function at `address`. Its caller knows its type.
unsafe fn function(address: usize) -> Function {
    debug_assert_ne!(address as *const c_void, null());
    // SAFETY: the caller's contract.
    unsafe { transmute::<usize, Function>(address) }
}
