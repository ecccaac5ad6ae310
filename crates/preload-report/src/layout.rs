//! The layout of the file, and the mapping of its parts into memory.
//!
//! Every field is an atomic, so a mapping may be read while another process writes it, and any
//! bytes are a valid value. A part is mapped only if the file is long enough to contain it.

use std::ffi::c_int;
use std::io::{Error, ErrorKind};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::calls::{self, CALLS};

/// More processes than this are counted, but have no slots.
pub const MOST_PROCESSES: u64 = 65_536;

/// Begins a file. The last digits are the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GNSRUN01");
/// Slots begin at multiples of this: no machine with a GPU has larger pages.
const STRIDE_BYTES: u64 = 65_536;

const PROGRAM_BYTES: usize = 256;
const ERROR_BYTES: usize = 512;

/// The state of `libgenesis.so` in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Library {
    /// No call has asked for it.
    #[default]
    NotAsked = 0,
    /// It is open and serves.
    Open = 1,
    /// It could not be opened; all calls went to CUDA.
    Missing = 2,
    /// `GENESIS_PRELOAD=off`: all calls went to CUDA.
    Off = 3,
    /// The process is a fork of one that used it, where CUDA does not work either.
    ForkedChild = 4,
}

impl Library {
    pub(crate) fn from_number(number: u32) -> Self {
        let all = [Self::NotAsked, Self::Open, Self::Missing, Self::Off, Self::ForkedChild];
        all.into_iter().find(|library| *library as u32 == number).unwrap_or_default()
    }
}

/// The beginning of the file.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    /// A number of the list of calls that are counted.
    pub(crate) fingerprint: AtomicU64,
    pub(crate) claimed: AtomicU64,
    /// Processes whose preload library is of another version.
    pub(crate) of_other_versions: AtomicU64,
}

impl Header {
    /// Returns true if slots have the layout of this version of the crate.
    pub(crate) fn is_ours(&self) -> bool {
        self.magic.load(Ordering::Relaxed) == MAGIC
            && self.fingerprint.load(Ordering::Relaxed) == calls::fingerprint()
    }
}

/// How often one call was made, by how it ended.
#[repr(C)]
pub(crate) struct CallCounters {
    pub(crate) served: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// What one process reports.
#[repr(C)]
pub(crate) struct SlotLayout {
    pub(crate) process_id: AtomicU32,
    pub(crate) library: AtomicU32,
    pub(crate) has_seen_cuda: AtomicU32,
    pub(crate) padding: AtomicU32,
    pub(crate) live_bytes: AtomicU64,
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) fences: AtomicU64,
    pub(crate) program: Text<PROGRAM_BYTES>,
    pub(crate) error: Text<ERROR_BYTES>,
    pub(crate) calls: [CallCounters; CALLS.len()],
}

/// A text that ends with a zero or fills its place.
#[repr(C)]
pub(crate) struct Text<const CAPACITY: usize>([AtomicU8; CAPACITY]);

impl<const CAPACITY: usize> Text<CAPACITY> {
    /// Writes as many bytes as there is room for.
    pub(crate) fn set(&self, bytes: &[u8]) {
        let ended = bytes.iter().copied().chain([0]);
        for (place, byte) in self.0.iter().zip(ended) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> String {
        let bytes = self.0.iter().map(|place| place.load(Ordering::Relaxed));
        let text: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A type as which a part of the file may be read.
///
/// # Safety
/// The type consists of atomics alone, is shorter than a slot's stride, and needs no alignment
/// that a page does not have.
pub(crate) unsafe trait Part {
    /// The offset of part `index` in the file.
    fn offset(index: u64) -> u64;
}

// SAFETY: four atomics.
unsafe impl Part for Header {
    fn offset(_: u64) -> u64 {
        0
    }
}

// SAFETY: atomics, structures of atomics and arrays of them; the length is checked here.
unsafe impl Part for SlotLayout {
    fn offset(index: u64) -> u64 {
        const { assert!(size_of::<Self>() as u64 <= STRIDE_BYTES) };
        (index + 1) * STRIDE_BYTES
    }
}

/// A part of the file in memory, until it is dropped.
pub(crate) struct Mapped<T: Part> {
    address: NonNull<T>,
    part: PhantomData<T>,
}

impl<T: Part> Mapped<T> {
    /// Maps part `index` of the open file `descriptor`; `None` if the file is too short for it or
    /// the system refuses.
    pub(crate) fn new(descriptor: c_int, index: u64) -> Option<Self> {
        let offset = T::offset(index);
        // SAFETY: an all-zero `stat` is a valid value, and the call only writes it.
        let length_bytes = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            if libc::fstat(descriptor, &raw mut status) != 0 {
                return None;
            }
            u64::try_from(status.st_size).ok()?
        };
        if length_bytes < offset + size_of::<T>() as u64 {
            return None;
        }
        // SAFETY: a new mapping, at a place of the system's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor,
                libc::off_t::try_from(offset).ok()?,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        Some(Self { address: NonNull::new(address.cast())?, part: PhantomData })
    }

    /// The part, for the rest of the process.
    pub(crate) fn leak(self) -> &'static T {
        let address = self.address;
        std::mem::forget(self);
        // SAFETY: as in `deref`; the mapping is never undone.
        unsafe { address.as_ref() }
    }
}

impl<T: Part> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as T and aligned to a page; T is made of atomics, so any
        // bytes are a value and others may write at any time.
        unsafe { self.address.as_ref() }
    }
}

impl<T: Part> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this mapping was made here, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.address.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Makes the file long enough for part `index`, whose bytes become zeros; returns true if it is
/// then. The bytes are written, not skipped, so that no later store can find the disk full.
pub(crate) fn lay_out<T: Part>(descriptor: c_int, index: u64) -> bool {
    let zeros = [0u8; 256];
    let (mut done, all) = (0, size_of::<T>());
    while done < all {
        let count = zeros.len().min(all - done);
        let Ok(offset) = libc::off_t::try_from(T::offset(index) + done as u64) else {
            return false;
        };
        let written = uninterrupted(|| {
            // SAFETY: `count` bytes of `zeros` are read.
            unsafe { libc::pwrite(descriptor, zeros.as_ptr().cast(), count, offset) }
        });
        match usize::try_from(written) {
            Ok(written) if written > 0 => done += written,
            _ => return false,
        }
    }
    true
}

/// Makes a system call until no signal interrupts it; a result below 0 is a failure.
pub(crate) fn uninterrupted<T: Default + PartialOrd>(mut call: impl FnMut() -> T) -> T {
    loop {
        let result = call();
        let is_interrupted = || Error::last_os_error().kind() == ErrorKind::Interrupted;
        if result >= T::default() || !is_interrupted() {
            return result;
        }
    }
}
