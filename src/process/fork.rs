//! Forks of a process that has used the library.
//!
//! After `fork` a CUDA driver may not be used, and locks that another thread of the parent held
//! stay held for ever. A flag set in the child tells it so; every call tests it before it takes a
//! lock.
//!
//! A child of a process that has not begun to use the library is a process like any other, unless
//! another thread was in a call meanwhile: setting an option, too, takes a lock. So these *early*
//! calls are counted, and a child that was forked during one is told so as well.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use crate::base::{Error, Result, Status};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU32 = AtomicU32::new(0);
/// A heap is made, or being made.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// The early calls under way.
static EARLY: AtomicU32 = AtomicU32::new(0);

/// While this lives, a call is under way that may be an early one.
#[derive(Debug)]
pub(crate) struct EarlyCall {
    is_early: bool,
}

impl Drop for EarlyCall {
    fn drop(&mut self) {
        if self.is_early {
            EARLY.fetch_sub(1, SeqCst);
        }
    }
}

/// A call begins that may take a lock before a heap is begun.
#[inline]
pub(crate) fn early_call() -> EarlyCall {
    if HAS_BEGUN.load(Relaxed) { EarlyCall { is_early: false } } else { begin_early() }
}

#[cold]
fn begin_early() -> EarlyCall {
    register();
    EARLY.fetch_add(1, SeqCst);
    EarlyCall { is_early: true }
}

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

/// Has children of this process know that they are. Call it before the first lock is taken that
/// [`early_call`] does not count.
pub(crate) fn watch() {
    register();
    HAS_BEGUN.store(true, SeqCst);
}

fn register() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        if HAS_BEGUN.load(SeqCst) || EARLY.load(SeqCst) != 0 {
            IS_CHILD.store(true, Relaxed);
            COUNT.fetch_add(1, Relaxed);
        }
    }
    if IS_WATCHED.load(Acquire) {
        return;
    }
    // SAFETY: the handler only uses atomics, which a child may do in any state. If two threads
    // register it at once, `COUNT` grows by 2 a fork; all readers compare it for equality only.
    // If it cannot be registered, a fork is as unguarded as with any other CUDA library.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    IS_WATCHED.store(true, Release);
}

/// Why a child is refused.
#[cold]
pub(crate) fn refused() -> Error {
    Error::new(
        Status::ForkedChild,
        "this process is a fork of one that used the device; only exec makes it usable again",
    )
}
