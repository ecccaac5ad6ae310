//! The stream handles that a replay passes.
//!
//! A simulated device takes any number for a stream, so numbers are made up, other than those
//! with a special meaning (0, 1 and 2). A CUDA device needs real streams: they are made
//! non-blocking through the driver, and live as long as the process. In both cases the first
//! thread's stream 0 is the null stream, which frameworks use.
//!
//! On a CUDA device each thread has the first device's primary context current, as threads that
//! use CUDA's runtime have: a null stream is that of the current context.

use std::ffi::{c_int, c_uint, c_void};

use crate::error::{Error, Result};
use crate::library::Stream;

/// The first handle made up for a simulated device.
const FIRST_SIMULATED_HANDLE: usize = 0x100;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// The streams of one thread of a replay.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Indexed by device × streams per device + stream.
    pub handles: Vec<Stream>,
    context: Option<Context>,
}

/// A context of a CUDA device, and the driver's function that makes it current.
#[derive(Clone, Copy, Debug)]
struct Context {
    handle: *mut c_void,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: handles are opaque numbers here, and the driver takes them from any thread.
unsafe impl Send for Streams {}
// SAFETY: as above; they are never written through.
unsafe impl Sync for Streams {}

impl Streams {
    /// Makes the context of the streams current in the calling thread, if there is one.
    pub fn enter(&self) -> Result<()> {
        let Some(context) = self.context else { return Ok(()) };
        // SAFETY: the context is retained, and never released.
        check("cuCtxSetCurrent", unsafe { (context.set_current)(context.handle) })
    }
}

/// Streams for `threads` threads on `backend`, `stream_count` for each thread and device.
pub fn make(
    backend: &str,
    threads: usize,
    device_count: usize,
    stream_count: usize,
) -> Result<Vec<Streams>> {
    let driver = if backend == "cuda" { Some(Driver::open()?) } else { None };
    let context = driver.as_ref().map(|driver| driver.context(0)).transpose()?;
    let mut made_up = FIRST_SIMULATED_HANDLE..;
    let mut next = |thread: usize, device: usize, stream: usize| match &driver {
        _ if thread == 0 && stream == 0 => Ok(std::ptr::null_mut()),
        Some(driver) => driver.create_stream(device),
        None => Ok(std::ptr::without_provenance_mut(made_up.next().unwrap_or_default())),
    };
    (0..threads)
        .map(|thread| {
            let handles = (0..device_count)
                .flat_map(|device| (0..stream_count).map(move |stream| (device, stream)))
                .map(|(device, stream)| next(thread, device, stream))
                .collect::<Result<_>>()?;
            Ok(Streams { handles, context })
        })
        .collect()
}

/// The version of the CUDA driver, such as 12040; an error says why there is none.
pub fn cuda_driver_version() -> Result<i32> {
    Driver::load()?.version()
}

/// The functions of `libcuda.so.1` that making a stream needs.
#[derive(Debug)]
struct Driver {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    driver_get_version: unsafe extern "C" fn(*mut c_int) -> c_int,
    device_get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    primary_context_retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    context_set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    context_push: unsafe extern "C" fn(*mut c_void) -> c_int,
    context_pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    stream_create: unsafe extern "C" fn(*mut Stream, c_uint) -> c_int,
}

impl Driver {
    fn load() -> Result<Self> {
        let broken = |error| Error::failed(format!("the CUDA driver cannot be loaded: {error}"));
        // SAFETY: loading the driver's library runs only its own initialisers.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(broken)?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: each name is looked up as its type in CUDA's header.
        let driver = unsafe {
            Self {
                init: *library.get(b"cuInit\0").map_err(broken)?,
                driver_get_version: *library.get(b"cuDriverGetVersion\0").map_err(broken)?,
                device_get: *library.get(b"cuDeviceGet\0").map_err(broken)?,
                primary_context_retain: *library
                    .get(b"cuDevicePrimaryCtxRetain\0")
                    .map_err(broken)?,
                context_set_current: *library.get(b"cuCtxSetCurrent\0").map_err(broken)?,
                context_push: *library.get(b"cuCtxPushCurrent_v2\0").map_err(broken)?,
                context_pop: *library.get(b"cuCtxPopCurrent_v2\0").map_err(broken)?,
                stream_create: *library.get(b"cuStreamCreate\0").map_err(broken)?,
            }
        };
        Ok(driver)
    }

    fn open() -> Result<Self> {
        let driver = Self::load()?;
        // SAFETY: flags are 0, as CUDA demands.
        check("cuInit", unsafe { (driver.init)(0) })?;
        Ok(driver)
    }

    fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the driver writes one int.
        check("cuDriverGetVersion", unsafe { (self.driver_get_version)(&mut version) })?;
        Ok(version)
    }

    /// The primary context of a device. It stays retained: streams and current contexts live to the
    /// end of the process.
    fn context(&self, ordinal: usize) -> Result<Context> {
        let mut device = 0;
        let mut handle = std::ptr::null_mut();
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: outputs are locals of the driver's types.
        unsafe {
            check("cuDeviceGet", (self.device_get)(&mut device, ordinal))?;
            check("cuDevicePrimaryCtxRetain", (self.primary_context_retain)(&mut handle, device))?;
        }
        Ok(Context { handle, set_current: self.context_set_current })
    }

    fn create_stream(&self, ordinal: usize) -> Result<Stream> {
        let mut context = self.context(ordinal)?.handle;
        let mut stream = std::ptr::null_mut();
        // SAFETY: outputs are locals of the driver's types; the context pushed is popped.
        unsafe {
            check("cuCtxPushCurrent", (self.context_push)(context))?;
            let created = (self.stream_create)(&mut stream, NON_BLOCKING);
            check("cuCtxPopCurrent", (self.context_pop)(&mut context))?;
            check("cuStreamCreate", created)?;
        }
        Ok(stream)
    }
}

fn check(call: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::failed(format!("{call} failed with code {code}"))),
    }
}
