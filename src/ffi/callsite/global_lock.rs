//! Python's global lock, let go of while a driver call blocks.
//!
//! Only where the calling thread has it, and is not one that Python does not know. A thread that
//! takes it again while the interpreter ends is ended by it, in our frames, up to Python 3.13; as with
//! call sites (`python`), the end of the interpreter waits for those who have let go of the lock, for
//! a while, and from then on nobody does. One that comes back later still sleeps for ever, which is
//! what Python itself does with it from 3.14 on: its process ends.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

use super::interpreter::{self, ErrorAside, Interpreter, Object};
use super::python::{WAITING, end_with_the_interpreter, is_ended_by_another};

/// Makes a call that may block, without the lock if this thread has it.
pub(in super::super) fn without_lock(call: &mut dyn FnMut()) {
    let _without = Without::begin();
    call();
}

/// While it lives, its thread is without the lock that it had.
struct Without {
    python: &'static Interpreter,
    state: Object,
}

impl Without {
    fn begin() -> Option<Self> {
        let python = interpreter::get()?;
        // SAFETY: functions that any thread may call at any time.
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
        // Before the question, as the interpreter's end says so before it looks who waits.
        WAITING.fetch_add(1, SeqCst);
        if is_ended_by_another(state) {
            WAITING.fetch_sub(1, SeqCst);
            return None;
        }
        // SAFETY: the thread has the lock, and takes it again when this is dropped.
        let state = unsafe { (python.save_thread)() };
        Some(Self { python, state })
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        // SAFETY: any thread may ask.
        while unsafe { (self.python.is_finalizing)() } != 0 {
            sleep(Duration::from_secs(3600));
        }
        // SAFETY: the state that this thread had, of an interpreter that is there.
        unsafe { (self.python.restore_thread)(self.state) };
        WAITING.fetch_sub(1, SeqCst);
    }
}
