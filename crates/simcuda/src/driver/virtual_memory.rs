//! Virtual memory management.

use std::ffi::{c_int, c_uint};

use simgpu::{Code, HandleProperties};

use crate::answer::{Answer, put};
use crate::call::driver;
use crate::current;
use crate::simulation::Simulation;

/// `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_ALLOCATION_TYPE_PINNED`.
const LOCATION_DEVICE: c_uint = 1;
const ALLOCATION_PINNED: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR` and `CU_MEM_HANDLE_TYPE_FABRIC`, bits of a set.
const HANDLE_POSIX: c_uint = 1;
const HANDLE_FABRIC: c_uint = 8;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_uint,
    id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_uint,
    handle_types: c_uint,
    location: Location,
    win32: usize,
    compression: u8,
    gpu_direct_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AccessDescription {
    location: Location,
    flags: c_uint,
}

const _: () = assert!(size_of::<Properties>() == 32 && size_of::<AccessDescription>() == 12);

/// The device of the requested memory, and the properties of its handle. Memory may be requested
/// for sharing by file descriptor, as PyTorch always does (`sharing` exports it).
///
/// # Safety
/// `properties` is null or valid.
unsafe fn wanted(
    simulation: &Simulation,
    properties: *const Properties,
) -> Answer<(u32, HandleProperties)> {
    if properties.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid.
    let properties = unsafe { properties.read() };
    if properties.kind != ALLOCATION_PINNED || properties.location.kind != LOCATION_DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    if properties.handle_types & !(HANDLE_POSIX | HANDLE_FABRIC) != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let handle = HandleProperties {
        posix: properties.handle_types & HANDLE_POSIX != 0,
        fabric: properties.handle_types & HANDLE_FABRIC != 0,
        rdma: properties.gpu_direct_rdma != 0,
    };
    Ok((simulation.device(properties.location.id)?, handle))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    properties: *const Properties,
    option: c_uint,
) -> c_int {
    driver("cuMemGetAllocationGranularity", format_args!("{option}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe {
            let (device, handle) = wanted(simulation, properties)?;
            put(bytes, simulation.machine.granularity_with(device, handle)? as usize)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    address: *mut u64,
    bytes: usize,
    alignment: usize,
    wish: u64,
    flags: u64,
) -> c_int {
    let arguments = format_args!("{bytes}, {alignment}, {wish:#x}, {flags}");
    driver("cuMemAddressReserve", arguments, |simulation| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        // The driver may ignore the wish for a place.
        let context = current::top().unwrap_or(0);
        let reserved = simulation.machine.reserve(context, bytes as u64, alignment as u64)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(address, reserved) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> c_int {
    driver("cuMemAddressFree", format_args!("{address:#x}, {bytes}"), |simulation| {
        simulation.machine.unreserve(current::top().unwrap_or(0), address, bytes as u64)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    properties: *const Properties,
    flags: u64,
) -> c_int {
    driver("cuMemCreate", format_args!("{bytes}, {flags}"), |simulation| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: see the head of `driver`.
        unsafe {
            let (device, properties) = wanted(simulation, properties)?;
            put(handle, simulation.machine.create_with(device, bytes as u64, properties)?)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> c_int {
    driver("cuMemRelease", format_args!("{handle:#x}"), |simulation| {
        simulation.machine.release(current::top().unwrap_or(0), handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {offset}, {handle:#x}, {flags}");
    driver("cuMemMap", arguments, |simulation| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if offset != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        simulation.machine.map(current::top().unwrap_or(0), address, bytes as u64, handle)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(
    address: u64,
    bytes: usize,
    descriptions: *const AccessDescription,
    count: usize,
) -> c_int {
    driver("cuMemSetAccess", format_args!("{address:#x}, {bytes}, {count}"), |simulation| {
        const READ_WRITE: c_uint = 3;
        if descriptions.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: see the head of `driver`: the array has `count` elements.
        let descriptions = unsafe { std::slice::from_raw_parts(descriptions, count) };
        let mut devices = Vec::with_capacity(count);
        for description in descriptions {
            let is_device = description.location.kind == LOCATION_DEVICE;
            if !is_device || description.flags != READ_WRITE {
                return Err(Code::NOT_SUPPORTED);
            }
            devices.push(simulation.device(description.location.id)?);
        }
        let caller = current::top().unwrap_or(0);
        simulation.machine.set_access(caller, address, bytes as u64, &devices)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> c_int {
    driver("cuMemUnmap", format_args!("{address:#x}, {bytes}"), |simulation| {
        simulation.machine.unmap(current::top().unwrap_or(0), address, bytes as u64)
    })
}
