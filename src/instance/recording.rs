//! The recording of the process: `observe::Recorder` with its file, fork and exit.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::EVENTS;
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::Settings;
use crate::observe::{Action, Event, Log, Recorder, Target};
use crate::process::{self, fork};

static RECORDER: Recorder = Recorder::new();

/// An exiting process waits at most this long for its recording.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(5);
/// A child that was forked and has not called exec yet holds the lock of the recording before; it
/// is waited for at most this long.
const PATIENCE_WITH_A_LOCK: Duration = Duration::from_millis(500);
/// The longest flush interval; longer ones are clamped.
const LONGEST_FLUSH_SECONDS: f64 = 86_400.0;

/// Starts a recording to the file at `path`.
pub(crate) fn start(path: &str, settings: &Settings, log: &'static Log) -> Result<()> {
    // A process that exits loses nothing.
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

/// Writes everything recorded so far to the file.
pub(crate) fn flush() -> Result<()> {
    fork::refuse_child()?;
    RECORDER.flush().map(drop)
}

/// Ends the recording.
pub(crate) fn stop() -> Result<()> {
    fork::refuse_child()?;
    RECORDER.stop(None).map(drop)
}

/// Notes that iteration `number` of the program has ended.
pub(crate) fn end_iteration(number: u32) -> Result<()> {
    fork::refuse_child()?;
    if EVENTS.is_on() {
        let amount = number.into();
        EVENTS.note(Event { amount, ..Event::new(Action::EndIteration, DeviceOrdinal(0)) });
    }
    Ok(())
}

/// Creates or empties the file at `path`, unless another process is recording to it.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    let started = Instant::now();
    while process::lock_file(&file).is_err() {
        if started.elapsed() < PATIENCE_WITH_A_LOCK {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let message = format!(
            "another process is recording to it; give each its own with {}",
            process::NUMBER
        );
        return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
    }
    file.set_len(0)?;
    Ok(file)
}
