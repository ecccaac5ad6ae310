//! What programs ask NVIDIA's management library, which comes with every driver: `libnvidia-ml.so.1`.
//!
//! PyTorch finds devices by it, names the processes in its message of a shortage, and asks whether a
//! device is in a fabric before it maps memory. Here no device is; and the one process that is known
//! is the calling one. It needs no `cuInit`.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::answer::put;
use crate::device;
use crate::driver::put_text;
use crate::simulation::{Simulation, simulation};

const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const UNKNOWN: c_int = 999;

/// `nvmlDevice_t`: the ordinal plus one, so that null is no device.
type Device = usize;

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
struct ProcessInfo {
    process_id: u32,
    used_bytes: u64,
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
struct FabricInfo {
    version: u32,
    cluster: [u8; 16],
    status: c_int,
    clique: u32,
    state: u8,
    health: u32,
}

/// A call: to [`driver`](crate::call::driver) what this library is to the driver.
fn call(name: &'static str, body: impl FnOnce(&'static Simulation) -> Result<(), c_int>) -> c_int {
    let Ok(simulation) = simulation() else { return UNINITIALIZED };
    let result = match catch_unwind(AssertUnwindSafe(|| body(simulation))) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    };
    simulation.log.call(name, format_args!("…"), result);
    result
}

fn ordinal(simulation: &Simulation, device: Device) -> Result<u32, c_int> {
    let ordinal = device.checked_sub(1).and_then(|ordinal| i32::try_from(ordinal).ok());
    ordinal.and_then(|ordinal| simulation.device(ordinal).ok()).ok_or(INVALID_ARGUMENT)
}

/// Stores an output.
///
/// # Safety
/// As for [`put`].
unsafe fn give<T>(place: *mut T, value: T) -> Result<(), c_int> {
    // SAFETY: by this function's contract.
    unsafe { put(place, value) }.map_err(|_| INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> c_int {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    call("nvmlInit_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_int {
    call("nvmlShutdown", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"Success",
        UNINITIALIZED => c"Uninitialized",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> c_int {
    call("nvmlSystemGetCudaDriverVersion_v2", |_| {
        // SAFETY: by the library's own contract.
        unsafe { give(version, device::DRIVER_VERSION) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut u32) -> c_int {
    call("nvmlDeviceGetCount_v2", |simulation| {
        // SAFETY: by the library's own contract.
        unsafe { give(count, simulation.settings.devices) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut Device) -> c_int {
    call("nvmlDeviceGetHandleByIndex_v2", |simulation| {
        let handle = (index as Device).saturating_add(1);
        ordinal(simulation, handle)?;
        // SAFETY: by the library's own contract.
        unsafe { give(device, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    text: *const c_char,
    device: *mut Device,
) -> c_int {
    call("nvmlDeviceGetHandleByPciBusId_v2", |simulation| {
        if text.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, so a C string, by the library's own contract.
        let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID_ARGUMENT)?;
        let bus = text.split(':').nth(1).and_then(|bus| Device::from_str_radix(bus, 16).ok());
        // A device's bus is its ordinal plus one.
        let handle = bus.ok_or(INVALID_ARGUMENT)?;
        ordinal(simulation, handle).map_err(|_| NOT_FOUND)?;
        // SAFETY: by the library's own contract.
        unsafe { give(device, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, text: *mut c_char, length: u32) -> c_int {
    call("nvmlDeviceGetUUID", |simulation| {
        let uuid = device::uuid(&simulation.settings, ordinal(simulation, device)?);
        let hexadecimal = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts: [String; 5] =
            [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hexadecimal(&uuid[part]));
        let uuid = format!("GPU-{}", parts.join("-"));
        if (length as usize) <= uuid.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: there is room for `length` bytes, by the library's own contract.
        unsafe { put_text(text, length as c_int, &uuid) }.map_err(|_| INVALID_ARGUMENT)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: Device,
    count: *mut u32,
    infos: *mut ProcessInfo,
) -> c_int {
    call("nvmlDeviceGetComputeRunningProcesses", |simulation| {
        let ordinal = ordinal(simulation, device)?;
        // SAFETY: null or a number, by the library's own contract.
        let room = unsafe { count.as_ref() }.copied().ok_or(INVALID_ARGUMENT)?;
        // SAFETY: as above.
        unsafe { give(count, 1)? };
        if room == 0 {
            return Err(INSUFFICIENT_SIZE);
        }
        let used_bytes = simulation.machine.used_bytes(ordinal).map_err(|_| UNKNOWN)?;
        let info = ProcessInfo { process_id: std::process::id(), used_bytes };
        // SAFETY: there is room for at least one.
        unsafe { give(infos, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: Device, info: *mut FabricInfo) -> c_int {
    call("nvmlDeviceGetGpuFabricInfoV", |simulation| {
        ordinal(simulation, device)?;
        // SAFETY: null or a struct whose version is set, by the library's own contract.
        let version = unsafe { info.as_ref() }.ok_or(INVALID_ARGUMENT)?.version;
        let none =
            FabricInfo { version, cluster: [0; 16], status: 0, clique: 0, state: 0, health: 0 };
        // SAFETY: as above; state 0 is "not supported".
        unsafe { give(info, none) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType() -> c_int {
    call("nvmlDeviceGetNvLinkRemoteDeviceType", |_| Err(NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2() -> c_int {
    call("nvmlDeviceGetNvLinkRemotePciInfo_v2", |_| Err(NOT_SUPPORTED))
}
