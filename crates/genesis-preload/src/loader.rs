//! Forks while the loader is being asked.
//!
//! The loader has locks. If another thread holds one during a fork, the child inherits it locked,
//! and no thread will ever unlock it: the child's next question to the loader would wait for ever.
//! So questions are counted while they are asked. A child that was forked meanwhile asks none: what
//! it does not know by then, it treats as absent.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Questions that are being asked, by all threads.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// True in a child in which a lock may be held for ever.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// While it lives, the loader is being asked.
pub(crate) struct Question(());

/// Begins to ask the loader; `None` if it may not be asked.
pub(crate) fn ask() -> Option<Question> {
    if IS_LOST.load(Acquire) {
        return None;
    }
    ASKED.fetch_add(1, SeqCst);
    Some(Question(()))
}

impl Drop for Question {
    fn drop(&mut self) {
        ASKED.fetch_sub(1, SeqCst);
    }
}

/// To be called in a child of a fork. Returns true if the loader may not be asked any more.
pub(crate) fn note_fork() -> bool {
    if ASKED.load(SeqCst) != 0 {
        IS_LOST.store(true, Release);
    }
    IS_LOST.load(Acquire)
}
