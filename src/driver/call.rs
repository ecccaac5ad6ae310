//! What a device asks of its driver, and what the driver answers: calls, codes and errors.

use std::fmt;

use crate::base::{Error, Status};

/// A driver's result code, with CUDA's numbers. Newer drivers may return codes not named
/// here, so it is a number and not an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

impl Code {
    /// `CUDA_SUCCESS`.
    pub const SUCCESS: Self = Self(0);
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// `CUDA_ERROR_DEINITIALIZED`: the process is exiting and the driver has gone.
    pub const DEINITIALIZED: Self = Self(4);
    /// `CUDA_ERROR_INVALID_DEVICE`: there is no device of that number.
    pub const INVALID_DEVICE: Self = Self(101);
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub const INVALID_HANDLE: Self = Self(400);
    /// `CUDA_ERROR_NOT_FOUND`: also for anything that a driver lacks, such as a symbol.
    pub const NOT_FOUND: Self = Self(500);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    /// `CUDA_ERROR_NOT_PERMITTED`.
    pub const NOT_PERMITTED: Self = Self(800);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`: not permitted while a stream is capturing.
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
}

/// The calls a device makes to its driver, by the names that statistics and faults use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Call {
    /// Loading and starting the driver.
    Initialize,
    /// `cuMemGetInfo`.
    MemoryInfo,
    /// `cuMemAlloc`.
    Allocate,
    /// `cuMemFree`.
    Free,
    /// `cuMemAddressReserve`.
    Reserve,
    /// `cuMemAddressFree`.
    Unreserve,
    /// `cuMemCreate`.
    Create,
    /// `cuMemRelease`.
    Release,
    /// `cuMemMap`.
    Map,
    /// `cuMemSetAccess`.
    SetAccess,
    /// `cuMemUnmap`.
    Unmap,
    /// `cuEventCreate`.
    EventCreate,
    /// `cuEventDestroy`.
    EventDestroy,
    /// `cuEventRecord`.
    EventRecord,
    /// `cuEventQuery`.
    EventQuery,
    /// `cuEventSynchronize`.
    EventSynchronize,
    /// `cuStreamWaitEvent`.
    StreamWait,
    /// `cuStreamQuery`.
    StreamQuery,
    /// `cuStreamIsCapturing`.
    StreamIsCapturing,
    /// `cuStreamGetId`.
    StreamId,
    /// `cuStreamGetCtx`.
    StreamContext,
    /// `cuCtxSynchronize`.
    Synchronize,
    /// `cuMemAllocHost`.
    HostAllocate,
    /// `cuMemFreeHost`.
    HostFree,
    /// `cuMemHostRegister`.
    HostRegister,
    /// `cuMemHostUnregister`.
    HostUnregister,
    /// `cuMemcpyDtoH`.
    CopyToHost,
    /// `cuMemcpyHtoD`.
    CopyToDevice,
    /// `cuMemsetD8Async`.
    Fill,
    /// `cuDeviceCanAccessPeer`.
    CanAccessPeer,
    /// `cuIpcGetMemHandle`.
    ShareAllocation,
    /// `cuIpcOpenMemHandle`.
    OpenAllocation,
    /// `cuIpcCloseMemHandle`.
    CloseAllocation,
    /// `cuMemExportToShareableHandle`.
    Export,
    /// `cuMemImportFromShareableHandle`.
    Import,
    /// `cuMemAllocManaged`.
    AllocateManaged,
    /// `cuMemAdvise`.
    Advise,
    /// `cuMemPrefetchAsync`.
    Prefetch,
}

impl Call {
    /// How many kinds of call there are.
    pub const COUNT: usize = Self::Prefetch as usize + 1;

    /// The driver's name for the call.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "cuInit",
            Self::MemoryInfo => "cuMemGetInfo",
            Self::Allocate => "cuMemAlloc",
            Self::Free => "cuMemFree",
            Self::Reserve => "cuMemAddressReserve",
            Self::Unreserve => "cuMemAddressFree",
            Self::Create => "cuMemCreate",
            Self::Release => "cuMemRelease",
            Self::Map => "cuMemMap",
            Self::SetAccess => "cuMemSetAccess",
            Self::Unmap => "cuMemUnmap",
            Self::EventCreate => "cuEventCreate",
            Self::EventDestroy => "cuEventDestroy",
            Self::EventRecord => "cuEventRecord",
            Self::EventQuery => "cuEventQuery",
            Self::EventSynchronize => "cuEventSynchronize",
            Self::StreamWait => "cuStreamWaitEvent",
            Self::StreamQuery => "cuStreamQuery",
            Self::StreamIsCapturing => "cuStreamIsCapturing",
            Self::StreamId => "cuStreamGetId",
            Self::StreamContext => "cuStreamGetCtx",
            Self::Synchronize => "cuCtxSynchronize",
            Self::HostAllocate => "cuMemAllocHost",
            Self::HostFree => "cuMemFreeHost",
            Self::HostRegister => "cuMemHostRegister",
            Self::HostUnregister => "cuMemHostUnregister",
            Self::CopyToHost => "cuMemcpyDtoH",
            Self::CopyToDevice => "cuMemcpyHtoD",
            Self::Fill => "cuMemsetD8Async",
            Self::CanAccessPeer => "cuDeviceCanAccessPeer",
            Self::ShareAllocation => "cuIpcGetMemHandle",
            Self::OpenAllocation => "cuIpcOpenMemHandle",
            Self::CloseAllocation => "cuIpcCloseMemHandle",
            Self::Export => "cuMemExportToShareableHandle",
            Self::Import => "cuMemImportFromShareableHandle",
            Self::AllocateManaged => "cuMemAllocManaged",
            Self::Advise => "cuMemAdvise",
            Self::Prefetch => "cuMemPrefetchAsync",
        }
    }
}

/// A driver call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// Which call it was.
    pub call: Call,
    /// What the driver returned.
    pub code: Code,
}

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

impl DriverError {
    /// Returns true if the driver lacked memory (or, for a reservation, address space).
    pub fn is_out_of_memory(self) -> bool {
        self.code == Code::OUT_OF_MEMORY
    }

    /// Returns true if the context of the call is gone, and all its work with it.
    pub fn is_context_gone(self) -> bool {
        matches!(self.code, Code::INVALID_CONTEXT | Code::CONTEXT_IS_DESTROYED)
    }

    /// Returns true if the driver is gone because the process is exiting, which is not reported.
    pub fn is_shutdown(self) -> bool {
        self.code == Code::DEINITIALIZED
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} failed with code {}", self.call.name(), self.code.0)?;
        match self.code {
            Code::INVALID_VALUE => formatter.write_str(" (invalid value)"),
            Code::OUT_OF_MEMORY => formatter.write_str(" (out of memory)"),
            Code::NOT_INITIALIZED => formatter.write_str(" (driver not initialized)"),
            Code::DEINITIALIZED => formatter.write_str(" (driver shut down)"),
            Code::INVALID_CONTEXT => formatter.write_str(" (invalid context)"),
            Code::INVALID_HANDLE => formatter.write_str(" (invalid handle)"),
            Code::NOT_FOUND => formatter.write_str(" (not found in this driver)"),
            Code::CONTEXT_IS_DESTROYED => formatter.write_str(" (context destroyed)"),
            Code::NOT_PERMITTED => formatter.write_str(" (not permitted)"),
            Code::NOT_SUPPORTED => formatter.write_str(" (not supported)"),
            Code::STREAM_CAPTURE_UNSUPPORTED => {
                formatter.write_str(" (not permitted during stream capture)")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for DriverError {}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        let status = match error.code {
            Code::OUT_OF_MEMORY => Status::OutOfMemory,
            Code::NOT_SUPPORTED => Status::NotSupported,
            _ => Status::DriverFailed,
        };
        Self::new(status, error.to_string())
    }
}

/// An extent: a piece of physical memory, made by [`super::Device::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryHandle(pub u64);
