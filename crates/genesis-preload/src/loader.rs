//! A fork while the loader is being asked.
//!
//! The loader has locks, and a child inherits one that another thread held as held for ever, by
//! nobody. Its own threads would wait for it at their next question. So questions are counted while
//! they are asked, and in a child that was forked meanwhile none is asked any more: what is not
//! known by then is not there.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Questions that are being asked, by all threads.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// Whether this is a child in which a lock may be held for ever.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// While it lives, the loader is being asked.
pub(crate) struct Question(());

/// Begins to ask the loader; `None` where there is no answer.
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

/// In a child of a fork: whether the loader may not be asked any more.
pub(crate) fn note_fork() -> bool {
    if ASKED.load(SeqCst) != 0 {
        IS_LOST.store(true, Release);
    }
    IS_LOST.load(Acquire)
}
