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

static FORKS: Forks = Forks::new();

/// What is known of the forks of a process.
#[derive(Debug)]
struct Forks {
    is_child: AtomicBool,
    count: AtomicU32,
    /// A heap is made, or being made.
    has_begun: AtomicBool,
    /// The early calls under way.
    early: AtomicU32,
}

/// While this lives, a call is under way that may be an early one.
#[derive(Debug)]
pub(crate) struct EarlyCall {
    /// Where it counts; `None`: it is no early one.
    early: Option<&'static AtomicU32>,
}

impl Drop for EarlyCall {
    fn drop(&mut self) {
        if let Some(early) = self.early {
            early.fetch_sub(1, SeqCst);
        }
    }
}

impl Forks {
    const fn new() -> Self {
        Self {
            is_child: AtomicBool::new(false),
            count: AtomicU32::new(0),
            has_begun: AtomicBool::new(false),
            early: AtomicU32::new(0),
        }
    }

    /// A call begins that may take a lock.
    #[inline]
    fn begin_call(&'static self) -> EarlyCall {
        let is_early = !self.has_begun.load(Relaxed);
        EarlyCall { early: is_early.then(|| self.begin_early()) }
    }

    #[cold]
    fn begin_early(&self) -> &AtomicU32 {
        self.early.fetch_add(1, SeqCst);
        &self.early
    }

    /// From now on locks may be held at any time.
    fn begin(&self) {
        self.has_begun.store(true, SeqCst);
    }

    /// Returns true if another thread may hold a lock.
    fn may_be_held(&self) -> bool {
        self.has_begun.load(SeqCst) || self.early.load(SeqCst) != 0
    }
}

/// Returns true in a child that was forked when a lock may have been held.
#[inline]
pub(crate) fn is_child() -> bool {
    FORKS.is_child.load(Relaxed)
}

/// Fails with `ForkedChild` in such a child.
pub(crate) fn refuse_child() -> Result<()> {
    if is_child() { Err(refused()) } else { Ok(()) }
}

/// The number of such forks between the first process and this one.
pub(crate) fn count() -> u32 {
    FORKS.count.load(Relaxed)
}

/// A call begins that may take a lock, before a heap is begun or later.
#[inline]
pub(crate) fn early_call() -> EarlyCall {
    if !FORKS.has_begun.load(Relaxed) {
        register();
    }
    FORKS.begin_call()
}

/// Has children of this process know that they are. Call it before the first lock is taken that
/// [`early_call`] does not count.
pub(crate) fn watch() {
    register();
    FORKS.begin();
}

fn register() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        if FORKS.may_be_held() {
            FORKS.is_child.store(true, Relaxed);
            FORKS.count.fetch_add(1, Relaxed);
        }
    }
    if IS_WATCHED.load(Acquire) {
        return;
    }
    // SAFETY: the handler only uses atomics, which a child may do in any state. If two threads
    // register it at once, the count grows by 2 a fork; all readers compare it for equality only.
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

#[cfg(all(test, feature = "shuttle"))]
#[path = "fork_models.rs"]
mod models;
