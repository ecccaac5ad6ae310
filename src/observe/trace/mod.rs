//! The recorder writes every call of a running program to a file that `genesis replay` reads.
//!
//! ```text
//! collector (observe::events) ──▶ writer ─ numbering ─ output ─▶ file
//! ```
//!
//! It is a consumer of the stream of events and keeps the events that a trace has.
//!
//! **A crash** loses what was not written yet: the calls of the last flush interval, and at most
//! what the ring and one piece hold. Pieces that were written stay readable.
//!
//! **Fork.** Only the parent writes to its file: the child has no collecting thread.
//!
//! The caller opens the file. Blocks that are live when the recording begins are not in the trace.

mod numbering;
mod output;
mod writer;

use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::changing::Changing;
use super::{EventStream, Log, Subscription};
use crate::base::lock::assert_none_held;
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use numbering::Numbering;
use output::Output;
use writer::Writer;

/// The file of a recording.
#[derive(Debug)]
pub struct Target {
    /// Its name in messages: the path.
    pub name: String,
    /// The empty file.
    pub file: File,
    /// Whether it is compressed with Zstandard.
    pub is_compressed: bool,
    /// The longest time before a recorded call is written.
    pub flush_interval: Duration,
}

/// What a recording contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records made.
    pub records: u64,
    /// Frees and recorded streams left out, because their block was allocated before the recording
    /// began, or never.
    pub left_out: u64,
    /// Frees added where a block was handed out again without one: the program freed a block twice.
    pub put_in: u64,
    /// Streams after the first 65,535; they share one number.
    pub streams_folded: u64,
}

/// The recorder of a process, off at first.
#[derive(Debug)]
pub struct Recorder {
    state: Changing<State>,
}

#[derive(Debug)]
enum State {
    Idle,
    Recording(Session),
}

#[derive(Clone)]
struct Session {
    name: Arc<str>,
    log: &'static Log,
    events: &'static EventStream,
    writer: Arc<Mutex<Writer>>,
    subscription: Subscription,
}

impl Recorder {
    /// A recorder that is off.
    #[expect(clippy::new_without_default, reason = "a recorder is a static, never a default")]
    pub const fn new() -> Self {
        Self { state: Changing::new(State::Idle) }
    }

    /// Starts a recording of `events` to the file that `open` opens; calls it only if no other
    /// recording is being made.
    ///
    /// Later failures are logged to `log`. Fails with `InvalidArgument` while another recording is
    /// being made, as `open` fails, and with `FileFailed` if the file cannot be written.
    pub fn start(
        &self,
        events: &'static EventStream,
        log: &'static Log,
        open: impl FnOnce() -> Result<Target>,
    ) -> Result<()> {
        assert_none_held();
        let before = self.state.begin(|state| match state {
            State::Recording(session) if session.subscription.outcome().is_ok() => {
                let message = format!("already recording to {}", session.name);
                Err(Error::invalid_argument(message))
            }
            State::Idle | State::Recording(_) => Ok(()),
        })?;
        let changing = || Error::invalid_argument("a recording is just being started or stopped");
        if let State::Recording(failed) = before.ok_or_else(changing)? {
            // Its failure has been logged.
            let _ = events.detach(&failed.subscription, None);
        }
        let started = open().and_then(|target| Session::start(target, events, log));
        let (state, outcome) = match started {
            Ok(session) => (State::Recording(session), Ok(())),
            Err(error) => (State::Idle, Err(error)),
        };
        self.state.end(state);
        outcome
    }

    /// Writes everything recorded so far to the file, which can then be read up to there.
    ///
    /// Fails with `InvalidArgument` if nothing is being recorded, and with `FileFailed` if a write
    /// failed.
    pub fn flush(&self) -> Result<Summary> {
        assert_none_held();
        let session = self.state.look(|state| match state {
            Some(State::Recording(session)) => Ok(session.clone()),
            _ => Err(not_recording()),
        })?;
        session.subscription.flush()?;
        session.summary()
    }

    /// Ends the recording: writes everything recorded and closes the file.
    ///
    /// Waits for the disk, but no longer than `patience`. Fails as [`Self::flush`] does; the
    /// recording has ended also then.
    pub fn stop(&self, patience: Option<Duration>) -> Result<Summary> {
        assert_none_held();
        let state = self.state.begin(|state| match state {
            State::Recording(_) => Ok(()),
            State::Idle => Err(not_recording()),
        })?;
        let Some(State::Recording(session)) = state else { return Err(not_recording()) };
        let detached = session.events.detach(&session.subscription, patience);
        if detached.is_err() && session.subscription.outcome().is_ok() {
            // It is still writing, so the change does not end and no other recording can begin.
            return detached.and_then(|()| session.summary());
        }
        self.state.end(State::Idle);
        detached?;
        let summary = session.summary()?;
        let (name, log) = (&session.name, session.log);
        log.write(LogLevel::Info, &format_args!("recorded to {name}: {summary}"));
        Ok(summary)
    }
}

impl Session {
    fn start(target: Target, events: &'static EventStream, log: &'static Log) -> Result<Self> {
        let name: Arc<str> = target.name.into();
        let output = Output::new(target.file, target.is_compressed)
            .map_err(|error| file_failed(&name, &error))?;
        let flush_interval = target.flush_interval;
        let writer = Arc::new(Mutex::new(Writer {
            name: Arc::clone(&name),
            log,
            output,
            flush_interval,
            flush_at: Instant::now() + flush_interval,
            numbering: Numbering::default(),
        }));
        let consumer = Arc::clone(&writer);
        let subscription = events.attach(consumer)?;
        Ok(Self { name, log, events, writer, subscription })
    }

    fn summary(&self) -> Result<Summary> {
        match self.writer.lock() {
            Ok(writer) => Ok(writer.summary()),
            Err(_) => Err(file_failed(&self.name, &"the recorder has a defect")),
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("name", &self.name).finish_non_exhaustive()
    }
}

fn not_recording() -> Error {
    Error::invalid_argument("nothing is being recorded")
}

fn file_failed(name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(Status::FileFailed, format!("{name}: {error}"))
}

impl std::fmt::Display for Summary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} records", self.records)?;
        if self.left_out > 0 {
            let left_out = self.left_out;
            write!(formatter, ", {left_out} left out as their blocks were there before it")?;
        }
        if self.put_in > 0 {
            write!(formatter, ", {} frees put in where a block was freed twice", self.put_in)?;
        }
        if self.streams_folded > 0 {
            write!(formatter, ", {} streams not told apart", self.streams_folded)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
