//! `libgenesis.so` and the functions of its C interface, looked up by name.
//!
//! The library is opened once and never closed, because destructors and threads that outlive any
//! owner may call it. The functions are plain pointers, so the measured loop pays what any C
//! program pays. Wrong arguments are harmless by the library's own contract (a foreign or stale
//! pointer is reported, a wrong stream is ignored), so the wrappers here are safe.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The file name of the library.
pub const FILE_NAME: &str = "libgenesis.so";
/// The name by which programs are linked with it: an installation without headers has only this.
const SONAME: &str = "libgenesis.so.0";
/// The environment variable with the library's path.
pub const PATH_VARIABLE: &str = "GENESIS_LIBRARY";

/// A `cudaStream_t`.
pub type Stream = *mut c_void;

/// The number of a `genesis_status`.
pub type Status = c_int;
/// `GENESIS_STATUS_SUCCESS`.
const SUCCESS: Status = 0;
/// `GENESIS_STATUS_INVALID_CONFIGURATION`: the settings are at fault.
const INVALID_CONFIGURATION: Status = 6;

/// `genesis_gauge`: a quantity over time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The highest since the last reset.
    pub peak: u64,
    /// Everything ever added.
    pub total: u64,
}

/// `genesis_stats`: what the library counts on one device. Sizes are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// The size of this structure, set by the caller.
    pub struct_size: usize,
    /// Bytes as callers requested them.
    pub requested_bytes: Gauge,
    /// Bytes of the live blocks.
    pub allocated_bytes: Gauge,
    /// Physical memory held.
    pub reserved_bytes: Gauge,
    /// Live blocks and pending ones.
    pub active_bytes: Gauge,
    /// Reserved and not active.
    pub inactive_bytes: Gauge,
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests that went to the driver.
    pub misses: u64,
    /// Calls of the driver.
    pub driver_calls: u64,
    /// Calls of the driver that allocate, map or release memory.
    pub driver_memory_calls: u64,
    /// Time in the driver, in nanoseconds; virtual on a simulated device.
    pub driver_nanoseconds: u64,
    /// Requests tried again after memory was released.
    pub retries: u64,
    /// Requests refused because memory was short.
    pub out_of_memory_events: u64,
    /// Blocks reused on another stream than their own.
    pub cross_stream_reuses: u64,
    /// Cached and reusable now.
    pub free_bytes: u64,
    /// The largest single cached run.
    pub largest_free_bytes: u64,
    /// Hits over requests.
    pub hit_rate: f64,
    /// The part of reserved memory that is not live.
    pub fragmentation_ratio: f64,
    /// How scattered the cached memory is.
    pub fragmentation_index: f64,
}

/// Functions of the hot path, as the measured loop calls them.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// `genesis_malloc`.
    pub malloc: unsafe extern "C" fn(usize, c_int, Stream) -> *mut c_void,
    /// `genesis_free`.
    pub free: unsafe extern "C" fn(*mut c_void, usize, c_int, Stream),
    /// `genesis_block_record_stream`.
    pub record_stream: unsafe extern "C" fn(*mut c_void, Stream) -> Status,
    /// `genesis_cache_empty`.
    pub cache_empty: unsafe extern "C" fn(c_int) -> Status,
}

/// The library, open for the rest of the process.
#[derive(Debug)]
pub struct Library {
    /// Its path.
    pub path: PathBuf,
    /// Its hot path.
    pub functions: Functions,
    stats_get: unsafe extern "C" fn(c_int, *mut Stats) -> Status,
    stats_reset_peak: unsafe extern "C" fn(c_int) -> Status,
    memory_info_get: unsafe extern "C" fn(c_int, *mut usize, *mut usize) -> Status,
    memory_limit_set: unsafe extern "C" fn(c_int, usize) -> Status,
    device_count_get: unsafe extern "C" fn(*mut c_int) -> Status,
    device_name_get: unsafe extern "C" fn(c_int, *mut c_char, usize) -> Status,
    backend_get: unsafe extern "C" fn(*mut *const c_char) -> Status,
    option_get: unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> Status,
    last_error_message_get: unsafe extern "C" fn() -> *const c_char,
    version_get: unsafe extern "C" fn() -> *const c_char,
    handle: &'static libloading::Library,
    status_text_get: unsafe extern "C" fn(Status) -> *const c_char,
    /// Counts one kind of call of a simulated driver: only libraries of `benches/peers` have it.
    stand_in_calls: Option<unsafe extern "C" fn(*const c_char) -> i64>,
}

/// The library's profiler.
#[derive(Debug)]
pub struct Profiler<'a> {
    library: &'a Library,
    start: unsafe extern "C" fn() -> Status,
    stop: unsafe extern "C" fn() -> Status,
    write: unsafe extern "C" fn(*const c_char) -> Status,
    iteration: unsafe extern "C" fn(u32) -> Status,
}

/// The path of the library: `given`, else that in `GENESIS_LIBRARY`, else next to the running
/// program.
pub fn locate(given: Option<&Path>) -> Result<PathBuf> {
    let named = given.map(Path::to_owned).or_else(|| {
        std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
    });
    if let Some(path) = named {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Error::usage(format!("{}: there is no such library", path.display())))
        };
    }
    let beside = beside_program(FILE_NAME)?;
    let beside = beside.map_or_else(|| beside_program(SONAME), |path| Ok(Some(path)))?;
    beside.ok_or_else(|| {
        Error::usage(format!(
            "{FILE_NAME} is not beside this program: build it with `cargo build --release`, or say \
             where it is with --library or {PATH_VARIABLE}"
        ))
    })
}

/// The library of that file name next to the running program, where a build or an installation
/// puts it; `None` if there is none.
pub fn beside_program(file_name: &str) -> Result<Option<PathBuf>> {
    let program = std::env::current_exe()
        .map_err(|error| Error::failed(format!("cannot tell where this program is: {error}")))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let of_debian = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut paths = ["", "deps", "..", "../lib", "../lib64", &of_debian]
        .map(|beside| folder.join(beside).join(file_name))
        .into_iter();
    Ok(paths.find(|path| path.is_file()))
}

impl Library {
    /// Opens the library at `path` and looks up every function. No function is called, so the
    /// library has not read its settings yet.
    pub fn open(path: &Path) -> Result<Self> {
        let broken = |error| Error::failed(format!("{}: {error}", path.display()));
        // SAFETY: loading runs the library's initialisers, which call nothing outside it.
        let library = unsafe { libloading::Library::new(path) }.map_err(broken)?;
        // Never closed: see the note of this module.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: each name is looked up as its type in the library's header.
        let opened = unsafe {
            Self {
                path: path.to_owned(),
                functions: Functions {
                    malloc: *library.get(b"genesis_malloc\0").map_err(broken)?,
                    free: *library.get(b"genesis_free\0").map_err(broken)?,
                    record_stream: *library
                        .get(b"genesis_block_record_stream\0")
                        .map_err(broken)?,
                    cache_empty: *library.get(b"genesis_cache_empty\0").map_err(broken)?,
                },
                stats_get: *library.get(b"genesis_stats_get\0").map_err(broken)?,
                stats_reset_peak: *library.get(b"genesis_stats_reset_peak\0").map_err(broken)?,
                memory_info_get: *library.get(b"genesis_memory_info_get\0").map_err(broken)?,
                memory_limit_set: *library.get(b"genesis_memory_limit_set\0").map_err(broken)?,
                device_count_get: *library.get(b"genesis_device_count_get\0").map_err(broken)?,
                device_name_get: *library.get(b"genesis_device_name_get\0").map_err(broken)?,
                backend_get: *library.get(b"genesis_backend_get\0").map_err(broken)?,
                option_get: *library.get(b"genesis_option_get\0").map_err(broken)?,
                last_error_message_get: *library
                    .get(b"genesis_last_error_message_get\0")
                    .map_err(broken)?,
                version_get: *library.get(b"genesis_version_get\0").map_err(broken)?,
                handle: library,
                status_text_get: *library.get(b"genesis_status_text_get\0").map_err(broken)?,
                stand_in_calls: library.get(b"stand_in_calls\0").ok().map(|symbol| *symbol),
            }
        };
        opened.let_streams_last()?;
        Ok(opened)
    }

    /// Recorded programs are PyTorch's, whose streams last: the driver is not asked which stream a
    /// handle names, unless the user wants that.
    fn let_streams_last(&self) -> Result<()> {
        const NAME: &str = "GENESIS_STREAM_IDS";
        if std::env::var_os(NAME).is_some() {
            return Ok(());
        }
        type Set = unsafe extern "C" fn(*const c_char, *const c_char) -> Status;
        // SAFETY: the name is looked up as its type in the library's header.
        let Ok(set) = (unsafe { self.handle.get::<Set>(b"genesis_option_set\0") }) else {
            return Ok(());
        };
        // SAFETY: two strings that end with NUL. A library without the option does not ask either.
        unsafe { set(c"GENESIS_STREAM_IDS".as_ptr(), c"off".as_ptr()) };
        Ok(())
    }

    /// Waits until the memory that `GENESIS_PLAN` names is ready, if there is such a plan.
    pub(crate) fn wait_for_plan(&self) -> Result<()> {
        type Wait = unsafe extern "C" fn() -> Status;
        // SAFETY: the name is looked up as its type in the library's header.
        let Ok(wait) = (unsafe { self.handle.get::<Wait>(b"genesis_plan_wait\0") }) else {
            return Ok(());
        };
        // SAFETY: the function takes nothing.
        self.check(unsafe { wait() })
    }

    /// The profiler; an error if the library is too old to have one.
    pub fn profiler(&self) -> Result<Profiler<'_>> {
        let broken = |error| Error::failed(format!("{}: {error}", self.path.display()));
        // SAFETY: each name is looked up as its type in the library's header.
        let profiler = unsafe {
            Profiler {
                library: self,
                start: *self.handle.get(b"genesis_profile_start\0").map_err(broken)?,
                stop: *self.handle.get(b"genesis_profile_stop\0").map_err(broken)?,
                write: *self.handle.get(b"genesis_profile_write\0").map_err(broken)?,
                iteration: *self.handle.get(b"genesis_trace_iteration\0").map_err(broken)?,
            }
        };
        Ok(profiler)
    }

    /// `genesis_version_get`.
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns a static text.
        text(unsafe { (self.version_get)() })
    }

    /// How many devices there are. The library starts with the first call that needs it, so
    /// a wrong setting or a missing driver is reported here.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the library writes one int.
        self.check(unsafe { (self.device_count_get)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The marketing name of `device`.
    pub fn device_name(&self, device: usize) -> Result<String> {
        let device = ordinal(device);
        self.fill_text(|buffer, capacity| {
            // SAFETY: the library writes at most `capacity` bytes, the last a NUL.
            unsafe { (self.device_name_get)(device, buffer, capacity) }
        })
    }

    /// The backend in force: `cuda`, `host` or `sim`.
    pub fn backend(&self) -> Result<String> {
        let mut name = std::ptr::null();
        // SAFETY: the library writes one pointer to a static text.
        self.check(unsafe { (self.backend_get)(&mut name) })?;
        Ok(text(name))
    }

    /// The value in force of the option `name`.
    pub fn option(&self, name: &str) -> Result<String> {
        let name = CString::new(name).map_err(|_| Error::usage("a NUL in an option's name"))?;
        self.fill_text(|buffer, capacity| {
            // SAFETY: a NUL-terminated name in, at most `capacity` bytes out.
            unsafe { (self.option_get)(name.as_ptr(), buffer, capacity) }
        })
    }

    /// The name of the price list by which a simulated driver counts time, if the library has a
    /// function for it: those of `benches/peers` have one, Genesis has not.
    pub(crate) fn stand_in_prices(&self) -> Option<String> {
        type Get = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: the name is looked up as the type that those libraries give it.
        let prices = unsafe { self.handle.get::<Get>(b"stand_in_prices\0") }.ok()?;
        // SAFETY: the function takes nothing and returns a static text, or null.
        Some(text(unsafe { prices() })).filter(|name| !name.is_empty())
    }

    /// How often a simulated driver was called by any of `names`, if the library counts that.
    pub(crate) fn stand_in_calls(&self, names: &[&CStr]) -> Option<u64> {
        let count = self.stand_in_calls?;
        // SAFETY: the function reads a NUL-terminated name.
        let counts = names.iter().map(|name| unsafe { count(name.as_ptr()) });
        counts.map(|calls| u64::try_from(calls).ok()).sum()
    }

    /// Free and total bytes of `device`.
    pub fn memory_info(&self, device: usize) -> Result<(u64, u64)> {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: the library writes two sizes.
        self.check(unsafe {
            (self.memory_info_get)(ordinal(device), &mut free_bytes, &mut total_bytes)
        })?;
        Ok((free_bytes as u64, total_bytes as u64))
    }

    /// Limits the bytes that the library may reserve on `device`; 0 for no limit.
    pub fn set_memory_limit(&self, device: usize, limit_bytes: u64) -> Result<()> {
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        // SAFETY: plain numbers.
        self.check(unsafe { (self.memory_limit_set)(ordinal(device), limit_bytes) })
    }

    /// What the library counts on `device`.
    pub fn stats(&self, device: usize) -> Result<Stats> {
        let mut stats = Stats { struct_size: size_of::<Stats>(), ..Stats::default() };
        // SAFETY: the library writes at most `struct_size` bytes.
        self.check(unsafe { (self.stats_get)(ordinal(device), &mut stats) })?;
        Ok(stats)
    }

    /// Resets the peaks of `device` to the current values.
    pub fn reset_peaks(&self, device: usize) -> Result<()> {
        // SAFETY: a plain number.
        self.check(unsafe { (self.stats_reset_peak)(ordinal(device)) })
    }

    /// Allocates `requested_bytes` on the null stream of `device` and frees them again.
    pub fn try_allocation(&self, device: usize, requested_bytes: u64) -> Result<()> {
        let requested_bytes = usize::try_from(requested_bytes).unwrap_or(usize::MAX);
        let (device, stream) = (ordinal(device), std::ptr::null_mut());
        // SAFETY: the null stream always exists; only this frees the block.
        unsafe {
            let block = (self.functions.malloc)(requested_bytes, device, stream);
            if block.is_null() {
                return Err(Error::failed(self.last_error_message()));
            }
            (self.functions.free)(block, requested_bytes, device, stream);
        }
        Ok(())
    }

    /// Gives back everything cached on every device.
    pub fn empty_cache(&self) -> Result<()> {
        // SAFETY: a plain number.
        self.check(unsafe { (self.functions.cache_empty)(-1) })
    }

    /// The library's last error on this thread, as a sentence; empty when there is none.
    pub fn last_error_message(&self) -> String {
        // SAFETY: the text lives until the thread's next call, and is copied here.
        text(unsafe { (self.last_error_message_get)() })
    }

    fn fill_text(&self, fill: impl FnOnce(*mut c_char, usize) -> Status) -> Result<String> {
        let mut buffer = [0u8; 256];
        self.check(fill(buffer.as_mut_ptr().cast(), buffer.len()))?;
        let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
        Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
    }

    fn check(&self, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut message = self.last_error_message();
        if message.is_empty() {
            // SAFETY: any number is accepted; the text is static.
            message = text(unsafe { (self.status_text_get)(status) });
        }
        Err(Error { message, is_usage: status == INVALID_CONFIGURATION })
    }
}

impl Profiler<'_> {
    /// Begins a profile.
    pub fn start(&self) -> Result<()> {
        // SAFETY: the function takes nothing.
        self.library.check(unsafe { (self.start)() })
    }

    /// Ends it.
    pub fn stop(&self) -> Result<()> {
        // SAFETY: the function takes nothing.
        self.library.check(unsafe { (self.stop)() })
    }

    /// Writes it to `path`, in the form that the name ends in.
    pub fn write(&self, path: &Path) -> Result<()> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::usage("a NUL in a path"))?;
        // SAFETY: a NUL-terminated path.
        self.library.check(unsafe { (self.write)(path.as_ptr()) })
    }

    /// Tells the profiler that iteration `number` of the program has ended.
    pub fn end_iteration(&self, number: u32) -> Result<()> {
        // SAFETY: a plain number.
        self.library.check(unsafe { (self.iteration)(number) })
    }
}

/// A device as the C interface counts it.
fn ordinal(device: usize) -> c_int {
    c_int::try_from(device).unwrap_or(c_int::MAX)
}

/// A copy of a C text; empty for a null pointer.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and NUL-terminated by the library's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
