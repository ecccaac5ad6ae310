//! Stream capture in CUDA's numbers.

use std::ffi::c_int;

use simgpu::{CaptureMode, Code, exchange_thread_capture_mode};

use crate::answer::{Answer, put, put_if};
use crate::graphs::graph_of_capture;
use crate::simulation::Simulation;

/// `CU_STREAM_CAPTURE_STATUS_NONE` and its like.
const NONE: c_int = 0;
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

/// The mode with that number.
pub(crate) fn mode(number: c_int) -> Answer<CaptureMode> {
    let all = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    all.into_iter().find(|mode| *mode as c_int == number).ok_or(Code::INVALID_VALUE)
}

/// Sets the thread's mode to the one at `place` and stores the former one there.
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

/// The status of a stream's capture, and the capture's number or 0.
#[inline]
pub(crate) fn status(simulation: &Simulation, context: u32, stream: usize) -> Answer<(c_int, u64)> {
    Ok(match simulation.machine.capture_info(context, stream)? {
        None => (NONE, 0),
        Some(info) if info.is_valid => (ACTIVE, info.id),
        Some(info) => (INVALIDATED, info.id),
    })
}

/// Where a description of a capture goes; the id and the graph are optional.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    pub(crate) status: *mut c_int,
    pub(crate) id: *mut u64,
    pub(crate) graph: *mut u64,
}

/// Describes a stream's capture.
///
/// # Safety
/// Each pointer of `outputs` is null or valid.
pub(crate) unsafe fn put_info(
    simulation: &Simulation,
    context: u32,
    stream: usize,
    outputs: Outputs,
) -> Answer {
    let (status, id) = status(simulation, context, stream)?;
    // SAFETY: by this function's contract.
    unsafe {
        put(outputs.status, status)?;
        if status == ACTIVE {
            put_if(outputs.id, id);
            put_if(outputs.graph, graph_of_capture(id));
        }
    }
    Ok(())
}
