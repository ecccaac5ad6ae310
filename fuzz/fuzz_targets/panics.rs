//! Panics of the library, which reports them in its log and as a status, and goes on.

use std::ffi::{c_int, c_void};
use std::ptr;

unsafe extern "C" {
    fn genesis_malloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void;
    fn genesis_free(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void);
}

/// From now on each ends the process, with a message. Calls the library first, which otherwise
/// would silence them at its first call.
pub fn end_the_process() {
    // SAFETY: any arguments are valid.
    unsafe { genesis_free(genesis_malloc(1, 0, ptr::null_mut()), 1, 0, ptr::null_mut()) };
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }));
}
