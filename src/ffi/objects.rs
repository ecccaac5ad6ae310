//! What arenas, fixed-size pools and memory managers share in the C interface: which memory they
//! hand out, how their options are read, and their handles.
//!
//! A handle is a counted pointer: buffers made of an object's memory (`dlpack`) keep the object.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::{genesis_stream, ordinal, stream_handle};
use crate::base::{Error, Result, StreamHandle};
use crate::config::HostKind;
use crate::instance::memory::Memory;
use crate::suballocation::Threads;

/// A kind of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Of a device.
    Device = 0,
    /// The process's own memory.
    Pageable = 1,
    /// The process's memory, locked in place for copies that a GPU makes itself.
    Pinned = 2,
}

/// Which memory an object hands out, and who calls the object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryUse {
    /// The kind of memory, a `genesis_memory_kind`.
    pub kind: c_int,
    /// The device; not read for host memory.
    pub device: c_int,
    /// The object's own stream, on which its memory is reused; not read for host memory. It must
    /// exist as long as the object. cudaStreamPerThread is for objects of one thread.
    pub stream: genesis_stream,
    /// 0: one thread at a time calls the object, which the caller sees to; 1: any thread at any
    /// time, for some nanoseconds a call.
    pub any_thread: c_int,
}

impl MemoryUse {
    pub(super) fn memory(&self) -> Result<Memory> {
        match self.kind {
            kind if kind == MemoryKind::Device as c_int => {
                let (device, stream) = (ordinal(self.device)?, stream_handle(self.stream));
                if stream == StreamHandle::PER_THREAD && self.any_thread != 0 {
                    let message = "an object for any thread has no stream of the calling thread's";
                    return Err(Error::invalid_argument(message));
                }
                Ok(Memory::Device { device, stream })
            }
            kind if kind == MemoryKind::Pageable as c_int => Ok(Memory::Host(HostKind::Pageable)),
            kind if kind == MemoryKind::Pinned as c_int => Ok(Memory::Host(HostKind::Pinned)),
            kind => Err(Error::invalid_argument(format!("{kind} is not a genesis_memory_kind"))),
        }
    }

    pub(super) fn threads(&self) -> Threads {
        if self.any_thread == 0 { Threads::One } else { Threads::Any }
    }
}

/// Options: all numbers and pointers, whose zeros are defaults, with their own size in front.
///
/// # Safety
/// All zeros is a valid value, and the first member is a `usize`.
pub(super) unsafe trait Options: Copy {}

/// The options at `options`, up to the size with which they begin; the rest is zero.
///
/// # Safety
/// `options` is null, which is an error, or points to a size and as many readable bytes.
pub(super) unsafe fn read_sized<T: Options>(options: *const T) -> Result<T> {
    if options.is_null() {
        return Err(Error::invalid_argument("the options are null"));
    }
    // SAFETY: not null; by the contract the size can be read.
    let struct_size = unsafe { options.cast::<usize>().read() };
    if struct_size < size_of::<usize>() + size_of::<MemoryUse>() {
        let message = format!("options->struct_size is {struct_size}: set it to the struct's size");
        return Err(Error::invalid_argument(message));
    }
    let mut read = MaybeUninit::<T>::zeroed();
    // SAFETY: both have so many bytes, by the contract and by the minimum, and do not overlap; zeros
    // are a value of `T`, and so are the caller's members.
    unsafe {
        let bytes = struct_size.min(size_of::<T>());
        read.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(options.cast(), bytes);
        Ok(read.assume_init())
    }
}

/// The object of a handle.
///
/// # Safety
/// `handle` is null, which is an error, or came from [`hand_out`] and was not taken back.
#[inline]
pub(super) unsafe fn object<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_ref() }.ok_or_else(|| Error::invalid_argument("the object is null"))
}

/// A handle of `object`.
pub(super) fn hand_out<T>(object: T) -> *mut T {
    Arc::into_raw(Arc::new(object)).cast_mut()
}

/// Ends a handle.
///
/// # Safety
/// As for [`object`].
pub(super) unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it came from `Arc::into_raw` and ends once, by the contract.
        drop(unsafe { Arc::from_raw(handle.cast_const()) });
    }
}

/// Another use of the object of a handle.
///
/// # Safety
/// As for [`object`].
pub(super) unsafe fn shared<T>(handle: *const T) -> Result<Arc<T>> {
    // SAFETY: not null after the check, and from `Arc::into_raw` by the contract.
    unsafe {
        object(handle)?;
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// An error unless any thread may call an object: its memory is to be freed by one that is not
/// known.
pub(super) fn require_any_thread(threads: Threads) -> Result<()> {
    match threads {
        Threads::Any => Ok(()),
        Threads::One => {
            Err(Error::invalid_argument("the object is for one thread: any_thread is 0"))
        }
    }
}
