//! Which streams are being captured into graphs.
//!
//! A wait for the device would end a capture, so nothing is waited for while there is any; and
//! what is asked for in the order of a capturing stream becomes part of its graph, which is
//! CUDA's own affair. Begin and end are watched at both levels.

use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use crate::driver_api::{SUCCESS, driver};

/// `cudaErrorStreamCaptureUnmatched`: the stream is not captured.
const UNMATCHED: c_int = 903;
/// `cudaErrorStreamCaptureWrongThread`: another thread must end it.
const WRONG_THREAD: c_int = 908;

static STREAMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream is.
#[inline]
pub(crate) fn is_any() -> bool {
    COUNT.load(Acquire) != 0
}

/// Whether `stream` is, or cannot be used because another one is.
#[inline]
pub(crate) fn concerns(stream: usize) -> bool {
    is_any() && driver().is_some_and(|driver| driver.is_capturing(stream))
}

/// Begins a capture of `stream` by the driver's own function; its answer.
pub(crate) fn begin(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    // Before it has begun, so that nobody waits for the device in between.
    change(|streams| streams.push(stream));
    let status = real();
    if status != SUCCESS {
        change(|streams| forget(streams, stream));
    }
    status
}

/// Ends a capture of `stream` by the driver's own function; its answer.
pub(crate) fn end(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    let status = real();
    if status != UNMATCHED && status != WRONG_THREAD {
        change(|streams| forget(streams, stream));
    }
    status
}

fn forget(streams: &mut Vec<usize>, stream: usize) {
    if let Some(index) = streams.iter().position(|known| *known == stream) {
        streams.swap_remove(index);
    }
}

fn change(work: impl FnOnce(&mut Vec<usize>)) {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    work(&mut streams);
    COUNT.store(streams.len(), Release);
}
