//! A state that one thread at a time changes, with no lock held during the change.
//!
//! A change takes the state out and puts a new one in. Until then the state is absent, and other
//! threads see that. A change that never ends leaves it absent.

use crate::base::Result;
use crate::base::lock::{Lock, rank};

/// The state; `None` while a thread is changing it.
#[derive(Debug)]
pub(super) struct Changing<S>(Lock<Option<S>, { rank::LEAF }>);

impl<S> Changing<S> {
    pub(super) const fn new(state: S) -> Self {
        Self(Lock::new(Some(state)))
    }

    /// Calls `look` with the state. The lock is held meanwhile.
    pub(super) fn look<T>(&self, look: impl FnOnce(Option<&S>) -> T) -> T {
        look(self.0.lock().as_ref())
    }

    /// Takes the state out if `may` allows it; `None` if another thread is changing it. The caller
    /// puts a new one in with [`Self::end`].
    pub(super) fn begin(&self, may: impl FnOnce(&S) -> Result<()>) -> Result<Option<S>> {
        let mut state = self.0.lock();
        state.as_ref().map_or(Ok(()), may)?;
        Ok(state.take())
    }

    /// Ends a change.
    pub(super) fn end(&self, state: S) {
        *self.0.lock() = Some(state);
    }
}
