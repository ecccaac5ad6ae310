//! Sharing with other processes.

use std::ffi::{c_int, c_uint};
use std::os::fd::{BorrowedFd, IntoRawFd};

use simgpu::{Code, IpcHandle};

use crate::answer::put;
use crate::call::driver;
use crate::current;

/// `CUipcMemHandle` and `CUipcEventHandle`, which are passed by value.
#[repr(C)]
pub(crate) struct Handle {
    pub(crate) bytes: IpcHandle,
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX: c_uint = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag there is, which must be set.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64) -> c_int {
    driver("cuIpcGetMemHandle", format_args!("{address:#x}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(handle, simulation.machine.ipc_get_memory(context, address)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcOpenMemHandle_v2(
    address: *mut u64,
    handle: Handle,
    flags: c_uint,
) -> c_int {
    driver("cuIpcOpenMemHandle_v2", format_args!("{flags}"), |simulation| {
        if flags != LAZY_ENABLE_PEER_ACCESS || address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(address, simulation.machine.ipc_open_memory(context, &handle.bytes)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(address: u64) -> c_int {
    driver("cuIpcCloseMemHandle", format_args!("{address:#x}"), |simulation| {
        simulation.machine.ipc_close_memory(current::driver_context()?, address)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcGetEventHandle(handle: *mut IpcHandle, event: u64) -> c_int {
    driver("cuIpcGetEventHandle", format_args!("{event:#x}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(handle, simulation.machine.ipc_get_event(context, event)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcOpenEventHandle(event: *mut u64, handle: Handle) -> c_int {
    driver("cuIpcOpenEventHandle", format_args!(""), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(event, simulation.machine.ipc_open_event(context, &handle.bytes)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemExportToShareableHandle(
    descriptor: *mut c_int,
    handle: u64,
    kind: c_uint,
    flags: u64,
) -> c_int {
    let arguments = format_args!("{handle:#x}, {kind}, {flags}");
    driver("cuMemExportToShareableHandle", arguments, |simulation| {
        if kind != POSIX || flags != 0 || descriptor.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let context = current::top().unwrap_or(0);
        let exported = simulation.machine.export_handle(context, handle)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(descriptor, exported.into_raw_fd()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemImportFromShareableHandle(
    handle: *mut u64,
    descriptor: usize,
    kind: c_uint,
) -> c_int {
    let arguments = format_args!("{descriptor}, {kind}");
    driver("cuMemImportFromShareableHandle", arguments, |simulation| {
        let raw = c_int::try_from(descriptor).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: `fcntl` only asks whether the number names a descriptor.
        if kind != POSIX || handle.is_null() || unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: it is open, and the caller keeps it open during the call.
        let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
        let descriptor = borrowed.try_clone_to_owned().map_err(|_| Code::OUT_OF_MEMORY)?;
        let context = current::top().unwrap_or(0);
        // SAFETY: see the head of `driver`.
        unsafe { put(handle, simulation.machine.import_handle(context, &descriptor)?) }
    })
}
