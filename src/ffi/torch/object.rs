//! Shared objects that are loaded: which one holds an address, and what it and those it depends
//! on define.
//!
//! Python loads PyTorch so that its symbols are visible to nobody else, so they are looked up
//! from the object that is known to use them. An object that was looked into stays loaded for
//! the rest of the process: addresses found in it are kept.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    base: *mut c_void,
    /// Good while the object is loaded: whoever asks has code of it on the stack.
    path: *const c_char,
}

/// Where symbols are looked up: an object and what it depends on, then what is global.
#[derive(Debug)]
pub(super) struct Scope {
    handle: *mut c_void,
}

impl Object {
    /// The object that `address` is in.
    pub(super) fn containing(address: usize) -> Option<Self> {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked for, and the output is writable.
        let found = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } != 0;
        // SAFETY: all zeroes, or as written by the call, it is a valid struct.
        let info = unsafe { info.assume_init() };
        let is_known = found && !info.dli_fname.is_null();
        is_known.then_some(Self { base: info.dli_fbase, path: info.dli_fname })
    }

    /// Whether both are the same.
    pub(super) fn is(self, other: Self) -> bool {
        self.base == other.base
    }

    /// The last part of the path it was loaded from.
    pub(super) fn file_name(&self) -> &[u8] {
        // SAFETY: not null, and a string of the loader's for as long as the object is loaded.
        let path = unsafe { CStr::from_ptr(self.path) }.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }

    /// What can be looked up from the object. It stays loaded from now on.
    pub(super) fn scope(&self) -> Scope {
        let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: `path` is a string, as above; nothing is loaded, so no constructor runs. The
        // program itself cannot be opened and gives null.
        Scope { handle: unsafe { libc::dlopen(self.path, mode) } }
    }
}

impl Scope {
    /// The address of the symbol `name`.
    pub(super) fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
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
