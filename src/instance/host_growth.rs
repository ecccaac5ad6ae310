//! Host memory that a thread takes beforehand, so that nobody waits until its pages are locked:
//! seconds for tens of gigabytes.
//!
//! One thread takes what was asked for, one piece after the other, and ends. Requests meanwhile are
//! served as always. An exiting process waits for the piece under way, for a while, and leaves the
//! rest out.
//!
//! **Locks.** `GROWTH` is held only to read or change it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::host;
use crate::base::{Error, Result, Status};
use crate::config::HostKind;
use crate::process::{self, fork};

/// An exiting process waits at most this long for the thread to leave the driver.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(2);

static GROWTH: Mutex<Growth> = Mutex::new(Growth::new());
static CHANGED: Condvar = Condvar::new();

struct Growth {
    /// What is still to be taken, in bytes.
    wanted: VecDeque<(HostKind, u64)>,
    is_running: bool,
    /// The first failure since the last wait.
    failure: Option<Error>,
}

impl Growth {
    const fn new() -> Self {
        Self { wanted: VecDeque::new(), is_running: false, failure: None }
    }
}

/// Has a thread take `bytes` of `kind`. Memory that cannot be had is told by [`wait`].
pub(crate) fn begin(bytes: u64, kind: HostKind) -> Result<()> {
    fork::refuse_child()?;
    // What is wrong with the settings or the driver is told at once.
    host::heap(kind)?;
    process::at_exit(end);
    let mut growth = growth();
    growth.wanted.push_back((kind, bytes));
    if growth.is_running {
        return Ok(());
    }
    let start = || Builder::new().name("genesis-host".to_owned()).spawn(take_all);
    if let Err(error) = process::starting_threads(start) {
        growth.wanted.pop_back();
        let message = format!("no thread can be started: {error}");
        return Err(Error::new(Status::OutOfMemory, message));
    }
    growth.is_running = true;
    Ok(())
}

/// Waits until all that [`begin`] was asked for is there. Returns the first failure since the last
/// wait.
pub(crate) fn wait() -> Result<()> {
    fork::refuse_child()?;
    let mut growth = until_idle(growth());
    growth.failure.take().map_or(Ok(()), Err)
}

/// The thread.
fn take_all() {
    while let Some((kind, bytes)) = next() {
        let taken = catch_unwind(AssertUnwindSafe(|| host::preallocate(bytes, kind)));
        let taken = taken.unwrap_or_else(|_| Err(Error::new(Status::Internal, "a panic")));
        if let Err(error) = taken {
            growth().failure.get_or_insert(error);
        }
    }
}

/// What is to be taken next; with nothing left the thread counts as ended.
fn next() -> Option<(HostKind, u64)> {
    let mut growth = growth();
    let next = growth.wanted.pop_front();
    if next.is_none() {
        growth.is_running = false;
        CHANGED.notify_all();
    }
    next
}

fn end() {
    let mut growth = growth();
    growth.wanted.clear();
    let is_running = |growth: &mut Growth| growth.is_running;
    drop(CHANGED.wait_timeout_while(growth, PATIENCE_AT_EXIT, is_running));
}

fn until_idle(growth: MutexGuard<'_, Growth>) -> MutexGuard<'_, Growth> {
    let is_running = |growth: &mut Growth| growth.is_running;
    CHANGED.wait_while(growth, is_running).unwrap_or_else(PoisonError::into_inner)
}

fn growth() -> MutexGuard<'static, Growth> {
    GROWTH.lock().unwrap_or_else(PoisonError::into_inner)
}
