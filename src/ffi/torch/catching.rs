//! Calls of C++ code that may throw.
//!
//! Rust cannot catch a C++ exception: `catch_unwind` aborts the process if it meets one. A pool's
//! filter asks CUDA about a stream and throws if CUDA returns an error, for example for the default
//! stream while another one is captured. So such calls go through a few instructions with unwind
//! tables of their own:
//!
//! ```text
//! genesis_call_catching:  call the function → (its result, no exception)
//!               landing:                    → (0, the exception)       unwinding ends here
//! ```
//!
//! The frame's personality function handles every exception and continues at the landing. The
//! landing's address is where compilers put their tables (LSDA). A cancelled thread unwinds too and
//! is not stopped.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use crate::process::Object;

/// A function that takes up to three pointers or numbers and returns a `bool`.
pub(super) type Function = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, usize) -> bool;

/// A call that ended with an exception, which has been destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thrown;

/// The result of a call, in two registers.
#[repr(C)]
struct Outcome {
    value: usize,
    exception: *mut c_void,
}

/// Calls the C++ function `function(first, second, third)`.
///
/// # Safety
/// The function may be called with these arguments.
pub(super) unsafe fn call(
    function: Function,
    first: *mut c_void,
    second: *const c_void,
    third: usize,
) -> Result<bool, Thrown> {
    // SAFETY: the caller's contract.
    unsafe { call_around(function as usize, function, first, second, third) }
}

/// Calls `function(first, second, third)`, which calls the C++ function at `thrower`.
///
/// # Safety
/// The function may be called with these arguments.
pub(super) unsafe fn call_around(
    thrower: usize,
    function: Function,
    first: *mut c_void,
    second: *const c_void,
    third: usize,
) -> Result<bool, Thrown> {
    // SAFETY: the caller's contract; exceptions end in the frame called here.
    let outcome = unsafe { genesis_call_catching(function, first, second, third) };
    if outcome.exception.is_null() {
        return Ok(outcome.value != 0);
    }
    // SAFETY: an exception that has just been caught, once.
    unsafe { dispose(outcome.exception, thrower) };
    Err(Thrown)
}

/// Destroys an exception that the function at `thrower` threw, as a `catch (...)` would.
///
/// # Safety
/// `exception` has been caught, and only the caller has it.
unsafe fn dispose(exception: *mut c_void, thrower: usize) {
    let scope = Object::containing(thrower).map(|object| object.scope());
    let find = |name| scope.as_ref()?.find(name);
    if let (Some(begin), Some(end)) = (find(c"__cxa_begin_catch"), find(c"__cxa_end_catch")) {
        type Begin = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
        type End = unsafe extern "C" fn();
        // SAFETY: the C++ runtime's functions have these types.
        unsafe {
            transmute::<NonNull<c_void>, Begin>(begin)(exception);
            transmute::<NonNull<c_void>, End>(end)();
        }
    } else {
        // SAFETY: the caller's contract.
        unsafe { _Unwind_DeleteException(exception) };
    }
}

const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;

const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;

/// The register in which a landing finds the exception, by its number in DWARF: `rax` or `x0`.
const EXCEPTION_REGISTER: c_int = 0;

/// The unwinder calls it for the frame of `genesis_call_catching`.
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        return CONTINUE_UNWIND;
    }
    // SAFETY: the context is the unwinder's, of that frame, whose tables contain the address of the
    // landing.
    unsafe {
        _Unwind_SetGR(context, EXCEPTION_REGISTER, exception as usize);
        _Unwind_SetIP(context, _Unwind_GetLanguageSpecificData(context));
    }
    INSTALL_CONTEXT
}

unsafe extern "C" {
    /// Defined below. It does not unwind: every exception ends there.
    fn genesis_call_catching(
        function: Function,
        first: *mut c_void,
        second: *const c_void,
        third: usize,
    ) -> Outcome;
    fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut c_void, address: usize);
    fn _Unwind_GetLanguageSpecificData(context: *mut c_void) -> usize;
    fn _Unwind_DeleteException(exception: *mut c_void);
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.genesis_call_catching,\"ax\",@progbits",
    ".globl genesis_call_catching",
    ".hidden genesis_call_catching",
    ".type genesis_call_catching,@function",
    "genesis_call_catching:",
    ".cfi_startproc",
    // 0x1b: the distance from here, in 32 bits.
    ".cfi_personality 0x1b, {personality}",
    ".cfi_lsda 0x1b, .Lgenesis_call_landing",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
    "movzx eax, al",
    "xor edx, edx",
    ".cfi_remember_state",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    ".Lgenesis_call_landing:",
    "mov rdx, rax",
    "xor eax, eax",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size genesis_call_catching, . - genesis_call_catching",
    ".popsection",
    personality = sym personality,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.genesis_call_catching,\"ax\",@progbits",
    ".globl genesis_call_catching",
    ".hidden genesis_call_catching",
    ".type genesis_call_catching,@function",
    "genesis_call_catching:",
    ".cfi_startproc",
    // 0x1b: the distance from here, in 32 bits.
    ".cfi_personality 0x1b, {personality}",
    ".cfi_lsda 0x1b, .Lgenesis_call_landing",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa x29, 16",
    "mov x9, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "blr x9",
    "and x0, x0, #0xff",
    "mov x1, xzr",
    ".cfi_remember_state",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_restore_state",
    ".Lgenesis_call_landing:",
    "mov x1, x0",
    "mov x0, xzr",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size genesis_call_catching, . - genesis_call_catching",
    ".popsection",
    personality = sym personality,
);
