//! What PyTorch's own allocator tells others about each block: `torch.profiler` about memory and
//! shortages, the callbacks of `torch.cuda._gpu_trace` (CUDA's sanitizer), and the observers of
//! shortages.
//!
//! | to whom | how | when it costs |
//! |---|---|---|
//! | profilers | PyTorch's functions for them, found by name | while this thread is profiled |
//! | trace callbacks | two functions that `genesis.torch` sets | while they are set |
//! | observers | a function that `genesis.torch` sets | at a failed request |
//!
//! Nobody is called under a lock of the heap, nor within `catch_unwind`: PyTorch's functions may
//! throw.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use once_cell::sync::OnceCell;

use crate::base::{DeviceOrdinal, Shortage};
use crate::callsite::Caller;
use crate::ffi::{boundary, pointer};
use crate::instance;
use crate::process::Scope;

/// Receives the address of a block.
#[allow(non_camel_case_types)]
pub type genesis_torch_on_block = Option<unsafe extern "C" fn(ptr: *mut c_void)>;

/// Receives the device, the bytes wanted from the driver, and the device's total and free bytes.
#[allow(non_camel_case_types)]
pub type genesis_torch_on_shortage = Option<
    unsafe extern "C" fn(device: c_int, bytes: usize, total_bytes: usize, free_bytes: usize),
>;

/// `c10::memoryProfilingEnabled`, of the calling thread.
type IsEnabled = unsafe extern "C-unwind" fn() -> bool;
/// `c10::reportMemoryUsageToProfiler`: block, change in bytes, allocated, reserved, device.
type ReportUsage = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, C10Device);
/// `c10::reportOutOfMemoryToProfiler`: bytes wanted, allocated, reserved, device.
type ReportShortage = unsafe extern "C-unwind" fn(i64, usize, usize, C10Device);

/// `c10::Device`, which is passed in a register.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct C10Device {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// The functions of PyTorch's profilers.
struct Profilers {
    is_enabled: IsEnabled,
    report_usage: ReportUsage,
    report_shortage: ReportShortage,
}

/// `None` if PyTorch does not have them, as before version 1.12.
static PROFILERS: OnceCell<Option<Profilers>> = OnceCell::new();
/// Addresses of functions, 0 for none.
static ON_ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static ON_FREEING: AtomicUsize = AtomicUsize::new(0);
static ON_SHORTAGE: AtomicUsize = AtomicUsize::new(0);

/// A live block, and who wants to know.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    address: u64,
    bytes: u64,
    device: DeviceOrdinal,
}

impl Profilers {
    fn find(scope: &Scope) -> Option<Self> {
        // SAFETY: the mangled names contain the types of the arguments.
        unsafe {
            Some(Self {
                is_enabled: transmute::<NonNull<c_void>, IsEnabled>(
                    scope.find(c"_ZN3c1022memoryProfilingEnabledEv")?,
                ),
                report_usage: transmute::<NonNull<c_void>, ReportUsage>(
                    scope.find(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")?,
                ),
                report_shortage: transmute::<NonNull<c_void>, ReportShortage>(
                    scope.find(c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")?,
                ),
            })
        }
    }

    /// Those that want to know what this thread does.
    #[inline]
    fn of_thread() -> Option<&'static Self> {
        let profilers = PROFILERS.get()?.as_ref()?;
        // SAFETY: it takes no arguments.
        unsafe { (profilers.is_enabled)() }.then_some(profilers)
    }
}

/// Finds PyTorch's functions, from its code that has called into this library. Returns false if
/// this PyTorch does not have them.
pub(super) fn find_profilers() -> bool {
    let find = || match Caller::find() {
        Caller::Torch(object) => Profilers::find(&object.scope()),
        Caller::TorchCache(_) | Caller::Other => None,
    };
    PROFILERS.get_or_init(find).is_some()
}

/// Returns true if anybody wants to know of this thread's blocks.
#[inline]
pub(super) fn is_wanted() -> bool {
    ON_ALLOCATED.load(Relaxed) | ON_FREEING.load(Relaxed) != 0 || Profilers::of_thread().is_some()
}

/// The live block at `address`, if there is one.
pub(super) fn see(address: u64) -> Option<Seen> {
    if address == 0 {
        return None;
    }
    let block = boundary::call(|| instance::heap()?.block_containing(address)).ok()?;
    (block.address == address).then_some(Seen {
        address,
        bytes: block.allocated_bytes,
        device: block.device,
    })
}

/// Tells that `block` was handed out.
pub(super) fn allocated(block: Seen) {
    report_usage(block, 1);
    call_on_block(&ON_ALLOCATED, block.address);
}

/// Tells that `block` is about to be freed.
pub(super) fn freeing(block: Seen) {
    call_on_block(&ON_FREEING, block.address);
}

/// Tells that `block` was freed.
pub(super) fn freed(block: Seen) {
    report_usage(block, -1);
}

/// Tells that a request failed because memory was short.
pub(super) fn out_of_memory(shortage: &Shortage, driver_bytes: u64) {
    let device = shortage.device;
    if let Some(profilers) = Profilers::of_thread() {
        let (allocated, reserved) = (shortage.live_bytes, shortage.reserved_bytes);
        let bytes = i64::try_from(shortage.requested_bytes).unwrap_or(i64::MAX);
        // SAFETY: plain numbers.
        unsafe {
            (profilers.report_shortage)(bytes, allocated as usize, reserved as usize, c10(device));
        }
    }
    // SAFETY: a function of this type was set.
    let observe =
        unsafe { transmute::<usize, genesis_torch_on_shortage>(ON_SHORTAGE.load(Relaxed)) };
    if let Some(observe) = observe {
        let total = shortage.limit_bytes.or(shortage.driver_total_bytes).unwrap_or(0);
        let free = shortage.driver_free_bytes.unwrap_or(0);
        // SAFETY: whoever set it promised that it may be called on any thread.
        unsafe { observe(device.0 as c_int, driver_bytes as usize, total as usize, free as usize) };
    }
}

fn report_usage(block: Seen, sign: i64) {
    let Some(profilers) = Profilers::of_thread() else { return };
    let statistics = boundary::call(|| instance::heap()?.statistics(block.device));
    let Ok(statistics) = statistics else { return };
    let (allocated, reserved) =
        (statistics.allocated_bytes.current as usize, statistics.reserved_bytes.current as usize);
    let change = sign * block.bytes as i64;
    // SAFETY: the pointer is only a name to the profilers.
    unsafe {
        let block_at = pointer(block.address);
        (profilers.report_usage)(block_at, change, allocated, reserved, c10(block.device));
    }
}

fn call_on_block(function: &AtomicUsize, address: u64) {
    // SAFETY: a function of this type was set.
    let function = unsafe { transmute::<usize, genesis_torch_on_block>(function.load(Relaxed)) };
    if let Some(function) = function {
        // SAFETY: whoever set it promised that it may be called on any thread.
        unsafe { function(pointer(address)) };
    }
}

fn c10(device: DeviceOrdinal) -> C10Device {
    C10Device { kind: CUDA, index: device.0 as i8 }
}

/// Has `allocated` called after each block that PyTorch gets, and `freeing` before each that it
/// frees, with the block's address, on the thread that does it; NULL for neither. The functions
/// must stay callable, on any thread, until others are set and the calls of that moment are over.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_trace_set(
    allocated: genesis_torch_on_block,
    freeing: genesis_torch_on_block,
) {
    ON_ALLOCATED.store(allocated.map_or(0, |function| function as usize), Relaxed);
    ON_FREEING.store(freeing.map_or(0, |function| function as usize), Relaxed);
}

/// Has `observer` called when a request of PyTorch's has failed because memory is short, before it
/// gets its exception: with the device, the bytes that were wanted from the driver, and the total
/// and free bytes of the device. NULL for nobody. As for `genesis_torch_trace_set`, it must stay
/// callable.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_shortage_observer_set(observer: genesis_torch_on_shortage) {
    ON_SHORTAGE.store(observer.map_or(0, |function| function as usize), Relaxed);
}
