//! Memory kept back: a range of the library's zeroed data, whose pages the system provides as they are
//! first touched, and a first-fit heap in it.
//!
//! ```text
//! | handed out | free | handed out | free | … never handed out, untouched |
//! 0                   └ a list in order of address ┘   └ bare               BYTES
//! ```
//!
//! A free block holds its own size and the next one's address. Neighbours are joined, so no two free
//! blocks touch, and none ends at `bare`: `bare` falls back instead. Sizes and addresses of blocks are
//! multiples of [`UNIT_BYTES`]. Before the memory that is handed out stands a [`Heading`], at the end of
//! a unit of its own or more, by the alignment asked for. Linear in the number of free blocks: it is for
//! few and short needs.
//!
//! **Threads.** Any thread may call anything. The lock spins, because all work under it is short. A
//! child of a fork finds it held for ever if another thread of its parent held it: the lock names its
//! holder's process, so the child knows, gets no memory, and what it frees is lost.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// What sizes and addresses of blocks are multiples of; a free block's record fits in, and a heading.
const UNIT_BYTES: usize = 64;

/// The memory and its heap. All zero at first, so that it takes no room in the library's file.
#[repr(C, align(4096))]
pub(super) struct Reserve<const BYTES: usize> {
    memory: UnsafeCell<[u8; BYTES]>,
    /// The process whose thread holds the lock; 0: none does.
    holder: AtomicU32,
    free: UnsafeCell<Free>,
    used_bytes: AtomicUsize,
}

/// The free memory.
struct Free {
    /// The first free block, or null.
    first: *mut FreeBlock,
    /// From this offset on nothing was handed out.
    bare: usize,
}

/// What stands at the start of a free block.
struct FreeBlock {
    bytes: usize,
    next: *mut FreeBlock,
}

/// What stands before memory that is handed out.
#[derive(Clone, Copy)]
struct Heading {
    /// Of the whole block.
    bytes: usize,
    /// From the block's start to the memory.
    offset: usize,
}

// SAFETY: `free` and the free blocks in `memory` are reached under the lock only; the rest of `memory`
// belongs to those whom it was handed out to.
unsafe impl<const BYTES: usize> Sync for Reserve<BYTES> {}

impl<const BYTES: usize> Reserve<BYTES> {
    /// All of it free.
    pub(super) const fn new() -> Self {
        Self {
            memory: UnsafeCell::new([0; BYTES]),
            holder: AtomicU32::new(0),
            free: UnsafeCell::new(Free { first: null_mut(), bare: 0 }),
            used_bytes: AtomicUsize::new(0),
        }
    }

    /// Returns true if `memory` was handed out from here.
    #[inline]
    pub(super) fn contains(&self, memory: *mut u8) -> bool {
        memory.addr().wrapping_sub(self.start()) < BYTES
    }

    /// How many bytes are handed out, headings included.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// `bytes` of memory at a multiple of `alignment`, a power of two, with undefined contents; null if
    /// there is none.
    pub(super) fn allocate(&self, bytes: usize, alignment: usize) -> *mut u8 {
        let offset = alignment.max(UNIT_BYTES);
        let whole =
            bytes.checked_next_multiple_of(UNIT_BYTES).and_then(|it| it.checked_add(offset));
        let Some(whole) = whole.filter(|whole| *whole <= BYTES) else {
            return null_mut();
        };
        let address = self.locked(|free| {
            let address = self.take(free, whole, offset)?;
            self.used_bytes.fetch_add(whole, Relaxed);
            Some(address)
        });
        let Some(start) = address.flatten() else {
            return null_mut();
        };
        let memory: *mut u8 = with_exposed_provenance_mut(start + offset);
        // SAFETY: the block begins a unit or more before.
        unsafe { heading(memory).write(Heading { bytes: whole, offset }) };
        memory
    }

    /// How many bytes there are at `memory`.
    ///
    /// # Safety
    /// [`Self::allocate`] has returned it, and it was not taken back.
    pub(super) unsafe fn bytes_of(&self, memory: *mut u8) -> usize {
        // SAFETY: the caller's contract.
        let Heading { bytes, offset } = unsafe { heading(memory).read() };
        bytes - offset
    }

    /// Takes back what [`Self::allocate`] returned.
    ///
    /// # Safety
    /// It was returned there, and is not used any more.
    pub(super) unsafe fn free(&self, memory: *mut u8) {
        // SAFETY: the caller's contract.
        let Heading { bytes, offset } = unsafe { heading(memory).read() };
        self.locked(|free| {
            // SAFETY: by the contract nobody uses the block.
            unsafe { self.give(free, memory.sub(offset).cast(), bytes) };
            self.used_bytes.fetch_sub(bytes, Relaxed);
        });
    }

    fn start(&self) -> usize {
        self.memory.get().expose_provenance()
    }

    /// Calls `body` with the lock held; `None` in a child that can never have it.
    fn locked<R>(&self, body: impl FnOnce(&mut Free) -> R) -> Option<R> {
        let own = std::process::id();
        while let Err(holder) = self.holder.compare_exchange_weak(0, own, Acquire, Relaxed) {
            if holder != 0 && holder != own {
                return None;
            }
            std::thread::yield_now();
        }
        // SAFETY: the lock is held.
        let result = body(unsafe { &mut *self.free.get() });
        self.holder.store(0, Release);
        Some(result)
    }

    /// The address of `bytes` bytes that were free.
    fn take(&self, free: &mut Free, bytes: usize, alignment: usize) -> Option<usize> {
        let mut link = &raw mut free.first;
        // SAFETY: under the lock all links lead to free blocks, and `link` to where one hangs.
        unsafe {
            while let Some(block) = (*link).as_mut() {
                let (start, end) = ((*link).addr(), (*link).addr() + block.bytes);
                let address = start.checked_next_multiple_of(alignment)?;
                if address.checked_add(bytes).is_some_and(|needed| needed <= end) {
                    let mut next = block.next;
                    if address + bytes < end {
                        next = place(address + bytes, end - address - bytes, next);
                    }
                    if start < address {
                        block.bytes = address - start;
                        block.next = next;
                    } else {
                        *link = next;
                    }
                    return Some(address);
                }
                link = &raw mut block.next;
            }
            let start = self.start() + free.bare;
            let address = start.checked_next_multiple_of(alignment)?;
            let end = address.checked_add(bytes)?.checked_sub(self.start())?;
            if end > BYTES {
                return None;
            }
            if start < address {
                *link = place(start, address - start, null_mut());
            }
            free.bare = end;
            Some(address)
        }
    }

    /// Makes `bytes` bytes at `block` free.
    ///
    /// # Safety
    /// They were handed out, and nobody uses them.
    unsafe fn give(&self, free: &mut Free, block: *mut FreeBlock, bytes: usize) {
        let mut link = &raw mut free.first;
        let mut link_before: *mut *mut FreeBlock = null_mut();
        // SAFETY: as in `take`; the block's own bytes are the caller's to give.
        unsafe {
            while !(*link).is_null() && (*link).addr() < block.addr() {
                link_before = link;
                link = &raw mut (**link).next;
            }
            block.write(FreeBlock { bytes, next: *link });
            *link = block;
            absorb_next(block);
            if !link_before.is_null() && absorb_next(*link_before) {
                link = link_before;
            }
            let joined = *link;
            if joined.addr() + (*joined).bytes == self.start() + free.bare {
                free.bare = joined.addr() - self.start();
                *link = null_mut();
            }
        }
    }
}

/// Joins `block` with the free block after it if they touch; returns true if they do.
///
/// # Safety
/// `block` is in the list of free blocks, whose lock is held.
unsafe fn absorb_next(block: *mut FreeBlock) -> bool {
    // SAFETY: the caller's contract.
    unsafe {
        let FreeBlock { bytes, next } = block.read();
        let touches = !next.is_null() && block.addr() + bytes == next.addr();
        if touches {
            block.write(FreeBlock { bytes: bytes + (*next).bytes, next: (*next).next });
        }
        touches
    }
}

/// Where the heading of `memory` stands.
fn heading(memory: *mut u8) -> *mut Heading {
    memory.cast::<Heading>().wrapping_sub(1)
}

/// Makes a free block of `bytes` bytes at `address`, before `next`.
///
/// # Safety
/// The bytes are the reserve's, and nobody uses them.
unsafe fn place(address: usize, bytes: usize, next: *mut FreeBlock) -> *mut FreeBlock {
    let block: *mut FreeBlock = with_exposed_provenance_mut(address);
    // SAFETY: the caller's contract; addresses are multiples of 64.
    unsafe { block.write(FreeBlock { bytes, next }) };
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 * 1024;
    /// A block of so many bytes takes 1024 with its heading.
    const KILOBYTE: usize = 1024 - UNIT_BYTES;
    /// Miri takes a tenth of a second for each.
    const STEPS: usize = if cfg!(miri) { 300 } else { 20_000 };

    fn reserve() -> Box<Reserve<BYTES>> {
        Box::new(Reserve::new())
    }

    #[test]
    fn what_is_given_back_is_joined() {
        let reserve = reserve();
        let all: Vec<_> = (0..64).map(|_| reserve.allocate(KILOBYTE, 16)).collect();
        assert!(all.iter().all(|memory| reserve.contains(*memory)));
        assert!(reserve.allocate(1, 1).is_null());
        assert_eq!(reserve.used_bytes(), BYTES);
        // First every other one, then the rest: each has a neighbour then.
        for n in (0..64).step_by(2).chain((1..64).step_by(2)) {
            // SAFETY: handed out above, once each.
            unsafe { reserve.free(all[n]) };
        }
        assert_eq!(reserve.used_bytes(), 0);
        assert_eq!(reserve.allocate(BYTES - UNIT_BYTES, 16), all[0]);
        for too_many in [BYTES, usize::MAX - 100, usize::MAX] {
            assert!(reserve.allocate(too_many, 16).is_null());
        }
    }

    #[test]
    fn random_blocks_do_not_overlap_and_are_aligned() {
        let reserve = reserve();
        let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % below) as usize
        };
        let give_back = |(memory, bytes, mark): (*mut u8, usize, u8)| {
            // SAFETY: handed out below, and written whole.
            unsafe {
                let written = std::slice::from_raw_parts(memory, bytes);
                assert!(written.iter().all(|byte| *byte == mark));
                assert!(reserve.bytes_of(memory) >= bytes);
                reserve.free(memory);
            }
        };
        for step in 0..STEPS {
            if live.len() > 40 || draw(2) == 0 && !live.is_empty() {
                give_back(live.swap_remove(draw(live.len() as u64)));
                continue;
            }
            let (bytes, alignment) = (draw(3000), 1 << draw(11));
            let memory = reserve.allocate(bytes, alignment);
            if !memory.is_null() {
                assert_eq!(memory.addr() % alignment, 0);
                // SAFETY: it is this long.
                unsafe { memory.write_bytes(step as u8, bytes) };
                live.push((memory, bytes, step as u8));
            }
        }
        live.into_iter().for_each(give_back);
        assert_eq!(reserve.used_bytes(), 0);
        assert!(!reserve.allocate(BYTES - UNIT_BYTES, 16).is_null(), "all in one piece");
    }

    #[test]
    fn a_lock_that_a_parent_held_gives_nothing() {
        let reserve = reserve();
        let memory = reserve.allocate(KILOBYTE, 16);
        reserve.holder.store(u32::MAX, Relaxed);
        assert!(reserve.allocate(KILOBYTE, 16).is_null());
        // SAFETY: handed out above.
        unsafe { reserve.free(memory) };
        assert_eq!(reserve.used_bytes(), 1024, "lost");
    }
}
