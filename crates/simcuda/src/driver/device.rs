//! Devices: how many there are, and their attributes.

use std::ffi::{c_char, c_int};

use simgpu::Code;

use crate::answer::{Answer, put};
use crate::call::driver;
use crate::device;

/// Writes `text` and a NUL into `length` bytes; text that does not fit is cut.
///
/// # Safety
/// `buffer` is null or has room for `length` bytes.
pub(crate) unsafe fn put_text(buffer: *mut c_char, length: c_int, text: &str) -> Answer {
    let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
    let room = room.filter(|_| !buffer.is_null()).ok_or(Code::INVALID_VALUE)?;
    let count = text.len().min(room);
    // SAFETY: not null, and `count + 1 <= length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
        buffer.add(count).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    driver("cuDeviceGetCount", format_args!(""), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { put(count, simulation.settings.devices as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    driver("cuDeviceGet", format_args!("{ordinal}"), |simulation| {
        simulation.device(ordinal)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(device, ordinal) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    driver("cuDeviceGetName", format_args!("{device}"), |simulation| {
        simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe { put_text(name, length, &device::name(&simulation.settings)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, which: c_int, device: c_int) -> c_int {
    driver("cuDeviceGetAttribute", format_args!("{which}, {device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        let answer =
            device::attribute(&simulation.settings, ordinal, which).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(value, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    driver("cuDeviceTotalMem_v2", format_args!("{device}"), |simulation| {
        simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(bytes, simulation.settings.memory_bytes as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    driver("cuDeviceGetUuid_v2", format_args!("{device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(uuid, device::uuid(&simulation.settings, ordinal)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the same function under its old name.
    unsafe { cuDeviceGetUuid_v2(uuid, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    driver("cuDeviceGetPCIBusId", format_args!("{device}"), |simulation| {
        let ordinal = simulation.device(device)?;
        // SAFETY: see the head of `driver`.
        unsafe { put_text(text, length, &device::pci_bus_id(ordinal)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    driver("cuDeviceCanAccessPeer", format_args!("{device}, {peer}"), |simulation| {
        let (device, peer) = (simulation.device(device)?, simulation.device(peer)?);
        let answer = simulation.machine.can_access_peer(device, peer)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(can, c_int::from(answer)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> c_int {
    driver("cuDeviceGetDefaultMemPool", format_args!("{device}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { put(pool, crate::pools::handle(simulation.device(device)?)) }
    })
}
