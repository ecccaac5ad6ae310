//! Recording what the program asks of the library: the recorder of the process.
//!
//! The recorder itself is `observe::Recorder`; here stand what it may not know: the file, and
//! the process.

use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use super::instance::EVENTS;
use super::{boundary, instance, process};
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::Settings;
use crate::observe::{Action, Event, Log, Recorder, Target};

static RECORDER: Recorder = Recorder::new();

/// A process that ends waits for its recording no longer than this.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(5);
/// No flush interval is longer, whatever is asked for.
const LONGEST_FLUSH_SECONDS: f64 = 86_400.0;

/// Starts recording every call to the file at `path`, which is made or emptied: compressed if
/// the name ends in ".zst"; "%p" in it stands for the process's number.
///
/// `GENESIS_STATUS_INVALID_ARGUMENT` while a recording is being made,
/// `GENESIS_STATUS_FILE_FAILED` if the file cannot be written. One that fails later ends the
/// recording with a warning in the log, and nothing else.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_trace_start(path: *const c_char) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let path = unsafe { boundary::text(path, "path") }?;
        start(path, &instance::heap()?.settings(), instance::log())
    })
}

/// Writes everything recorded so far to the file: what a crash from now on cannot take away.
/// `GENESIS_STATUS_INVALID_ARGUMENT` if nothing is being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_flush() -> Status {
    boundary::status(|| {
        instance::refuse_forked_child()?;
        RECORDER.flush().map(drop)
    })
}

/// Ends the recording and closes its file, which has then every call that returned before.
/// `GENESIS_STATUS_INVALID_ARGUMENT` if nothing is being recorded.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_stop() -> Status {
    boundary::status(|| {
        instance::refuse_forked_child()?;
        RECORDER.stop(None).map(drop)
    })
}

/// Notes in the recording, if there is one, that iteration `number` of the program has ended.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_trace_iteration(number: u32) -> Status {
    boundary::status(|| {
        instance::refuse_forked_child()?;
        if EVENTS.is_on() {
            let amount = number.into();
            EVENTS.note(Event { amount, ..Event::new(Action::EndIteration, DeviceOrdinal(0)) });
        }
        Ok(())
    })
}

/// Starts a recording to the file at `path`.
pub(super) fn start(path: &str, settings: &Settings, log: &'static Log) -> Result<()> {
    // A process that ends loses nothing.
    process::at_exit(|| drop(RECORDER.stop(Some(PATIENCE_AT_EXIT))));
    let seconds = settings.trace_flush_seconds.min(LONGEST_FLUSH_SECONDS);
    let path = process::numbered(path);
    let open = || {
        let file = open(Path::new(&path))
            .map_err(|error| Error::new(Status::FileFailed, format!("{path}: {error}")))?;
        let (is_compressed, flush_interval) =
            (path.ends_with(".zst"), Duration::from_secs_f64(seconds));
        Ok(Target { name: path, file, is_compressed, flush_interval })
    };
    process::starting_threads(|| RECORDER.start(&EVENTS, log, open))
}

/// The file at `path`, made or emptied, unless another process is recording to it.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    // SAFETY: the descriptor is open; the lock goes with it, also at a crash.
    let is_locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    // A file system without locks is no reason not to record.
    if !is_locked && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
        let message = format!(
            "another process is recording to it; give each its own with {}",
            process::PROCESS_NUMBER
        );
        return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
    }
    file.set_len(0)?;
    Ok(file)
}
