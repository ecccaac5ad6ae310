//! Host memory as a device, from which the host heaps take theirs.
//!
//! | kind | allocations come from | aligned to |
//! |---|---|---|
//! | pageable | the process's own allocator | 512 bytes, from 4 KiB on to a page |
//! | pinned, from 1 MiB on | the system, then page-locked by the driver of a device | a page |
//! | pinned, smaller | that driver, page-locked | as the driver does, and to 512 bytes at least |
//!
//! Pages that several threads touch before the driver locks them are locked three times as fast as
//! the driver's own (`super::pages`), and lie near the device (`super::numa`). A driver that does not
//! lock pages of the process allocates instead.
//!
//! The trait is that of a GPU, so that strategies, limits and statistics are the same for all
//! memory. Virtual memory management is refused. Nothing is queued on pageable memory: waiting for it
//! returns at once, and events are refused. Pinned memory is used by copies and kernels on streams of
//! every device: its events are the driver's, and a wait for it is a wait for that device. Waits go
//! through a [`Gate`], because a capture forbids them.
//!
//! The machine's memory is read from `/proc/meminfo`, where *available* includes the page cache
//! that the kernel can drop; MXNet reads what is *free*, and empties its pools whenever files have
//! been read. A heap of pinned memory is also measured by the machine's memory, not by the GPU's.
//!
//! **Invariants**: `live` has what is handed out, and what its free needs. **Locks**: one, never held
//! while memory is allocated or freed.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::numa::Node;
use super::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, Managed, MemoryHandle,
    MemoryInfo, Pages, Result, Sharing, Usage,
};
use crate::base::lock::{Lock, rank};
use crate::base::size::ALIGNMENT_BYTES;
use crate::base::{DeviceOrdinal, StreamHandle};

/// Memory of at least this size is aligned to it, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Pinned memory of at least this size consists of the process's own pages, in bytes.
const LEAST_REGISTERED_BYTES: u64 = 1 << 20;
/// The machine's memory if `/proc/meminfo` does not have it, in bytes.
const UNKNOWN: MemoryInfo = MemoryInfo { free_bytes: 1 << 46, total_bytes: 1 << 46 };

/// Lets waits for a device pass, unless a stream of it is captured.
pub trait Gate: fmt::Debug + Send + Sync {
    /// Runs `wait`, a wait for work of `device`. `STREAM_CAPTURE_UNSUPPORTED` during a capture, which
    /// the wait would invalidate.
    fn pass(&self, device: DeviceOrdinal, wait: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}

/// A gate for a process without captures.
#[derive(Debug)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _device: DeviceOrdinal, wait: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        wait()
    }
}

/// The driver that locks pages.
#[derive(Debug)]
struct Locker {
    driver: Arc<dyn Device>,
    gate: Arc<dyn Gate>,
    /// The machine's node next to the device, if it is known.
    node: Option<Node>,
}

/// Memory that is handed out.
#[derive(Debug)]
enum Piece {
    /// Of the process's allocator, or of the driver, in bytes.
    Allocated(u64),
    /// Locked by the driver.
    Registered(Pages),
}

/// The process's memory, pageable or pinned.
#[derive(Debug)]
pub struct HostMemory {
    /// `None` for pageable memory.
    locker: Option<Locker>,
    /// By address.
    live: Lock<BTreeMap<u64, Piece>, { rank::DEVICE }>,
    allocations: AtomicU64,
    frees: AtomicU64,
    nanoseconds: AtomicU64,
    made: Instant,
}

impl HostMemory {
    /// Memory of the process's own allocator.
    pub fn pageable() -> Self {
        Self::new(None)
    }

    /// Memory that `driver` page-locks, for copies that the GPU makes itself; waits pass `gate`.
    /// Where addresses are unified, which is everywhere today, it is page-locked for every device.
    pub fn pinned(driver: Arc<dyn Device>, gate: Arc<dyn Gate>) -> Self {
        let node = Node::of(&*driver);
        Self::new(Some(Locker { driver, gate, node }))
    }

    fn new(locker: Option<Locker>) -> Self {
        Self {
            locker,
            live: Lock::default(),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            made: Instant::now(),
        }
    }

    /// Returns true if the byte at `address` is of this memory, whether or not a block has it.
    pub fn holds(&self, address: u64) -> bool {
        let live = self.live.lock();
        let before = live.range(..=address).next_back();
        before.is_some_and(|(start, piece)| address - start < piece.bytes())
    }

    /// The driver of pinned memory; `NOT_SUPPORTED` for `call` about pageable memory.
    fn driver(&self, call: Call) -> Result<&dyn Device> {
        self.locker.as_ref().map_or_else(|| none(call), |locker| Ok(&*locker.driver))
    }

    /// Runs one call that allocates or frees memory, and counts it.
    fn counted<T>(&self, count: &AtomicU64, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        count.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        result
    }
}

impl Locker {
    /// `bytes` of locked memory, and its address.
    fn take(&self, bytes: u64) -> Result<(u64, Piece)> {
        if bytes >= LEAST_REGISTERED_BYTES
            && self.driver.reaches_pages()
            && let Some(pages) = self.registered(bytes)
        {
            return Ok((pages.address(), Piece::Registered(pages)));
        }
        let address = self.driver.host_allocate(bytes)?;
        if !address.is_multiple_of(ALIGNMENT_BYTES) {
            // Drivers return whole pages; one that does not cannot serve blocks of 512 bytes.
            self.driver.host_free(address)?;
            return none(Call::HostAllocate);
        }
        Ok((address, Piece::Allocated(bytes)))
    }

    /// Pages of the process's that the driver has locked; `None` if there are none, or it refuses.
    fn registered(&self, bytes: u64) -> Option<Pages> {
        let pages = Pages::map(bytes, self.node).ok()?;
        self.driver.host_register(pages.address(), pages.bytes()).ok()?;
        Some(pages)
    }

    /// Gives `piece` back, with no work on it under way.
    fn give(&self, address: u64, piece: &Piece) -> Result<()> {
        match piece {
            Piece::Allocated(_) => self.driver.host_free(address),
            Piece::Registered(_) => self.driver.host_unregister(address),
        }
    }

    /// Waits for all work of the driver's context.
    fn wait(&self) -> Result<()> {
        self.gate.pass(self.driver.ordinal(), &mut || self.driver.synchronize())
    }
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Allocated(bytes) => *bytes,
            Self::Registered(pages) => pages.bytes(),
        }
    }
}

/// Memory of the process's allocator, and its address. `bytes` is not 0.
fn take(bytes: u64) -> Result<(u64, Piece)> {
    let refused = DriverError { call: Call::Allocate, code: Code::OUT_OF_MEMORY };
    let layout = layout(bytes).ok_or(refused)?;
    // SAFETY: the layout's size is not 0, by the contract of `Device::allocate`.
    let address = unsafe { alloc(layout) } as u64;
    if address == 0 { Err(refused) } else { Ok((address, Piece::Allocated(bytes))) }
}

/// Gives memory of [`take`] back.
fn give(address: u64, bytes: u64) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: `take` got this address from the allocator for these bytes, and it was in `live`
        // until now, so it is freed only here.
        unsafe { dealloc(address as *mut u8, layout) };
    }
}

/// The layout with which `bytes` are requested from the process's allocator.
fn layout(bytes: u64) -> Option<Layout> {
    let alignment_bytes = if bytes < PAGE_BYTES { ALIGNMENT_BYTES } else { PAGE_BYTES };
    Layout::from_size_align(usize::try_from(bytes).ok()?, alignment_bytes as usize).ok()
}

/// Refuses a call that only a GPU has.
fn none<T>(call: Call) -> Result<T> {
    Err(DriverError { call, code: Code::NOT_SUPPORTED })
}

impl Sharing for HostMemory {}

impl Managed for HostMemory {}

impl Device for HostMemory {
    fn ordinal(&self) -> DeviceOrdinal {
        DeviceOrdinal(0)
    }

    fn name(&self) -> String {
        match self.locker {
            None => "Host memory".to_owned(),
            Some(_) => "Pinned host memory".to_owned(),
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.calls[Call::Allocate as usize] = self.allocations.load(Relaxed);
        usage.calls[Call::Free as usize] = self.frees.load(Relaxed);
        usage.nanoseconds = self.nanoseconds.load(Relaxed);
        usage
    }

    fn clock_ns(&self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Ok(info_of(&text).unwrap_or(UNKNOWN))
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let (address, piece) = self.counted(&self.allocations, || match &self.locker {
            None => take(bytes),
            Some(locker) => locker.take(bytes),
        })?;
        self.live.lock().insert(address, piece);
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let unknown = DriverError { call: Call::Free, code: Code::INVALID_VALUE };
        let piece = self.live.lock().remove(&address).ok_or(unknown)?;
        let freed = match &self.locker {
            None => {
                self.counted(&self.frees, || give(address, piece.bytes()));
                Ok(())
            }
            Some(locker) => {
                let free = || self.counted(&self.frees, || locker.give(address, &piece));
                locker.wait().and_then(|()| free())
            }
        };
        if freed.is_err() {
            self.live.lock().insert(address, piece);
        }
        freed
    }

    fn granularity(&self, _options: HandleOptions) -> Result<u64> {
        none(Call::Create)
    }

    fn reserve(&self, _bytes: u64, _alignment_bytes: u64) -> Result<u64> {
        none(Call::Reserve)
    }

    fn unreserve(&self, _address: u64, _bytes: u64) -> Result<()> {
        none(Call::Unreserve)
    }

    fn create(&self, _bytes: u64, _options: HandleOptions) -> Result<MemoryHandle> {
        none(Call::Create)
    }

    fn release(&self, _handle: MemoryHandle) -> Result<()> {
        none(Call::Release)
    }

    fn map(&self, _address: u64, _bytes: u64, _handle: MemoryHandle) -> Result<()> {
        none(Call::Map)
    }

    fn set_access(&self, _address: u64, _bytes: u64, _peers: &[DeviceOrdinal]) -> Result<()> {
        none(Call::SetAccess)
    }

    fn can_access_peer(&self, _peer: DeviceOrdinal) -> Result<bool> {
        none(Call::CanAccessPeer)
    }

    fn unmap(&self, _address: u64, _bytes: u64) -> Result<()> {
        none(Call::Unmap)
    }

    fn event_create(&self) -> Result<Event> {
        self.driver(Call::EventCreate)?.event_create()
    }

    fn event_destroy(&self, event: Event) -> Result<()> {
        self.driver(Call::EventDestroy)?.event_destroy(event)
    }

    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()> {
        self.driver(Call::EventRecord)?.event_record(event, stream)
    }

    fn event_record_outside_capture(&self, event: Event, stream: StreamHandle) -> Result<()> {
        self.driver(Call::EventRecord)?.event_record_outside_capture(event, stream)
    }

    fn event_query(&self, event: Event) -> Result<bool> {
        self.driver(Call::EventQuery)?.event_query(event)
    }

    fn event_synchronize(&self, event: Event) -> Result<()> {
        self.driver(Call::EventSynchronize)?.event_synchronize(event)
    }

    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()> {
        self.driver(Call::StreamWait)?.stream_wait(stream, event)
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        self.driver(Call::StreamQuery)?.stream_query(stream)
    }

    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.locker.as_ref().map_or(Ok(false), |locker| locker.driver.stream_is_capturing(stream))
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        let nameless = DriverError { call: Call::StreamId, code: Code::NOT_FOUND };
        self.locker.as_ref().map_or(Err(nameless), |locker| locker.driver.stream_id(stream))
    }

    fn context(&self) -> ContextId {
        self.locker.as_ref().map_or(ContextId(0), |locker| locker.driver.context())
    }

    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        let Some(Locker { driver, gate, .. }) = &self.locker else { return Ok(None) };
        let other = driver.other_context_of(stream)?;
        // Waits for it pass the gate, too. Nothing is allocated there.
        let of_context = |driver| Locker { driver, gate: Arc::clone(gate), node: None };
        Ok(other.map(|other| Arc::new(Self::new(Some(of_context(other)))) as _))
    }

    fn is_in_use(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        self.locker.as_ref().map_or(Ok(()), Locker::wait)
    }

    fn host_allocate(&self, _bytes: u64) -> Result<u64> {
        none(Call::HostAllocate)
    }

    fn host_free(&self, _address: u64) -> Result<()> {
        none(Call::HostFree)
    }

    fn host_register(&self, _address: u64, _bytes: u64) -> Result<()> {
        none(Call::HostRegister)
    }

    fn host_unregister(&self, _address: u64) -> Result<()> {
        none(Call::HostUnregister)
    }

    fn copy_to_host(&self, _host_address: u64, _address: u64, _bytes: u64) -> Result<()> {
        none(Call::CopyToHost)
    }

    fn copy_to_device(&self, _address: u64, _host_address: u64, _bytes: u64) -> Result<()> {
        none(Call::CopyToDevice)
    }

    /// Of pinned memory nothing: with some backends it is addresses only.
    fn fill(&self, address: u64, bytes: u64, value: u8, _stream: StreamHandle) -> Result<()> {
        if self.locker.is_some() {
            return none(Call::Fill);
        }
        // SAFETY: memory that `take` got, of which a heap has its caller fill a block that nobody
        // else may use, by the contract of `Device::fill`.
        unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes as usize) };
        Ok(())
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        if self.locker.is_some() {
            return none(Call::CopyToHost);
        }
        // SAFETY: as above; a block is as long as the heap says.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes as usize) };
        Ok(bytes.iter().position(|&byte| byte != value).map(|offset| offset as u64))
    }
}

/// The machine's memory in the text of a `/proc/meminfo`.
fn info_of(meminfo: &str) -> Option<MemoryInfo> {
    let bytes_of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024)
    };
    let free_bytes = bytes_of("MemAvailable:").or_else(|| bytes_of("MemFree:"))?;
    Some(MemoryInfo { free_bytes, total_bytes: bytes_of("MemTotal:")? })
}

#[cfg(test)]
mod tests {
    use simgpu::{Config, Machine, StoreKind, Target, Times};

    use super::*;
    use crate::driver::simulated::SimulatedDevice;

    #[test]
    fn pageable_memory_is_the_process_own_and_aligned() {
        let memory = HostMemory::pageable();
        for bytes in [1, 511, 512, 4095, 4096, 3 << 20] {
            let address = memory.allocate(bytes).unwrap();
            let alignment_bytes = if bytes < 4096 { 512 } else { 4096 };
            assert_eq!(address % alignment_bytes, 0, "{bytes}");
            memory.free(address).unwrap();
            assert_eq!(memory.free(address).unwrap_err().code, Code::INVALID_VALUE);
        }
        assert!(memory.allocate(u64::MAX).unwrap_err().is_out_of_memory());
        assert!(memory.allocate(1 << 62).unwrap_err().is_out_of_memory());
        let usage = memory.usage();
        assert_eq!(usage.calls[Call::Allocate as usize], 8);
        assert_eq!(usage.total_calls(), 8 + 6, "a free that is refused is no call");
    }

    #[test]
    fn pinned_memory_is_the_drivers_and_survives_its_faults() {
        let config = Config::new(StoreKind::RealBytes, 1, 64 << 20);
        let machine = Machine::new(config).unwrap();
        let device = Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0));
        let memory = HostMemory::pinned(device, Arc::new(OpenGate));
        let address = memory.allocate(100_000).unwrap();
        assert_eq!(address % 512, 0);
        let unknown = simgpu::Code(12345);
        machine.faults().fail(Target::call(simgpu::Call::HostFree), 1, Times::Once, unknown);
        assert_eq!(memory.free(address).unwrap_err().code, Code(12345));
        memory.free(address).unwrap();
        machine.faults().fail(Target::call(simgpu::Call::HostAllocate), 1, Times::Once, unknown);
        assert_eq!(memory.allocate(1).unwrap_err().code, Code(12345));
        assert_eq!(machine.census().host_bytes, 0);
    }

    #[test]
    fn the_machines_memory_is_read() {
        let meminfo = "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1500 kB\n";
        let expected = MemoryInfo { free_bytes: 1500 << 10, total_bytes: 2000 << 10 };
        assert_eq!(info_of(meminfo), Some(expected));
        let old = "MemTotal: 2000 kB\nMemFree: 10 kB\n";
        assert_eq!(info_of(old).map(|info| info.free_bytes), Some(10 << 10));
        assert_eq!(info_of(""), None);
        let info = HostMemory::pageable().memory_info().unwrap();
        assert!(info.free_bytes <= info.total_bytes && info.total_bytes >= 1 << 28);
    }
}
