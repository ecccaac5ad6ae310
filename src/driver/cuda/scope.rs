//! What surrounds each driver call: the capture mode and the current context.
//!
//! Both belong to the calling thread, which is the framework's. A scope changes one of them and
//! restores it on drop, in every case. Errors while restoring are not reported: the call's own
//! result matters more, and nothing else could be tried.

use std::ffi::c_uint;

use cudarc::driver::sys;

use super::loader::Api;
use crate::driver::{Call, Code, DriverError, Result};

/// The function in an entry of the table; an error if this driver does not have it.
pub(super) fn require<T>(entry: Option<T>, call: Call) -> Result<T> {
    entry.ok_or(DriverError { call, code: Code::NOT_FOUND })
}

/// The driver's code for `call` as a result.
pub(super) fn check(call: Call, code: i32) -> Result<()> {
    match Code(code) {
        Code::SUCCESS => Ok(()),
        code => Err(DriverError { call, code }),
    }
}

/// A context of a device: its retained primary one, or one of the program.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) device: sys::CUdevice,
    pub(super) handle: sys::CUcontext,
    /// Whether it is the primary one, which stays. The program may destroy its own, with their events.
    pub(super) is_primary: bool,
}

// SAFETY: the handle is opaque to us and the driver's functions take it from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; nothing is ever written through it here.
unsafe impl Sync for Context {}

/// While this lives, the thread may make calls that are otherwise refused during stream capture
/// although they do not disturb it, such as `cuMemAlloc`.
pub(super) struct RelaxedCapture<'a> {
    api: &'a Api,
    previous_mode: c_uint,
}

impl<'a> RelaxedCapture<'a> {
    /// Relaxes the thread's capture mode on behalf of `call`.
    pub(super) fn enter(api: &'a Api, call: Call) -> Result<Self> {
        let exchange = require(api.exchange_capture_mode, call)?;
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
        // SAFETY: `mode` is live and holds a valid mode; the driver writes the former one.
        check(call, unsafe { exchange(&mut mode) })?;
        Ok(Self { api, previous_mode: mode })
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        if let Some(exchange) = self.api.exchange_capture_mode {
            // SAFETY: the mode is the one the driver returned to this thread in `enter`.
            unsafe { exchange(&mut self.previous_mode) };
        }
    }
}

/// While this lives, a context is the thread's current one.
pub(super) struct CurrentContext<'a> {
    api: &'a Api,
    is_pushed: bool,
}

impl<'a> CurrentContext<'a> {
    /// Makes `context` current on behalf of `call`.
    pub(super) fn enter(api: &'a Api, context: sys::CUcontext, call: Call) -> Result<Self> {
        // In a framework's thread it mostly is current already.
        if is_current(api, context) {
            return Ok(Self { api, is_pushed: false });
        }
        let push = require(api.context_push, call)?;
        require(api.context_pop, call)?;
        // SAFETY: `context` is a primary context that was retained and is never released, or one of
        // the program's, for which the driver returns an error if it is gone.
        check(call, unsafe { push(context) })?;
        Ok(Self { api, is_pushed: true })
    }
}

fn is_current(api: &Api, context: sys::CUcontext) -> bool {
    let mut current = std::ptr::null_mut();
    // SAFETY: the driver writes a handle, or nothing and an error.
    let known = api.context_current.is_some_and(|get| unsafe { get(&mut current) == 0 });
    known && current == context
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        if self.is_pushed
            && let Some(pop) = self.api.context_pop
        {
            let mut popped = std::ptr::null_mut();
            // SAFETY: `enter` pushed onto this thread's stack (the guard never leaves its
            // function), and every call in between left the stack as it was.
            unsafe { pop(&mut popped) };
        }
    }
}
