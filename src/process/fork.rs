//! Forks of a process that has used the library.
//!
//! After `fork` a CUDA driver may not be used, and locks that another thread of the parent held
//! stay held for ever. A flag set in the child tells it so; every call tests it before it takes a
//! lock.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::base::{Error, Result, Status};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns true in a child of a process that watched for forks.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Fails with `ForkedChild` in such a child.
pub(crate) fn refuse_child() -> Result<()> {
    if is_child() { Err(refused()) } else { Ok(()) }
}

/// The number of forks between the process that watched for them and this one.
pub(crate) fn count() -> u32 {
    COUNT.load(Relaxed)
}

/// Has children of this process know that they are. Call it before the first lock is taken.
pub(crate) fn watch() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        IS_CHILD.store(true, Relaxed);
        COUNT.fetch_add(1, Relaxed);
    }
    if IS_WATCHED.load(Acquire) {
        return;
    }
    // SAFETY: the handler only stores to atomics, which a child may do in any state. If two threads
    // register it at once, `COUNT` grows by 2 a fork; all readers compare it for equality only.
    // If it cannot be registered, a fork is as unguarded as with any other CUDA library.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    IS_WATCHED.store(true, Release);
}

#[cold]
fn refused() -> Error {
    Error::new(
        Status::ForkedChild,
        "this process is a fork of one that used the device; only exec makes it usable again",
    )
}
