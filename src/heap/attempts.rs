//! Threads that need memory of one device at the same time.
//!
//! What a thread is taking from the driver, giving back or moving, no other thread finds. So a request
//! that finds too little may only have come at a bad moment. Everything that has memory under way is an
//! *attempt* here (but pauses, whose memory counts as live), and each learns whether another overlapped with
//! it. A request whose last attempt did is not refused: it waits for its *turn*, in which no other attempt
//! begins, lets those under way end, and tries again.
//!
//! An attempt in another one of the same thread is a part of that. A thread that waits here has nothing
//! under way. What it waits for may need something that it holds for its caller, as Python's global lock:
//! it lets go of that if it may (`base::blocking`), in a turn until its end, and waits for no longer than
//! [`MOST_PATIENCE`].

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::base::blocking;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::base::sync::{IS_MODEL, thread_local, waiting};

/// How long a thread waits for others, at most: longer than a thread stands still on a machine with far
/// more threads than cores. In a model time stands still.
pub(super) const MOST_PATIENCE: Duration =
    if IS_MODEL { Duration::MAX } else { Duration::from_secs(1) };
/// How long it sleeps between two looks: about as long as a call of the driver takes.
const NAP: Duration = Duration::from_micros(50);
/// What an attempt that begins adds to the count: one that has begun, and one under way.
const BEGUN: u64 = 1 << 32;
const UNDER_WAY: u64 = 1;

thread_local! {
    /// Whether this thread is in an attempt.
    static IS_ATTEMPTING: Cell<bool> = const { Cell::new(false) };
}

/// The attempts on one device.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How many have begun, in the upper half, and how many are under way.
    count: AtomicU64,
    /// Whether a request has its turn.
    is_turn: AtomicBool,
}

/// What came of an attempt.
pub(super) struct Attempted<T> {
    pub(super) result: T,
    /// Whether others had memory under way meanwhile.
    pub(super) met_others: bool,
}

/// An attempt under way.
struct UnderWay<'a>(&'a Attempts);

/// While it lives, no other attempt begins.
struct Turn<'a>(&'a Attempts);

impl Attempts {
    /// Makes an attempt, once no other thread has its turn.
    #[inline]
    pub(super) fn attempt<T>(&self, act: impl FnOnce() -> T) -> Attempted<T> {
        // A thread that is ending counts as one that is in no attempt.
        if IS_ATTEMPTING.try_with(Cell::get) == Ok(true) {
            return Attempted { result: act(), met_others: false };
        }
        if self.is_turn.load(SeqCst) {
            wait_until(|| !self.is_turn.load(SeqCst));
        }
        self.run(act)
    }

    /// Makes attempts in a turn of the calling thread, until one is enough or has met no other. `None`: the
    /// turn did not come.
    #[cold]
    pub(super) fn attempt_alone<T>(
        &self,
        act: impl Fn() -> T,
        is_enough: impl Fn(&T) -> bool,
    ) -> Option<T> {
        blocking(|| {
            let _turn = self.take_turn()?;
            loop {
                let are_others = || under_way(self.count.load(SeqCst)) > 0;
                let is_alone = wait_until(|| !are_others());
                let Attempted { result, met_others } = self.run(&act);
                if is_enough(&result) || !met_others || !is_alone {
                    return Some(result);
                }
            }
        })
    }

    fn run<T>(&self, act: impl FnOnce() -> T) -> Attempted<T> {
        let before = self.count.fetch_add(BEGUN + UNDER_WAY, SeqCst);
        let attempt = UnderWay(self);
        let _ = IS_ATTEMPTING.try_with(|is_attempting| is_attempting.set(true));
        let result = act();
        drop(attempt);
        let is_last = begun(self.count.load(SeqCst)) == begun(before.wrapping_add(BEGUN));
        Attempted { result, met_others: under_way(before) > 0 || !is_last }
    }

    fn take_turn(&self) -> Option<Turn<'_>> {
        let is_taken = || self.is_turn.swap(true, SeqCst);
        wait_until(|| !is_taken()).then(|| Turn(self))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let _ = IS_ATTEMPTING.try_with(|is_attempting| is_attempting.set(false));
        self.0.count.fetch_sub(UNDER_WAY, SeqCst);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_turn.store(false, SeqCst);
    }
}

/// How many attempts of `count` have begun.
const fn begun(count: u64) -> u64 {
    count / BEGUN
}

/// How many of them are under way.
const fn under_way(count: u64) -> u64 {
    count % BEGUN
}

/// Waits until something is so, for at most [`MOST_PATIENCE`]; returns whether it is.
pub(super) fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    if is_so() {
        return true;
    }
    let begin = Instant::now();
    blocking(|| {
        while begin.elapsed() < MOST_PATIENCE {
            waiting::sleep(NAP);
            if is_so() {
                return true;
            }
        }
        false
    })
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "attempts_models.rs"]
mod models;
