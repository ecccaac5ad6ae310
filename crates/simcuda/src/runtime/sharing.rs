//! Sharing with other processes.

use std::ffi::{c_int, c_uint};

use simgpu::{Code, IpcHandle};

use crate::answer::put;
use crate::call::runtime;
use crate::current;
use crate::driver::Handle;

/// `cudaIpcMemLazyEnablePeerAccess`, the one flag there is, which must be set.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcGetMemHandle(handle: *mut IpcHandle, address: u64) -> c_int {
    runtime("cudaIpcGetMemHandle", format_args!("{address:#x}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(handle, simulation.machine.ipc_get_memory(context, address)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcOpenMemHandle(
    address: *mut u64,
    handle: Handle,
    flags: c_uint,
) -> c_int {
    runtime("cudaIpcOpenMemHandle", format_args!("{flags}"), |simulation| {
        if flags != LAZY_ENABLE_PEER_ACCESS || address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(address, simulation.machine.ipc_open_memory(context, &handle.bytes)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaIpcCloseMemHandle(address: u64) -> c_int {
    runtime("cudaIpcCloseMemHandle", format_args!("{address:#x}"), |simulation| {
        simulation.machine.ipc_close_memory(current::runtime_context(), address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcGetEventHandle(handle: *mut IpcHandle, event: u64) -> c_int {
    runtime("cudaIpcGetEventHandle", format_args!("{event:#x}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(handle, simulation.machine.ipc_get_event(context, event)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaIpcOpenEventHandle(event: *mut u64, handle: Handle) -> c_int {
    runtime("cudaIpcOpenEventHandle", format_args!(""), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(event, simulation.machine.ipc_open_event(context, &handle.bytes)?) }
    })
}
