//! Memory of devices and of the host, and what is known of an address.

use std::ffi::{c_int, c_uint};

use simgpu::Code;

use crate::answer::{put, put_if};
use crate::call::runtime;
use crate::current;

/// `cudaPointerAttributes` of CUDA 12. CUDA 13's ends with reserved words, which stay as they are.
#[repr(C)]
struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMalloc(address: *mut u64, bytes: usize) -> c_int {
    runtime("cudaMalloc", format_args!("{bytes}"), |simulation| {
        let context = current::runtime_context();
        let allocated =
            if bytes == 0 { 0 } else { simulation.machine.allocate(context, bytes as u64)? };
        // SAFETY: see the head of `runtime`.
        unsafe { put(address, allocated) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaFree(address: u64) -> c_int {
    runtime("cudaFree", format_args!("{address:#x}"), |simulation| {
        let context = current::runtime_context();
        if address == 0 {
            return Ok(());
        }
        simulation.pools.free_at_once(&simulation.machine, context, address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    runtime("cudaMemGetInfo", format_args!(""), |simulation| {
        let info = simulation.machine.memory_info(current::runtime_context())?;
        // SAFETY: see the head of `runtime`.
        unsafe {
            put_if(free, info.free_bytes as usize);
            put_if(total, info.total_bytes as usize);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaHostAlloc(pointer: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    runtime("cudaHostAlloc", format_args!("{bytes}, {flags}"), |simulation| {
        let context = current::runtime_context();
        let allocated = match bytes {
            0 => 0,
            bytes => simulation.host_memory.allocate(
                &simulation.machine,
                context,
                bytes as u64,
                flags,
            )?,
        };
        // SAFETY: see the head of `runtime`.
        unsafe { put(pointer, allocated) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMallocHost(pointer: *mut u64, bytes: usize) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { cudaHostAlloc(pointer, bytes, 0) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaFreeHost(pointer: u64) -> c_int {
    runtime("cudaFreeHost", format_args!("{pointer:#x}"), |simulation| {
        let context = current::runtime_context();
        if pointer == 0 {
            Ok(())
        } else {
            simulation.host_memory.free(&simulation.machine, context, pointer)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostRegister(pointer: u64, bytes: usize, flags: c_uint) -> c_int {
    runtime("cudaHostRegister", format_args!("{pointer:#x}, {bytes}, {flags}"), |simulation| {
        let context = current::runtime_context();
        simulation.host_memory.register(&simulation.machine, context, pointer, bytes as u64, flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostUnregister(pointer: u64) -> c_int {
    runtime("cudaHostUnregister", format_args!("{pointer:#x}"), |simulation| {
        let context = current::runtime_context();
        simulation.host_memory.unregister(&simulation.machine, context, pointer)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaHostGetDevicePointer(
    address: *mut u64,
    pointer: u64,
    flags: c_uint,
) -> c_int {
    runtime("cudaHostGetDevicePointer", format_args!("{pointer:#x}, {flags}"), |simulation| {
        simulation.host_memory.find(pointer).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(address, pointer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaPointerGetAttributes(
    attributes: *mut PointerAttributes,
    address: u64,
) -> c_int {
    const UNREGISTERED: c_int = 0;
    const HOST: c_int = 1;
    const DEVICE: c_int = 2;
    const MANAGED: c_int = 3;
    runtime("cudaPointerGetAttributes", format_args!("{address:#x}"), |simulation| {
        let on_device = simulation.machine.find(address);
        let (kind, device, device_pointer, host_pointer) =
            match (on_device, simulation.host_memory.find(address)) {
                (Some(range), _) if simulation.machine.is_managed(address) => {
                    (MANAGED, range.device as c_int, address, address)
                }
                (Some(range), _) => (DEVICE, range.device as c_int, address, 0),
                (None, Some(range)) => (HOST, range.device as c_int, address, address),
                (None, None) => (UNREGISTERED, -2, 0, address),
            };
        let answer = PointerAttributes { kind, device, device_pointer, host_pointer };
        // SAFETY: see the head of `runtime`.
        unsafe { put(attributes, answer) }
    })
}
