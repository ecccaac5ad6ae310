//! Host functions enqueued on streams.
//!
//! One runs as soon as all work that its stream had when it was enqueued is done, on the thread
//! whose call noticed that. This is never later than CUDA allows, but work enqueued after it may
//! come first.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use simgpu::{Code, Machine, Mark};

use crate::answer::Answer;
use crate::log;

/// A function of the program and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostFunction {
    /// Of `cudaLaunchHostFunc`.
    Plain(unsafe extern "C" fn(*mut c_void), usize),
    /// Of `cudaStreamAddCallback`: it also gets the stream and a code.
    Callback(unsafe extern "C" fn(usize, i32, *mut c_void), usize),
}

/// The functions that wait for their stream.
#[derive(Debug, Default)]
pub(crate) struct HostFunctions {
    count: AtomicUsize,
    /// The place in a stream, the handle the stream had, and the function.
    waiting: Mutex<Vec<(Mark, usize, HostFunction)>>,
}

impl HostFunctions {
    /// Enqueues `function` on `stream`. Refused on a capturing stream.
    pub(crate) fn add(
        &self,
        machine: &Machine,
        context: u32,
        stream: usize,
        function: HostFunction,
    ) -> Answer {
        if machine.is_capturing(context, stream)? {
            log::missing("a host function in a capture");
            return Err(Code::NOT_SUPPORTED);
        }
        machine.delay(context, stream, 0)?;
        let mark = machine.mark(context, stream)?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push((mark, stream, function));
        drop(waiting);
        self.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns true if a function waits for its stream.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Runs every function whose stream has finished.
    pub(crate) fn run_due(&self, machine: &Machine) {
        while self.is_any() {
            let Some((stream, function)) = self.take_due(machine) else { return };
            // SAFETY: the program enqueued the function with this argument, to be called once.
            unsafe {
                match function {
                    HostFunction::Plain(call, data) => call(data as *mut c_void),
                    HostFunction::Callback(call, data) => call(stream, 0, data as *mut c_void),
                }
            }
        }
    }

    fn take_due(&self, machine: &Machine) -> Option<(usize, HostFunction)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |&(mark, ..): &(Mark, usize, HostFunction)| machine.is_reached(mark);
        let index = waiting.iter().position(is_due)?;
        let (_, stream, function) = waiting.remove(index);
        self.count.fetch_sub(1, Ordering::Release);
        Some((stream, function))
    }
}
