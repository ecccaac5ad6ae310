//! Result codes beyond those of the machine, with their names and texts in CUDA.
//!
//! Driver and runtime number their codes alike; only the names differ.

use std::ffi::CStr;

use simgpu::Code;

pub(crate) const NOT_INITIALIZED: Code = Code(3);
pub(crate) const DEINITIALIZED: Code = Code(4);
pub(crate) const INVALID_SYMBOL: Code = Code(13);
/// Of the runtime: no kernel was registered under this handle.
pub(crate) const INVALID_DEVICE_FUNCTION: Code = Code(98);
pub(crate) const NO_DEVICE: Code = Code(100);
pub(crate) const INVALID_CONTEXT: Code = Code::INVALID_CONTEXT;
pub(crate) const NOT_FOUND: Code = Code(500);
pub(crate) const UNKNOWN: Code = Code(999);

/// A code's number, its name in the driver and in the runtime, and its text.
pub(crate) struct Text {
    code: i32,
    pub(crate) driver_name: &'static CStr,
    pub(crate) runtime_name: &'static CStr,
    pub(crate) text: &'static CStr,
}

const fn text(
    code: i32,
    driver_name: &'static CStr,
    runtime_name: &'static CStr,
    text: &'static CStr,
) -> Text {
    Text { code, driver_name, runtime_name, text }
}

/// What is known of `code`.
pub(crate) fn describe(code: i32) -> Option<&'static Text> {
    TEXTS.iter().find(|entry| entry.code == code)
}

static TEXTS: [Text; 31] = [
    text(0, c"CUDA_SUCCESS", c"cudaSuccess", c"no error"),
    text(1, c"CUDA_ERROR_INVALID_VALUE", c"cudaErrorInvalidValue", c"invalid argument"),
    text(2, c"CUDA_ERROR_OUT_OF_MEMORY", c"cudaErrorMemoryAllocation", c"out of memory"),
    text(
        3,
        c"CUDA_ERROR_NOT_INITIALIZED",
        c"cudaErrorInitializationError",
        c"initialization error",
    ),
    text(4, c"CUDA_ERROR_DEINITIALIZED", c"cudaErrorCudartUnloading", c"driver shutting down"),
    text(13, c"CUDA_ERROR_UNKNOWN", c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    text(98, c"CUDA_ERROR_UNKNOWN", c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    text(100, c"CUDA_ERROR_NO_DEVICE", c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    text(101, c"CUDA_ERROR_INVALID_DEVICE", c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    text(
        201,
        c"CUDA_ERROR_INVALID_CONTEXT",
        c"cudaErrorDeviceUninitialized",
        c"invalid device context",
    ),
    text(
        400,
        c"CUDA_ERROR_INVALID_HANDLE",
        c"cudaErrorInvalidResourceHandle",
        c"invalid resource handle",
    ),
    text(
        401,
        c"CUDA_ERROR_ILLEGAL_STATE",
        c"cudaErrorIllegalState",
        c"the operation cannot be performed in the present state",
    ),
    text(500, c"CUDA_ERROR_NOT_FOUND", c"cudaErrorSymbolNotFound", c"named symbol not found"),
    text(600, c"CUDA_ERROR_NOT_READY", c"cudaErrorNotReady", c"device not ready"),
    text(
        700,
        c"CUDA_ERROR_ILLEGAL_ADDRESS",
        c"cudaErrorIllegalAddress",
        c"an illegal memory access was encountered",
    ),
    text(
        702,
        c"CUDA_ERROR_LAUNCH_TIMEOUT",
        c"cudaErrorLaunchTimeout",
        c"the launch timed out and was terminated",
    ),
    text(
        704,
        c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        c"cudaErrorPeerAccessAlreadyEnabled",
        c"peer access is already enabled",
    ),
    text(
        705,
        c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        c"cudaErrorPeerAccessNotEnabled",
        c"peer access has not been enabled",
    ),
    text(
        709,
        c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        c"cudaErrorContextIsDestroyed",
        c"context is destroyed",
    ),
    text(
        712,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"cudaErrorHostMemoryAlreadyRegistered",
        c"part or all of the requested memory range is already mapped",
    ),
    text(
        713,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"cudaErrorHostMemoryNotRegistered",
        c"pointer does not correspond to a registered memory region",
    ),
    text(801, c"CUDA_ERROR_NOT_SUPPORTED", c"cudaErrorNotSupported", c"operation not supported"),
    text(
        900,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"cudaErrorStreamCaptureUnsupported",
        c"operation not permitted when stream is capturing",
    ),
    text(
        901,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"cudaErrorStreamCaptureInvalidated",
        c"operation failed due to a previous error during capture",
    ),
    text(
        902,
        c"CUDA_ERROR_STREAM_CAPTURE_MERGE",
        c"cudaErrorStreamCaptureMerge",
        c"operation would result in a merge of separate capture sequences",
    ),
    text(
        903,
        c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"cudaErrorStreamCaptureUnmatched",
        c"capture was not ended in the same stream as it began",
    ),
    text(
        905,
        c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        c"cudaErrorStreamCaptureIsolation",
        c"dependency created on uncaptured work in another stream",
    ),
    text(
        906,
        c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"cudaErrorStreamCaptureImplicit",
        c"operation would make the legacy stream depend on a capturing blocking stream",
    ),
    text(
        907,
        c"CUDA_ERROR_CAPTURED_EVENT",
        c"cudaErrorCapturedEvent",
        c"operation not permitted on an event last recorded in a capturing stream",
    ),
    text(
        908,
        c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"cudaErrorStreamCaptureWrongThread",
        c"attempt to terminate a thread-local capture sequence from another thread",
    ),
    text(999, c"CUDA_ERROR_UNKNOWN", c"cudaErrorUnknown", c"unknown error"),
];
