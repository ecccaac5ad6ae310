//! Contexts other than the primary one, to which streams of the program belong.

use std::sync::Arc;

use cudarc::driver::sys;
use once_cell::sync::OnceCell;

use super::device::CudaDevice;
use super::meter::Meter;
use super::scope::{Context, CurrentContext, check, require};
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::driver::{Call, Device, Result};

impl CudaDevice {
    /// The same driver in another context, of device `ordinal`. It is returned as a pointer: an
    /// `Option` of the device itself is some kilobytes to move, even where it is `None`.
    fn in_context(
        &self,
        ordinal: DeviceOrdinal,
        device: sys::CUdevice,
        handle: sys::CUcontext,
    ) -> Arc<dyn Device> {
        Arc::new(Self {
            api: Arc::clone(&self.api),
            ordinal,
            context: OnceCell::with_value(Context { device, handle, is_primary: false }),
            virtual_memory: OnceCell::new(),
            meter: Meter::new(),
        })
    }

    /// The context that is current in the calling thread; null for none.
    fn current_context(&self, call: Call) -> Result<sys::CUcontext> {
        let get = require(self.api.context_current, call)?;
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is live.
        check(call, unsafe { get(&mut current) })?;
        Ok(current)
    }

    /// The context that one of the caller's streams belongs to.
    fn context_of(&self, stream: StreamHandle, call: Call) -> Result<sys::CUcontext> {
        let get = require(self.api.stream_context, call)?;
        let mut context = std::ptr::null_mut();
        let stream = stream.0 as sys::CUstream;
        self.inside(call, |_| {
            // SAFETY: `context` is live; the handle is the caller's.
            check(call, self.meter.counted(call, || unsafe { get(stream, &mut context) }))
        })?;
        Ok(context)
    }

    /// The context that `stream` belongs to, if it is not this one.
    pub(super) fn find_other_context(
        &self,
        stream: StreamHandle,
    ) -> Result<Option<Arc<dyn Device>>> {
        let call = Call::StreamContext;
        let context = if stream.is_default() {
            self.current_context(call)?
        } else {
            self.context_of(stream, call)?
        };
        if context.is_null() || context == self.context(call)?.handle {
            return Ok(None);
        }
        let get = require(self.api.context_device, call)?;
        let mut device = 0;
        let current = CurrentContext::enter(&self.api, context, call)?;
        // SAFETY: `device` is live.
        check(call, unsafe { get(&mut device) })?;
        drop(current);
        // The driver's name for a device is its ordinal.
        let ordinal = DeviceOrdinal(device as u32);
        Ok(Some(self.in_context(ordinal, device, context)))
    }
}
