//! What surrounds every call: whether there is a driver, faults, the log, violations, panics.
//!
//! Every exported function is one line of translation around [`driver`] or [`runtime`]. No
//! panic crosses: one becomes code 999. A runtime call also starts the driver, and leaves its
//! failure behind for `cudaGetLastError`.

use std::ffi::c_int;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simgpu::Code;

use crate::simulation::{Simulation, is_started, simulation, start};
use crate::{code, current};

/// What a call came to.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// A call of the driver API.
pub(crate) fn driver(
    name: &'static str,
    arguments: fmt::Arguments<'_>,
    body: impl FnOnce(&'static Simulation) -> Answer,
) -> c_int {
    if !is_started() {
        return code::NOT_INITIALIZED.0;
    }
    answer(name, arguments, body)
}

/// A call of the runtime API.
pub(crate) fn runtime(
    name: &'static str,
    arguments: fmt::Arguments<'_>,
    body: impl FnOnce(&'static Simulation) -> Answer,
) -> c_int {
    let result = match start() {
        Ok(()) => answer(name, arguments, body),
        Err(code) => code.0,
    };
    current::remember_error(result);
    result
}

fn answer(
    name: &'static str,
    arguments: fmt::Arguments<'_>,
    body: impl FnOnce(&'static Simulation) -> Answer,
) -> c_int {
    let simulation = match simulation() {
        Ok(simulation) => simulation,
        Err(code) => return code.0,
    };
    let guarded = AssertUnwindSafe(|| {
        simulation.script.permit(name)?;
        body(simulation)
    });
    let result = match catch_unwind(guarded) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => code::UNKNOWN.0,
    };
    if simulation.log.is_on() {
        simulation.log.call(name, arguments, result);
    }
    simulation.violations.collect(&simulation.machine);
    simulation.host_functions.run_due(simulation);
    result
}

/// Stores an output of a call. A null pointer is an invalid value.
///
/// # Safety
/// `pointer` is null or what the caller of CUDA's function passed for an output of type `T`.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Answer {
    if pointer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a place for a `T`; it need not be aligned or initialised.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// [`put`] for an output that callers may leave out.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: as in `put`.
        unsafe { pointer.write_unaligned(value) };
    }
}
