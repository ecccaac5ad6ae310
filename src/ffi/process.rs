//! What the library does with the process it is in: threads of its own, and the process's end.
//!
//! A thread of ours takes none of the program's signals, as the program does not expect handlers
//! to run there; so a closed pipe or a file size limit is an error of a write and not the end of
//! the process. From the first such thread on the library stays loaded.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::sync::Once;

use super::instance;
use crate::base::lock::{Lock, rank};

/// What a path has in the place of the process's number.
pub(super) const PROCESS_NUMBER: &str = "%p";

/// `path` with the process's number where it has [`PROCESS_NUMBER`].
pub(super) fn numbered(path: &str) -> String {
    path.replace(PROCESS_NUMBER, &std::process::id().to_string())
}

/// Runs `body`, which may start threads of the library's.
pub(super) fn starting_threads<T>(body: impl FnOnce() -> T) -> T {
    keep_library_loaded();
    without_signals(body)
}

/// Has `body` run when the process ends in good order, once however often it is asked for; the
/// last one asked for first. Not in a forked child. It may call no driver, which may be gone.
pub(super) fn at_exit(body: fn()) {
    static BODIES: Lock<Vec<fn()>, { rank::LEAF }> = Lock::new(Vec::new());
    static REGISTERED: Once = Once::new();
    extern "C" fn run() {
        if instance::refuse_forked_child().is_err() {
            return;
        }
        let bodies = std::mem::take(&mut *BODIES.lock());
        for body in bodies.into_iter().rev() {
            // Nobody is there to be told.
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
        // SAFETY: the function lives as long as the process, as the library stays loaded. Where
        // it cannot be registered, the process ends without it.
        let _ = unsafe { libc::atexit(run) };
    });
}

/// Runs `body` so that threads it starts have all signals blocked.
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

/// From now on somebody has, or is in, code of the library, which must stay.
pub(super) fn keep_library_loaded() {
    static PINNED: Once = Once::new();
    PINNED.call_once(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        let own_code = keep_library_loaded as *const c_void;
        // SAFETY: `info` is written where the address is found; the name in it is the loader's.
        // Opening the library again, never to be closed, keeps it where it is. In a program
        // that has this code in itself nothing is opened, and nothing need be.
        unsafe {
            if libc::dladdr(own_code, info.as_mut_ptr()) != 0 {
                let name = (*info.as_ptr()).dli_fname;
                let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
                libc::dlopen(name, flags);
            }
        }
    });
}
