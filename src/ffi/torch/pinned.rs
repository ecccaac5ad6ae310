//! Pinned memory of PyTorch's from Genesis: `tensor.pin_memory()`, `DataLoader(pin_memory=True)` and
//! whatever else asks PyTorch's allocator of host memory.
//!
//! That allocator is a C++ object, `at::HostAllocator`, which nobody is meant to replace while CUDA
//! is in use: copies ask it about every pinned tensor, old ones too. So the object stays, and its
//! table of virtual functions is exchanged for a copy with a few functions of this file. Each serves
//! what is Genesis's and hands the rest to the function that was there. The slots of the table are
//! the order in which PyTorch's headers declare them (`c10/core/Allocator.h`,
//! `ATen/core/CachingHostAllocator.h`); the Python package knows for which versions that holds.
//!
//! | function | what it does |
//! |---|---|
//! | `allocate` | a block of Genesis's, if those are on; PyTorch's if Genesis has none |
//! | `record_event` | records the stream for the block of Genesis's that the tensor lies in |
//! | `empty_cache` | empties both caches |
//! | `begin_…`, `end_allocate_to_pool` | in between PyTorch serves: a graph keeps what it used |
//!
//! Layouts are those of the Itanium C++ ABI and of libstdc++.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crate::base::lock::{Lock, rank};
use crate::base::{Error, Status, StreamHandle};
use crate::config::HostKind;
use crate::ffi::boundary;
use crate::instance::host;

/// The slots of the table, as they are declared.
const ALLOCATE: usize = 2;
const RECORD_EVENT: usize = 6;
const EMPTY_CACHE: usize = 7;
const BEGIN_POOL: usize = 11;
const END_POOL: usize = 12;
/// The fewest slots that a table with all of them has, and the most that any version has.
const LEAST_SLOTS: usize = 14;
const MOST_SLOTS: usize = 32;
/// What lies before the first slot: the offset to the whole object, and its type.
const HEAD: usize = 2;

type Slot = *const c_void;

/// An object with virtual functions.
#[repr(C)]
struct Object {
    table: AtomicPtr<Slot>,
}

/// `c10::Stream`: where it is, and its number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stream {
    device_type: i8,
    device: i8,
    number: i64,
}

/// `c10::DataPtr`: a pointer, a `std::unique_ptr` with a function that frees, and the device.
#[repr(C)]
struct DataPtr {
    data: *mut c_void,
    free: Option<unsafe extern "C" fn(*mut c_void)>,
    context: *mut c_void,
    device_type: i8,
    device: i8,
}

type Allocate = unsafe extern "C-unwind" fn(*mut Object, usize) -> DataPtr;
type RecordEvent =
    unsafe extern "C-unwind" fn(*mut Object, *mut c_void, *mut c_void, Stream) -> bool;
type EmptyCache = unsafe extern "C-unwind" fn(*mut Object);
type BeginPool = unsafe extern "C-unwind" fn(*mut Object, u64, u64, *mut c_void);
type EndPool = unsafe extern "C-unwind" fn(*mut Object, u64, u64);
/// `c10::cuda::CUDAStream::stream() const`.
type HandleOf = unsafe extern "C-unwind" fn(*const Stream) -> *mut c_void;

/// PyTorch's own table, once it is exchanged.
static ORIGINAL: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
static HANDLE_OF: AtomicUsize = AtomicUsize::new(0);
/// Whether Genesis serves all requests.
static SERVES: AtomicBool = AtomicBool::new(false);
/// How many pools of graphs are being allocated to.
static POOLS: AtomicUsize = AtomicUsize::new(0);
static INSTALLING: Lock<(), { rank::LEAF }> = Lock::new(());

thread_local! {
    static SERVES_NEXT: Cell<bool> = const { Cell::new(false) };
}

/// Makes PyTorch's allocator of pinned memory know Genesis's. `allocator` is its `at::HostAllocator`
/// for CUDA, with a table of `slots` virtual functions; `stream_handle` is
/// `c10::cuda::CUDAStream::stream`. A second call does nothing. Nothing is served before
/// `genesis_torch_pinned_serve` or `genesis_torch_pinned_next`.
///
/// # Safety
/// The pointers are what they are said to be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_torch_pinned_install(
    allocator: *mut c_void,
    slots: usize,
    stream_handle: *mut c_void,
) -> Status {
    boundary::status(|| {
        if allocator.is_null() || stream_handle.is_null() {
            return Err(Error::invalid_argument("a pointer is null"));
        }
        if !(LEAST_SLOTS..=MOST_SLOTS).contains(&slots) {
            let message = format!("{slots} is not a number of virtual functions that is known");
            return Err(Error::invalid_argument(message));
        }
        let _installing = INSTALLING.lock();
        if !ORIGINAL.load(SeqCst).is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract: an object begins with the address of its table.
        let object = unsafe { &*allocator.cast::<Object>() };
        let table = object.table.load(SeqCst);
        // SAFETY: a table has its head before the first slot, and as many slots as the caller says.
        let old = unsafe { std::slice::from_raw_parts(table.sub(HEAD), HEAD + slots) };
        let mut new = old.to_vec();
        new[HEAD + ALLOCATE] = allocate as Allocate as Slot;
        new[HEAD + RECORD_EVENT] = record_event as RecordEvent as Slot;
        new[HEAD + EMPTY_CACHE] = empty_cache as EmptyCache as Slot;
        new[HEAD + BEGIN_POOL] = begin_pool as BeginPool as Slot;
        new[HEAD + END_POOL] = end_pool as EndPool as Slot;
        HANDLE_OF.store(stream_handle as usize, SeqCst);
        ORIGINAL.store(table, SeqCst);
        // The object lives as long as the process, and so does its table.
        object.table.store(&mut new.leak()[HEAD], SeqCst);
        Ok(())
    })
}

/// Has all requests of PyTorch's for pinned memory served by Genesis (`on` other than 0), or by
/// PyTorch. Tensors keep the memory that they have.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_pinned_serve(on: c_int) {
    SERVES.store(on != 0, SeqCst);
}

/// Has the next request of this thread for pinned memory served by Genesis; 0 withdraws that.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_torch_pinned_next(on: c_int) {
    let _ = SERVES_NEXT.try_with(|next| next.set(on != 0));
}

/// PyTorch's own function in `slot`.
fn original(slot: usize) -> Slot {
    // SAFETY: functions of the new table are called after the old one was stored, and it has them.
    unsafe { *ORIGINAL.load(Relaxed).add(slot) }
}

unsafe extern "C-unwind" fn allocate(object: *mut Object, bytes: usize) -> DataPtr {
    let is_next = SERVES_NEXT.try_with(|next| next.replace(false)).unwrap_or(false);
    let is_ours = (is_next || SERVES.load(Relaxed)) && POOLS.load(Relaxed) == 0;
    if is_ours
        && bytes > 0
        && let Ok(address) = boundary::call(|| host::allocate(bytes as u64, HostKind::Pinned))
    {
        let block = address as *mut c_void;
        return DataPtr {
            data: block,
            free: Some(free),
            context: block,
            device_type: 0,
            device: -1,
        };
    }
    // SAFETY: the original's type, and its own object. Where memory is short it says so.
    unsafe { transmute::<Slot, Allocate>(original(ALLOCATE))(object, bytes) }
}

unsafe extern "C" fn free(block: *mut c_void) {
    let _ = boundary::call(|| host::of_block(block as u64, |heap, address| heap.free(address)));
}

unsafe extern "C-unwind" fn record_event(
    object: *mut Object,
    data: *mut c_void,
    context: *mut c_void,
    stream: Stream,
) -> bool {
    if !host::is_pinned(data as u64) {
        // SAFETY: the original's type, and its own object.
        let record = unsafe { transmute::<Slot, RecordEvent>(original(RECORD_EVENT)) };
        // SAFETY: the caller's arguments.
        return unsafe { record(object, data, context, stream) };
    }
    // SAFETY: the function's type; it reads the stream.
    let handle =
        unsafe { transmute::<usize, HandleOf>(HANDLE_OF.load(Relaxed))(&raw const stream) };
    boundary::call(|| host::record_stream_within(data as u64, StreamHandle(handle as usize)))
        .is_ok()
}

unsafe extern "C-unwind" fn empty_cache(object: *mut Object) {
    let _ = boundary::call(|| host::empty_cache_if_made(HostKind::Pinned));
    // SAFETY: the original's type, and its own object.
    unsafe { transmute::<Slot, EmptyCache>(original(EMPTY_CACHE))(object) }
}

unsafe extern "C-unwind" fn begin_pool(
    object: *mut Object,
    first: u64,
    second: u64,
    filter: *mut c_void,
) {
    POOLS.fetch_add(1, SeqCst);
    // SAFETY: the original's type, and its own object; a `std::function` is passed by its address.
    unsafe {
        transmute::<Slot, BeginPool>(original(BEGIN_POOL))(object, first, second, filter);
    }
}

unsafe extern "C-unwind" fn end_pool(object: *mut Object, first: u64, second: u64) {
    let less = |pools: usize| pools.checked_sub(1);
    let _ = POOLS.fetch_update(SeqCst, SeqCst, less);
    // SAFETY: the original's type, and its own object.
    unsafe { transmute::<Slot, EndPool>(original(END_POOL))(object, first, second) }
}
