//! Loaded shared objects: which one holds an address, and which symbols it and its dependencies
//! define.
//!
//! Python loads PyTorch with symbols that other libraries do not see, so they are looked up from
//! the object that is known to use them. An object that was searched stays loaded for the rest of
//! the process, because addresses found in it are kept.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    base: *mut c_void,
    /// Valid while the object is loaded: the caller has its code on the stack, or reads at once.
    path: *const c_char,
}

/// Where symbols are looked up: an object and its dependencies, then the global scope.
#[derive(Debug)]
pub(crate) struct Scope {
    handle: *mut c_void,
}

impl Object {
    /// The object that contains `address`.
    pub(crate) fn containing(address: usize) -> Option<Self> {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked for, and the output is writable.
        let found = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } != 0;
        // SAFETY: all zeroes, or as written by the call, it is a valid struct.
        let info = unsafe { info.assume_init() };
        let is_known = found && !info.dli_fname.is_null();
        is_known.then_some(Self { base: info.dli_fbase, path: info.dli_fname })
    }

    /// Returns true if both are the same object.
    pub(crate) fn is(self, other: Self) -> bool {
        self.base == other.base
    }

    /// The path it was loaded from.
    pub(crate) fn path(&self) -> &CStr {
        // SAFETY: not null, and a string of the loader's for as long as the object is loaded.
        unsafe { CStr::from_ptr(self.path) }
    }

    /// The last part of its path.
    pub(crate) fn file_name(&self) -> &[u8] {
        let path = self.path().to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// The address at which it is loaded.
    pub(crate) fn base(&self) -> usize {
        self.base as usize
    }

    /// The scope of the object, which stays loaded from now on.
    pub(crate) fn scope(&self) -> Scope {
        let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: `path` is a string, as above. Nothing is loaded, so no constructor runs. Opening
        // the program itself fails, which returns null.
        Scope { handle: unsafe { libc::dlopen(self.path, mode) } }
    }
}

impl Scope {
    /// The address of the symbol `name`.
    pub(crate) fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let from_object = if self.handle.is_null() {
            null_mut()
        } else {
            // SAFETY: a handle that is never closed, and a string.
            unsafe { libc::dlsym(self.handle, name.as_ptr()) }
        };
        NonNull::new(from_object).or_else(|| {
            // SAFETY: a string.
            NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
        })
    }
}
