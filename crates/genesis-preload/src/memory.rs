//! Serving: the calls of both levels that allocate, free and ask about memory.
//!
//! Every function here takes `pass`, the call of the real function, and ends with it if Genesis is
//! not the one to answer: another context, a pointer that is not Genesis's, an argument that CUDA
//! refuses or has a rule of its own for, a failure other than a shortage of memory. So the program
//! gets CUDA's own errors from CUDA.
//!
//! SAFETY of pointers: outputs are written where CUDA's own function would write them.

use std::ffi::c_int;

use crate::call::{Call, Level};
use crate::device::{self, Device, Place};
use crate::driver_api::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, PER_THREAD, driver};
use crate::fence;
use crate::freed::{Added, Need};
use crate::genesis::{Block, Found, Genesis, Refusal};
use crate::{capture, handed, inside, opening, process, report, runtime_api, streams};

/// Rows of pitched memory are multiples of this, as with CUDA on all devices of today.
const PITCH_BYTES: usize = 512;

/// When a block may first be used, and from which memory pool it comes.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// At once, on every stream.
    Device,
    /// In the order of this stream, from the device's memory pool.
    Stream(usize),
    /// In the order of this stream, from this memory pool.
    Pool(usize, usize),
}

/// The device that calls of `level` are for; `None` if it is not served.
#[inline(always)]
pub(crate) fn device_for(level: Level, order: Order) -> Option<&'static Device> {
    let find = || match order {
        Order::Device => device::current(),
        Order::Stream(stream) | Order::Pool(stream, _) => device::of_stream(stream),
    };
    let found = match find() {
        // The runtime makes a context at its first call.
        Place::Nowhere if level == Level::Runtime && runtime_api::start() => find(),
        found => found,
    };
    match found {
        Place::Served(device) => Some(device),
        Place::Other | Place::Nowhere => None,
    }
}

/// The device and the library that serve a call; `None` to pass.
#[inline(always)]
fn place(level: Level, order: Order) -> Option<(&'static Device, &'static Genesis)> {
    if inside::is_inside() || !process::may_serve() {
        return None;
    }
    Some((device_for(level, order)?, opening::genesis()?))
}

/// A block in the given order; `None` to pass, an error if memory is short.
#[inline(always)]
fn allocate(level: Level, bytes: usize, order: Order) -> Option<Result<u64, ()>> {
    let (device, genesis) = place(level, order)?;
    let (stream, is_ours) = match order {
        Order::Device => (device.stream()?, true),
        Order::Stream(stream) => (stream, device.uses_default_pool()),
        Order::Pool(stream, pool) => (stream, device.is_default_pool(pool)),
    };
    if !is_ours || capture::concerns(stream) {
        return None;
    }
    if !matches!(order, Order::Device) {
        streams::note(stream);
    }
    let address = match genesis.allocate(bytes, device.ordinal(), stream) {
        Ok(address) => address,
        Err(Refusal::OutOfMemory) => return Some(Err(())),
        Err(Refusal::Other) => return None,
    };
    if matches!(order, Order::Device) {
        if !device.settle(capture::wait_for_stream) {
            genesis.free(address);
            return None;
        }
        handed::note(address, bytes, device.ordinal());
    }
    report::handed_out(bytes);
    Some(Ok(address))
}

/// `cudaMalloc` and the functions like it.
///
/// # Safety
/// `place` is null or where CUDA's function would write the address.
#[inline]
pub(crate) unsafe fn malloc(
    call: Call,
    place: *mut u64,
    bytes: usize,
    order: Order,
    pass: impl FnOnce() -> c_int,
) -> c_int {
    if place.is_null() || bytes == 0 {
        return pass();
    }
    match allocate(call.level, bytes, order) {
        Some(Ok(address)) => {
            // SAFETY: by this function's contract.
            unsafe { place.write(address) };
            call.serve()
        }
        Some(Err(())) => call.refuse(OUT_OF_MEMORY),
        None => pass(),
    }
}

/// The rows of pitched memory.
pub(crate) struct Rows {
    pub(crate) width_bytes: usize,
    pub(crate) count: usize,
}

/// `cudaMallocPitch` and the functions like it.
///
/// # Safety
/// Both places are null or where CUDA's function would write.
pub(crate) unsafe fn malloc_pitched(
    call: Call,
    place: *mut u64,
    pitch_place: *mut usize,
    rows: Rows,
    pass: impl FnOnce() -> c_int,
) -> c_int {
    if pitch_place.is_null() || rows.width_bytes == 0 || rows.count == 0 {
        return pass();
    }
    let pitch_bytes = rows.width_bytes.checked_next_multiple_of(PITCH_BYTES);
    let bytes = pitch_bytes.and_then(|pitch_bytes| pitch_bytes.checked_mul(rows.count));
    let (Some(pitch_bytes), Some(bytes)) = (pitch_bytes, bytes) else {
        return call.refuse(OUT_OF_MEMORY);
    };
    let mut is_passed = false;
    // SAFETY: by this function's contract.
    unsafe {
        let status = malloc(call, place, bytes, Order::Device, || {
            is_passed = true;
            pass()
        });
        if status == 0 && !is_passed {
            pitch_place.write(pitch_bytes);
        }
        status
    }
}

/// What a pointer means to the functions that take a block's start.
enum Pointer {
    /// A live block begins there.
    Block(&'static Genesis, &'static Device, Block),
    /// It is in memory of Genesis's. CUDA must not see it, because a segment that the driver gave
    /// to Genesis may begin there.
    Wrong,
    /// It is not Genesis's.
    Foreign,
}

#[inline]
fn pointer(address: u64) -> Pointer {
    let Some(genesis) = process::genesis_if_open() else { return Pointer::Foreign };
    match genesis.look_up(address) {
        Found::Block(block) => match device::get(block.device).filter(|device| !device.is_lost()) {
            Some(device) if block.address == address => Pointer::Block(genesis, device, block),
            Some(_) => Pointer::Wrong,
            None => Pointer::Foreign,
        },
        Found::Free if device::is_cudas(address) => Pointer::Foreign,
        Found::Free => Pointer::Wrong,
        Found::Nothing => Pointer::Foreign,
    }
}

/// Frees a block that was handed out lately; returns true if it did.
#[inline(always)]
fn free_handed(address: u64) -> bool {
    if !process::has_fence() || process::genesis_if_open().is_none() {
        return false;
    }
    let Some(block) = handed::find(address) else { return false };
    let Some(device) = device::get(block.device).filter(|device| !device.is_lost()) else {
        return false;
    };
    match device.freed.add_handed(address, block.requested_bytes) {
        Added::Waits => {}
        Added::IsDue => retire(block.device),
        Added::Twice => return false,
    }
    report::taken_back(block.requested_bytes);
    true
}

/// Gives blocks back, because many wait.
#[cold]
fn retire(device: c_int) {
    // In a call of Genesis's nothing waits: its callback gives blocks back already.
    if !inside::is_inside() {
        fence::retire(device, Need::Bounds);
    }
}

/// `cudaFree` and the functions like it.
#[inline]
pub(crate) fn free(call: Call, address: u64, pass: impl FnOnce() -> c_int) -> c_int {
    if address == 0 {
        return pass();
    }
    if free_handed(address) { call.serve() } else { free_any(call, address, pass) }
}

/// [`free`] of a pointer of which nothing is known.
#[inline(never)]
fn free_any(call: Call, address: u64, pass: impl FnOnce() -> c_int) -> c_int {
    let (genesis, device, block) = match pointer(address) {
        Pointer::Block(genesis, device, block) => (genesis, device, block),
        Pointer::Wrong => return call.refuse(INVALID_VALUE),
        Pointer::Foreign => return pass(),
    };
    if process::has_fence() {
        match device.freed.add(&block) {
            Added::Waits => {}
            Added::IsDue => retire(block.device),
            Added::Twice => return call.refuse(INVALID_VALUE),
        }
    } else {
        genesis.free(address);
    }
    report::taken_back(block.requested_bytes);
    call.serve()
}

/// `cudaFreeAsync` and the functions like it.
pub(crate) fn free_async(
    call: Call,
    address: u64,
    stream: usize,
    pass: impl FnOnce() -> c_int,
) -> c_int {
    if address == 0 {
        return pass();
    }
    let (genesis, device, block) = match pointer(address) {
        Pointer::Block(genesis, device, block) => (genesis, device, block),
        Pointer::Wrong => return call.refuse(INVALID_VALUE),
        Pointer::Foreign => return pass(),
    };
    if capture::concerns(stream) {
        return pass();
    }
    if device.freed.contains(address) {
        return call.refuse(INVALID_VALUE);
    }
    // A default stream's handle means the current device's, which may be another than the block's.
    let is_default = stream <= PER_THREAD;
    if is_default && !device.is_current() {
        return free(call, address, pass);
    }
    streams::note(stream);
    // Out of the table first: once it is free, another thread may get it.
    handed::take(address);
    if !genesis.free_on(address, stream) {
        // Freed behind a fence instead, which is as safe.
        return free(call, address, pass);
    }
    report::taken_back(block.requested_bytes);
    call.serve()
}

/// `cudaMemGetInfo` and `cuMemGetInfo`: memory that is cached or waits for a fence counts as free.
///
/// # Safety
/// Both places are null or where CUDA's function would write.
pub(crate) unsafe fn info(
    call: Call,
    free_place: *mut usize,
    total_place: *mut usize,
    pass: impl FnOnce() -> c_int,
) -> c_int {
    if free_place.is_null() || total_place.is_null() {
        return pass();
    }
    let found = place(call.level, Order::Device).and_then(|(device, genesis)| {
        let (free, total) = genesis.memory_info(device.ordinal())?;
        Some((free.saturating_add(device.freed.bytes(genesis)).min(total), total))
    });
    let Some((free, total)) = found else { return pass() };
    // SAFETY: by this function's contract.
    unsafe {
        free_place.write(free);
        total_place.write(total);
    }
    call.serve()
}

/// `cuIpcGetMemHandle` and `cudaIpcGetMemHandle`: a handle stands for a whole allocation of the
/// driver, so a block that begins inside of one has none.
pub(crate) fn ipc_handle(call: Call, address: u64, pass: impl FnOnce() -> c_int) -> c_int {
    if matches!(pointer(address), Pointer::Foreign) {
        return pass();
    }
    match driver().and_then(|driver| driver.base_of(address)) {
        Some(base) if base == address => pass(),
        _ => call.refuse(NOT_SUPPORTED),
    }
}

/// The start of the block of Genesis's that contains `address`, and its size as asked for.
pub(crate) fn range(address: u64) -> Option<(u64, usize)> {
    match process::genesis_if_open()?.look_up(address) {
        Found::Block(block)
            if device::get(block.device).is_some_and(|device| !device.is_lost()) =>
        {
            Some((block.address, block.requested_bytes))
        }
        Found::Block(_) | Found::Free | Found::Nothing => None,
    }
}

/// Allocates memory of CUDA's own by `allocate`. If CUDA has too little, Genesis gives back what it
/// caches, and CUDA is asked once more.
pub(crate) fn with_cache_emptied(allocate: impl Fn() -> c_int) -> c_int {
    let status = allocate();
    if status != OUT_OF_MEMORY || inside::is_inside() {
        return status;
    }
    let (Place::Served(device), Some(genesis)) = (device::current(), process::genesis_if_open())
    else {
        return status;
    };
    fence::retire(device.ordinal(), Need::Memory);
    genesis.empty_cache(device.ordinal());
    allocate()
}
