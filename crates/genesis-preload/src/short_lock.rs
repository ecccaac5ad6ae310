//! A lock for a few instructions: taking it is one atomic exchange, and releasing it a plain store.
//!
//! A thread that finds it held spins, then yields, then sleeps, so that a holder of lower priority
//! gets to run. Nothing may be called under it that could take it again or wait.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

/// How often a thread looks before it yields, and yields before it sleeps.
const LOOKS: u32 = 64;
const YIELDS: u32 = 64;
const SLEEP: Duration = Duration::from_micros(50);

/// A value that one thread at a time has.
pub(crate) struct ShortLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for ShortLock<T> {}

/// While this lives, the thread has the value.
pub(crate) struct Guard<'a, T>(&'a ShortLock<T>);

impl<T> ShortLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.is_held.swap(true, Acquire) {
            self.wait();
        }
        Guard(self)
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0u32;
        while self.is_held.load(Relaxed) || self.is_held.swap(true, Acquire) {
            looks = looks.saturating_add(1);
            match looks {
                ..=LOOKS => std::hint::spin_loop(),
                _ if looks <= LOOKS + YIELDS => thread::yield_now(),
                _ => thread::sleep(SLEEP),
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by this guard.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by this guard, which is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_held.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::ShortLock;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        static COUNT: ShortLock<u64> = ShortLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut count = COUNT.lock();
                        let before = *count;
                        std::hint::black_box(&mut count);
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 80_000);
    }
}
