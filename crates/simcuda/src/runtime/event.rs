//! Events.

use std::ffi::{c_int, c_uint};

use simgpu::Code;

use crate::answer::put;
use crate::call::runtime;
use crate::current;
use crate::driver::create_event;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventCreate(event: *mut u64) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { cudaEventCreateWithFlags(event, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventCreateWithFlags(event: *mut u64, flags: c_uint) -> c_int {
    runtime("cudaEventCreateWithFlags", format_args!("{flags}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe { put(event, create_event(simulation, context, flags)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventDestroy(event: u64) -> c_int {
    runtime("cudaEventDestroy", format_args!("{event:#x}"), |simulation| {
        simulation.machine.event_destroy(current::runtime_context(), event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecord(event: u64, stream: usize) -> c_int {
    cudaEventRecordWithFlags(event, stream, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecordWithFlags(event: u64, stream: usize, flags: c_uint) -> c_int {
    let arguments = format_args!("{event:#x}, {stream:#x}, {flags}");
    runtime("cudaEventRecord", arguments, |simulation| {
        simulation.machine.event_record(current::runtime_context(), event, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventQuery(event: u64) -> c_int {
    runtime("cudaEventQuery", format_args!("{event:#x}"), |simulation| {
        let is_complete = simulation.machine.event_query(current::runtime_context(), event)?;
        if is_complete { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventSynchronize(event: u64) -> c_int {
    runtime("cudaEventSynchronize", format_args!("{event:#x}"), |simulation| {
        simulation.machine.event_synchronize(current::runtime_context(), event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) -> c_int {
    runtime("cudaEventElapsedTime", format_args!("{start:#x}, {end:#x}"), |simulation| {
        let nanoseconds = simulation.machine.event_elapsed_ns(start, end)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(milliseconds, nanoseconds as f32 / 1e6) }
    })
}
