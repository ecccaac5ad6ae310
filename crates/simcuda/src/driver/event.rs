//! Events.

use std::ffi::{c_int, c_uint};

use simgpu::Code;

use crate::answer::{Answer, put};
use crate::call::driver;
use crate::current;
use crate::simulation::Simulation;

/// `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

/// A new event with `flags`; one for other processes has no timing (`cuEventCreate`).
pub(crate) fn create_event(simulation: &Simulation, context: u32, flags: c_uint) -> Answer<u64> {
    let timing = flags & DISABLE_TIMING == 0;
    match flags & INTERPROCESS != 0 {
        true if timing => Err(Code::INVALID_VALUE),
        true => simulation.machine.event_create_shared(context),
        false => simulation.machine.event_create(context, timing),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, flags: c_uint) -> c_int {
    driver("cuEventCreate", format_args!("{flags}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(event, create_event(simulation, context, flags)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> c_int {
    driver("cuEventDestroy_v2", format_args!("{event:#x}"), |simulation| {
        simulation.machine.event_destroy(current::driver_context()?, event)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: usize) -> c_int {
    driver("cuEventRecord", format_args!("{event:#x}, {stream:#x}"), |simulation| {
        simulation.machine.event_record(current::driver_context()?, event, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: u64, stream: usize, flags: c_uint) -> c_int {
    driver(
        "cuEventRecordWithFlags",
        format_args!("{event:#x}, {stream:#x}, {flags}"),
        |simulation| simulation.machine.event_record(current::driver_context()?, event, stream),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> c_int {
    driver("cuEventQuery", format_args!("{event:#x}"), |simulation| {
        let is_complete = simulation.machine.event_query(current::driver_context()?, event)?;
        if is_complete { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> c_int {
    driver("cuEventSynchronize", format_args!("{event:#x}"), |simulation| {
        simulation.machine.event_synchronize(current::driver_context()?, event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) -> c_int {
    driver("cuEventElapsedTime_v2", format_args!("{start:#x}, {end:#x}"), |simulation| {
        let nanoseconds = simulation.machine.event_elapsed_ns(start, end)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(milliseconds, nanoseconds as f32 / 1e6) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) -> c_int {
    // SAFETY: the same function under its old name.
    unsafe { cuEventElapsedTime_v2(milliseconds, start, end) }
}
