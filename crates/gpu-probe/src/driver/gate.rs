//! A gate: work that a stream cannot pass until it is opened.
//!
//! It is a function of the host that waits, enqueued on the stream. So a probe holds work back for
//! exactly as long as it likes, without kernels that spin. The gate opens by itself after
//! [`MOST_WAIT`], so a driver call that waits for the device still returns, and the probe sees that
//! it waited.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Driver, Stream, call};

/// When a gate opens by itself.
pub(crate) const MOST_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// A closed gate on a stream; opens when dropped, if not before.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Arc<State>,
}

impl Gate {
    /// Closes `stream`: work that is enqueued from now on waits.
    pub(crate) fn close(driver: &Driver, stream: Stream) -> Answer<Self> {
        let state = Arc::new(State::default());
        let shared = Arc::into_raw(Arc::clone(&state)).cast_mut();
        let answer = call!(driver, cuLaunchHostFunc(stream.0, wait_at, shared.cast()));
        if answer.is_err() {
            // SAFETY: the function was not enqueued, so its share is still ours to drop.
            drop(unsafe { Arc::from_raw(shared.cast_const()) });
        }
        answer.map(|()| Self { state })
    }

    /// Lets the stream go on.
    pub(crate) fn open(&self) {
        *self.state.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.opened.notify_all();
    }

    /// Returns true until it is opened, or has opened by itself.
    pub(crate) fn is_closed(&self) -> bool {
        !*self.state.is_open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the gate closed on `stream`. Returns its result, the time it took, and true
    /// if the gate was still closed afterwards: then it did *not* wait.
    pub(crate) fn hold<T>(
        driver: &Driver,
        stream: Stream,
        work: impl FnOnce() -> T,
    ) -> Answer<(T, Duration, bool)> {
        let gate = Self::close(driver, stream)?;
        let started = Instant::now();
        let value = work();
        let (elapsed, was_closed) = (started.elapsed(), gate.is_closed());
        gate.open();
        driver.stream_synchronize(stream)?;
        Ok((value, elapsed, was_closed))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// The work on the stream. Calls nothing of CUDA, as is required.
unsafe extern "C" fn wait_at(shared: *mut c_void) {
    // SAFETY: `close` made this share for exactly this one call.
    let state = unsafe { Arc::from_raw(shared.cast_const().cast::<State>()) };
    let is_open = state.is_open.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = state.opened.wait_timeout_while(is_open, MOST_WAIT, |is_open| !*is_open);
    *waited.unwrap_or_else(PoisonError::into_inner).0 = true;
}
