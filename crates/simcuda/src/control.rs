//! What tests ask and set: `simcuda_…`, found by `dlsym` or `ctypes`.
//!
//! ```c
//! int64_t  simcuda_check(void);                         // violations so far
//! size_t   simcuda_violations(char *text, size_t size); // a line each; the length it wants
//! void     simcuda_violations_clear(void);
//! int64_t  simcuda_census(const char *what);            // what is alive, see below
//! int64_t  simcuda_calls(const char *name);             // calls of cuMemAlloc and its like
//! int64_t  simcuda_driver_nanoseconds(void);            // virtual time in calls, all devices
//! int      simcuda_thread_nanoseconds(uint64_t *time);  // virtual time in this thread's calls
//! const char *simcuda_prices(void);                     // whose prices that time goes by; NULL
//! int64_t  simcuda_peak_bytes(int device);              // most memory in use at once
//! void     simcuda_peak_reset(int device);
//! int      simcuda_progress(int manual);                // streams wait to be advanced
//! int      simcuda_hold(int device, void *stream, int held);
//! int64_t  simcuda_advance(int device, void *stream, int64_t operations);
//! int      simcuda_delay(int device, void *stream, int64_t nanoseconds);
//! int      simcuda_limit(int device, int64_t bytes);    // memory there may be; < 0: all again
//! int      simcuda_fail(const char *call, int64_t nth, int code, int64_t times);
//! int      simcuda_faults_clear(void);
//! int      simcuda_set(const char *variable, const char *value); // instead of the environment
//! int      simcuda_touch(int device, void *stream, void *address, size_t bytes, int writes);
//! const char *simcuda_validate(void);                   // what is wrong inside; NULL: nothing
//! ```
//!
//! `simcuda_fail` of a call that the machine itself has, such as `cuEventRecord`, fails it under every
//! symbol; of `@cuEventRecord`, under that symbol alone. So the calls of one library fail, and those
//! that another makes through the runtime do not.
//!
//! `simcuda_set` has an effect only before the first call of CUDA; after it, it returns 1.
//!
//! −1 and NULL mean: no such name, or no simulation yet. `census` knows `used_bytes` (device
//! memory, without variables of programs), `reserved_bytes` (addresses), `allocations`,
//! `handles`, `reservations`, `mappings`, `events`, `streams`, `graphs`, `pool_blocks`,
//! `host_allocations`, `host_bytes`, `host_registrations`, `shadow_segments`.
//!
//! Functions are safe from any thread and report errors as CUDA codes.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, OnceLock};

use simgpu::{Access, Call, Code, Progress, Work};

use crate::settings::Fault;
use crate::simulation::{Simulation, existing, fail, machine_call};
use crate::{code, kernels, settings};

/// The text at `text`, if it is UTF-8.
///
/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn read<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so NUL-terminated.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Does something to the simulation and returns its code.
fn with(work: impl FnOnce(&Simulation) -> Result<(), Code>) -> c_int {
    let Some(simulation) = existing() else { return code::NOT_INITIALIZED.0 };
    let result = work(simulation);
    simulation.host_functions.run_due(&simulation.machine);
    result.err().map_or(0, |code| code.0)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_check() -> i64 {
    let Some(simulation) = existing() else { return 0 };
    simulation.violations.collect(&simulation.machine);
    simulation.violations.count() as i64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_violations(text: *mut c_char, size: usize) -> usize {
    let Some(simulation) = existing() else { return 0 };
    simulation.violations.collect(&simulation.machine);
    let all = simulation.violations.text();
    if !text.is_null() && size > 0 {
        let count = all.len().min(size - 1);
        // SAFETY: there is room for `size` characters, and `count` is less.
        unsafe {
            text.copy_from_nonoverlapping(all.as_ptr().cast(), count);
            text.add(count).write(0);
        }
    }
    all.len()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_violations_clear() {
    if let Some(simulation) = existing() {
        simulation.violations.collect(&simulation.machine);
        simulation.violations.clear();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_census(what: *const c_char) -> i64 {
    // SAFETY: the caller passes a string.
    let (Some(simulation), Some(what)) = (existing(), unsafe { read(what) }) else { return -1 };
    let census = simulation.machine.census();
    let count = match what {
        "used_bytes" => return census.used_bytes as i64 - kernels::variable_bytes() as i64,
        "reserved_bytes" => return census.reserved_bytes as i64,
        "host_bytes" => return census.host_bytes as i64,
        "allocations" => census.allocations - kernels::variable_count(),
        "opened" => census.opened,
        "imported_bytes" => return simulation.machine.imported_bytes() as i64,
        "handles" => census.handles,
        "reservations" => census.reservations,
        "mappings" => census.mappings,
        "events" => census.events,
        "streams" => simulation.streams.count(),
        "graphs" => simulation.graphs.count(),
        "pool_blocks" => simulation.pools.count(),
        "host_allocations" => census.host_allocations,
        "host_registrations" => simulation.host_memory.registered(),
        "shadow_segments" => simulation.machine.shadow_segments(),
        _ => return -1,
    };
    count as i64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_set(variable: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the caller passes strings.
    let (Some(variable), Some(value)) = (unsafe { read(variable) }, unsafe { read(value) }) else {
        return Code::INVALID_VALUE.0;
    };
    if existing().is_some() {
        return Code::INVALID_VALUE.0;
    }
    settings::set(variable, value);
    0
}

/// The sum of `of` over all devices.
fn over_devices(simulation: &Simulation, of: impl Fn(&simgpu::Usage) -> u64) -> i64 {
    let devices = 0..simulation.settings.devices;
    let usages = devices.filter_map(|device| simulation.machine.usage(device).ok());
    usages.map(|usage| of(&usage)).sum::<u64>() as i64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_calls(name: *const c_char) -> i64 {
    // SAFETY: the caller passes a string.
    let (Some(simulation), Some(name)) = (existing(), unsafe { read(name) }) else { return -1 };
    let wanted: Vec<Call> = match (name, machine_call(name)) {
        ("all", _) => Call::ALL.to_vec(),
        (_, Some(call)) => vec![call],
        _ => return -1,
    };
    over_devices(simulation, |usage| wanted.iter().map(|&call| usage.count(call)).sum())
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_driver_nanoseconds() -> i64 {
    existing().map_or(-1, |simulation| over_devices(simulation, |usage| usage.driver_nanoseconds))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_thread_nanoseconds(time: *mut u64) -> c_int {
    if time.is_null() {
        return Code::INVALID_VALUE.0;
    }
    // SAFETY: not null, so the caller's place for one number.
    unsafe { time.write(simgpu::thread_driver_nanoseconds()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_prices() -> *const c_char {
    static NAME: OnceLock<CString> = OnceLock::new();
    let Some(simulation) = existing() else { return std::ptr::null() };
    let name = || CString::new(simulation.settings.prices.name()).unwrap_or_default();
    NAME.get_or_init(name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_peak_bytes(device: c_int) -> i64 {
    let peak = |simulation: &Simulation| {
        simulation.device(device).and_then(|device| simulation.machine.peak_used_bytes(device))
    };
    existing().and_then(|simulation| peak(simulation).ok()).map_or(-1, |bytes| bytes as i64)
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_peak_reset(device: c_int) -> c_int {
    with(|simulation| simulation.machine.reset_peak(simulation.device(device)?))
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_progress(manual: c_int) -> c_int {
    with(|simulation| {
        let progress = if manual != 0 { Progress::Manual } else { Progress::Automatic };
        simulation.machine.set_progress(progress);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_hold(device: c_int, stream: usize, held: c_int) -> c_int {
    with(|simulation| simulation.machine.hold(simulation.device(device)?, stream, held != 0))
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_advance(device: c_int, stream: usize, operations: i64) -> i64 {
    let mut completed = -1;
    with(|simulation| {
        let (device, operations) = (simulation.device(device)?, operations.max(0) as u64);
        completed = simulation.machine.advance(device, stream, operations)? as i64;
        Ok(())
    });
    completed
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_delay(device: c_int, stream: usize, nanoseconds: i64) -> c_int {
    with(|simulation| {
        let nanoseconds = nanoseconds.max(0) as u64;
        simulation.machine.delay(simulation.device(device)?, stream, nanoseconds)
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_limit(device: c_int, bytes: i64) -> c_int {
    with(|simulation| {
        let device = simulation.device(device)?;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        simulation.machine.faults().limit_capacity(device, bytes)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn simcuda_fail(call: *const c_char, nth: i64, code: c_int, times: i64) -> c_int {
    with(|simulation| {
        // SAFETY: the caller passes a string.
        let call = unsafe { read(call) }.ok_or(Code::INVALID_VALUE)?;
        let times = u64::try_from(times).unwrap_or(u64::MAX);
        let nth = nth.max(1) as u64;
        let fault = Fault { call: call.to_owned(), nth, code, times };
        fail(&simulation.machine, &simulation.script, &fault);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_faults_clear() -> c_int {
    with(|simulation| {
        simulation.machine.faults().clear();
        simulation.script.clear();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_touch(
    device: c_int,
    stream: usize,
    address: u64,
    bytes: usize,
    writes: c_int,
) -> c_int {
    with(|simulation| {
        let access = if writes != 0 { Access::Write } else { Access::Read };
        let device = simulation.device(device)?;
        simulation.machine.touch(
            device,
            stream,
            Work::new(address, bytes as u64, access, "simcuda_touch"),
        )?;
        simulation.violations.collect(&simulation.machine);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn simcuda_validate() -> *const c_char {
    static VERDICT: Mutex<Option<CString>> = Mutex::new(None);
    let wrong = existing().and_then(|simulation| simulation.machine.validate().err());
    let Some(wrong) = wrong.and_then(|text| CString::new(text).ok()) else {
        return std::ptr::null();
    };
    let mut verdict = VERDICT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    verdict.insert(wrong).as_ptr()
}
