//! What surrounds every call: the driver's life, faults, the log, violations, panics.
//!
//! Every exported function is a line of translation around [`driver`] or [`runtime`]. No panic
//! crosses the boundary: it becomes code 999. A runtime call also starts the driver, and keeps
//! its failure for `cudaGetLastError`.

use std::ffi::c_int;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::answer::Answer;
use crate::simulation::{Simulation, is_started, simulation, start};
use crate::{code, current};

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
    if simulation.must_follow_up() {
        follow_up(simulation, name, arguments, result);
    }
    result
}

/// What is done after a call, if anything is: nearly never.
#[cold]
fn follow_up(
    simulation: &Simulation,
    name: &'static str,
    arguments: fmt::Arguments<'_>,
    result: c_int,
) {
    if simulation.log.is_on() {
        simulation.log.call(name, arguments, result);
    }
    simulation.violations.collect(&simulation.machine);
    simulation.host_functions.run_due(&simulation.machine);
}
