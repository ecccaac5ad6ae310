//! How a call of the driver is made: in which context, in which capture mode, counted.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::loader::RawResult;
use super::meter::Made;
use super::scope::{Context, CurrentContext, RelaxedCapture, check, require};
use crate::base::StreamHandle;
use crate::driver::{Call, Code, DriverError, Result};

/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: the legacy stream was queried while a stream that
/// synchronises with it captures.
const STREAM_CAPTURE_IMPLICIT: Code = Code(906);

impl CudaDevice {
    /// Makes one driver call: in the device's context, in relaxed capture mode, counted.
    pub(super) fn call(&self, call: Call, run: impl FnOnce() -> RawResult) -> Result<()> {
        self.inside(call, |_| check(call, self.meter.counted(call, run)))
    }

    /// Runs `work` on behalf of `call` in the device's context and in relaxed capture mode.
    pub(super) fn inside<T>(
        &self,
        call: Call,
        work: impl FnOnce(&Context) -> Result<T>,
    ) -> Result<T> {
        let _relaxed = RelaxedCapture::enter(&self.api, call)?;
        self.within(call, work)
    }

    /// Runs `work` on behalf of `call` in the device's context. No capture forbids what it calls.
    pub(super) fn within<T>(
        &self,
        call: Call,
        work: impl FnOnce(&Context) -> Result<T>,
    ) -> Result<T> {
        let context = self.context(call)?;
        let _current = CurrentContext::enter(&self.api, context.handle, call)?;
        work(context)
    }

    /// Makes one short driver call whose handles tell their context, counted.
    #[inline(always)]
    pub(super) fn call_by_handles(&self, call: Call, run: impl Fn() -> RawResult) -> Result<()> {
        self.meter.sampled(|made| {
            made.count(call);
            self.by_handles(call, || check(call, run()))
        })
    }

    /// Runs `work` on behalf of `call`, whose handles tell their context: in whichever is current, and
    /// in the device's if that is none, or one that is gone. So mostly nobody asks which is current.
    /// Events may be recorded and asked about whatever the current device is (CUDA C++ Programming
    /// Guide, "Stream and Event Behavior"). Not in a context of the program's own: once it is
    /// destroyed, its handles must not be used.
    #[inline(always)]
    fn by_handles(&self, call: Call, work: impl Fn() -> Result<()>) -> Result<()> {
        if self.context.get().is_some_and(|context| !context.is_primary) {
            return self.within(call, |_| work());
        }
        match work() {
            Err(error) if error.is_context_gone() => self.again_within(call, work),
            answer => answer,
        }
    }

    /// Runs `work`, which no current context allowed, in the device's.
    #[cold]
    #[inline(never)]
    fn again_within(&self, call: Call, work: impl Fn() -> Result<()>) -> Result<()> {
        self.within(call, |_| work())
    }

    /// The device's primary context, retained at the first use, on behalf of `call`.
    pub(super) fn context(&self, call: Call) -> Result<&Context> {
        self.context.get_or_try_init(|| {
            let _relaxed = RelaxedCapture::enter(&self.api, call)?;
            let call = Call::Initialize;
            let retain = require(self.api.primary_context_retain, call)?;
            let device = self.device(self.ordinal, call)?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: `device` is the driver's own and `handle` is live.
            check(call, self.meter.counted(call, || unsafe { retain(&mut handle, device) }))?;
            Ok(Context { device, handle, is_primary: true })
        })
    }

    /// Returns true if `stream` is capturing; for use inside a scope.
    pub(super) fn is_capturing(&self, made: Made<'_>, stream: StreamHandle) -> Result<bool> {
        let call = Call::StreamIsCapturing;
        let is_capturing = require(self.api.stream_is_capturing, call)?;
        let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
        let stream = stream.0 as sys::CUstream;
        let mut status = none;
        made.count(call);
        // SAFETY: `status` is live; the handle is the caller's.
        match check(call, unsafe { is_capturing(stream, &mut status) }) {
            Err(error) if error.code == STREAM_CAPTURE_IMPLICIT => Ok(true),
            answer => answer.map(|()| status != none),
        }
    }

    /// Makes `call`, a short one that names `stream`, by `work`: `STREAM_CAPTURE_UNSUPPORTED` if that is
    /// captured.
    #[inline(always)]
    pub(super) fn call_outside_capture(
        &self,
        call: Call,
        stream: StreamHandle,
        work: impl Fn() -> c_int,
    ) -> Result<()> {
        let make = |made: Made<'_>| {
            if self.is_capturing(made, stream)? {
                return Err(DriverError { call, code: Code::STREAM_CAPTURE_UNSUPPORTED });
            }
            made.count(call);
            check(call, work())
        };
        // A default stream is that of the current context.
        if stream.is_default() {
            self.within(call, |_| self.meter.sampled(make))
        } else {
            self.meter.sampled(|made| self.by_handles(call, || make(made)))
        }
    }
}
