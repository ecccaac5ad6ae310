//! Annotations, with which a program names its phases for profiles. Ranges such as "forward" nest
//! within a thread; marks such as "step 12" are moments. A call costs two loads while the
//! stream of events has no consumer.

use std::ffi::c_char;

use super::boundary::{self, text};
use crate::base::Status;
use crate::instance::annotate;
use crate::observe::Action;

/// Begins the range `name` in the calling thread, inside the ranges that it has begun before.
///
/// # Safety
/// `name` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_range_push(name: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| annotate(Action::RangePush, Some(unsafe { text(name, "name") }?)))
}

/// Ends the innermost range of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_range_pop() -> Status {
    boundary::status(|| annotate(Action::RangePop, None))
}

/// Marks this moment as `name`.
///
/// # Safety
/// `name` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_mark_add(name: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| annotate(Action::Mark, Some(unsafe { text(name, "name") }?)))
}
