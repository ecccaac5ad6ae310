//! How far a pause or resume is: told to the thread's own callback, and shown on a terminal
//! (`GENESIS_PROGRESS`).
//!
//! Bytes count once they are where they are to be. No lock is held while the callback runs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::base::lock::assert_none_held;
use crate::observe::ProgressLine;

/// Called with how many bytes are copied, and how many are to be.
pub type ProgressCallback = Arc<dyn Fn(u64, u64) + Send + Sync>;

thread_local! {
    static CALLBACK: RefCell<Option<ProgressCallback>> = const { RefCell::new(None) };
}

/// From now on has `callback` called while a pause or resume of this thread copies contents: at the
/// beginning, after each piece, and when all are copied; `None`: none.
pub fn set_progress_callback(callback: Option<ProgressCallback>) {
    // What is replaced is dropped outside, because that may run the caller's code.
    let replaced = CALLBACK.try_with(|own| own.replace(callback));
    drop(replaced);
}

/// The bytes of one pause or resume.
pub(super) struct Meter {
    done_bytes: Cell<u64>,
    total_bytes: u64,
    callback: Option<ProgressCallback>,
    line: RefCell<Option<ProgressLine>>,
}

impl Meter {
    /// Begins to count `total_bytes`; with `shows`, on a terminal, too.
    pub(super) fn begin(doing: &'static str, total_bytes: u64, shows: bool) -> Self {
        let shows = shows && total_bytes > 0;
        let meter = Self {
            done_bytes: Cell::new(0),
            total_bytes,
            callback: CALLBACK.try_with(|own| own.borrow().clone()).ok().flatten(),
            line: RefCell::new(shows.then(|| ProgressLine::begin(doing)).flatten()),
        };
        meter.advance(0);
        meter
    }

    /// So many bytes more are done.
    pub(super) fn advance(&self, bytes: u64) {
        let done_bytes = (self.done_bytes.get() + bytes).min(self.total_bytes);
        self.done_bytes.set(done_bytes);
        if self.total_bytes == 0 {
            return;
        }
        assert_none_held();
        if let Some(callback) = &self.callback {
            callback(done_bytes, self.total_bytes);
        }
        if let Some(line) = &mut *self.line.borrow_mut() {
            line.show(done_bytes, self.total_bytes);
        }
    }
}
