//! `dlsym` and `dlvsym`: what programs find by name.
//!
//! NCCL, cuBLAS and programs with the runtime linked into them reach the driver this way. A
//! symbol of the table gets its replacement; everything else goes to the C library's own function
//! by a jump that leaves registers and stack as they were, so that RTLD_NEXT and RTLD_DEFAULT
//! mean what they mean to the caller. Left alone are also
//! - RTLD_NEXT, and whoever asks for a symbol that it defines itself: another interposer, which
//!   wants the function below its own (and CUDA's library, which finds its own functions so);
//! - Genesis, which gets the real functions, but for `cuStreamWaitEvent`: see [`device`];
//! - what is not there: an absent function is absent.
//!
//! [`device`]: crate::device

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::elf::Object;
use crate::next::real;
use crate::table::{self, ROWS};
use crate::{device, genesis, loader, next, process, report};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The C library's functions, or another interposer's.
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The number of the row that Genesis alone gets.
const OBSERVED: usize = table::row("cuStreamWaitEvent");

/// What a lookup comes to, in two registers.
#[repr(C)]
struct Choice {
    /// The answer, if it is decided.
    answer: *mut c_void,
    is_decided: usize,
}

impl Choice {
    /// The real function answers.
    const ASK: Self = Self { answer: ptr::null_mut(), is_decided: 0 };

    fn decided(answer: *mut c_void) -> Self {
        Self { answer, is_decided: 1 }
    }
}

/// # Safety
/// As for `dlsym` of the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jnz 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        choose = sym choose,
        real = sym REAL_DLSYM,
    )
}

/// # Safety
/// As for `dlvsym` of the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {choose}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rcx, rcx",
        "jnz 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        choose = sym choose_version,
        real = sym REAL_DLVSYM,
    )
}

/// # Safety
/// As for `dlsym` of the C library.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {choose}",
        "cbnz x1, 2f",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], #32",
        "ret",
        choose = sym choose,
        real = sym REAL_DLSYM,
    )
}

/// # Safety
/// As for `dlvsym` of the C library.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30",
        "bl {choose}",
        "cbnz x1, 2f",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], #48",
        "ret",
        choose = sym choose_version,
        real = sym REAL_DLVSYM,
    )
}

/// Decides a call of `dlsym` made at `caller`.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char, caller: usize) -> Choice {
    let Some(real) = real_function(&REAL_DLSYM, c"dlsym") else {
        return Choice::decided(ptr::null_mut());
    };
    // SAFETY: the C library's function; its caller's contract.
    unsafe {
        if !is_of_cuda(handle, name) {
            return Choice::ASK;
        }
        let real: Dlsym = std::mem::transmute(real);
        decide(handle, name, caller, || real(handle, name))
    }
}

/// Decides a call of `dlvsym` made at `caller`.
unsafe extern "C" fn choose_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Choice {
    let Some(real) = real_function(&REAL_DLVSYM, c"dlvsym") else {
        return Choice::decided(ptr::null_mut());
    };
    // SAFETY: the C library's function; its caller's contract.
    unsafe {
        if !is_of_cuda(handle, name) {
            return Choice::ASK;
        }
        let real: Dlvsym = std::mem::transmute(real);
        decide(handle, name, caller, || real(handle, name, version))
    }
}

/// Whether a lookup may be of a symbol of the table: most are not.
///
/// # Safety
/// `name` is null or NUL-terminated.
#[inline]
unsafe fn is_of_cuda(handle: *mut c_void, name: *const c_char) -> bool {
    // SAFETY: by this function's contract; the second letter is read after one that is not NUL.
    handle != libc::RTLD_NEXT
        && !name.is_null()
        && unsafe { *name == b'c' as c_char && *name.add(1) == b'u' as c_char }
}

/// Decides a lookup of what may be in the table; `ask` does it.
///
/// # Safety
/// `name` is NUL-terminated.
#[cold]
#[inline(never)]
unsafe fn decide(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
    ask: impl FnOnce() -> *mut c_void,
) -> Choice {
    // SAFETY: by this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(row) = table::find(name).filter(|_| process::may_serve()) else {
        return Choice::ASK;
    };
    let asker = Object::containing(caller);
    let has = |symbol| asker.is_some_and(|asker| asker.symbol(symbol).is_some());
    let is_for_genesis = has(genesis::MARK);
    if is_for_genesis != (row == OBSERVED) || has(name) {
        return Choice::ASK;
    }
    report::saw_cuda();
    if handle == libc::RTLD_DEFAULT {
        // The order of search leads to this library, or to an interposer before it; but not if
        // there is no such function without it.
        return match next::function(row) {
            Some(_) => Choice::ASK,
            None => Choice::decided(next_symbol(name)),
        };
    }
    let Some(question) = loader::ask() else { return Choice::decided(ptr::null_mut()) };
    let found = ask();
    drop(question);
    if found.is_null() {
        return Choice::decided(found);
    }
    next::learn(row, found);
    if next::function(row).is_none() {
        return Choice::decided(next_symbol(name));
    }
    if row == OBSERVED {
        device::observe_waits();
    }
    Choice::decided(ROWS[row].replacement.cast_mut())
}

/// The next definition of `name` after this library; null, with the loader's error, if there is
/// none.
pub(crate) fn next_symbol(name: &CStr) -> *mut c_void {
    let (Some(real), Some(_question)) = (real_function(&REAL_DLSYM, c"dlsym"), loader::ask())
    else {
        return ptr::null_mut();
    };
    // SAFETY: the C library's `dlsym`, called from this library, which RTLD_NEXT goes by.
    unsafe {
        let real: Dlsym = std::mem::transmute(real);
        real(libc::RTLD_NEXT, name.as_ptr())
    }
}

/// The next definition of one of the two functions themselves.
fn real_function(place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let known = place.load(Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let (_, found) = Object::defining_after(real_function as *const () as usize, name)?;
    place.store(found, Release);
    Some(found)
}

/// The driver's function as Genesis calls it: the stream waits for another one's work.
#[allow(non_snake_case)] // not exported, but its row and the driver's function have this name
pub(crate) unsafe extern "C" fn cuStreamWaitEvent(
    stream: usize,
    event: usize,
    flags: c_uint,
) -> c_int {
    let status = real!(cuStreamWaitEvent(stream, event, flags));
    device::note_wait(stream);
    status
}
