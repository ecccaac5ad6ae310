//! The calling thread's state: its stack of contexts and its last error.
//!
//! A context is one of the machine's numbers: those below the count of devices are the devices'
//! primary contexts, further ones are made by `cuCtxCreate`. The driver requires a current
//! context; the runtime makes device 0's primary one current if there is none. The state has no
//! destructor, so threads that are ending may still call.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use simgpu::Code;

use crate::answer::Answer;
use crate::code;

/// Contexts on a thread's stack, at most.
const MOST_CONTEXTS: usize = 32;
/// Handles of contexts: nothing lies there.
const FIRST_CONTEXT: usize = 0x5c00_0000_0000;
const CONTEXT_STEP: usize = 0x1000;

struct Stack {
    depth: Cell<usize>,
    contexts: [Cell<u32>; MOST_CONTEXTS],
}

thread_local! {
    static STACK: Stack = const {
        Stack { depth: Cell::new(0), contexts: [const { Cell::new(0) }; MOST_CONTEXTS] }
    };
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// Devices whose primary context is active, as a bit set.
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// The thread's current context, if it has one.
pub(crate) fn top() -> Option<u32> {
    STACK.with(|stack| stack.depth.get().checked_sub(1).map(|index| stack.contexts[index].get()))
}

/// The context a driver call works in.
pub(crate) fn driver_context() -> Answer<u32> {
    top().ok_or(code::INVALID_CONTEXT)
}

/// The context a runtime call works in, which becomes current.
pub(crate) fn runtime_context() -> u32 {
    let context = top().unwrap_or(0);
    set(Some(context));
    context
}

/// Replaces the top of the stack; `None` removes it.
pub(crate) fn set(context: Option<u32>) {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        match context {
            Some(context) => {
                stack.depth.set(depth.max(1));
                stack.contexts[depth.max(1) - 1].set(context);
                activate(context);
            }
            None => stack.depth.set(depth.saturating_sub(1)),
        }
    });
}

/// Puts a context on the stack.
pub(crate) fn push(context: u32) -> Answer {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        stack.contexts.get(depth).ok_or(Code::INVALID_VALUE)?.set(context);
        stack.depth.set(depth + 1);
        Ok(())
    })
}

/// Takes a context off the stack.
pub(crate) fn pop() -> Answer<u32> {
    let context = driver_context()?;
    set(None);
    Ok(context)
}

/// Makes a primary context active, until its device is reset.
pub(crate) fn activate(context: u32) {
    // Mostly it is active already: a thread that only reads leaves the cache line shared.
    if context >= u64::BITS || is_active(context) {
        return;
    }
    ACTIVE.fetch_or(1 << context, Ordering::AcqRel);
}

/// Makes a primary context inactive.
pub(crate) fn deactivate(device: u32) {
    ACTIVE.fetch_and(!(1 << device), Ordering::AcqRel);
}

/// Returns true if the primary context of a device is active.
pub(crate) fn is_active(device: u32) -> bool {
    ACTIVE.load(Ordering::Acquire) & 1 << device != 0
}

/// The handle of a context.
pub(crate) const fn context_handle(context: u32) -> usize {
    FIRST_CONTEXT + context as usize * CONTEXT_STEP
}

/// The context that has this handle. Fails if no context can have it.
pub(crate) fn context_number(handle: usize) -> Answer<u32> {
    let offset = handle.checked_sub(FIRST_CONTEXT).filter(|offset| offset % CONTEXT_STEP == 0);
    let number = offset.and_then(|offset| u32::try_from(offset / CONTEXT_STEP).ok());
    number.ok_or(code::INVALID_CONTEXT)
}

/// Keeps the code of a runtime call that failed.
pub(crate) fn remember_error(code: c_int) {
    if code != 0 {
        LAST_ERROR.set(code);
    }
}

/// The last failure of the thread, which is kept.
pub(crate) fn peek_error() -> c_int {
    LAST_ERROR.get()
}

/// The last failure of the thread, which is forgotten.
pub(crate) fn take_error() -> c_int {
    LAST_ERROR.replace(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_a_stack() {
        assert_eq!((top(), pop()), (None, Err(code::INVALID_CONTEXT)));
        push(1).unwrap();
        push(0).unwrap();
        set(Some(3));
        assert_eq!((pop(), pop(), top()), (Ok(3), Ok(1), None));
        assert!(is_active(3) && !is_active(4));
        for _ in 0..MOST_CONTEXTS {
            push(0).unwrap();
        }
        assert_eq!(push(0), Err(Code::INVALID_VALUE));
        deactivate(3);
        assert!(!is_active(3));
        assert_eq!(context_number(context_handle(70)), Ok(70));
        assert_eq!(context_number(context_handle(2) + 1), Err(code::INVALID_CONTEXT));
        assert_eq!(context_number(8), Err(code::INVALID_CONTEXT));
    }

    #[test]
    fn errors_stay_until_they_are_taken() {
        remember_error(2);
        remember_error(0);
        assert_eq!((peek_error(), take_error(), take_error()), (2, 2, 0));
    }
}
