//! What threads meet at: atomics, locks, cells that are set once, variables of a thread, and
//! waits. They are those of `std`, `spin` and `once_cell`, but in models, where a scheduler decides
//! which thread takes the next step:
//!
//! | feature | scheduler | for |
//! |---|---|---|
//! | none | the system's | programs and all other tests |
//! | `loom` | tries every order in which the threads' steps and the stores of atomics can be seen | small pieces without locks |
//! | `shuttle` | draws orders of steps, by a seed; stores are seen at once | whole heaps |
//!
//! What is taken from elsewhere is no step of a model. That is right for the simulated device, which
//! calls nothing of the heap while it holds its lock, and for lanes and the directory's
//! inner nodes, which are made once and never go (`once_cell::race`).

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use std::sync::atomic;

#[cfg(all(feature = "loom", not(feature = "shuttle")))]
pub use loom::sync::atomic;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;

#[cfg(not(feature = "shuttle"))]
pub use once_cell::sync::OnceCell;
#[cfg(not(feature = "shuttle"))]
pub use spin::mutex::{SpinMutex, SpinMutexGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::thread_local;

#[cfg(feature = "shuttle")]
pub use modelled::{OnceCell, SpinMutex, SpinMutexGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::thread_local;

/// Returns true in models, where tables are made small, so that they are full soon.
pub const IS_MODEL: bool = cfg!(any(feature = "loom", feature = "shuttle"));

/// How a thread waits for another one.
pub mod waiting {
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub use std::{hint::spin_loop, thread::sleep, thread::yield_now};

    #[cfg(all(feature = "loom", not(feature = "shuttle")))]
    pub use loom::{hint::spin_loop, thread::yield_now};

    #[cfg(feature = "shuttle")]
    pub use shuttle::{hint::spin_loop, thread::yield_now};

    /// Time stands still in a model.
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    pub fn sleep(_time: std::time::Duration) {
        yield_now();
    }
}

/// The algorithms of `spin` and `once_cell`, told again with the scheduler's atomics and locks. The
/// values are in the real ones, which are always free when they are asked.
#[cfg(feature = "shuttle")]
mod modelled {
    use std::ops::{Deref, DerefMut};

    use shuttle::sync::Mutex;
    use shuttle::sync::atomic::{AtomicBool, Ordering};

    /// A lock that one thread holds at a time.
    #[derive(Debug, Default)]
    pub struct SpinMutex<T> {
        is_locked: AtomicBool,
        value: spin::mutex::SpinMutex<T>,
    }

    /// Access to the value; dropping it releases the lock.
    #[derive(Debug)]
    pub struct SpinMutexGuard<'a, T> {
        is_locked: &'a AtomicBool,
        /// `None` while it is dropped.
        value: Option<spin::mutex::SpinMutexGuard<'a, T>>,
    }

    impl<T> SpinMutex<T> {
        /// An unlocked lock around `value`.
        pub const fn new(value: T) -> Self {
            Self { is_locked: AtomicBool::new(false), value: spin::mutex::SpinMutex::new(value) }
        }

        /// Returns true if a thread holds the lock.
        pub fn is_locked(&self) -> bool {
            self.is_locked.load(Ordering::Relaxed)
        }

        /// Takes the lock, if it is free.
        pub fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
            let (free, locked) = (false, true);
            let taken =
                self.is_locked.compare_exchange(free, locked, Ordering::Acquire, Ordering::Relaxed);
            taken.ok()?;
            let value = Some(self.value.try_lock()?);
            Some(SpinMutexGuard { is_locked: &self.is_locked, value })
        }
    }

    impl<T> Deref for SpinMutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.value {
                Some(value) => value,
                None => unreachable!("the lock is held"),
            }
        }
    }

    impl<T> DerefMut for SpinMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.value {
                Some(value) => value,
                None => unreachable!("the lock is held"),
            }
        }
    }

    impl<T> Drop for SpinMutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.is_locked.store(false, Ordering::Release);
        }
    }

    /// A cell that is set once.
    #[derive(Debug)]
    pub struct OnceCell<T> {
        setting: Mutex<()>,
        value: once_cell::sync::OnceCell<T>,
    }

    impl<T> Default for OnceCell<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T> OnceCell<T> {
        /// An empty cell.
        pub const fn new() -> Self {
            Self { setting: Mutex::new(()), value: once_cell::sync::OnceCell::new() }
        }

        /// The value, once it is set.
        pub fn get(&self) -> Option<&T> {
            shuttle::thread::yield_now();
            self.value.get()
        }

        /// The value; if it is not set yet, `make` makes it, and other threads wait for that.
        pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            match self.get_or_try_init(|| Ok::<T, std::convert::Infallible>(make())) {
                Ok(value) => value,
                Err(never) => match never {},
            }
        }

        /// The same, if `make` does not fail; after a failure the next caller tries again.
        pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
            if let Some(value) = self.get() {
                return Ok(value);
            }
            let _setting = self.setting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.value.get_or_try_init(make)
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "../../tests/support/schedules.rs"]
pub mod schedules;
