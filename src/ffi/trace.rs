//! Recording a trace: every call of the program, in a file for `genesis replay`.

use std::ffi::c_char;

use super::boundary;
use crate::base::Status;
use crate::instance::{self, forecast, recording};

/// Starts recording every call to the file at `path`, which is created or emptied. The file is
/// compressed if the name ends in ".zst"; "%p" in it stands for the process's number.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` while a recording is being made, and
/// `GENESIS_STATUS_FILE_FAILED` if the file cannot be written. If a later write fails, the
/// recording ends with a warning in the log.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_trace_start(path: *const c_char) -> Status {
    boundary::demanding(|| {
        // SAFETY: the caller's contract.
        let path = unsafe { boundary::text(path, "path") }?;
        recording::start(path, &instance::heap()?.settings(), instance::log())
    })
}

/// Writes everything recorded so far to the file, where a later crash cannot lose it. Returns
/// `GENESIS_STATUS_INVALID_ARGUMENT` if nothing is being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_flush() -> Status {
    boundary::status(recording::flush)
}

/// Ends the recording and closes its file, which then contains every call that returned before.
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if nothing is being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_stop() -> Status {
    boundary::status(recording::stop)
}

/// Marks that iteration `number` of the program has ended: in the recording and the profile, if
/// there are, and as a step of the forecast (`genesis_forecast_get`).
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_iteration(number: u32) -> Status {
    boundary::status(|| {
        recording::end_iteration(number)?;
        forecast::end_step()
    })
}
