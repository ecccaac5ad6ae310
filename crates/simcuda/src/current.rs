//! The calling thread's state: its stack of contexts and its last error.
//!
//! There are only primary contexts, one for each device, so a context *is* a device. The
//! driver insists on a current context; the runtime makes device 0's current where there is
//! none. The state has no destructor, so threads that are ending may still call.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use simgpu::Code;

use crate::call::Answer;
use crate::code;

/// Contexts on a thread's stack, at most.
const MOST_CONTEXTS: usize = 32;
/// Handles of contexts: nothing lies there.
const FIRST_CONTEXT: usize = 0x5c00_0000_0000;
const CONTEXT_STEP: usize = 0x1000;

#[derive(Clone, Copy)]
struct Stack {
    depth: usize,
    devices: [u8; MOST_CONTEXTS],
}

thread_local! {
    static CONTEXTS: Cell<Stack> = const { Cell::new(Stack { depth: 0, devices: [0; MOST_CONTEXTS] }) };
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// Devices whose primary context is active, as a bit set.
static ACTIVE: AtomicU64 = AtomicU64::new(0);

/// The device of the thread's current context, if it has one.
pub(crate) fn top() -> Option<u32> {
    let stack = CONTEXTS.get();
    stack.depth.checked_sub(1).map(|index| u32::from(stack.devices[index]))
}

/// The device a driver call works on.
pub(crate) fn driver_device() -> Answer<u32> {
    top().ok_or(code::INVALID_CONTEXT)
}

/// The device a runtime call works on; its context becomes current.
pub(crate) fn runtime_device() -> u32 {
    let device = top().unwrap_or(0);
    set(Some(device));
    device
}

/// Replaces the top of the stack; `None` removes it.
pub(crate) fn set(device: Option<u32>) {
    let mut stack = CONTEXTS.get();
    match device {
        Some(device) => {
            stack.depth = stack.depth.max(1);
            stack.devices[stack.depth - 1] = device as u8;
            activate(device);
        }
        None => stack.depth = stack.depth.saturating_sub(1),
    }
    CONTEXTS.set(stack);
}

/// Puts a context on the stack.
pub(crate) fn push(device: u32) -> Answer {
    let mut stack = CONTEXTS.get();
    let slot = stack.devices.get_mut(stack.depth).ok_or(Code::INVALID_VALUE)?;
    *slot = device as u8;
    stack.depth += 1;
    CONTEXTS.set(stack);
    Ok(())
}

/// Takes a context off the stack.
pub(crate) fn pop() -> Answer<u32> {
    let device = driver_device()?;
    set(None);
    Ok(device)
}

/// Makes a primary context active for good.
pub(crate) fn activate(device: u32) {
    // Mostly it is: threads that only look do not take the cache line from each other.
    if is_active(device) {
        return;
    }
    ACTIVE.fetch_or(1 << device, Ordering::AcqRel);
}

/// Whether a primary context is active.
pub(crate) fn is_active(device: u32) -> bool {
    ACTIVE.load(Ordering::Acquire) & 1 << device != 0
}

/// The handle of a device's primary context.
pub(crate) const fn context_handle(device: u32) -> usize {
    FIRST_CONTEXT + device as usize * CONTEXT_STEP
}

/// The device whose primary context has this handle.
pub(crate) fn context_device(handle: usize, devices: u32) -> Answer<u32> {
    (0..devices).find(|&device| context_handle(device) == handle).ok_or(code::INVALID_CONTEXT)
}

/// Keeps the code of a runtime call that failed.
pub(crate) fn remember_error(code: c_int) {
    if code != 0 {
        LAST_ERROR.set(code);
    }
}

/// The last failure of the thread, which stays.
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
        assert_eq!(context_device(context_handle(2), 3), Ok(2));
        assert_eq!(context_device(context_handle(2), 2), Err(code::INVALID_CONTEXT));
    }

    #[test]
    fn errors_stay_until_they_are_taken() {
        remember_error(2);
        remember_error(0);
        assert_eq!((peek_error(), take_error(), take_error()), (2, 2, 0));
    }
}
