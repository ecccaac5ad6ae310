//! Threads of the library, and the end of the process.
//!
//! A thread of the library has all signals blocked: the program does not expect its handlers to
//! run there. So a closed pipe or a file size limit fails a write and does not end the process.
//! From the first such thread on, the library stays loaded.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::sync::Once;

use super::fork;
use crate::base::lock::{Lock, rank};

/// Runs `body`, which may start threads of the library.
pub(crate) fn starting_threads<T>(body: impl FnOnce() -> T) -> T {
    keep_library_loaded();
    without_signals(body)
}

/// Runs `body` when the process exits, unless in a forked child: once, however often it was
/// registered, and the last registered first. It must not call a driver, which may be gone.
pub(crate) fn at_exit(body: fn()) {
    static BODIES: Lock<Vec<fn()>, { rank::LEAF }> = Lock::new(Vec::new());
    static REGISTERED: Once = Once::new();
    extern "C" fn run() {
        if fork::is_child() {
            return;
        }
        let bodies = std::mem::take(&mut *BODIES.lock());
        for body in bodies.into_iter().rev() {
            // At exit a panic has no one left to report it to.
            let _ = catch_unwind(body);
        }
    }
    {
        let mut bodies = BODIES.lock();
        if !bodies.iter().any(|known| std::ptr::fn_addr_eq(*known, body)) {
            bodies.push(body);
        }
    }
    keep_library_loaded();
    REGISTERED.call_once(|| {
        // SAFETY: the function lives as long as the process, because the library stays loaded. If
        // it cannot be registered, the process exits without it.
        let _ = unsafe { libc::atexit(run) };
    });
}

/// Runs `body`; threads that it starts have all signals blocked.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first call fills the set that the second reads; `before` is written by it.
    let is_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let value = body();
    if is_blocked {
        // SAFETY: `before` was written by the call that blocked them.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
    }
    value
}

/// Keeps the library loaded from now on, because a thread or the C runtime may run its code.
pub(crate) fn keep_library_loaded() {
    static PINNED: Once = Once::new();
    PINNED.call_once(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        let own_code = keep_library_loaded as *const c_void;
        // SAFETY: `info` is written if the address is found; the name in it is the loader's.
        // Opening the library again, without ever closing it, keeps it loaded. If this code is
        // linked into the program itself, nothing is opened, and nothing needs to be.
        unsafe {
            if libc::dladdr(own_code, info.as_mut_ptr()) != 0 {
                let name = (*info.as_ptr()).dli_fname;
                let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
                libc::dlopen(name, flags);
            }
        }
    });
}
