//! The calls of the simulated driver, by CUDA's names.

/// The calls of the simulated driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each is the driver call that `name` returns
pub enum Call {
    MemoryInfo,
    Allocate,
    Free,
    AddressRange,
    Reserve,
    Unreserve,
    Create,
    Release,
    Map,
    SetAccess,
    Unmap,
    StreamCreate,
    StreamDestroy,
    StreamQuery,
    StreamSynchronize,
    StreamWait,
    StreamIsCapturing,
    BeginCapture,
    EndCapture,
    EventCreate,
    EventDestroy,
    EventRecord,
    EventQuery,
    EventSynchronize,
    Synchronize,
    HostAllocate,
    HostFree,
    HostRegister,
    HostUnregister,
    CopyToHost,
    CopyToDevice,
    Fill,
    CanAccessPeer,
    StreamGetId,
    StreamGetContext,
    IpcGetMemory,
    IpcOpenMemory,
    IpcCloseMemory,
    ExportHandle,
    ImportHandle,
    IpcGetEvent,
    IpcOpenEvent,
    AllocateManaged,
    Advise,
    Prefetch,
}

impl Call {
    /// How many kinds of call there are.
    pub const COUNT: usize = Self::Prefetch as usize + 1;

    /// Every kind, by its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MemoryInfo,
        Self::Allocate,
        Self::Free,
        Self::AddressRange,
        Self::Reserve,
        Self::Unreserve,
        Self::Create,
        Self::Release,
        Self::Map,
        Self::SetAccess,
        Self::Unmap,
        Self::StreamCreate,
        Self::StreamDestroy,
        Self::StreamQuery,
        Self::StreamSynchronize,
        Self::StreamWait,
        Self::StreamIsCapturing,
        Self::BeginCapture,
        Self::EndCapture,
        Self::EventCreate,
        Self::EventDestroy,
        Self::EventRecord,
        Self::EventQuery,
        Self::EventSynchronize,
        Self::Synchronize,
        Self::HostAllocate,
        Self::HostFree,
        Self::HostRegister,
        Self::HostUnregister,
        Self::CopyToHost,
        Self::CopyToDevice,
        Self::Fill,
        Self::CanAccessPeer,
        Self::StreamGetId,
        Self::StreamGetContext,
        Self::IpcGetMemory,
        Self::IpcOpenMemory,
        Self::IpcCloseMemory,
        Self::ExportHandle,
        Self::ImportHandle,
        Self::IpcGetEvent,
        Self::IpcOpenEvent,
        Self::AllocateManaged,
        Self::Advise,
        Self::Prefetch,
    ];

    /// Returns true if the call waits while any thread waits for room in a full queue: those that
    /// create, destroy and allocate (`crate::room`).
    pub(crate) const fn waits_beside_a_full_queue(self) -> bool {
        matches!(
            self,
            Self::EventCreate
                | Self::EventDestroy
                | Self::StreamCreate
                | Self::StreamDestroy
                | Self::Allocate
                | Self::AllocateManaged
                | Self::Free
                | Self::HostAllocate
                | Self::HostFree
                | Self::HostRegister
                | Self::HostUnregister
        )
    }

    /// CUDA's name for the call.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryInfo => "cuMemGetInfo",
            Self::Allocate => "cuMemAlloc",
            Self::Free => "cuMemFree",
            Self::AddressRange => "cuMemGetAddressRange",
            Self::Reserve => "cuMemAddressReserve",
            Self::Unreserve => "cuMemAddressFree",
            Self::Create => "cuMemCreate",
            Self::Release => "cuMemRelease",
            Self::Map => "cuMemMap",
            Self::SetAccess => "cuMemSetAccess",
            Self::Unmap => "cuMemUnmap",
            Self::StreamCreate => "cuStreamCreate",
            Self::StreamDestroy => "cuStreamDestroy",
            Self::StreamQuery => "cuStreamQuery",
            Self::StreamSynchronize => "cuStreamSynchronize",
            Self::StreamWait => "cuStreamWaitEvent",
            Self::StreamIsCapturing => "cuStreamIsCapturing",
            Self::BeginCapture => "cuStreamBeginCapture",
            Self::EndCapture => "cuStreamEndCapture",
            Self::EventCreate => "cuEventCreate",
            Self::EventDestroy => "cuEventDestroy",
            Self::EventRecord => "cuEventRecord",
            Self::EventQuery => "cuEventQuery",
            Self::EventSynchronize => "cuEventSynchronize",
            Self::Synchronize => "cuCtxSynchronize",
            Self::HostAllocate => "cuMemAllocHost",
            Self::HostFree => "cuMemFreeHost",
            Self::HostRegister => "cuMemHostRegister",
            Self::HostUnregister => "cuMemHostUnregister",
            Self::CopyToHost => "cuMemcpyDtoH",
            Self::CopyToDevice => "cuMemcpyHtoD",
            Self::Fill => "cuMemsetD8Async",
            Self::CanAccessPeer => "cuDeviceCanAccessPeer",
            Self::StreamGetId => "cuStreamGetId",
            Self::StreamGetContext => "cuStreamGetCtx",
            Self::IpcGetMemory => "cuIpcGetMemHandle",
            Self::IpcOpenMemory => "cuIpcOpenMemHandle",
            Self::IpcCloseMemory => "cuIpcCloseMemHandle",
            Self::ExportHandle => "cuMemExportToShareableHandle",
            Self::ImportHandle => "cuMemImportFromShareableHandle",
            Self::IpcGetEvent => "cuIpcGetEventHandle",
            Self::IpcOpenEvent => "cuIpcOpenEventHandle",
            Self::AllocateManaged => "cuMemAllocManaged",
            Self::Advise => "cuMemAdvise",
            Self::Prefetch => "cuMemPrefetchAsync",
        }
    }
}
