//! The C library's malloc and its like, for all code that `libgenesis.so` consists of: the library's own
//! and Rust's collections, the standard library's threads, zstd.
//!
//! The shared library is linked with `--wrap` for the names in `packaging/wrapped` (`build.rs`; `xtask`
//! for packages). So a call of `malloc` in it is one of `__wrap_malloc`, which is [`malloc`] here, and
//! `__real_malloc` is the process's malloc, whichever that is. Where the process's refuses, memory comes
//! from a reserve ([`super::reserve`]), and an address of the reserve goes back there.
//!
//! This is no `#[global_allocator]`, which Rust's threads and C do not use, and which would be that of
//! all programs that link the rlib. These are not linked so: for them nothing here is called.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use super::reserve::Reserve;

/// What is kept back, in bytes: addresses, and no memory before it is used.
pub(super) const RESERVE_BYTES: usize = 64 << 20;
/// What addresses of malloc are multiples of.
const MALLOC_ALIGNMENT: usize = 16;

static RESERVE: Reserve<RESERVE_BYTES> = Reserve::new();
/// Whether the process's malloc has refused memory, and none was there since.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
static ON_REFUSAL: OnceLock<fn()> = OnceLock::new();

/// Returns true if malloc has refused memory, and [`probe`] has found none since.
#[inline]
pub fn is_short() -> bool {
    IS_SHORT.load(Acquire)
}

/// How many bytes of the reserve are used.
pub(super) fn used_bytes() -> usize {
    RESERVE.used_bytes()
}

/// From now on `on_refusal` is called whenever malloc refuses memory: by any thread, with any lock held,
/// so it may do no more than store to atomics. The first one given stays.
pub(super) fn on_refusal(on_refusal: fn()) {
    let _ = ON_REFUSAL.set(on_refusal);
}

/// Returns true if malloc has `bytes` in one piece; then memory is not short any more.
pub(super) fn probe(bytes: usize) -> bool {
    // SAFETY: what was got is given back. The compiler must not know that nobody uses it.
    let is_there = unsafe {
        let memory = black_box(genesis_real_malloc(bytes));
        genesis_real_free(memory);
        !memory.is_null()
    };
    if is_there {
        IS_SHORT.store(false, Release);
    }
    is_there
}

#[cold]
fn from_reserve(bytes: usize, alignment: usize) -> *mut c_void {
    IS_SHORT.store(true, Release);
    if let Some(on_refusal) = ON_REFUSAL.get() {
        on_refusal();
    }
    RESERVE.allocate(bytes, alignment).cast()
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: any number is allowed.
    let memory = unsafe { genesis_real_malloc(bytes) };
    if memory.is_null() { from_reserve(bytes, MALLOC_ALIGNMENT) } else { memory }
}

extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: any numbers are allowed.
    let memory = unsafe { genesis_real_calloc(count, bytes) };
    let Some(bytes) = count.checked_mul(bytes).filter(|_| memory.is_null()) else {
        return memory;
    };
    let memory = from_reserve(bytes, MALLOC_ALIGNMENT);
    if !memory.is_null() {
        // SAFETY: it is this long.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
    }
    memory
}

unsafe extern "C" fn posix_memalign(
    memory: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    let refused = unsafe { genesis_real_posix_memalign(memory, alignment, bytes) };
    if refused != libc::ENOMEM {
        return refused;
    }
    let reserved = from_reserve(bytes, alignment);
    if reserved.is_null() {
        return refused;
    }
    // SAFETY: by the contract it can be written to.
    unsafe { memory.write(reserved) };
    0
}

unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    let is_reserved = RESERVE.contains(memory.cast());
    if !is_reserved {
        // SAFETY: the caller's contract is the same.
        let moved = unsafe { genesis_real_realloc(memory, bytes) };
        if !moved.is_null() || bytes == 0 {
            return moved;
        }
    }
    // SAFETY: it is of the one or the other, and live.
    let old_bytes = unsafe {
        if is_reserved { RESERVE.bytes_of(memory.cast()) } else { libc::malloc_usable_size(memory) }
    };
    let moved = if is_reserved { malloc(bytes) } else { from_reserve(bytes, MALLOC_ALIGNMENT) };
    if !moved.is_null() {
        // SAFETY: both are this long, and different; nobody uses the old one any more.
        unsafe {
            moved.cast::<u8>().copy_from_nonoverlapping(memory.cast(), old_bytes.min(bytes));
            free(memory);
        }
    }
    moved
}

unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller's contract; the address tells whose it is.
    unsafe {
        if RESERVE.contains(memory.cast()) {
            RESERVE.free(memory.cast());
        } else {
            genesis_real_free(memory);
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($target:expr) => {
        concat!("jmp ", $target, "@PLT")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($target:expr) => {
        concat!("b ", $target)
    };
}

/// Gives a function the linker's name for what stands in for `$name`, and one to what it stands in for.
/// Neither is exported, as functions that Rust gives a name would be. What it stands in for is unknown
/// where nothing is wrapped, hence weak.
macro_rules! wrap {
    ($name:literal, $own:path) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.genesis_wrap_", $name, ",\"ax\",@progbits"),
            concat!(".weak __real_", $name),
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ",@function"),
            concat!("__wrap_", $name, ":"),
            jump!("{own}"),
            concat!(".globl genesis_real_", $name),
            concat!(".hidden genesis_real_", $name),
            concat!(".type genesis_real_", $name, ",@function"),
            concat!("genesis_real_", $name, ":"),
            jump!(concat!("__real_", $name)),
            ".popsection",
            own = sym $own,
        );
    };
}

wrap!("malloc", malloc);
wrap!("calloc", calloc);
wrap!("realloc", realloc);
wrap!("posix_memalign", posix_memalign);
wrap!("free", free);

unsafe extern "C" {
    fn genesis_real_malloc(bytes: usize) -> *mut c_void;
    fn genesis_real_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn genesis_real_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    fn genesis_real_posix_memalign(
        memory: *mut *mut c_void,
        alignment: usize,
        bytes: usize,
    ) -> c_int;
    fn genesis_real_free(memory: *mut c_void);
}
