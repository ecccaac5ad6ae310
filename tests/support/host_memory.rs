//! What a thread, and the process, ask of the host's allocator. A test binary counts with
//! `#[global_allocator] static COUNTING: Counting = Counting;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The system's allocator, counted.
pub struct Counting;

static PROCESS_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it stands.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        HELD_BYTES.set(HELD_BYTES.get() + layout.size() as i64);
        PROCESS_BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.set(HELD_BYTES.get() - layout.size() as i64);
        PROCESS_BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often this thread has asked for memory.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// What this thread has been given and not given back, in bytes. It means something for memory
/// that stays with its thread.
pub fn held_bytes() -> i64 {
    HELD_BYTES.get()
}

/// What the process has been given and not given back, in bytes.
pub fn process_bytes() -> i64 {
    PROCESS_BYTES.load(Relaxed)
}
