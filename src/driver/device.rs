//! The contract between the allocator and a device.
//!
//! One [`Device`] is one GPU. Methods may be called from any thread at any time, with any
//! device current; an implementation makes its own device current and restores the caller's.
//! No method panics, prints, or ends the process. Addresses and sizes are in bytes; an
//! address is a device address and is never dereferenced here.
//!
//! The rules are CUDA's: those of `cuMemAlloc`, of virtual memory management (`cuMemCreate`
//! and its family) and of streams and events, as NVIDIA's driver API manual states them.

use std::fmt;
use std::sync::Arc;

use super::call::{Call, Code, DriverError, MemoryHandle, Result};
use super::managed::{Location, Managed};
use super::sharing::Sharing;
use crate::base::{DeviceOrdinal, StreamHandle};

/// An event of the driver, owned by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// How physical memory can be shared with other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shareable {
    /// Not at all.
    #[default]
    None,
    /// As a POSIX file descriptor, within the machine.
    PosixFd,
    /// By a fabric handle, over the machines of an NVLink domain. The process needs access to
    /// an IMEX channel.
    Fabric,
    /// As either of the two.
    PosixFdOrFabric,
}

/// What physical memory can be used for other than mapping it in this process. The default is
/// nothing, which every device with virtual memory management supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleOptions {
    /// How it can be shared.
    pub shareable: Shareable,
    /// True if network cards and other devices can reach it: GPUDirect RDMA.
    pub rdma: bool,
}

/// A device's memory as the driver reports it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free physical memory.
    pub free_bytes: u64,
    /// All physical memory.
    pub total_bytes: u64,
}

/// The driver calls of a device so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Calls, by [`Call`] as an index.
    pub calls: [u64; Call::COUNT],
    /// Time spent in them, in nanoseconds: measured on a real driver, where an eighth of the calls that
    /// record events, or ask about events and streams, stands for all of these; virtual (from the cost
    /// table) on a simulated one.
    pub nanoseconds: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { calls: [0; Call::COUNT], nanoseconds: 0 }
    }
}

impl Usage {
    /// All calls together.
    pub fn total_calls(&self) -> u64 {
        self.calls.iter().sum()
    }
}

/// Which device of the machine it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The driver's number for the device, or for the instance of it (MIG).
    pub uuid: [u8; 16],
    /// The address on the PCI bus, as text; empty if the driver does not say.
    pub pci_bus_id: String,
}

/// Which context of which device a [`Device`] works in, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(pub u64);

/// One GPU, as an allocator sees it: in its primary context, which is the runtime's, unless
/// [`Device::other_context_of`] returned it.
///
/// **Errors**: every failure is a [`DriverError`] with the driver's own code and leaves the
/// device as it was before the call. **Threads**: all methods are safe from any thread.
/// **Re-entrancy**: no method calls back into the library. **Capture**: methods are legal
/// while a stream of the process captures a graph, except where noted.
pub trait Device: Sharing + Managed + Send + Sync + fmt::Debug {
    /// Which device this is.
    fn ordinal(&self) -> DeviceOrdinal;

    /// The device's marketing name.
    fn name(&self) -> String;

    /// Which device of the machine it is; `None` if no other process can have it, or the driver does
    /// not say.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// The driver calls for this device so far.
    fn usage(&self) -> Usage;

    /// The clock of this device's calls, in nanoseconds after some fixed moment: the difference of
    /// two readings in one thread is at least what the thread's calls between them took. The
    /// system's clock on a real driver; virtual time on a simulated one.
    fn clock_ns(&self) -> u64;

    /// Free and total physical memory. Slow (microseconds to milliseconds): not for a hot path.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// A segment: `bytes` of mapped, accessible memory at a fresh address, aligned to at least 256
    /// bytes.
    ///
    /// `bytes` is not 0. Contents are undefined. May synchronise the device.
    fn allocate(&self, bytes: u64) -> Result<u64>;

    /// How many bytes [`Self::allocate`] maps for `bytes`.
    fn footprint_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    /// [`Self::allocate`] takes physical memory in whole pages of this many bytes; smaller
    /// allocations may share a page. 0: it takes what it maps.
    fn page_bytes(&self) -> u64 {
        0
    }

    /// Frees memory from [`Self::allocate`], by its exact address. Waits for all work of the
    /// device, so nothing queued before can still touch the memory afterwards.
    fn free(&self, address: u64) -> Result<()>;

    /// The granularity of memory created with `options`, in bytes: sizes, addresses and
    /// reservations below are multiples of it. It is a power of two, and always the same. A
    /// reservation for several kinds of memory needs the largest of theirs. `NOT_SUPPORTED` on a
    /// device without virtual memory management, and if the device is already known to lack one
    /// of the options. If this succeeds, [`Self::create`] may still fail.
    fn granularity(&self, options: HandleOptions) -> Result<u64>;

    /// The granularity that the driver recommends for memory created with `options`, in bytes: a
    /// multiple of [`Self::granularity`], which fails alike.
    fn recommended_granularity(&self, options: HandleOptions) -> Result<u64> {
        self.granularity(options)
    }

    /// Reserves `bytes` of address space aligned to `alignment_bytes` (0: to the granularity).
    /// Takes no physical memory. `OUT_OF_MEMORY` here means address space.
    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64>;

    /// Frees a whole reservation: the exact address and size, with nothing mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<()>;

    /// Creates `bytes` of physical memory with all of `options`, mapped nowhere.
    ///
    /// `NOT_SUPPORTED` or `NOT_PERMITTED` if the device or the process lacks what one of the
    /// options needs. No option is left out silently ([`super::Handles`] leaves them out).
    fn create(&self, bytes: u64, options: HandleOptions) -> Result<MemoryHandle>;

    /// Releases the handle. The memory lives until its last mapping is gone.
    fn release(&self, handle: MemoryHandle) -> Result<()>;

    /// Maps the whole of a handle of `bytes` at `address`, inside a reservation and where
    /// nothing is mapped. A handle may be mapped at several addresses. The new mapping cannot
    /// be accessed until [`Self::set_access`].
    fn map(&self, address: u64, bytes: u64, handle: MemoryHandle) -> Result<()>;

    /// Lets this device and `peers` read and write `[address, address + bytes)`, which is any
    /// number of whole mappings without a gap. Each peer can access this device, by
    /// [`Self::can_access_peer`].
    fn set_access(&self, address: u64, bytes: u64, peers: &[DeviceOrdinal]) -> Result<()>;

    /// Returns true if this device can be given access to memory of `peer`; always for its own.
    /// `INVALID_DEVICE` (101) if the driver has no device of that ordinal. The result is always
    /// the same, so one call is enough.
    fn can_access_peer(&self, peer: DeviceOrdinal) -> Result<bool>;

    /// Lets `peer` access what [`Self::allocate`] returns, now and later, if no call of the program
    /// does that. The driver's own allocations need nothing.
    fn add_peer(&self, _peer: DeviceOrdinal) -> Result<()> {
        Ok(())
    }

    /// Drops the mappings that make up `[address, address + bytes)`: whole ones only. The caller
    /// guarantees that no queued work still touches them.
    fn unmap(&self, address: u64, bytes: u64) -> Result<()>;

    /// A new event, with timing disabled. Slow when done concurrently: keep events.
    fn event_create(&self) -> Result<Event>;

    /// Destroys an event; work already waiting on it does not change.
    fn event_destroy(&self, event: Event) -> Result<()>;

    /// Makes `event` stand for the work queued on `stream` up to now. Not on a capturing stream.
    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()>;

    /// [`Self::event_record`], but `STREAM_CAPTURE_UNSUPPORTED` on a capturing stream, where an
    /// event would belong to the graph and never complete.
    fn event_record_outside_capture(&self, event: Event, stream: StreamHandle) -> Result<()> {
        if self.stream_is_capturing(stream)? {
            let code = Code::STREAM_CAPTURE_UNSUPPORTED;
            return Err(DriverError { call: Call::EventRecord, code });
        }
        self.event_record(event, stream)
    }

    /// [`Managed::prefetch`], but `STREAM_CAPTURE_UNSUPPORTED` on a capturing stream.
    fn prefetch_outside_capture(
        &self,
        address: u64,
        bytes: u64,
        location: Location,
        stream: StreamHandle,
    ) -> Result<()> {
        if self.stream_is_capturing(stream)? {
            let code = Code::STREAM_CAPTURE_UNSUPPORTED;
            return Err(DriverError { call: Call::Prefetch, code });
        }
        self.prefetch(address, bytes, location, stream)
    }

    /// Returns true if all work that `event` stands for has completed; does not wait. An event
    /// never recorded is complete.
    fn event_query(&self, event: Event) -> Result<bool>;

    /// Waits until `event` is complete. Not while the thread's streams capture.
    fn event_synchronize(&self, event: Event) -> Result<()>;

    /// Work queued on `stream` from now on starts after `event`; the host does not wait.
    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()>;

    /// Returns true if all work queued on `stream` is complete; does not wait.
    /// `STREAM_CAPTURE_UNSUPPORTED` on a capturing stream, whose capture goes on.
    fn stream_query(&self, stream: StreamHandle) -> Result<bool>;

    /// Returns true if `stream` is being captured into a graph.
    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool>;

    /// The driver's number for `stream`, which is not a default stream: below 2^61, and never
    /// another stream's, even when the handle is reused. `NOT_FOUND` with drivers before CUDA
    /// 12.0, which have none.
    fn stream_id(&self, stream: StreamHandle) -> Result<u64>;

    /// Which context this is.
    fn context(&self) -> ContextId;

    /// The context that `stream` belongs to, if it is another one than this: events are made and
    /// recorded there, and waited for. A default stream belongs to the context that is current in
    /// the calling thread, or to this one if none is.
    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>>;

    /// Returns true if the process already uses the device: its primary context is active.
    fn is_in_use(&self) -> Result<bool>;

    /// Waits for all work of the context, which is all work of the device if the program uses the
    /// runtime alone. `STREAM_CAPTURE_UNSUPPORTED` while a stream of it captures; the call then
    /// invalidates that capture, no matter which thread began it.
    fn synchronize(&self) -> Result<()>;

    /// `bytes` of page-locked host memory, as a host address. `bytes` is not 0.
    fn host_allocate(&self, bytes: u64) -> Result<u64>;

    /// Frees memory from [`Self::host_allocate`].
    fn host_free(&self, address: u64) -> Result<()>;

    /// Page-locks `[address, address + bytes)` for copies: whole pages of [`super::Pages`], none of
    /// which is locked. Touches them first, in several threads, because the driver would do so in
    /// one. Waits for nothing.
    fn host_register(&self, address: u64, bytes: u64) -> Result<()>;

    /// Returns true if [`Self::host_register`] is for the process's own pages; false if host memory
    /// is addresses only.
    fn reaches_pages(&self) -> bool {
        true
    }

    /// Undoes [`Self::host_register`], by the exact address.
    fn host_unregister(&self, address: u64) -> Result<()>;

    /// Copies `bytes` (not 0) from `[device_address, …)`, mapped without a gap and accessible,
    /// to `[host_address, …)`, which lies in one piece of memory from [`Self::host_allocate`] or
    /// [`Self::host_register`] that is not used otherwise meanwhile. A real driver does not check the host's side.
    ///
    /// Returns when the bytes are there. The copy is work on the legacy stream: the caller
    /// guarantees, by [`Self::synchronize`] or by complete events, that work on other streams that
    /// touches the range is over. Not while a stream captures: a capture that the legacy stream
    /// synchronises with would be invalidated. As in every call that waits, an error of earlier
    /// work may be returned here; the bytes are then undefined.
    fn copy_to_host(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()>;

    /// Copies `bytes` from `[host_address, …)` to `[device_address, …)`, under the rules of
    /// [`Self::copy_to_host`]. When it returns, the host's memory may be reused, and work enqueued
    /// on any stream from then on sees the bytes.
    fn copy_to_device(&self, device_address: u64, host_address: u64, bytes: u64) -> Result<()>;

    /// Sets `bytes` (not 0) from `address` on, mapped without a gap and accessible, to `value`:
    /// work on `stream`, not waited for. On a capturing stream it would become part of the graph.
    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()>;

    /// The offset of the first of `bytes` (not 0) from `address` on that is not `value`, if any.
    /// Copies the bytes to the host, under the rules of [`Self::copy_to_host`]. A device without
    /// real bytes finds none.
    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>>;
}
