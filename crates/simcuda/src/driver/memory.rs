//! Memory of devices and of the host, and what is known of an address.

use std::ffi::{c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{Answer, put, put_if};
use crate::call::driver;
use crate::current;
use crate::simulation::Simulation;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    driver("cuMemGetInfo_v2", format_args!(""), |simulation| {
        let info = simulation.machine.memory_info(current::driver_context()?)?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(free, info.free_bytes as usize);
            put_if(total, info.total_bytes as usize);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    driver("cuMemAlloc_v2", format_args!("{bytes}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(address, simulation.machine.allocate(context, bytes as u64)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element_bytes: c_uint,
) -> c_int {
    const PITCH_BYTES: usize = 512;
    let arguments = format_args!("{width}, {height}, {element_bytes}");
    driver("cuMemAllocPitch_v2", arguments, |simulation| {
        let context = current::driver_context()?;
        if width == 0 || height == 0 || !matches!(element_bytes, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row_bytes = width.checked_next_multiple_of(PITCH_BYTES);
        let bytes = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(height));
        let (Some(row_bytes), Some(bytes)) = (row_bytes, bytes) else {
            return Err(Code::OUT_OF_MEMORY);
        };
        // SAFETY: see the head of `driver`.
        unsafe {
            put(pitch, row_bytes)?;
            put(address, simulation.machine.allocate(context, bytes as u64)?)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    driver("cuMemFree_v2", format_args!("{address:#x}"), |simulation| {
        simulation.pools.free_at_once(&simulation.machine, current::driver_context()?, address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> c_int {
    driver("cuMemGetAddressRange_v2", format_args!("{address:#x}"), |simulation| {
        let context = current::driver_context()?;
        let range = simulation.machine.address_range(context, address);
        let range = range.map_err(|_| crate::code::NOT_FOUND)?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(base, range.base);
            put_if(bytes, range.bytes as usize);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) -> c_int {
    driver("cuMemAllocHost_v2", format_args!("{bytes}"), |simulation| {
        let context = current::driver_context()?;
        let address =
            simulation.host_memory.allocate(&simulation.machine, context, bytes as u64, 0)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(pointer, address as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(
    pointer: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    driver("cuMemHostAlloc", format_args!("{bytes}, {flags}"), |simulation| {
        let context = current::driver_context()?;
        let address =
            simulation.host_memory.allocate(&simulation.machine, context, bytes as u64, flags)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(pointer, address as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> c_int {
    driver("cuMemFreeHost", format_args!("{pointer:p}"), |simulation| {
        simulation.host_memory.free(&simulation.machine, current::driver_context()?, pointer as u64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    driver("cuMemHostRegister_v2", format_args!("{pointer:p}, {bytes}, {flags}"), |simulation| {
        let context = current::driver_context()?;
        simulation.host_memory.register(
            &simulation.machine,
            context,
            pointer as u64,
            bytes as u64,
            flags,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> c_int {
    driver("cuMemHostUnregister", format_args!("{pointer:p}"), |simulation| {
        let context = current::driver_context()?;
        simulation.host_memory.unregister(&simulation.machine, context, pointer as u64)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    address: *mut u64,
    pointer: *mut c_void,
    flags: c_uint,
) -> c_int {
    driver("cuMemHostGetDevicePointer_v2", format_args!("{pointer:p}, {flags}"), |simulation| {
        simulation.host_memory.find(pointer as u64).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(address, pointer as u64) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> c_int {
    driver("cuMemHostGetFlags", format_args!("{pointer:p}"), |simulation| {
        let range = simulation.host_memory.find(pointer as u64).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(flags, range.flags) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: c_int,
    address: u64,
) -> c_int {
    driver("cuPointerGetAttribute", format_args!("{attribute}, {address:#x}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { put_attribute(simulation, data, attribute, address) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    data: *const *mut c_void,
    address: u64,
) -> c_int {
    driver("cuPointerGetAttributes", format_args!("{count}, {address:#x}"), |simulation| {
        if attributes.is_null() || data.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        for index in 0..count as usize {
            // SAFETY: see the head of `driver`: both arrays have `count` elements. An attribute
            // that the address lacks becomes zero, as in the driver.
            unsafe {
                let (place, attribute) = (data.add(index).read(), attributes.add(index).read());
                if put_attribute(simulation, place, attribute, address) == Err(Code::INVALID_VALUE)
                {
                    put(place.cast::<c_int>(), 0)?;
                }
            }
        }
        Ok(())
    })
}

/// Writes one attribute of an address, in CUDA's width.
///
/// # Safety
/// `data` is null or has room for the attribute.
unsafe fn put_attribute(
    simulation: &Simulation,
    data: *mut c_void,
    attribute: c_int,
    address: u64,
) -> Answer {
    const HOST: c_uint = 1;
    const DEVICE: c_uint = 2;
    let on_device = simulation.machine.find(address);
    let on_host = simulation.host_memory.find(address);
    let (device, kind, base, bytes) = match (on_device, on_host) {
        (Some(range), _) => (range.device, DEVICE, range.base, range.bytes),
        (None, Some(range)) => (range.device, HOST, range.base, range.bytes),
        (None, None) => return Err(Code::INVALID_VALUE),
    };
    let is_device = kind == DEVICE;
    let is_managed = simulation.machine.is_managed(address);
    // SAFETY: the width of each attribute is `cuda.h`'s, and there is room for it.
    unsafe {
        match attribute {
            1 => put(data.cast(), current::context_handle(device)),
            2 => put(data.cast(), kind),
            3 => put(data.cast(), address),
            4 if !is_device || is_managed => put(data.cast(), address),
            7 => put(data.cast(), base),
            8 => put(data.cast(), u8::from(is_managed)),
            15 => put(data.cast(), 0u8),
            9 => put(data.cast(), device as c_int),
            10 => put(data.cast(), 0u8),
            11 | 19 => put(data.cast(), base),
            12 | 18 => put(data.cast(), bytes as usize),
            13 => put(data.cast(), 1u8),
            14 | 17 => put(data.cast(), 0u64),
            16 => put(data.cast(), 3u32),
            20 => put(data.cast(), base),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
