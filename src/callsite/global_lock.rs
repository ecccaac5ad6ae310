//! Python's global lock, released while a driver call blocks.
//!
//! Only a thread that holds the lock and that Python knows releases it. Up to Python 3.13, a thread
//! that takes the lock while the interpreter is ending is terminated inside our frames. So, as with
//! call sites (`python`), the end of the interpreter waits up to some seconds for threads that have
//! released the lock, and afterwards no thread releases it. A thread that returns later still
//! sleeps for ever until its process ends; Python itself does that from 3.14 on.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

use super::interpreter::{self, ErrorAside, Interpreter, Object};
use super::python::{WAITING, end_with_the_interpreter, is_ended_by_another};

/// Makes a call that may block; releases the lock meanwhile if this thread holds it.
pub(crate) fn without_lock(call: &mut dyn FnMut()) {
    let _without = Without::begin();
    call();
}

/// While it lives, its thread has released the lock that it held.
struct Without {
    python: &'static Interpreter,
    state: Object,
}

impl Without {
    fn begin() -> Option<Self> {
        let python = interpreter::get()?;
        // SAFETY: any thread may call these functions at any time.
        let state = unsafe {
            if (python.is_initialized)() == 0 || (python.is_finalizing)() != 0 {
                return None;
            }
            let state = (python.own_state)();
            (!state.is_null() && state == (python.active_state)()).then_some(state)?
        };
        {
            let _error = ErrorAside::new(python);
            end_with_the_interpreter(python);
        }
        // Count first, then look: the interpreter's end sets its mark first and then counts.
        WAITING.fetch_add(1, SeqCst);
        if is_ended_by_another(state) {
            WAITING.fetch_sub(1, SeqCst);
            return None;
        }
        // SAFETY: the thread holds the lock, and takes it again when this is dropped.
        let state = unsafe { (python.save_thread)() };
        Some(Self { python, state })
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        // SAFETY: any thread may call it.
        while unsafe { (self.python.is_finalizing)() } != 0 {
            sleep(Duration::from_secs(3600));
        }
        // SAFETY: the state that this thread had, of an interpreter that still exists.
        unsafe { (self.python.restore_thread)(self.state) };
        WAITING.fetch_sub(1, SeqCst);
    }
}
