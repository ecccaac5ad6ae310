//! What the program says of itself, for whoever looks at its memory over time: ranges that nest
//! within a thread, such as "forward", and moments, such as "step 12". While nobody listens a
//! call costs a load.

use std::ffi::c_char;

use super::boundary::{self, text};
use super::instance::{self, EVENTS};
use crate::base::{DeviceOrdinal, Result, Status, thread};
use crate::observe::{Action, Event};

/// The calling thread begins the range `name`, within those that it has begun before.
///
/// # Safety
/// `name` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_range_push(name: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| note(Action::RangePush, Some(unsafe { text(name, "name") }?)))
}

/// The innermost range that the calling thread has begun ends.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_range_pop() -> Status {
    boundary::status(|| note(Action::RangePop, None))
}

/// Marks this moment as `name`.
///
/// # Safety
/// `name` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_mark_add(name: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::status(|| note(Action::Mark, Some(unsafe { text(name, "name") }?)))
}

/// Tells of an annotation, if anybody listens.
pub(super) fn note(action: Action, name: Option<&str>) -> Result<()> {
    instance::refuse_forked_child()?;
    if EVENTS.is_on() {
        let name = name.map_or(0, |name| EVENTS.names().number(name));
        let stream = thread::number();
        EVENTS.note(Event { name, stream, ..Event::new(action, DeviceOrdinal(0)) });
    }
    Ok(())
}
