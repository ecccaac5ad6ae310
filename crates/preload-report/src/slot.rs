//! The writer's side: a process's own slot.
//!
//! All counting is relaxed, because the reader reads when the program has ended. [`Slot::claim`]
//! makes only system calls, so it may be called from an initialiser and in a fork's child.

use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{Header, Library, MOST_PROCESSES, Mapped, SlotLayout, lay_out, uninterrupted};

/// A process's slot in the file, valid until the process that claimed it ends. A forked child
/// shares its parent's until it claims its own.
///
/// Copies are the same slot. Any thread may count at any time.
#[derive(Clone, Copy)]
pub struct Slot(&'static SlotLayout);

impl Slot {
    /// A new slot in the file at `path`, with the name of this process. `None` if there is no such
    /// file, it is another version's, there is no room, or the system refuses.
    pub fn claim(path: &CStr) -> Option<Self> {
        let descriptor = uninterrupted(|| {
            // SAFETY: a NUL-terminated path.
            unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
        });
        if descriptor < 0 {
            return None;
        }
        let slot = Self::claim_in(descriptor);
        // SAFETY: opened above, and mappings outlive it.
        unsafe { libc::close(descriptor) };
        slot
    }

    fn claim_in(descriptor: c_int) -> Option<Self> {
        let header: Mapped<Header> = Mapped::new(descriptor, 0)?;
        if !header.is_ours() {
            header.of_other_versions.fetch_add(1, Relaxed);
            return None;
        }
        let index = header.claimed.fetch_add(1, Relaxed);
        if index >= MOST_PROCESSES || !lay_out::<SlotLayout>(descriptor, index) {
            return None;
        }
        let slot = Self(Mapped::<SlotLayout>::new(descriptor, index)?.leak());
        let mut name = [0; 256];
        slot.0.program.set(command_line(&mut name));
        slot.0.process_id.store(std::process::id(), Relaxed);
        Some(slot)
    }

    /// Counts a call that Genesis served, or that was only watched. `call` is an index of
    /// [`CALLS`](crate::CALLS); others are ignored.
    #[inline]
    pub fn count(&self, call: usize) {
        if let Some(counters) = self.0.calls.get(call) {
            counters.served.fetch_add(1, Relaxed);
        }
    }

    /// Counts a call that went to CUDA.
    #[inline]
    pub fn count_passed(&self, call: usize) {
        if let Some(counters) = self.0.calls.get(call) {
            counters.passed.fetch_add(1, Relaxed);
        }
    }

    /// Counts a call that ended with an error of Genesis's own: no memory, or not supported.
    #[inline]
    pub fn count_refused(&self, call: usize) {
        if let Some(counters) = self.0.calls.get(call) {
            counters.refused.fetch_add(1, Relaxed);
        }
    }

    /// A block of so many bytes went to the program.
    #[inline]
    pub fn hand_out(&self, bytes: u64) {
        self.0.total_bytes.fetch_add(bytes, Relaxed);
        let live_bytes = self.0.live_bytes.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        if live_bytes > self.0.peak_bytes.load(Relaxed) {
            self.0.peak_bytes.fetch_max(live_bytes, Relaxed);
        }
    }

    /// The program gave back a block; `bytes` as when it was handed out.
    #[inline]
    pub fn take_back(&self, bytes: u64) {
        self.0.live_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Genesis waited for the device so that freed blocks may be used again.
    #[inline]
    pub fn count_fence(&self) {
        self.0.fences.fetch_add(1, Relaxed);
    }

    /// The process has called CUDA or looked up a function of it.
    #[inline]
    pub fn see_cuda(&self) {
        // Called often, written once.
        if self.0.has_seen_cuda.load(Relaxed) == 0 {
            self.0.has_seen_cuda.store(1, Relaxed);
        }
    }

    /// The state of `libgenesis.so`, with the loader's message if it could not be opened.
    pub fn set_library(&self, library: Library, error: Option<&CStr>) {
        if let Some(error) = error {
            self.0.error.set(error.to_bytes());
        }
        self.0.library.store(library as u32, Relaxed);
    }
}

/// The command line of this process, as far as it fits, with spaces between the words; empty if
/// it cannot be read.
fn command_line(buffer: &mut [u8]) -> &[u8] {
    // SAFETY: a NUL-terminated path; at most as many bytes are written as the buffer has.
    let length = unsafe {
        let path = c"/proc/self/cmdline".as_ptr();
        let descriptor = uninterrupted(|| libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC));
        if descriptor < 0 {
            return &[];
        }
        let (place, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        let length = uninterrupted(|| libc::read(descriptor, place, size));
        libc::close(descriptor);
        usize::try_from(length).unwrap_or(0)
    };
    let words = &mut buffer[..length];
    words.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    words.trim_ascii_end()
}
