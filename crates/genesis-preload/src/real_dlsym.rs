//! The C library's `dlsym` and `dlvsym`, or those of another interposer after this library.
//!
//! They are found without the loader (`elf`), because this library defines both names itself.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::elf::Object;
use crate::loader;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dlvsym =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The real function; null before [`dlsym`] has found it.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The real function; null before [`dlvsym`] has found it.
pub(crate) static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The next definition of `dlsym`.
pub(crate) fn dlsym() -> Option<Dlsym> {
    let found = find(&DLSYM, c"dlsym")?;
    // SAFETY: a function of that name, which has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) })
}

/// The next definition of `dlvsym`.
pub(crate) fn dlvsym() -> Option<Dlvsym> {
    let found = find(&DLVSYM, c"dlvsym")?;
    // SAFETY: a function of that name, which has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(found) })
}

/// The next definition of `name` after this library; null, with the loader's error, if there is
/// none.
pub(crate) fn next_symbol(name: &CStr) -> *mut c_void {
    let (Some(dlsym), Some(_question)) = (dlsym(), loader::ask()) else {
        return ptr::null_mut();
    };
    // SAFETY: the C library's `dlsym`, called from this library, from which RTLD_NEXT counts.
    unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

fn find(place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let known = place.load(Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let (_, found) = Object::defining_after(find as *const () as usize, name)?;
    place.store(found, Release);
    Some(found)
}
