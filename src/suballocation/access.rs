//! Access to the state of an object: by a lock, or by the promise that one thread calls at a time.
//!
//! Without a lock a flag is kept, which costs a nanosecond: a call from inside another call of the
//! same object, such as from a callback that the source runs, is an error and not a defect. Where
//! nothing is called meanwhile, even that can be left out (`super::slabs::Front`).

use std::cell::RefCell;

use super::source::Threads;
use crate::base::lock::{Lock, rank};
use crate::base::{Error, Result, Status};

/// A `T` for one thread at a time, or for any.
#[derive(Debug)]
pub(super) enum Access<T> {
    Any(Lock<T, { rank::LEAF }>),
    One(RefCell<T>),
}

impl<T> Access<T> {
    pub(super) fn new(value: T, threads: Threads) -> Self {
        match threads {
            Threads::One => Self::One(RefCell::new(value)),
            Threads::Any => Self::Any(Lock::new(value)),
        }
    }

    /// Runs `body`, which calls neither the source nor the object.
    #[inline]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Result<R> {
        match self {
            Self::One(cell) => Ok(body(&mut *cell.try_borrow_mut().map_err(|_| busy())?)),
            Self::Any(lock) => Ok(body(&mut lock.lock())),
        }
    }

    /// The same for what mostly succeeds; `None` also if another call is under way. It waits for
    /// nobody, so all of it is a few instructions without a call.
    #[inline(always)]
    pub(super) fn quickly<R>(&self, body: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        match self {
            Self::One(cell) => body(&mut *cell.try_borrow_mut().ok()?),
            Self::Any(lock) => body(&mut *lock.try_lock()?),
        }
    }

    /// Which threads may call.
    pub(super) fn threads(&self) -> Threads {
        match self {
            Self::One(_) => Threads::One,
            Self::Any(_) => Threads::Any,
        }
    }
}

#[cold]
fn busy() -> Error {
    Error::new(
        Status::Busy,
        "another call of the same object is under way, which is for one thread",
    )
}
