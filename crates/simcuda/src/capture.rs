//! Stream capture in CUDA's numbers.

use std::ffi::c_int;

use simgpu::{CaptureMode, Code, exchange_thread_capture_mode};

use crate::call::{Answer, put, put_if};
use crate::graphs::graph_of_capture;
use crate::simulation::Simulation;

/// `CU_STREAM_CAPTURE_STATUS_NONE` and its like.
const NONE: c_int = 0;
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

/// The mode of that number.
pub(crate) fn mode(number: c_int) -> Answer<CaptureMode> {
    let all = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    all.into_iter().find(|mode| *mode as c_int == number).ok_or(Code::INVALID_VALUE)
}

/// Sets the thread's mode to the one at `place` and puts the former one there.
///
/// # Safety
/// `place` is null or valid.
pub(crate) unsafe fn exchange_mode(place: *mut c_int) -> Answer {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid.
    let wanted = mode(unsafe { place.read() })?;
    let former = exchange_thread_capture_mode(wanted);
    // SAFETY: as above.
    unsafe { put(place, former as c_int) }
}

/// Whether a stream captures, and the capture's number if so.
pub(crate) fn status(simulation: &Simulation, context: u32, stream: usize) -> Answer<(c_int, u64)> {
    Ok(match simulation.machine.capture_info(context, stream)? {
        None => (NONE, 0),
        Some(info) if info.is_valid => (ACTIVE, info.id),
        Some(info) => (INVALIDATED, info.id),
    })
}

/// Answers a question about a stream's capture; what is not wanted may be null.
///
/// # Safety
/// Each pointer is null or valid.
pub(crate) unsafe fn put_info(
    simulation: &Simulation,
    context: u32,
    stream: usize,
    status_place: *mut c_int,
    id_place: *mut u64,
    graph_place: *mut u64,
) -> Answer {
    let (status, id) = status(simulation, context, stream)?;
    // SAFETY: by this function's contract.
    unsafe {
        put(status_place, status)?;
        if status == ACTIVE {
            put_if(id_place, id);
            put_if(graph_place, graph_of_capture(id));
        }
    }
    Ok(())
}
