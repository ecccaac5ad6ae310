//! Ranked locks.
//!
//! Every lock of the library is a [`Lock`] with a rank, a constant of its type. A thread
//! acquires locks in strictly increasing rank, so it holds at most one lock of a rank, and no
//! two threads can wait for each other in a circle. Debug builds assert this at every
//! acquisition; release builds contain none of it.
//!
//! Critical sections take a few dozen nanoseconds. They contain no system call, no user's callback
//! and no driver call that synchronises or may block; those are preceded by [`assert_none_held`].
//! Contention is therefore rare and short: a waiter spins briefly and then yields its processor,
//! because the owner may have been preempted.

use std::ops::{Deref, DerefMut};

use super::sync::{SpinMutex, SpinMutexGuard, waiting};

/// Ranks, from the first that may be acquired to the last.
pub mod rank {
    /// The list of lanes of a device, when lanes are added or re-keyed.
    pub const LANES: u8 = 10;
    /// One lane: the state of one stream on one device.
    pub const LANE: u8 = 20;
    /// What the lanes of a device share: events, counters of reserved memory.
    pub const DEVICE: u8 = 30;
    /// Bookkeeping that may be touched from anywhere: callbacks, log, settings.
    pub const LEAF: u8 = 40;
}

/// How often a waiter looks again before it yields its processor.
const SPINS_BEFORE_YIELD: u32 = 100;

/// A mutual-exclusion lock of rank `RANK` around a `T`.
#[derive(Debug, Default)]
pub struct Lock<T, const RANK: u8> {
    inner: SpinMutex<T>,
}

/// Access to the value of a [`Lock`]; dropping it releases the lock.
#[derive(Debug)]
pub struct Guard<'a, T, const RANK: u8> {
    inner: SpinMutexGuard<'a, T>,
    _witness: witness::Held<RANK>,
}

impl<T, const RANK: u8> Lock<T, RANK> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: SpinMutex::new(value) }
    }

    /// Waits until the lock is free and takes it.
    ///
    /// Panics in debug builds when the thread already holds a lock of this rank or above.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, RANK> {
        let _witness = witness::Held::acquire();
        let inner = match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        };
        Guard { inner, _witness }
    }

    /// Takes the lock if it is free.
    ///
    /// Panics in debug builds as [`Self::lock`] does.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T, RANK>> {
        let _witness = witness::Held::acquire();
        Some(Guard { inner: self.inner.try_lock()?, _witness })
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> SpinMutexGuard<'_, T> {
        loop {
            for _ in 0..SPINS_BEFORE_YIELD {
                waiting::spin_loop();
                // A try takes the cache line from the owner, a look does not.
                if !self.inner.is_locked()
                    && let Some(guard) = self.inner.try_lock()
                {
                    return guard;
                }
            }
            waiting::yield_now();
        }
    }
}

impl<T, const RANK: u8> Deref for Guard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, const RANK: u8> DerefMut for Guard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Asserts, in debug builds, that the thread holds no lock: called before it may block or runs
/// foreign code.
#[inline]
pub fn assert_none_held() {
    witness::assert_none_held();
}

#[cfg(debug_assertions)]
mod witness {
    //! The ranks a thread holds, as a bit set: rank / 10 is the bit.

    use std::cell::Cell;

    use crate::base::sync::thread_local;

    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    pub(super) struct Held<const RANK: u8>;

    impl<const RANK: u8> Held<RANK> {
        const BIT: u32 = 1 << (RANK / 10);

        pub(super) fn acquire() -> Self {
            HELD.with(|held| {
                assert!(
                    held.get() < Self::BIT,
                    "lock of rank {RANK} taken while holding ranks {:#b}",
                    held.get()
                );
                held.set(held.get() | Self::BIT);
            });
            Self
        }
    }

    impl<const RANK: u8> Drop for Held<RANK> {
        fn drop(&mut self) {
            HELD.with(|held| held.set(held.get() & !Self::BIT));
        }
    }

    pub(super) fn assert_none_held() {
        HELD.with(|held| assert_eq!(held.get(), 0, "a lock is held where none may be"));
    }
}

#[cfg(not(debug_assertions))]
mod witness {
    #[derive(Debug)]
    pub(super) struct Held<const RANK: u8>;

    impl<const RANK: u8> Held<RANK> {
        #[inline]
        pub(super) fn acquire() -> Self {
            Self
        }
    }

    #[inline]
    pub(super) fn assert_none_held() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_exactly_under_contention() {
        let count = Lock::<u64, { rank::LANE }>::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 80_000);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn descending_ranks_are_caught() {
        let low = Lock::<(), { rank::LANES }>::new(());
        let high = Lock::<(), { rank::LANE }>::new(());
        let _first = low.lock();
        drop(high.lock());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _high = high.lock();
            let again = Lock::<(), { rank::LANES }>::new(());
            let _low = again.lock();
        }));
        assert!(caught.is_err());
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "lock_models.rs"]
mod models;
