//! The driver's own functions, found by name, as the probes call them.
//!
//! Genesis's device makes every call in relaxed capture mode and in its own context. The probes ask
//! what happens without that, and time calls alone, so they call the driver themselves. Genesis's
//! own code loads the library and describes memory to it. Handles are integers, as `cuda.h` defines
//! them on 64-bit Linux. If the driver lacks a function, the call that needs it fails, and with it
//! one probe.
//!
//! SAFETY of the calls (`call!`): the functions have the parameters that `cuda.h` declares for
//! their symbols; pointers are to live locals, which the driver does not use after the call.
//! Addresses and handles are the probe's own, and a driver answers an error for others.

mod context;
mod gate;
mod graph;
mod hold;
mod host_words;
mod kernels;
mod memory;
mod module;
mod streams;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::time::Instant;

use genesis::driver::cuda::{Library, sys};

pub(crate) use context::Context;
pub(crate) use gate::Gate;
pub(crate) use graph::Graph;
pub(crate) use hold::{Churn, HELD_FOR, Hold, Holder};
pub(crate) use host_words::HostWords;
pub(crate) use kernels::Writer;
pub(crate) use module::{DEPENDENT, Grid, Kernel, Module, ROUNDS};
pub(crate) use streams::{CaptureMode, Event, Stream};

/// A driver function that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) call: &'static str,
    pub(crate) code: i32,
}

/// The result of a driver function.
pub(crate) type Answer<T = ()> = Result<T, Failure>;

/// `CUDA_ERROR_NOT_FOUND`: here also if the driver has no such function.
const NOT_FOUND: i32 = 500;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: i32 = 600;

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} answered {}", self.call, self.code)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// Of simcuda: virtual time spent in calls, in nanoseconds; or races found so far.
type Figure = unsafe extern "C" fn() -> i64;
type PricesName = unsafe extern "C" fn() -> *const c_char;

type HostFunction = unsafe extern "C" fn(*mut c_void);

genesis::driver_table! {
    /// The functions, as far as the driver has them.
    #[allow(non_snake_case)]
    struct Api {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGet(*mut c_int, c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGetAttribute(*mut c_int, c_int, c_int);
        cuDeviceGetName(*mut c_char, c_int, c_int);
        cuDevicePrimaryCtxRetain(*mut usize, c_int);
        cuCtxSetCurrent(usize);
        cuCtxGetCurrent(*mut usize);
        cuCtxCreate_v2(*mut usize, c_uint, c_int);
        cuCtxEnablePeerAccess(usize, c_uint);
        cuCtxSynchronize();
        cuDeviceGetDevResource(c_int, *mut context::Resource, c_int);
        cuDevSmResourceSplitByCount(
            *mut context::Resource, *mut c_uint, *const context::Resource, *mut context::Resource,
            c_uint, c_uint
        );
        cuDevResourceGenerateDesc(*mut usize, *mut context::Resource, c_uint);
        cuGreenCtxCreate(*mut usize, usize, c_int, c_uint);
        cuGreenCtxStreamCreate(*mut usize, usize, c_uint, c_int);
        cuCtxFromGreenCtx(*mut usize, usize);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut u64, usize);
        cuMemFree_v2(u64);
        cuMemAllocManaged(*mut u64, usize, c_uint);
        cuMemAdvise(u64, usize, c_int, c_int);
        cuMemPrefetchAsync(u64, usize, c_int, usize);
        cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
        cuMemAllocHost_v2(*mut u64, usize);
        cuMemFreeHost(u64);
        cuMemHostRegister_v2(u64, usize, c_uint);
        cuMemHostUnregister(u64);
        cuMemGetAllocationGranularity(*mut usize, *const sys::CUmemAllocationProp, c_int);
        cuMemAddressReserve(*mut u64, usize, usize, u64, u64);
        cuMemAddressFree(u64, usize);
        cuMemCreate(*mut u64, usize, *const sys::CUmemAllocationProp, u64);
        cuMemRelease(u64);
        cuMemMap(u64, usize, usize, u64, u64);
        cuMemSetAccess(u64, usize, *const sys::CUmemAccessDesc, usize);
        cuMemUnmap(u64, usize);
        cuMemsetD32Async(u64, c_uint, usize, usize);
        cuMemcpyDtoDAsync_v2(u64, u64, usize, usize);
        cuMemcpyDtoH_v2(*mut c_void, u64, usize);
        cuMemcpyHtoD_v2(u64, *const c_void, usize);
        cuMemcpyDtoHAsync_v2(u64, u64, usize, usize);
        cuMemcpyHtoDAsync_v2(u64, u64, usize, usize);
        cuEventCreate(*mut usize, c_uint);
        cuEventDestroy_v2(usize);
        cuEventRecord(usize, usize);
        cuEventQuery(usize);
        cuEventSynchronize(usize);
        cuStreamCreate(*mut usize, c_uint);
        cuStreamDestroy_v2(usize);
        cuStreamQuery(usize);
        cuStreamSynchronize(usize);
        cuStreamWaitEvent(usize, usize, c_uint);
        cuStreamIsCapturing(usize, *mut c_int);
        cuStreamGetId(usize, *mut u64);
        cuStreamGetCtx(usize, *mut usize);
        cuStreamBeginCapture_v2(usize, c_uint);
        cuStreamEndCapture(usize, *mut usize);
        cuThreadExchangeStreamCaptureMode(*mut c_uint);
        cuGraphInstantiateWithFlags(*mut usize, usize, u64);
        cuGraphLaunch(usize, usize);
        cuGraphDestroy(usize);
        cuLaunchHostFunc(usize, HostFunction, *mut c_void);
        cuModuleLoadData(*mut usize, *const c_char);
        cuModuleLoadDataEx(*mut usize, *const c_char, c_uint, *mut c_int, *mut *mut c_void);
        cuModuleGetFunction(*mut usize, usize, *const c_char);
        cuLaunchKernel(
            usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize,
            *mut *mut c_void, *mut *mut c_void
        );
        cuLaunchKernelEx(
            *const module::LaunchConfiguration, usize, *mut *mut c_void, *mut *mut c_void
        );
    }
}

/// Calls a driver function; an error if the driver has none of that name.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),*)) => {{
        let name = stringify!($name);
        match $driver.api.$name {
            // SAFETY: see the head of this module.
            Some(function) => $crate::driver::check(name, unsafe { function($($argument),*) }),
            None => Err($crate::driver::Failure { call: name, code: $crate::driver::NOT_FOUND }),
        }
    }};
}
use call;

fn check(call: &'static str, code: c_int) -> Answer {
    if code == 0 { Ok(()) } else { Err(Failure { call, code }) }
}

/// The driver, started, with the primary context of its first device.
#[derive(Debug)]
pub(crate) struct Driver {
    api: Api,
    device: c_int,
    context: usize,
    virtual_clock: Option<Figure>,
    races: Option<Figure>,
    prices_name: Option<PricesName>,
    opened: Instant,
}

impl Driver {
    /// Loads and starts the driver, and makes its context current on this thread.
    pub(crate) fn open() -> Result<Self, String> {
        let library = Library::load(c"libcuda.so.1")
            .map_err(|_| "libcuda.so.1 cannot be loaded: there is no CUDA driver".to_owned())?;
        // SAFETY: simcuda alone has the functions, of this type.
        let figure = |name: &CStr| unsafe {
            std::mem::transmute::<*mut c_void, Option<Figure>>(library.symbol(name))
        };
        let virtual_clock = figure(c"simcuda_driver_nanoseconds");
        let races = figure(c"simcuda_check");
        // SAFETY: as above.
        let prices_name = unsafe {
            let address = library.symbol(c"simcuda_prices");
            std::mem::transmute::<*mut c_void, Option<PricesName>>(address)
        };
        let api = Api::find(&library);
        let opened = Instant::now();
        let mut driver =
            Self { api, device: 0, context: 0, virtual_clock, races, prices_name, opened };
        call!(driver, cuInit(0))?;
        let (mut device, mut context) = (0, 0);
        call!(driver, cuDeviceGet(&mut device, 0))?;
        call!(driver, cuDevicePrimaryCtxRetain(&mut context, device))?;
        (driver.device, driver.context) = (device, context);
        driver.enter()?;
        Ok(driver)
    }

    /// Makes the context current on the calling thread; must be each new thread's first call.
    pub(crate) fn enter(&self) -> Answer {
        call!(self, cuCtxSetCurrent(self.context))
    }

    /// Returns true if this is simcuda and no driver of a GPU.
    pub(crate) fn is_simulated(&self) -> bool {
        self.virtual_clock.is_some()
    }

    /// The name of the price list of simcuda's virtual time; `None` on a GPU.
    pub(crate) fn simulated_prices(&self) -> Option<String> {
        // SAFETY: it takes nothing and may be called at any time.
        let name = unsafe { self.prices_name?() };
        if name.is_null() {
            return None;
        }
        // SAFETY: not null, so a text that lives as long as the driver.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Nanoseconds since the driver was opened; on simcuda virtual ones, by the price list.
    pub(crate) fn now_ns(&self) -> u64 {
        match self.virtual_clock {
            // SAFETY: it takes nothing and may be called at any time.
            Some(clock) => unsafe { clock() }.max(0) as u64,
            None => self.opened.elapsed().as_nanos() as u64,
        }
    }

    /// The number of races that simcuda has found; 0 on a GPU, where wrong bytes show them.
    pub(crate) fn races(&self) -> u64 {
        // SAFETY: it takes nothing and may be called at any time.
        self.races.map_or(0, |count| unsafe { count() }.max(0) as u64)
    }

    /// The device's name.
    pub(crate) fn name(&self) -> Answer<String> {
        let mut text = [0 as c_char; 256];
        call!(self, cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, self.device))?;
        let bytes = text.map(|character| character as u8);
        let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// The version of CUDA that the driver is of, as in `13.0`.
    pub(crate) fn cuda_version(&self) -> Answer<String> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&mut version))?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Waits for all work of the device.
    pub(crate) fn synchronize(&self) -> Answer {
        call!(self, cuCtxSynchronize())
    }
}
