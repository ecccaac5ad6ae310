//! One device of the CUDA driver.
//!
//! Each method is one driver call, made with the device's primary context current, where that
//! matters, and the thread's capture mode relaxed, where a capture may forbid the call; both are
//! restored afterwards (`calling`). The primary context is the one that the CUDA runtime uses; it is
//! retained at the first call and never released or reset.
//!
//! For a stream that belongs to another context, a `CudaDevice` of that context makes the calls.
//! The program made that context and may destroy it; then every call fails.
//!
//! **Locks**: none. The two facts found out once (the context, and what virtual memory can do) are
//! in cells that make a second thread wait for the first.
//! **Memory**: no method except `name` and `find_other` allocates host memory.
//! **Not done**: no cache, no logging, and no retry, except in the device's context where the current one
//! allowed nothing; the layers above do the rest.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::CUmemAllocationGranularity_flags as Granularity;
use once_cell::sync::OnceCell;

use super::loader::Api;
use super::meter::Meter;
use super::properties::access;
use super::scope::{Context, RelaxedCapture, check, require};
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::driver::pages;
use crate::driver::{
    Call, Code, ContextId, Device, DriverError, Event, HandleOptions, Identity, MemoryHandle,
    MemoryInfo, Result, Usage,
};

/// The most devices that can access one piece of memory, this one included.
const MAX_ACCESSORS: usize = 64;

/// Numbers of streams have at most this many bits.
const ID_BITS: u32 = 61;

/// `CU_MEMHOSTREGISTER_PORTABLE`.
const FOR_EVERY_CONTEXT: c_uint = 1;

/// Bytes of a device are compared in chunks of this size.
const LOOK_BYTES: u64 = 1 << 20;

/// `cuMemAlloc` takes whole pages of this many bytes, from Pascal on (PyTorch's pull 17120).
const PAGE_BYTES: u64 = 2 << 20;

/// A device of the driver. Making one calls nothing.
#[derive(Debug)]
pub(super) struct CudaDevice {
    pub(super) api: Arc<Api>,
    pub(super) ordinal: DeviceOrdinal,
    pub(super) context: OnceCell<Context>,
    pub(super) virtual_memory: OnceCell<VirtualMemory>,
    pub(super) meter: Meter,
}

/// What is known of virtual memory on a device that has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualMemory {
    /// True if memory can be created for GPUDirect RDMA.
    pub(super) rdma: bool,
}

impl CudaDevice {
    /// Device `ordinal` of a driver that has been started and has that device.
    pub(super) fn new(api: Arc<Api>, ordinal: DeviceOrdinal) -> Self {
        Self {
            api,
            ordinal,
            context: OnceCell::new(),
            virtual_memory: OnceCell::new(),
            meter: Meter::new(),
        }
    }

    /// The time of a driver whose calls take virtual time; `None` from every real one.
    fn virtual_clock_ns(&self) -> Option<u64> {
        let (read, mut time) = (self.api.virtual_clock?, 0);
        // SAFETY: `time` is live.
        (unsafe { read(&mut time) } == 0).then_some(time)
    }

    /// The driver's name for a device; needs no context.
    pub(super) fn device(&self, ordinal: DeviceOrdinal, call: Call) -> Result<sys::CUdevice> {
        let device_get = require(self.api.device_get, call)?;
        let mut device = 0;
        // SAFETY: the driver is started and `device` is live; a wrong ordinal is an error.
        check(call, unsafe { device_get(&mut device, ordinal.0 as c_int) })?;
        Ok(device)
    }
}

/// What the driver has written into a buffer.
fn text_of<const LENGTH: usize>(buffer: &[c_char; LENGTH]) -> Option<String> {
    let bytes = buffer.map(|character| character as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}

// SAFETY of the calls below: each passes values of the types in `cuda.h` and pointers to live
// locals that the driver does not use after the call. Addresses, handles and events are the
// caller's, who got them from this device; for any other the driver returns an error.
impl Device for CudaDevice {
    fn ordinal(&self) -> DeviceOrdinal {
        self.ordinal
    }

    fn name(&self) -> String {
        let mut buffer = [0 as c_char; 256];
        let length = buffer.len() as c_int;
        let device = self.device(self.ordinal, Call::Initialize);
        let known = match (self.api.device_name, device) {
            // SAFETY: the driver writes at most `length` characters.
            (Some(name), Ok(device)) => unsafe { name(buffer.as_mut_ptr(), length, device) == 0 },
            _ => false,
        };
        let name = text_of(&buffer).filter(|name| known && !name.is_empty());
        name.unwrap_or_else(|| format!("CUDA device {}", self.ordinal))
    }

    fn identity(&self) -> Option<Identity> {
        let device = self.device(self.ordinal, Call::Initialize).ok()?;
        let mut uuid = [0; 16];
        // SAFETY: see the head of this implementation. Of an instance of a GPU this is the
        // instance's number; the function without `_v2` has the whole GPU's.
        check(Call::Initialize, unsafe { self.api.device_uuid?(&mut uuid, device) }).ok()?;
        let mut buffer = [0 as c_char; 32];
        let length = buffer.len() as c_int;
        let is_known = self.api.device_pci_bus_id.is_some_and(|pci_bus_id| {
            // SAFETY: the driver writes at most `length` characters.
            unsafe { pci_bus_id(buffer.as_mut_ptr(), length, device) == 0 }
        });
        let text = text_of(&buffer).filter(|_| is_known);
        Some(Identity { uuid, pci_bus_id: text.unwrap_or_default() })
    }

    fn usage(&self) -> Usage {
        self.meter.usage()
    }

    fn clock_ns(&self) -> u64 {
        self.virtual_clock_ns().unwrap_or_else(|| self.meter.clock_ns())
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = require(self.api.memory_info, Call::MemoryInfo)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: see the head of this implementation.
        self.call(Call::MemoryInfo, || unsafe { info(&mut free, &mut total) })?;
        Ok(MemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let allocate = require(self.api.memory_allocate, Call::Allocate)?;
        let mut address = 0;
        // SAFETY: see the head of this implementation.
        self.call(Call::Allocate, || unsafe { allocate(&mut address, bytes as usize) })?;
        Ok(address)
    }

    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn free(&self, address: u64) -> Result<()> {
        let free = require(self.api.memory_free, Call::Free)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Free, || unsafe { free(address) })
    }

    fn granularity(&self, options: HandleOptions) -> Result<u64> {
        self.ask_granularity(options, Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    }

    fn recommended_granularity(&self, options: HandleOptions) -> Result<u64> {
        self.ask_granularity(options, Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    }

    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        let reserve = require(self.api.address_reserve, Call::Reserve)?;
        let (bytes, alignment_bytes) = (bytes as usize, alignment_bytes as usize);
        let mut address = 0;
        // SAFETY: see the head of this implementation. Alignment 0 is the driver's default,
        // the granularity; the last two arguments mean no place and no flags.
        self.call(Call::Reserve, || unsafe {
            reserve(&mut address, bytes, alignment_bytes, 0, 0)
        })?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let unreserve = require(self.api.address_free, Call::Unreserve)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Unreserve, || unsafe { unreserve(address, bytes as usize) })
    }

    fn create(&self, bytes: u64, options: HandleOptions) -> Result<MemoryHandle> {
        let create = require(self.api.memory_create, Call::Create)?;
        let properties = self.properties(options)?;
        let mut handle = 0;
        // SAFETY: see the head of this implementation; there are no flags.
        self.call(Call::Create, || unsafe { create(&mut handle, bytes as usize, &properties, 0) })?;
        Ok(MemoryHandle(handle))
    }

    fn release(&self, handle: MemoryHandle) -> Result<()> {
        let release = require(self.api.memory_release, Call::Release)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Release, || unsafe { release(handle.0) })
    }

    fn map(&self, address: u64, bytes: u64, handle: MemoryHandle) -> Result<()> {
        let map = require(self.api.memory_map, Call::Map)?;
        // SAFETY: see the head of this implementation; offset and flags must be 0.
        self.call(Call::Map, || unsafe { map(address, bytes as usize, 0, handle.0, 0) })
    }

    fn set_access(&self, address: u64, bytes: u64, peers: &[DeviceOrdinal]) -> Result<()> {
        let set_access = require(self.api.memory_set_access, Call::SetAccess)?;
        let others = peers.iter().filter(|peer| **peer != self.ordinal);
        let mut accessors = [access(self.ordinal); MAX_ACCESSORS];
        let mut count = 1;
        for peer in others {
            let slot = accessors
                .get_mut(count)
                .ok_or(DriverError { call: Call::SetAccess, code: Code::INVALID_VALUE })?;
            *slot = access(*peer);
            count += 1;
        }
        // SAFETY: see the head of this implementation; `count` descriptors are filled in.
        self.call(Call::SetAccess, || unsafe {
            set_access(address, bytes as usize, accessors.as_ptr(), count)
        })
    }

    fn can_access_peer(&self, peer: DeviceOrdinal) -> Result<bool> {
        let call = Call::CanAccessPeer;
        if peer == self.ordinal {
            return Ok(true);
        }
        let can_access = require(self.api.can_access_peer, call)?;
        let (device, peer) = (self.device(self.ordinal, call)?, self.device(peer, call)?);
        let mut answer = 0;
        // SAFETY: see the head of this implementation. The call needs no context.
        check(call, self.meter.counted(call, || unsafe { can_access(&mut answer, device, peer) }))?;
        Ok(answer != 0)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        let unmap = require(self.api.memory_unmap, Call::Unmap)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Unmap, || unsafe { unmap(address, bytes as usize) })
    }

    fn event_create(&self) -> Result<Event> {
        let create = require(self.api.event_create, Call::EventCreate)?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
        let mut event = std::ptr::null_mut();
        // SAFETY: see the head of this implementation.
        self.call(Call::EventCreate, || unsafe { create(&mut event, flags) })?;
        Ok(Event(event as u64))
    }

    fn event_destroy(&self, event: Event) -> Result<()> {
        let destroy = require(self.api.event_destroy, Call::EventDestroy)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::EventDestroy, || unsafe { destroy(event.0 as sys::CUevent) })
    }

    fn event_record(&self, event: Event, stream: StreamHandle) -> Result<()> {
        let record = require(self.api.event_record, Call::EventRecord)?;
        let (event, stream) = (event.0 as sys::CUevent, stream.0 as sys::CUstream);
        // SAFETY: see the head of this implementation.
        self.call(Call::EventRecord, || unsafe { record(event, stream) })
    }

    fn event_record_outside_capture(&self, event: Event, stream: StreamHandle) -> Result<()> {
        let call = Call::EventRecord;
        let record = require(self.api.event_record, call)?;
        // Every free of a shared block does this, so both are timed together, and the capture mode
        // stays as it is: captures of other streams forbid queries of events and waits for them, but
        // not these (`gpu-probe` asks the driver; PyTorch's own allocator does the same).
        let (event, handle) = (event.0 as sys::CUevent, stream.0 as sys::CUstream);
        // SAFETY: see the head of this implementation.
        self.call_outside_capture(call, stream, move || unsafe { record(event, handle) })
    }

    fn event_query(&self, event: Event) -> Result<bool> {
        let call = Call::EventQuery;
        let query = require(self.api.event_query, call)?;
        let _relaxed = RelaxedCapture::enter(&self.api, call)?;
        // SAFETY: see the head of this implementation.
        match self.call_by_handles(call, move || unsafe { query(event.0 as sys::CUevent) }) {
            Err(error) if error.code == Code::NOT_READY => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    fn event_synchronize(&self, event: Event) -> Result<()> {
        let synchronize = require(self.api.event_synchronize, Call::EventSynchronize)?;
        let event = event.0 as sys::CUevent;
        // SAFETY: see the head of this implementation.
        self.call(Call::EventSynchronize, || unsafe { synchronize(event) })
    }

    fn stream_wait(&self, stream: StreamHandle, event: Event) -> Result<()> {
        let wait = require(self.api.stream_wait_event, Call::StreamWait)?;
        let (stream, event) = (stream.0 as sys::CUstream, event.0 as sys::CUevent);
        // SAFETY: see the head of this implementation; 0 is the default among the flags.
        self.call(Call::StreamWait, || unsafe { wait(stream, event, 0) })
    }

    fn stream_query(&self, stream: StreamHandle) -> Result<bool> {
        let call = Call::StreamQuery;
        let query = require(self.api.stream_query, call)?;
        let _relaxed = RelaxedCapture::enter(&self.api, call)?;
        let handle = stream.0 as sys::CUstream;
        // SAFETY: see the head of this implementation.
        match self.call_outside_capture(call, stream, move || unsafe { query(handle) }) {
            Err(error) if error.code == Code::NOT_READY => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// For the legacy stream this also returns true while a stream that synchronises with it
    /// captures: the legacy stream takes no part in the capture, but work on it would break it.
    fn stream_is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.within(Call::StreamIsCapturing, |_| {
            self.meter.sampled(|made| self.is_capturing(made, stream))
        })
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        let call = Call::StreamId;
        let get = require(self.api.stream_id, call)?;
        let stream = stream.0 as sys::CUstream;
        let id = Cell::new(0);
        // SAFETY: see the head of this implementation. The call works in any capture mode.
        self.call_by_handles(call, || unsafe { get(stream, id.as_ptr()) })?;
        match id.get() >> ID_BITS {
            0 => Ok(id.get()),
            _ => Err(DriverError { call, code: Code::NOT_FOUND }),
        }
    }

    fn context(&self) -> ContextId {
        // Mostly it is there already, so recording a stream costs no driver call for this.
        let handle = match self.context.get() {
            Some(context) => Ok(context.handle),
            None => self.inside(Call::Initialize, |context| Ok(context.handle)),
        };
        ContextId(handle.map_or(0, |handle| handle as u64))
    }

    fn other_context_of(&self, stream: StreamHandle) -> Result<Option<Arc<dyn Device>>> {
        self.find_other_context(stream)
    }

    fn is_in_use(&self) -> Result<bool> {
        let call = Call::Initialize;
        let state = require(self.api.primary_context_state, call)?;
        let (mut flags, mut active) = (0, 0);
        let device = self.device(self.ordinal, call)?;
        // SAFETY: `flags` and `active` are live. The call makes no context.
        check(call, unsafe { state(device, &mut flags, &mut active) })?;
        Ok(active != 0)
    }

    fn synchronize(&self) -> Result<()> {
        let synchronize = require(self.api.context_synchronize, Call::Synchronize)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::Synchronize, || unsafe { synchronize() })
    }

    fn host_allocate(&self, bytes: u64) -> Result<u64> {
        let allocate = require(self.api.host_allocate, Call::HostAllocate)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: see the head of this implementation.
        self.call(Call::HostAllocate, || unsafe { allocate(&mut address, bytes as usize) })?;
        Ok(address as u64)
    }

    fn host_free(&self, address: u64) -> Result<()> {
        let free = require(self.api.host_free, Call::HostFree)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::HostFree, || unsafe { free(address as *mut c_void) })
    }

    fn host_register(&self, address: u64, bytes: u64) -> Result<()> {
        let register = require(self.api.host_register, Call::HostRegister)?;
        pages::touch(address, bytes);
        let (from, bytes) = (address as *mut c_void, bytes as usize);
        // SAFETY: see the head of this implementation. By the contract, the pages are mapped.
        self.call(Call::HostRegister, || unsafe { register(from, bytes, FOR_EVERY_CONTEXT) })
    }

    fn host_unregister(&self, address: u64) -> Result<()> {
        let unregister = require(self.api.host_unregister, Call::HostUnregister)?;
        // SAFETY: see the head of this implementation.
        self.call(Call::HostUnregister, || unsafe { unregister(address as *mut c_void) })
    }

    fn copy_to_host(&self, host_address: u64, device_address: u64, bytes: u64) -> Result<()> {
        let copy = require(self.api.copy_to_host, Call::CopyToHost)?;
        let (to, bytes) = (host_address as *mut c_void, bytes as usize);
        // SAFETY: see the head of this implementation. By the contract, the host's side is memory
        // of `host_allocate` with room for the bytes, and is not used otherwise.
        self.call(Call::CopyToHost, || unsafe { copy(to, device_address, bytes) })
    }

    fn copy_to_device(&self, device_address: u64, host_address: u64, bytes: u64) -> Result<()> {
        let copy = require(self.api.copy_to_device, Call::CopyToDevice)?;
        let (from, bytes) = (host_address as *const c_void, bytes as usize);
        // SAFETY: as in `copy_to_host`.
        self.call(Call::CopyToDevice, || unsafe { copy(device_address, from, bytes) })
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        let fill = require(self.api.fill, Call::Fill)?;
        let stream = stream.0 as sys::CUstream;
        // SAFETY: see the head of this implementation.
        self.call(Call::Fill, || unsafe { fill(address, value, bytes as usize, stream) })
    }

    fn find_other(&self, address: u64, bytes: u64, value: u8) -> Result<Option<u64>> {
        let copy = require(self.api.copy_to_host, Call::CopyToHost)?;
        let mut chunk = vec![0u8; bytes.min(LOOK_BYTES) as usize];
        let mut start = 0;
        while start < bytes {
            let length = (bytes - start).min(LOOK_BYTES) as usize;
            // SAFETY: see the head of this implementation; the chunk has room for the bytes, and
            // a copy into memory that is not pinned is over when the call returns.
            self.call(Call::CopyToHost, || unsafe {
                copy(chunk.as_mut_ptr().cast(), address + start, length)
            })?;
            if let Some(offset) = chunk[..length].iter().position(|&byte| byte != value) {
                return Ok(Some(start + offset as u64));
            }
            start += length as u64;
        }
        Ok(None)
    }
}
