//! Recording what the program asks of the library: the recorder of the process.
//!
//! The recorder itself is `observe::Recorder`; here stand what it may not know: the file, the
//! signals, the end of the process. Its thread takes none of the program's signals, as the
//! program does not expect handlers to run there; so a closed pipe or a file size limit is an
//! error of the write and not the end of the process.
//!

use std::ffi::{c_char, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use super::instance::EVENTS;
use super::{boundary, instance};
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::Settings;
use crate::observe::{Action, Event, Log, Recorder, Target};

static RECORDER: Recorder = Recorder::new();

/// What a path has in the place of the process's number.
const PROCESS_NUMBER: &str = "%p";
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
    keep_library_loaded();
    end_with_the_process();
    let seconds = settings.trace_flush_seconds.min(LONGEST_FLUSH_SECONDS);
    let path = path.replace(PROCESS_NUMBER, &std::process::id().to_string());
    let open = || {
        let file = open(Path::new(&path))
            .map_err(|error| Error::new(Status::FileFailed, format!("{path}: {error}")))?;
        let (is_compressed, flush_interval) =
            (path.ends_with(".zst"), Duration::from_secs_f64(seconds));
        Ok(Target { name: path, file, is_compressed, flush_interval })
    };
    without_signals(|| RECORDER.start(&EVENTS, log, open))
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
        let message =
            format!("another process is recording to it; give each its own with {PROCESS_NUMBER}");
        return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
    }
    file.set_len(0)?;
    Ok(file)
}

/// Runs `body` so that threads it starts have all signals blocked.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first call fills the set that the second reads; `before` is written by it.
    let is_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let value = body();
    if is_blocked {
        // SAFETY: `before` was written by the call that blocked them.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
    }
    value
}

/// Has the recording ended when the process does so in good order.
fn end_with_the_process() {
    static REGISTERED: Once = Once::new();
    extern "C" fn at_exit() {
        // Nobody is there to be told, and a child's copy of the recording is its parent's.
        let _ = catch_unwind(|| match instance::refuse_forked_child() {
            Ok(()) => RECORDER.stop(Some(PATIENCE_AT_EXIT)).map(drop),
            forked => forked,
        });
    }
    REGISTERED.call_once(|| {
        // SAFETY: the function lives as long as the process, as the library stays loaded. Where
        // it cannot be registered, what the last flush wrote is what there is.
        let _ = unsafe { libc::atexit(at_exit) };
    });
}

/// From the first recording on the library's code has a thread in it, and must stay.
fn keep_library_loaded() {
    static PINNED: Once = Once::new();
    PINNED.call_once(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        let own_code = keep_library_loaded as *const c_void;
        // SAFETY: `info` is written where the address is found; the name in it is the loader's.
        // Opening the library again, never to be closed, keeps it where it is. In a program
        // that has this code in itself nothing is opened, and nothing need be.
        unsafe {
            if libc::dladdr(own_code, info.as_mut_ptr()) != 0 {
                let name = (*info.as_ptr()).dli_fname;
                let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
                libc::dlopen(name, flags);
            }
        }
    });
}
