//! Finding the driver: `dlopen`, `dlsym`, and a table of what was found.
//!
//! A symbol that a driver lacks is an empty entry and not a failure: the method that needs it
//! fails. Results are plain integers, because newer drivers return codes that no enumeration has
//! yet; for the same reason, all that the driver *writes* is received as an integer. Arguments
//! have the types of `cuda.h`, as cudarc transcribes them. The library is never unloaded, so
//! entries stay valid as long as the process lives.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

use cudarc::driver::sys;

/// A `CUresult` as the driver returns it.
pub(super) type RawResult = c_int;

/// A loaded library; dropping it does not unload it.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Loads the library `name`. The error is the text of the system's loader.
    pub fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: `name` is NUL-terminated. A driver library's constructors may run in any process
        // that loads it; `RTLD_LOCAL` keeps its symbols from binding anything else.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(|handle| Self { handle }).ok_or_else(|| {
            // SAFETY: `dlerror` may always be called; its text belongs to this thread.
            let text = unsafe { libc::dlerror() };
            if text.is_null() {
                return format!("{} cannot be loaded", name.to_string_lossy());
            }
            // SAFETY: not null, so NUL-terminated and valid until this thread's next dl call.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        })
    }

    /// The address of `symbol`; null if the library has none.
    pub fn symbol(&self, symbol: &CStr) -> *mut c_void {
        // SAFETY: the handle is of a library that is loaded for ever.
        unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) }
    }
}

/// Declares a table of the driver's functions: for each entry its name, its symbol (the name itself
/// if there is none) and the symbol's parameters.
///
/// `Table::find(&library)` looks all of them up.
#[doc(hidden)]
#[macro_export]
macro_rules! driver_table {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $Table:ident {
            $($entry:ident $(= $symbol:literal)? ($($parameter:ty),* $(,)?);)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visibility struct $Table {
            $($visibility $entry:
                Option<unsafe extern "C" fn($($parameter),*) -> std::ffi::c_int>,)*
        }

        impl $Table {
            /// Looks up every function.
            $visibility fn find(library: &$crate::driver::cuda::Library) -> Self {
                Self {
                    // SAFETY: null becomes `None`, and anything else is the address of the
                    // function that `cuda.h` declares under this name with these parameters.
                    $($entry: unsafe {
                        std::mem::transmute::<
                            *mut std::ffi::c_void,
                            Option<unsafe extern "C" fn($($parameter),*) -> std::ffi::c_int>,
                        >(library.symbol($crate::driver_table!(@symbol $entry $($symbol)?)))
                    },)*
                }
            }
        }
    };
    (@symbol $entry:ident $symbol:literal) => { $symbol };
    (@symbol $entry:ident) => {
        const {
            let name = concat!(stringify!($entry), "\0");
            match std::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol has no NUL in it"),
            }
        }
    };
}

driver_table! {
    /// The driver's functions that Genesis calls, as far as this driver has them.
    pub(super) struct Api {
        initialize = c"cuInit"(c_uint);
        driver_version = c"cuDriverGetVersion"(*mut c_int);
        error_name = c"cuGetErrorName"(RawResult, *mut *const c_char);
        device_count = c"cuDeviceGetCount"(*mut c_int);
        device_get = c"cuDeviceGet"(*mut sys::CUdevice, c_int);
        device_name = c"cuDeviceGetName"(*mut c_char, c_int, sys::CUdevice);
        device_uuid = c"cuDeviceGetUuid_v2"(*mut [u8; 16], sys::CUdevice);
        device_pci_bus_id = c"cuDeviceGetPCIBusId"(*mut c_char, c_int, sys::CUdevice);
        device_attribute =
            c"cuDeviceGetAttribute"(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
        can_access_peer = c"cuDeviceCanAccessPeer"(*mut c_int, sys::CUdevice, sys::CUdevice);
        primary_context_retain = c"cuDevicePrimaryCtxRetain"(*mut sys::CUcontext, sys::CUdevice);
        primary_context_state =
            c"cuDevicePrimaryCtxGetState"(sys::CUdevice, *mut c_uint, *mut c_int);
        context_current = c"cuCtxGetCurrent"(*mut sys::CUcontext);
        context_push = c"cuCtxPushCurrent_v2"(sys::CUcontext);
        context_pop = c"cuCtxPopCurrent_v2"(*mut sys::CUcontext);
        context_device = c"cuCtxGetDevice"(*mut sys::CUdevice);
        context_synchronize = c"cuCtxSynchronize"();
        exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut c_uint);
        memory_info = c"cuMemGetInfo_v2"(*mut usize, *mut usize);
        memory_allocate = c"cuMemAlloc_v2"(*mut sys::CUdeviceptr, usize);
        memory_free = c"cuMemFree_v2"(sys::CUdeviceptr);
        granularity = c"cuMemGetAllocationGranularity"(
            *mut usize,
            *const sys::CUmemAllocationProp,
            sys::CUmemAllocationGranularity_flags
        );
        address_reserve = c"cuMemAddressReserve"(
            *mut sys::CUdeviceptr,
            usize,
            usize,
            sys::CUdeviceptr,
            c_ulonglong
        );
        address_free = c"cuMemAddressFree"(sys::CUdeviceptr, usize);
        memory_create = c"cuMemCreate"(
            *mut sys::CUmemGenericAllocationHandle,
            usize,
            *const sys::CUmemAllocationProp,
            c_ulonglong
        );
        memory_release = c"cuMemRelease"(sys::CUmemGenericAllocationHandle);
        memory_map = c"cuMemMap"(
            sys::CUdeviceptr,
            usize,
            usize,
            sys::CUmemGenericAllocationHandle,
            c_ulonglong
        );
        memory_set_access =
            c"cuMemSetAccess"(sys::CUdeviceptr, usize, *const sys::CUmemAccessDesc, usize);
        memory_unmap = c"cuMemUnmap"(sys::CUdeviceptr, usize);
        memory_export = c"cuMemExportToShareableHandle"(
            *mut c_void,
            sys::CUmemGenericAllocationHandle,
            sys::CUmemAllocationHandleType,
            c_ulonglong
        );
        memory_import = c"cuMemImportFromShareableHandle"(
            *mut sys::CUmemGenericAllocationHandle,
            *mut c_void,
            sys::CUmemAllocationHandleType
        );
        ipc_get_memory = c"cuIpcGetMemHandle"(*mut sys::CUipcMemHandle, sys::CUdeviceptr);
        ipc_open_memory =
            c"cuIpcOpenMemHandle_v2"(*mut sys::CUdeviceptr, sys::CUipcMemHandle, c_uint);
        ipc_close_memory = c"cuIpcCloseMemHandle"(sys::CUdeviceptr);
        managed_allocate = c"cuMemAllocManaged"(*mut sys::CUdeviceptr, usize, c_uint);
        managed_advise = c"cuMemAdvise"(sys::CUdeviceptr, usize, c_uint, sys::CUdevice);
        managed_prefetch =
            c"cuMemPrefetchAsync"(sys::CUdeviceptr, usize, sys::CUdevice, sys::CUstream);
        event_create = c"cuEventCreate"(*mut sys::CUevent, c_uint);
        event_destroy = c"cuEventDestroy_v2"(sys::CUevent);
        event_record = c"cuEventRecord"(sys::CUevent, sys::CUstream);
        event_query = c"cuEventQuery"(sys::CUevent);
        event_synchronize = c"cuEventSynchronize"(sys::CUevent);
        stream_wait_event = c"cuStreamWaitEvent"(sys::CUstream, sys::CUevent, c_uint);
        stream_query = c"cuStreamQuery"(sys::CUstream);
        stream_is_capturing = c"cuStreamIsCapturing"(sys::CUstream, *mut c_uint);
        stream_id = c"cuStreamGetId"(sys::CUstream, *mut c_ulonglong);
        stream_context = c"cuStreamGetCtx"(sys::CUstream, *mut sys::CUcontext);
        host_allocate = c"cuMemAllocHost_v2"(*mut *mut c_void, usize);
        host_free = c"cuMemFreeHost"(*mut c_void);
        host_register = c"cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        host_unregister = c"cuMemHostUnregister"(*mut c_void);
        copy_to_host = c"cuMemcpyDtoH_v2"(*mut c_void, sys::CUdeviceptr, usize);
        copy_to_device = c"cuMemcpyHtoD_v2"(sys::CUdeviceptr, *const c_void, usize);
        fill = c"cuMemsetD8Async"(sys::CUdeviceptr, c_uchar, usize, sys::CUstream);
        // Only a stand-in has it, in which calls take virtual time.
        virtual_clock = c"simcuda_thread_nanoseconds"(*mut c_ulonglong);
    }
}
