//! One device of a `simgpu` machine as a [`Device`].
//!
//! Only translation: arguments in one direction; results, codes and counters in the other. As with
//! the real driver, every call is made in relaxed capture mode, so that a capture of the program
//! forbids no call that CUDA would allow in that mode.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use simgpu::{CaptureMode, HandleProperties, Machine, exchange_thread_capture_mode};

use super::super::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, MemoryHandle, MemoryInfo,
    Result, SegmentHandle, Shareable, Sharing, Usage,
};
use crate::base::{DeviceOrdinal, StreamHandle};

/// A device of a simulated machine.
#[derive(Debug)]
pub struct SimulatedDevice {
    machine: Arc<Machine>,
    ordinal: u32,
    /// The machine's number for the context: the ordinal, for the primary one.
    context: u32,
    /// Its allocations take whole pages of this many bytes.
    page_bytes: u64,
    /// Whether it has managed memory that may be more than it has.
    pub(super) has_managed: bool,
}

/// The calls that both sides have. `cuInit` has no counterpart: a machine is always ready.
const CALLS: [(Call, simgpu::Call); Call::COUNT - 1] = [
    (Call::MemoryInfo, simgpu::Call::MemoryInfo),
    (Call::Allocate, simgpu::Call::Allocate),
    (Call::Free, simgpu::Call::Free),
    (Call::Reserve, simgpu::Call::Reserve),
    (Call::Unreserve, simgpu::Call::Unreserve),
    (Call::Create, simgpu::Call::Create),
    (Call::Release, simgpu::Call::Release),
    (Call::Map, simgpu::Call::Map),
    (Call::SetAccess, simgpu::Call::SetAccess),
    (Call::Unmap, simgpu::Call::Unmap),
    (Call::EventCreate, simgpu::Call::EventCreate),
    (Call::EventDestroy, simgpu::Call::EventDestroy),
    (Call::EventRecord, simgpu::Call::EventRecord),
    (Call::EventQuery, simgpu::Call::EventQuery),
    (Call::StreamQuery, simgpu::Call::StreamQuery),
    (Call::EventSynchronize, simgpu::Call::EventSynchronize),
    (Call::StreamWait, simgpu::Call::StreamWait),
    (Call::StreamIsCapturing, simgpu::Call::StreamIsCapturing),
    (Call::StreamId, simgpu::Call::StreamGetId),
    (Call::StreamContext, simgpu::Call::StreamGetContext),
    (Call::Synchronize, simgpu::Call::Synchronize),
    (Call::HostAllocate, simgpu::Call::HostAllocate),
    (Call::HostFree, simgpu::Call::HostFree),
    (Call::HostRegister, simgpu::Call::HostRegister),
    (Call::HostUnregister, simgpu::Call::HostUnregister),
    (Call::CopyToHost, simgpu::Call::CopyToHost),
    (Call::CopyToDevice, simgpu::Call::CopyToDevice),
    (Call::Fill, simgpu::Call::Fill),
    (Call::CanAccessPeer, simgpu::Call::CanAccessPeer),
    (Call::ShareAllocation, simgpu::Call::IpcGetMemory),
    (Call::OpenAllocation, simgpu::Call::IpcOpenMemory),
    (Call::CloseAllocation, simgpu::Call::IpcCloseMemory),
    (Call::Export, simgpu::Call::ExportHandle),
    (Call::Import, simgpu::Call::ImportHandle),
    (Call::AllocateManaged, simgpu::Call::AllocateManaged),
    (Call::Advise, simgpu::Call::Advise),
    (Call::Prefetch, simgpu::Call::Prefetch),
];

impl SimulatedDevice {
    /// Device `ordinal` of `machine`. With an ordinal the machine does not have, every call fails
    /// as in CUDA, with code 101, invalid device.
    pub fn new(machine: Arc<Machine>, ordinal: u32) -> Self {
        let config = machine.config();
        let device = config.devices.get(ordinal as usize);
        let page_bytes = device.map_or(0, |device| device.granularity_bytes);
        let has_managed =
            device.is_some_and(|device| device.managed == simgpu::ManagedAccess::Concurrent);
        Self { machine, ordinal, context: ordinal, page_bytes, has_managed }
    }

    pub(super) fn ask<T>(
        &self,
        call: Call,
        question: impl FnOnce(&Machine, u32) -> simgpu::Result<T>,
    ) -> Result<T> {
        let mode = exchange_thread_capture_mode(CaptureMode::Relaxed);
        let answer = question(&self.machine, self.context);
        exchange_thread_capture_mode(mode);
        answer.map_err(|code| DriverError { call, code: Code(code.0) })
    }
}

impl Device for SimulatedDevice {
    fn ordinal(&self) -> DeviceOrdinal {
        DeviceOrdinal(self.ordinal)
    }

    fn name(&self) -> String {
        match self.machine.store() {
            simgpu::StoreKind::RealBytes => "Simulated GPU (host memory)".into(),
            simgpu::StoreKind::AddressesOnly => "Simulated GPU (addresses only)".into(),
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        if let Ok(counted) = self.machine.usage(self.ordinal) {
            for (call, theirs) in CALLS {
                usage.calls[call as usize] = counted.count(theirs);
            }
            usage.nanoseconds = counted.driver_nanoseconds;
        }
        usage
    }

    fn clock_ns(&self) -> u64 {
        simgpu::thread_driver_nanoseconds()
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.ask(Call::MemoryInfo, |machine, device| machine.memory_info(device))?;
        Ok(MemoryInfo { free_bytes: info.free_bytes, total_bytes: info.total_bytes })
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        self.ask(Call::Allocate, |machine, device| machine.allocate(device, bytes))
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn free(&self, address: u64) -> Result<()> {
        self.ask(Call::Free, |machine, device| machine.free(device, address))
    }

    fn granularity(&self, options: HandleOptions) -> Result<u64> {
        self.ask(Call::Create, |machine, device| {
            machine.granularity_with(device, properties(options))
        })
    }

    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        self.ask(Call::Reserve, |machine, device| machine.reserve(device, bytes, alignment_bytes))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.ask(Call::Unreserve, |machine, device| machine.unreserve(device, address, bytes))
    }

    fn create(&self, bytes: u64, options: HandleOptions) -> Result<MemoryHandle> {
        let created = self.ask(Call::Create, |machine, device| {
            machine.create_with(device, bytes, properties(options))
        });
        created.map(MemoryHandle)
    }

    fn release(&self, handle: MemoryHandle) -> Result<()> {
        self.ask(Call::Release, |machine, device| machine.release(device, handle.0))
    }

    fn map(&self, address: u64, bytes: u64, handle: MemoryHandle) -> Result<()> {
        self.ask(Call::Map, |machine, device| machine.map(device, address, bytes, handle.0))
    }

    fn set_access(&self, address: u64, bytes: u64, peers: &[DeviceOrdinal]) -> Result<()> {
        let own = [self.ordinal];
        self.ask(Call::SetAccess, |machine, device| {
            if peers.is_empty() {
                return machine.set_access(device, address, bytes, &own);
            }
            let devices: Vec<u32> =
                own.into_iter().chain(peers.iter().map(|peer| peer.0)).collect();
            machine.set_access(device, address, bytes, &devices)
        })
    }

    fn can_access_peer(&self, peer: DeviceOrdinal) -> Result<bool> {
        if peer.0 == self.ordinal {
            return Ok(true);
        }
        self.ask(Call::CanAccessPeer, |machine, device| machine.can_access_peer(device, peer.0))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.ask(Call::Unmap, |machine, device| machine.unmap(device, address, bytes))
    }

    fn event_create(&self) -> Result<Event> {
        self.ask(Call::EventCreate, |machine, device| machine.event_create(device, false))
            .map(Event)
    }

    fn event_destroy(&self, event: Event) -> Result<()> {
        self.ask(Call::EventDestroy, |machine, device| machine.event_destroy(device, event.0))
    }

    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()> {
        self.ask(Call::EventRecord, |machine, device| {
            machine.event_record(device, event.0, stream.0)
        })
    }

    fn event_query(&self, event: Event) -> Result<bool> {
        self.ask(Call::EventQuery, |machine, device| machine.event_query(device, event.0))
    }

    fn event_synchronize(&self, event: Event) -> Result<()> {
        self.ask(Call::EventSynchronize, |machine, device| {
            machine.event_synchronize(device, event.0)
        })
    }

    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()> {
        self.ask(Call::StreamWait, |machine, device| machine.stream_wait(device, stream.0, event.0))
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        if self.stream_is_capturing(stream)? {
            let code = Code::STREAM_CAPTURE_UNSUPPORTED;
            return Err(DriverError { call: Call::StreamQuery, code });
        }
        self.ask(Call::StreamQuery, |machine, device| machine.stream_query(device, stream.0))
    }

    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.ask(Call::StreamIsCapturing, |machine, device| machine.is_capturing(device, stream.0))
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        self.ask(Call::StreamId, |machine, context| machine.stream_id(context, stream.0))
    }

    fn context(&self) -> ContextId {
        ContextId(self.context.into())
    }

    /// No context is current in a thread: default streams belong to this context.
    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        if stream.is_default() {
            return Ok(None);
        }
        let context = self.ask(Call::StreamContext, |machine, context| {
            machine.stream_context(context, stream.0)
        })?;
        if context == self.context {
            return Ok(None);
        }
        let ordinal =
            self.ask(Call::StreamContext, |machine, _| machine.context_device(context))?;
        let machine = Arc::clone(&self.machine);
        let Self { page_bytes, has_managed, .. } = *self;
        Ok(Some(Arc::new(Self { machine, ordinal, context, page_bytes, has_managed })))
    }

    fn is_in_use(&self) -> Result<bool> {
        Ok(false)
    }

    fn synchronize(&self) -> Result<()> {
        self.ask(Call::Synchronize, |machine, device| machine.synchronize(device))
    }

    fn host_allocate(&self, bytes: u64) -> Result<u64> {
        self.ask(Call::HostAllocate, |machine, device| machine.host_allocate(device, bytes))
    }

    fn host_free(&self, address: u64) -> Result<()> {
        self.ask(Call::HostFree, |machine, device| machine.host_free(device, address))
    }

    fn host_register(&self, address: u64, bytes: u64) -> Result<()> {
        let call = Call::HostRegister;
        self.ask(call, |machine, device| machine.host_register(device, address, bytes))
    }

    fn reaches_pages(&self) -> bool {
        self.machine.store() == simgpu::StoreKind::RealBytes
    }

    fn host_unregister(&self, address: u64) -> Result<()> {
        let call = Call::HostUnregister;
        self.ask(call, |machine, device| machine.host_unregister(device, address))
    }

    fn copy_to_host(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        self.ask(Call::CopyToHost, |machine, device| {
            machine.copy_to_host(device, host_address, device_address, bytes)
        })
    }

    fn copy_to_device(&self, device_address: u64, host_address: u64, bytes: u64) -> Result<()> {
        self.ask(Call::CopyToDevice, |machine, device| {
            machine.copy_to_device(device, device_address, host_address, bytes)
        })
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        self.ask(Call::Fill, |machine, device| {
            machine.fill(device, stream.0, address, bytes, value)
        })
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        self.ask(Call::CopyToHost, |machine, device| {
            machine.find_other(device, address, bytes, value)
        })
    }
}

impl Sharing for SimulatedDevice {
    fn share_allocation(&self, address: u64) -> Result<SegmentHandle> {
        self.ask(Call::ShareAllocation, |machine, device| machine.ipc_get_memory(device, address))
    }

    fn open_allocation(&self, handle: &SegmentHandle) -> Result<u64> {
        self.ask(Call::OpenAllocation, |machine, device| machine.ipc_open_memory(device, handle))
    }

    fn close_allocation(&self, address: u64) -> Result<()> {
        self.ask(Call::CloseAllocation, |machine, device| machine.ipc_close_memory(device, address))
    }

    fn export(&self, handle: MemoryHandle) -> Result<OwnedFd> {
        self.ask(Call::Export, |machine, device| machine.export_handle(device, handle.0))
    }

    fn import(&self, descriptor: &OwnedFd) -> Result<MemoryHandle> {
        let imported =
            self.ask(Call::Import, |machine, device| machine.import_handle(device, descriptor));
        imported.map(MemoryHandle)
    }
}

fn properties(options: HandleOptions) -> HandleProperties {
    HandleProperties {
        posix: matches!(options.shareable, Shareable::PosixFd | Shareable::PosixFdOrFabric),
        fabric: matches!(options.shareable, Shareable::Fabric | Shareable::PosixFdOrFabric),
        rdma: options.rdma,
    }
}
