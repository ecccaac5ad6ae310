//! Functions that want to be told of the driver's messages about errors.
//!
//! `cuda.h` (CUDA 12.9 and later) does not say which errors have a message. Here none has: a
//! failed call's code says it all. So a function is registered and never called. Registering is
//! valid before `cuInit`, so it does not go through `call::driver`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use simgpu::Code;

use crate::answer::put_if;

/// `CUlogsCallback`: the registered data, the level, the message and its length.
type Callback = unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize);

/// The handles of the registered functions, and the next one.
static REGISTERED: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 1));

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLogsRegisterCallback(
    callback: Option<Callback>,
    _data: *mut c_void,
    handle: *mut usize,
) -> c_int {
    if callback.is_none() {
        return Code::INVALID_VALUE.0;
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = registered.1;
    registered.0.push(own);
    registered.1 += 1;
    // SAFETY: null, or the caller's place for a handle.
    unsafe { put_if(handle, own) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuLogsUnregisterCallback(handle: usize) -> c_int {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let count = registered.0.len();
    registered.0.retain(|&own| own != handle);
    if registered.0.len() < count { 0 } else { Code::INVALID_VALUE.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn never_called(_: *mut c_void, _: c_int, _: *mut c_char, _: usize) {}

    #[test]
    fn a_function_is_unregistered_once() {
        let (mut one, mut two) = (0, 0);
        let register = |place: *mut usize| {
            // SAFETY: the place is null or ours.
            unsafe { cuLogsRegisterCallback(Some(never_called), std::ptr::null_mut(), place) }
        };
        assert_eq!([register(&raw mut one), register(&raw mut two)], [0, 0]);
        assert_ne!(one, two);
        assert_eq!(register(std::ptr::null_mut()), 0);
        assert_eq!(cuLogsUnregisterCallback(one), 0);
        assert_eq!(cuLogsUnregisterCallback(one), Code::INVALID_VALUE.0);
        assert_eq!(cuLogsUnregisterCallback(two), 0);
        // SAFETY: no function is refused before anything is written.
        let none = unsafe { cuLogsRegisterCallback(None, std::ptr::null_mut(), &raw mut one) };
        assert_eq!(none, Code::INVALID_VALUE.0);
    }
}
