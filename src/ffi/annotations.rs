//! What the program says of itself, for whoever looks at its memory over time: ranges that nest
//! within a thread, such as "forward", and moments, such as "step 12". While nobody listens a
//! call costs a load.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::boundary::{self, text};
use super::instance::{self, EVENTS};
use crate::base::{DeviceOrdinal, Result, Status};
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
        let stream = thread_number();
        EVENTS.note(Event { name, stream, ..Event::new(action, DeviceOrdinal(0)) });
    }
    Ok(())
}

/// A number of the calling thread's own, small and never used again.
fn thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    // A thread that is ending shares 0 with others of its kind.
    let number = NUMBER.try_with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Relaxed) + 1);
        }
        number.get()
    });
    number.unwrap_or(0)
}
