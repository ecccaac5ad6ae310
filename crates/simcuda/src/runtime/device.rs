//! Devices, and which one is current.

use std::ffi::{c_char, c_int, c_uint};

use simgpu::Code;

use super::properties::{OfCuda12, Properties};
use crate::answer::{put, put_if};
use crate::call::runtime;
use crate::driver::put_text;
use crate::simulation::simulation;
use crate::streams::PRIORITIES;
use crate::{current, device};

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    if simulation().is_err() {
        // SAFETY: see the head of `runtime`.
        unsafe { put_if(count, 0) };
    }
    runtime("cudaGetDeviceCount", format_args!(""), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { put(count, simulation.settings.devices as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> c_int {
    runtime("cudaGetDevice", format_args!(""), |simulation| {
        let current = simulation.machine.context_device(current::top().unwrap_or(0))?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(device, current as c_int) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    runtime("cudaSetDevice", format_args!("{device}"), |simulation| {
        current::set(Some(simulation.device(device)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> c_int {
    runtime("cudaInitDevice", format_args!("{device}"), |simulation| {
        current::activate(simulation.device(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties(place: *mut Properties, device: c_int) -> c_int {
    runtime("cudaGetDeviceProperties", format_args!("{device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(place, Properties::new(ordinal, &simulation.settings)) }
    })
}

/// CUDA 12's name, and its layout.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties_v2(place: *mut OfCuda12, device: c_int) -> c_int {
    runtime("cudaGetDeviceProperties_v2", format_args!("{device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        let properties = Properties::new(ordinal, &simulation.settings);
        // SAFETY: see the head of `runtime`.
        unsafe { put(place, properties.of_cuda_12()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetAttribute(
    value: *mut c_int,
    which: c_int,
    device: c_int,
) -> c_int {
    runtime("cudaDeviceGetAttribute", format_args!("{which}, {device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        let answer =
            device::attribute(&simulation.settings, ordinal, which).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(value, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetPCIBusId(
    text: *mut c_char,
    length: c_int,
    device: c_int,
) -> c_int {
    runtime("cudaDeviceGetPCIBusId", format_args!("{device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put_text(text, length, &device::pci_bus_id(ordinal)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> c_int {
    runtime("cudaDeviceGetStreamPriorityRange", format_args!(""), |_| {
        // SAFETY: see the head of `runtime`.
        unsafe {
            put_if(least, PRIORITIES.0);
            put_if(greatest, PRIORITIES.1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSynchronize() -> c_int {
    runtime("cudaDeviceSynchronize", format_args!(""), |simulation| {
        simulation.machine.synchronize(current::runtime_context())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceReset() -> c_int {
    runtime("cudaDeviceReset", format_args!(""), |simulation| {
        simulation.reset(simulation.machine.context_device(current::runtime_context())?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    runtime("cudaDeviceCanAccessPeer", format_args!("{device}, {peer}"), |simulation| {
        let (device, peer) = (simulation.device(device)?, simulation.device(peer)?);
        let answer = simulation.machine.can_access_peer(device, peer)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(can, c_int::from(answer)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    runtime("cudaDeviceEnablePeerAccess", format_args!("{peer}, {flags}"), |simulation| {
        simulation.enable_peer(current::runtime_context(), simulation.device(peer)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> c_int {
    runtime("cudaDriverGetVersion", format_args!(""), |_| {
        // SAFETY: see the head of `runtime`.
        unsafe { put(version, device::DRIVER_VERSION) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    runtime("cudaRuntimeGetVersion", format_args!(""), |_| {
        // SAFETY: see the head of `runtime`.
        unsafe { put(version, device::DRIVER_VERSION) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStart() -> c_int {
    runtime("cudaProfilerStart", format_args!(""), |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cudaProfilerStop() -> c_int {
    runtime("cudaProfilerStop", format_args!(""), |_| Ok(()))
}
