//! Profiles and snapshots: the program's memory over time, written to a file.

use std::ffi::c_char;

use super::boundary::{self, text};
use crate::base::Status;
use crate::instance::{self, profile};

/// Begins a profile: levels over time, counts by size and by call site (`GENESIS_CALL_SITES`), and
/// the latest `GENESIS_PROFILE_EVENTS` events. An earlier profile is dropped. Blocks that are live
/// now are in the profile without the place and time of their allocation.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` while a profile is being made.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_profile_start() -> Status {
    boundary::demanding(|| profile::start(instance::heap()?))
}

/// Ends the profile, which can still be written. Returns `GENESIS_STATUS_INVALID_ARGUMENT` if none
/// is being made.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_profile_stop() -> Status {
    boundary::status(profile::stop)
}

/// Writes the profile, as it is now or was when it ended, to the file at `path`. The ending of the
/// name chooses the form: ".html" is a page for a browser, ".json" is for keeping and for other
/// programs, ".trace.json" for ui.perfetto.dev, ".txt" a report. "%p" in the name stands for the
/// process's number. The file is created or replaced as a whole.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if no profile was begun or the ending is unknown, and
/// `GENESIS_STATUS_FILE_FAILED` if the file cannot be written.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_profile_write(path: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| profile::write_profile(unsafe { text(path, "path") }?))
}

/// Writes the present memory of every device to the file at `path` in PyTorch's form, for
/// `torch.cuda._memory_viz` and pytorch.org/memory_viz: segments, blocks and, while a profile is
/// being made, its events and call sites. The name must end in ".pickle" or ".json".
///
/// Fails as `genesis_profile_write` does.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_snapshot_write(path: *const c_char) -> Status {
    // SAFETY: the caller's contract.
    boundary::demanding(|| profile::write_snapshot(unsafe { text(path, "path") }?))
}
