//! Host functions enqueued on streams.
//!
//! One runs as soon as what its stream had when it was enqueued is done, on the thread whose call
//! noticed: never later than CUDA would allow, though work enqueued after it may come first.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use simgpu::Mark;

use crate::call::Answer;
use crate::simulation::Simulation;

/// A function of the program and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostFunction {
    /// Of `cudaLaunchHostFunc`.
    Plain(unsafe extern "C" fn(*mut c_void), usize),
    /// Of `cudaStreamAddCallback`: it also gets the stream and a code.
    Callback(unsafe extern "C" fn(usize, i32, *mut c_void), usize),
}

/// Those that wait for their stream.
#[derive(Debug, Default)]
pub(crate) struct HostFunctions {
    count: AtomicUsize,
    /// The place in a stream, the stream's handle then, and the function.
    waiting: Mutex<Vec<(Mark, usize, HostFunction)>>,
}

impl HostFunctions {
    /// Enqueues `function` on `stream`. Refused on a capturing stream.
    pub(crate) fn add(
        &self,
        simulation: &Simulation,
        context: u32,
        stream: usize,
        function: HostFunction,
    ) -> Answer {
        if simulation.machine.is_capturing(context, stream)? {
            crate::log::missing("a host function in a capture");
            return Err(simgpu::Code::NOT_SUPPORTED);
        }
        simulation.machine.delay(context, stream, 0)?;
        let mark = simulation.machine.mark(context, stream)?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push((mark, stream, function));
        drop(waiting);
        self.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Runs every function whose stream has finished.
    pub(crate) fn run_due(&self, simulation: &Simulation) {
        while self.count.load(Ordering::Acquire) > 0 {
            let Some((stream, function)) = self.take_due(simulation) else { return };
            // SAFETY: the program enqueued the function with this argument, to be called once.
            unsafe {
                match function {
                    HostFunction::Plain(call, data) => call(data as *mut c_void),
                    HostFunction::Callback(call, data) => call(stream, 0, data as *mut c_void),
                }
            }
        }
    }

    fn take_due(&self, simulation: &Simulation) -> Option<(usize, HostFunction)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due =
            |&(mark, ..): &(Mark, usize, HostFunction)| simulation.machine.is_reached(mark);
        let index = waiting.iter().position(is_due)?;
        let (_, stream, function) = waiting.remove(index);
        self.count.fetch_sub(1, Ordering::Release);
        Some((stream, function))
    }
}
