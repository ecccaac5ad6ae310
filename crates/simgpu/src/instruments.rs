//! What was asked of the simulated driver: calls, virtual time, waits of the host.
//!
//! Counters are per device and only grow. A call is counted and its least price charged when it is
//! made, whatever it answers; what depends on size, and what makes it slow, when it succeeds.

use crate::Result;
use crate::cost::CostTable;
use crate::machine::{Machine, State};

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
    CopyToHost,
    CopyToDevice,
    Fill,
    CanAccessPeer,
    StreamGetId,
    StreamGetContext,
}

impl Call {
    /// How many kinds of call there are.
    pub const COUNT: usize = Self::StreamGetContext as usize + 1;

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
        Self::CopyToHost,
        Self::CopyToDevice,
        Self::Fill,
        Self::CanAccessPeer,
        Self::StreamGetId,
        Self::StreamGetContext,
    ];

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
            Self::CopyToHost => "cuMemcpyDtoH",
            Self::CopyToDevice => "cuMemcpyHtoD",
            Self::Fill => "cuMemsetD8Async",
            Self::CanAccessPeer => "cuDeviceCanAccessPeer",
            Self::StreamGetId => "cuStreamGetId",
            Self::StreamGetContext => "cuStreamGetCtx",
        }
    }
}

/// How often the host waited for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostWaits {
    /// `cuEventSynchronize`, `cuStreamSynchronize` and `cuCtxSynchronize`.
    pub explicit: u64,
    /// Waits inside other calls: `cuMemFree`, and copies to and from the host.
    pub implicit: u64,
    /// Those of either kind that found work unfinished.
    pub blocked: u64,
    /// Calls that found the queue of their stream full and waited for room.
    pub queue_full: u64,
    /// Virtual time of the work they had to sit through, in nanoseconds.
    pub nanoseconds: u64,
}

/// What was asked of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Calls, by [`Call`] as an index.
    pub calls: [u64; Call::COUNT],
    /// Virtual time spent in them, in nanoseconds, waits for work not included.
    pub driver_nanoseconds: u64,
    /// Waits of the host.
    pub host_waits: HostWaits,
}

impl Usage {
    /// How often `call` was made.
    pub const fn count(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self { calls: [0; Call::COUNT], driver_nanoseconds: 0, host_waits: HostWaits::default() }
    }
}

impl Usage {
    pub(crate) fn charge_call(&mut self, call: Call, costs: &CostTable) {
        self.charge_calls(call, 1, costs);
    }

    pub(crate) fn charge_calls(&mut self, call: Call, count: u64, costs: &CostTable) {
        self.calls[call as usize] += count;
        self.charge_ns(costs.get(call).base_ns().saturating_mul(count));
    }

    pub(crate) fn charge_ns(&mut self, nanoseconds: u64) {
        self.driver_nanoseconds = self.driver_nanoseconds.saturating_add(nanoseconds);
    }

    /// Charges what a call costs beyond the least, by the memory that it concerned; after
    /// [`Self::charge_call`], when it has succeeded.
    pub(crate) fn charge_size(&mut self, call: Call, costs: &CostTable, bytes: u64, mappings: u64) {
        let cost = costs.get(call);
        self.charge_ns(cost.price_ns(bytes, mappings).saturating_sub(cost.base_ns()));
        self.charge_ns(cost.tail_ns(self.count(call)));
    }
}

/// What is alive in a machine; all zero when everything was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Allocations of `cuMemAlloc`.
    pub allocations: usize,
    /// Handles of `cuMemCreate` not released.
    pub handles: usize,
    /// Reservations.
    pub reservations: usize,
    /// Mappings of handles.
    pub mappings: usize,
    /// Events.
    pub events: usize,
    /// Pieces of pinned host memory.
    pub host_allocations: usize,
    /// Their bytes.
    pub host_bytes: u64,
    /// Physical memory in use on all devices, in bytes.
    pub used_bytes: u64,
    /// Reserved address space, in bytes.
    pub reserved_bytes: u64,
}

impl Machine {
    /// What was asked of `device` since the machine was made.
    pub fn usage(&self, device: u32) -> Result<Usage> {
        self.lock().usage(device)
    }

    /// The most physical memory of `device` that was in use at once, in bytes: since the
    /// machine was made, or since [`Self::reset_peak`].
    pub fn peak_used_bytes(&self, device: u32) -> Result<u64> {
        self.lock().device(device).map(|entry| entry.peak_used_bytes)
    }

    /// Makes the peak of `device` what is in use now.
    pub fn reset_peak(&self, device: u32) -> Result<()> {
        let mut state = self.lock();
        let entry = state.device_mut(device)?;
        entry.peak_used_bytes = entry.used_bytes;
        Ok(())
    }

    /// What is alive now.
    pub fn census(&self) -> Census {
        self.lock().census()
    }
}

impl State {
    /// What was asked of `device`, under the lock and without.
    pub(crate) fn usage(&self, device: u32) -> Result<Usage> {
        let mut usage = self.device(device)?.usage;
        self.quiet.add_to(&mut usage, device, &self.config.costs);
        Ok(usage)
    }

    fn census(&self) -> Census {
        let allocations = self.space.mappings().filter(|(_, m)| m.is_allocation()).count();
        Census {
            allocations,
            handles: self.physical.iter().filter(|(_, memory)| !memory.released).count(),
            reservations: self.space.reservations().count(),
            mappings: self.space.mappings().count() - allocations,
            events: self.events.len(),
            host_allocations: self.host_memory.count(),
            host_bytes: self.host_memory.bytes(),
            used_bytes: self.devices.iter().map(|device| device.used_bytes).sum(),
            reserved_bytes: self.space.reservations().map(|(_, bytes)| bytes).sum(),
        }
    }
}
