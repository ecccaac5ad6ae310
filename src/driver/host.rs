//! Host memory as a device, from which the host heaps take theirs.
//!
//! | kind | allocations come from | aligned to |
//! |---|---|---|
//! | pageable | the process's own allocator | 512 bytes, from 4 KiB on to a page |
//! | pinned | the driver of a device, page-locked | as the driver does, and to 512 bytes at least |
//!
//! The trait is that of a GPU, so that strategies, limits and statistics are the same for all
//! memory. Only the calls that segments and poison need work. Host memory has no streams: nothing is
//! queued on it, so waiting returns at once. Events and virtual memory management are refused.
//!
//! The machine's memory is read from `/proc/meminfo`, where *available* includes the page cache
//! that the kernel can drop; MXNet reads what is *free*, and empties its pools whenever files have
//! been read. A heap of pinned memory is also measured by the machine's memory, not by the GPU's.
//!
//! **Invariants**: `live` has what is handed out, with its size, which the process's allocator
//! needs again at the free. **Locks**: one, never held while memory is allocated or freed.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, MemoryHandle, MemoryInfo,
    Result, Sharing, Usage,
};
use crate::base::lock::{Lock, rank};
use crate::base::size::ALIGNMENT_BYTES;
use crate::base::{DeviceOrdinal, StreamHandle};

/// Memory of at least this size is aligned to it, in bytes.
const PAGE_BYTES: u64 = 4096;
/// The machine's memory if `/proc/meminfo` does not have it, in bytes.
const UNKNOWN: MemoryInfo = MemoryInfo { free_bytes: 1 << 46, total_bytes: 1 << 46 };

/// The process's memory, pageable or pinned.
#[derive(Debug)]
pub struct HostMemory {
    /// Locks pages; `None` for pageable memory.
    driver: Option<Arc<dyn Device>>,
    live: Lock<HashMap<u64, u64>, { rank::DEVICE }>,
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

    /// Memory that `driver` page-locks, for copies that the GPU makes itself. Where addresses are
    /// unified, which is everywhere today, it is page-locked for every device.
    pub fn pinned(driver: Arc<dyn Device>) -> Self {
        Self::new(Some(driver))
    }

    fn new(driver: Option<Arc<dyn Device>>) -> Self {
        Self {
            driver,
            live: Lock::default(),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            made: Instant::now(),
        }
    }

    /// Runs one call that allocates or frees memory, and counts it.
    fn counted<T>(&self, count: &AtomicU64, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        count.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        result
    }

    /// Memory of the process's allocator. `bytes` is not 0, and the free needs it again.
    fn take(bytes: u64) -> Result<u64> {
        let refused = DriverError { call: Call::Allocate, code: Code::OUT_OF_MEMORY };
        let layout = layout(bytes).ok_or(refused)?;
        // SAFETY: the layout's size is not 0, by the contract of `Device::allocate`.
        let address = unsafe { alloc(layout) } as u64;
        if address == 0 { Err(refused) } else { Ok(address) }
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

impl Device for HostMemory {
    fn ordinal(&self) -> DeviceOrdinal {
        DeviceOrdinal(0)
    }

    fn name(&self) -> String {
        match self.driver {
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
        let Some(driver) = &self.driver else {
            let address = self.counted(&self.allocations, || Self::take(bytes))?;
            self.live.lock().insert(address, bytes);
            return Ok(address);
        };
        let address = self.counted(&self.allocations, || driver.host_allocate(bytes))?;
        if !address.is_multiple_of(ALIGNMENT_BYTES) {
            // Drivers return whole pages; one that does not cannot serve blocks of 512 bytes.
            driver.host_free(address)?;
            return none(Call::HostAllocate);
        }
        self.live.lock().insert(address, bytes);
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let unknown = DriverError { call: Call::Free, code: Code::INVALID_VALUE };
        let bytes = self.live.lock().remove(&address).ok_or(unknown)?;
        match &self.driver {
            None => {
                let layout = layout(bytes).ok_or(unknown)?;
                // SAFETY: `take` got this address from the allocator for these bytes, and it was
                // in `live` until now, so it is freed only here.
                self.counted(&self.frees, || unsafe { dealloc(address as *mut u8, layout) });
                Ok(())
            }
            Some(driver) => {
                let freed = self.counted(&self.frees, || driver.host_free(address));
                if freed.is_err() {
                    self.live.lock().insert(address, bytes);
                }
                freed
            }
        }
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
        none(Call::EventCreate)
    }

    fn event_destroy(&self, _event: Event) -> Result<()> {
        none(Call::EventDestroy)
    }

    fn event_record(&self, _event: Event, _stream: StreamHandle) -> Result<()> {
        none(Call::EventRecord)
    }

    fn event_query(&self, _event: Event) -> Result<bool> {
        none(Call::EventQuery)
    }

    fn event_synchronize(&self, _event: Event) -> Result<()> {
        none(Call::EventSynchronize)
    }

    fn stream_wait(&self, _stream: StreamHandle, _event: Event) -> Result<()> {
        none(Call::StreamWait)
    }

    fn stream_is_capturing(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(false)
    }

    fn stream_id(&self, _stream: StreamHandle) -> Result<u64> {
        Err(DriverError { call: Call::StreamId, code: Code::NOT_FOUND })
    }

    fn context(&self) -> ContextId {
        ContextId(0)
    }

    fn other_context_of(&self, _stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        Ok(None)
    }

    fn is_in_use(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
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
        if self.driver.is_some() {
            return none(Call::Fill);
        }
        // SAFETY: memory that `take` got, of which a heap has its caller fill a block that nobody
        // else may use, by the contract of `Device::fill`.
        unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes as usize) };
        Ok(())
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        if self.driver.is_some() {
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
        let memory = HostMemory::pinned(Arc::new(SimulatedDevice::new(Arc::clone(&machine), 0)));
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
