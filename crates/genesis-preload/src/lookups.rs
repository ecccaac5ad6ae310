//! `dlsym` and `dlvsym`: what programs find by name.
//!
//! NCCL, cuBLAS and programs with the runtime linked into them reach the driver this way. One of
//! our symbols is answered with its replacement. Every other lookup goes on to the C library's own
//! function by a jump that leaves registers and stack as they were, so RTLD_NEXT and RTLD_DEFAULT
//! mean what they mean to the caller. These lookups go on as well:
//! - with RTLD_NEXT, and of a symbol that the caller defines itself: it is another interposer,
//!   which wants the function below its own (or CUDA's library, which so finds its own functions);
//! - by Genesis, which gets the real functions, except `cuStreamWaitEvent` and `cuMemsetD8Async`: see
//!   [`device`];
//! - of a function that is absent: it stays absent.
//!
//! [`device`]: crate::device

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::elf::Object;
use crate::real_dlsym::{self, DLSYM, DLVSYM, next_symbol};
use crate::{device, genesis, loader, next, process, replacements, report, symbols};

/// The decision about a lookup, in two registers.
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
        real = sym DLSYM,
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
        real = sym DLVSYM,
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
        real = sym DLSYM,
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
        real = sym DLVSYM,
    )
}

/// Decides a call of `dlsym` made at `caller`.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char, caller: usize) -> Choice {
    let Some(dlsym) = real_dlsym::dlsym() else {
        return Choice::decided(ptr::null_mut());
    };
    // SAFETY: the C library's function; its caller's contract.
    unsafe {
        if !is_of_cuda(handle, name) {
            return Choice::ASK;
        }
        decide(handle, name, caller, || dlsym(handle, name))
    }
}

/// Decides a call of `dlvsym` made at `caller`.
unsafe extern "C" fn choose_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Choice {
    let Some(dlvsym) = real_dlsym::dlvsym() else {
        return Choice::decided(ptr::null_mut());
    };
    // SAFETY: the C library's function; its caller's contract.
    unsafe {
        if !is_of_cuda(handle, name) {
            return Choice::ASK;
        }
        decide(handle, name, caller, || dlvsym(handle, name, version))
    }
}

/// Returns true if a lookup may be of one of our symbols: most are not.
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

/// Decides a lookup that may be of one of our symbols; `ask` makes it.
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
    let Some(row) = symbols::find(name).filter(|_| process::may_serve()) else {
        return Choice::ASK;
    };
    let asker = Object::containing(caller);
    let has = |symbol| asker.is_some_and(|asker| asker.symbol(symbol).is_some());
    let is_for_genesis = has(genesis::MARK);
    let observed = symbols::FOR_GENESIS.iter().position(|&observed| observed == row);
    if is_for_genesis != observed.is_some() || has(name) {
        return Choice::ASK;
    }
    report::saw_cuda();
    if handle == libc::RTLD_DEFAULT {
        // The loader finds this library's symbol, or an interposer's before it. If CUDA has no such
        // function, the caller must find none.
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
    replacements::learn(row, found);
    if next::function(row).is_none() {
        return Choice::decided(next_symbol(name));
    }
    if let Some(index) = observed {
        device::observe(index);
    }
    Choice::decided(replacements::of(row))
}
