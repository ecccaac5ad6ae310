//! The driver's functions that this library itself calls, found once.
//!
//! They are the real ones (`next`), with integers for everything opaque. One that a driver lacks
//! answers "not found"; the others work.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::next;

/// `CUDA_SUCCESS` and `cudaSuccess`.
pub(crate) const SUCCESS: c_int = 0;
/// `CUDA_ERROR_INVALID_VALUE` and `cudaErrorInvalidValue`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY` and `cudaErrorMemoryAllocation`.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
/// `CUDA_ERROR_NOT_SUPPORTED` and `cudaErrorNotSupported`.
pub(crate) const NOT_SUPPORTED: c_int = 801;
/// `CUDA_ERROR_UNKNOWN`.
pub(crate) const UNKNOWN: c_int = 999;

/// `CU_STREAM_PER_THREAD`: what the forms for streams per thread mean by 0. Handles up to this are
/// default streams.
pub(crate) const PER_THREAD: usize = 2;

/// What the forms for streams per thread mean by `stream`.
pub(crate) fn per_thread(stream: usize) -> usize {
    if stream == 0 { PER_THREAD } else { stream }
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_int = 9;

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The driver.
        pub(crate) struct Driver {
            $($name: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
        }

        impl Driver {
            fn load() -> Self {
                let find = |name: &CStr| next::find(name).unwrap_or(ptr::null_mut());
                // SAFETY: null is `None`; else the function that cuda.h declares under this name
                // with these parameters.
                Self { $($name: unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        Option<unsafe extern "C" fn($($type),*) -> c_int>,
                    >(find($symbol))
                },)* }
            }

            $(
                #[inline]
                fn $name(&self, $($argument: $type),*) -> c_int {
                    // SAFETY: callers are in this file, and pass what the driver asks for.
                    self.$name.map_or(NOT_FOUND, |function| unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

driver! {
    context_current = c"cuCtxGetCurrent"(context: *mut usize);
    context_device = c"cuCtxGetDevice"(device: *mut c_int);
    context_push = c"cuCtxPushCurrent_v2"(context: usize);
    context_pop = c"cuCtxPopCurrent_v2"(context: *mut usize);
    context_synchronize = c"cuCtxSynchronize"();
    context_enable_peer = c"cuCtxEnablePeerAccess"(peer: usize, flags: c_uint);
    primary_state =
        c"cuDevicePrimaryCtxGetState"(device: c_int, flags: *mut c_uint, is_active: *mut c_int);
    primary_retain = c"cuDevicePrimaryCtxRetain"(context: *mut usize, device: c_int);
    primary_release = c"cuDevicePrimaryCtxRelease_v2"(device: c_int);
    device_count = c"cuDeviceGetCount"(count: *mut c_int);
    stream_create = c"cuStreamCreate"(stream: *mut usize, flags: c_uint);
    stream_destroy = c"cuStreamDestroy_v2"(stream: usize);
    stream_query = c"cuStreamQuery"(stream: usize);
    stream_synchronize = c"cuStreamSynchronize"(stream: usize);
    stream_is_capturing = c"cuStreamIsCapturing"(stream: usize, status: *mut c_int);
    stream_context = c"cuStreamGetCtx"(stream: usize, context: *mut usize);
    stream_green_context = c"cuStreamGetGreenCtx"(stream: usize, context: *mut usize);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(mode: *mut c_uint);
    address_range =
        c"cuMemGetAddressRange_v2"(base: *mut u64, bytes: *mut usize, address: u64);
    pointer_attribute =
        c"cuPointerGetAttribute"(data: *mut c_int, attribute: c_int, address: u64);
    default_pool = c"cuDeviceGetDefaultMemPool"(pool: *mut usize, device: c_int);
}

/// The driver, if its library is loaded.
#[inline]
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(ptr::null_mut());
    let known = DRIVER.load(Acquire);
    if known.is_null() {
        return find(&DRIVER);
    }
    // SAFETY: not null, so a box that was leaked.
    Some(unsafe { &*known })
}

#[cold]
fn find(place: &AtomicPtr<Driver>) -> Option<&'static Driver> {
    let driver = Driver::load();
    driver.context_current?;
    let new = Box::into_raw(Box::new(driver));
    let former = place.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire);
    // SAFETY: no other thread has seen the loser of a race; the winner is never freed.
    unsafe {
        match former {
            Ok(_) => Some(&*new),
            Err(first) => {
                drop(Box::from_raw(new));
                Some(&*first)
            }
        }
    }
}

/// A call that writes one value.
fn get<T: Copy>(start: T, call: impl FnOnce(*mut T) -> c_int) -> Option<T> {
    let mut value = start;
    (call(&raw mut value) == SUCCESS).then_some(value)
}

impl Driver {
    /// The thread's current context; `None` if there is none.
    #[inline]
    pub(crate) fn current_context(&self) -> Option<usize> {
        get(0, |context| self.context_current(context)).filter(|&context| context != 0)
    }

    /// The primary context of `device`, if it is in use; from now on it stays in use.
    pub(crate) fn primary_context(&self, device: c_int) -> Option<usize> {
        // Retaining a context that is not in use would make it.
        let is_active = self.is_active(device) == Some(true);
        is_active.then(|| get(0, |context| self.primary_retain(context, device)))?
    }

    /// Runs `work` with the primary context of `device`, which stays in use for that long only.
    pub(crate) fn with_primary_context<T>(
        &self,
        device: c_int,
        work: impl FnOnce(usize) -> T,
    ) -> Option<T> {
        let context = self.primary_context(device)?;
        let result = work(context);
        self.primary_release(device);
        Some(result)
    }

    /// Returns true if the primary context of `device` is in use, `None` if that is not known.
    pub(crate) fn is_active(&self, device: c_int) -> Option<bool> {
        let mut flags = 0;
        let is_active = get(0, |active| self.primary_state(device, &raw mut flags, active));
        is_active.map(|is_active| is_active != 0)
    }

    /// How many devices there are; 1 if the driver does not say.
    pub(crate) fn count_devices(&self) -> c_int {
        get(1, |count| self.device_count(count)).unwrap_or(1)
    }

    /// Waits for all work of `context`.
    pub(crate) fn synchronize(&self, context: usize) -> c_int {
        self.within(context, || self.context_synchronize())
    }

    /// The device of `context`.
    pub(crate) fn device_of(&self, context: usize) -> Option<c_int> {
        get(0, |device| self.within(context, || self.context_device(device)))
    }

    /// Work in context `user` may use memory of context `owner`.
    pub(crate) fn enable_peer(&self, user: usize, owner: usize) {
        self.within(user, || self.context_enable_peer(owner, 0));
    }

    /// Makes a call while `context` is current.
    fn within(&self, context: usize, call: impl FnOnce() -> c_int) -> c_int {
        if self.current_context() == Some(context) {
            return call();
        }
        match self.context_push(context) {
            SUCCESS => {
                let status = call();
                let mut popped = 0;
                self.context_pop(&raw mut popped);
                status
            }
            status => status,
        }
    }

    /// A stream of the current context that orders with no other.
    pub(crate) fn create_stream(&self) -> Option<usize> {
        self.relaxed(|| get(0, |stream| self.stream_create(stream, NON_BLOCKING)))
    }

    /// Destroys a stream of ours.
    pub(crate) fn destroy_stream(&self, stream: usize) {
        self.relaxed(|| self.stream_destroy(stream));
    }

    /// Waits for a stream of ours; returns true if its work is done.
    pub(crate) fn wait_for_stream(&self, stream: usize) -> bool {
        self.relaxed(|| self.stream_synchronize(stream)) == SUCCESS
    }

    /// Returns true if the work of a stream of ours is done; `None` if the driver does not say.
    pub(crate) fn is_idle(&self, stream: usize) -> Option<bool> {
        match self.relaxed(|| self.stream_query(stream)) {
            SUCCESS => Some(true),
            NOT_READY => Some(false),
            _ => None,
        }
    }

    /// Returns true if work on `stream` becomes part of a graph, or is refused because of one.
    pub(crate) fn is_capturing(&self, stream: usize) -> bool {
        get(0, |status| self.stream_is_capturing(stream, status)) != Some(0)
    }

    /// The context of `stream`; 0 if the driver refuses to say, `None` if it has no such function.
    pub(crate) fn context_of(&self, stream: usize) -> Option<usize> {
        let mut context = 0;
        match self.stream_context(stream, &raw mut context) {
            SUCCESS => Some(context),
            NOT_FOUND => None,
            _ => Some(0),
        }
    }

    /// The context that `stream` ends with: its green context if it has one, else its context.
    pub(crate) fn owner_of(&self, stream: usize) -> Option<usize> {
        let green = get(0, |context| self.stream_green_context(stream, context));
        green.filter(|&context| context != 0).or_else(|| self.context_of(stream))
    }

    /// The device of the memory at `address`; `None` if the driver knows none.
    pub(crate) fn device_at(&self, address: u64) -> Option<c_int> {
        get(0, |ordinal| self.pointer_attribute(ordinal, DEVICE_ORDINAL, address))
    }

    /// The start of the driver's allocation that contains `address`.
    pub(crate) fn base_of(&self, address: u64) -> Option<u64> {
        let mut bytes = 0;
        get(0, |base| self.address_range(base, &raw mut bytes, address))
    }

    /// The memory pool that a device has from the start.
    pub(crate) fn default_pool_of(&self, device: c_int) -> Option<usize> {
        get(0, |pool| self.default_pool(pool, device))
    }

    /// Runs `work` in the mode that allows calls during captures which are refused by default, but
    /// disturb none.
    pub(crate) fn relaxed<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        let is_relaxed = self.exchange_capture_mode(&raw mut mode) == SUCCESS;
        let result = work();
        if is_relaxed {
            self.exchange_capture_mode(&raw mut mode);
        }
        result
    }
}
