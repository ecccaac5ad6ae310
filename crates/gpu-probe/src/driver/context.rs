//! Contexts other than the primary one, and abilities of the device.

use std::ffi::{c_int, c_uint};

use super::{Answer, Driver, Stream, call};

/// A context's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(usize);

/// `CUdevResource`, which only the driver writes and reads; no version of it is larger.
#[repr(C, align(8))]
pub(super) struct Resource([u8; 256]);

/// A part of a device's multiprocessors, with a stream of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GreenContext {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
}

impl Driver {
    pub(crate) fn device_count(&self) -> Answer<i32> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&mut count))?;
        Ok(count)
    }

    pub(crate) fn multiprocessors(&self) -> Answer<u32> {
        const MULTIPROCESSOR_COUNT: c_int = 16;
        Ok(self.attribute(MULTIPROCESSOR_COUNT)?.max(1) as u32)
    }

    /// The major number of the device's compute capability.
    pub(crate) fn compute_capability(&self) -> Answer<i32> {
        const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
        self.attribute(COMPUTE_CAPABILITY_MAJOR)
    }

    fn attribute(&self, which: c_int) -> Answer<i32> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&mut value, which, self.device))?;
        Ok(value)
    }

    /// The context current on this thread.
    pub(crate) fn current_context(&self) -> Answer<Context> {
        let mut context = 0;
        call!(self, cuCtxGetCurrent(&mut context))?;
        Ok(Context(context))
    }

    /// The context that a stream was made in.
    pub(crate) fn stream_context(&self, stream: Stream) -> Answer<Context> {
        let mut context = 0;
        call!(self, cuStreamGetCtx(stream.0, &mut context))?;
        Ok(Context(context))
    }

    /// Makes another context current on this thread.
    pub(crate) fn enter_context(&self, context: Context) -> Answer {
        call!(self, cuCtxSetCurrent(context.0))
    }

    /// A second context of the device, current on this thread.
    pub(crate) fn context_create(&self) -> Answer<Context> {
        let mut context = 0;
        call!(self, cuCtxCreate_v2(&mut context, 0, self.device))?;
        Ok(Context(context))
    }

    /// The primary context of another device, current on this thread, with access to this one's
    /// plain memory if there can be.
    pub(crate) fn second_device(&self) -> Answer<Context> {
        let (mut device, mut context) = (0, 0);
        call!(self, cuDeviceGet(&mut device, 1))?;
        call!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(self, cuCtxSetCurrent(context))?;
        // Without access the two affect each other less, and the question is the same.
        let _ = call!(self, cuCtxEnablePeerAccess(self.context, 0));
        Ok(Context(context))
    }

    /// A green context with the fewest multiprocessors that every device allows.
    pub(crate) fn green_context(&self) -> Answer<GreenContext> {
        const MULTIPROCESSORS: c_int = 1;
        const FEWEST: c_uint = 8;
        const DEFAULT_STREAM: c_uint = 1;
        const NON_BLOCKING: c_uint = 1;
        let new = || Resource([0; 256]);
        let (mut all, mut part, mut rest) = (new(), new(), new());
        let (mut parts, mut description) = (1, 0);
        let (mut green, mut context, mut stream) = (0, 0, 0);
        call!(self, cuDeviceGetDevResource(self.device, &mut all, MULTIPROCESSORS))?;
        call!(
            self,
            cuDevSmResourceSplitByCount(&mut part, &mut parts, &all, &mut rest, 0, FEWEST)
        )?;
        call!(self, cuDevResourceGenerateDesc(&mut description, &mut part, 1))?;
        call!(self, cuGreenCtxCreate(&mut green, description, self.device, DEFAULT_STREAM))?;
        call!(self, cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, 0))?;
        call!(self, cuCtxFromGreenCtx(&mut context, green))?;
        Ok(GreenContext { context: Context(context), stream: Stream(stream) })
    }
}
