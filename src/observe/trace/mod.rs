//! The recorder: every call of a running program, in a file that `genesis replay` reads.
//!
//! ```text
//! collector (observe::events) ──▶ writer ─ numbering ─ output ─▶ file
//! ```
//!
//! A consumer of the one stream of events, of which it takes those that a trace has.
//!
//! **What a crash loses** is what was not written yet: the calls of the last flush interval,
//! and never more than the ring and a piece hold. Pieces that were written stay readable.
//!
//! **Fork.** The parent's file is the parent's alone: the child has no collecting thread.
//!
//! The file comes in opened. Blocks live when the recording begins are not in the trace.

mod numbering;
mod output;
mod writer;

use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{EventStream, Log, Subscription};
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use numbering::Numbering;
use output::Output;
use writer::Writer;

/// Where a recording goes, and how.
#[derive(Debug)]
pub struct Target {
    /// What it is called in messages: its path.
    pub name: String,
    /// The file, empty.
    pub file: File,
    /// Whether to compress it, with Zstandard.
    pub is_compressed: bool,
    /// The longest that something recorded waits to be written.
    pub flush_interval: Duration,
}

/// What a recording has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records made.
    pub records: u64,
    /// Frees and recorded streams left out, because their block was allocated before the
    /// recording began, or never.
    pub left_out: u64,
    /// Frees put in where a block was handed out again without one: the program has freed a
    /// block twice.
    pub put_in: u64,
    /// Streams beyond the 65,535 that can be told apart: all of them share one number.
    pub streams_folded: u64,
}

/// The recorder of a process, off at first.
#[derive(Debug)]
pub struct Recorder {
    state: Lock<State, { rank::LEAF }>,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Somebody is starting or stopping a recording.
    Changing,
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
        Self { state: Lock::new(State::Idle) }
    }

    /// Starts a recording of `events` to what `open` opens, and opens it only when it can be.
    ///
    /// What happens to it later is said to `log`. Fails with `InvalidArgument` while another
    /// is being made, as `open` fails, and with `FileFailed` where the file takes nothing.
    pub fn start(
        &self,
        events: &'static EventStream,
        log: &'static Log,
        open: impl FnOnce() -> Result<Target>,
    ) -> Result<()> {
        assert_none_held();
        let before = self.begin_change(|state| match state {
            State::Recording(session) if session.subscription.outcome().is_ok() => {
                Err(format!("already recording to {}", session.name))
            }
            State::Changing => Err("a recording is just being started or stopped".to_owned()),
            State::Idle | State::Recording(_) => Ok(()),
        })?;
        if let State::Recording(failed) = before {
            // Its failure has been said.
            let _ = events.detach(&failed.subscription, None);
        }
        let started = open().and_then(|target| Session::start(target, events, log));
        let (state, outcome) = match started {
            Ok(session) => (State::Recording(session), Ok(())),
            Err(error) => (State::Idle, Err(error)),
        };
        *self.state.lock() = state;
        outcome
    }

    /// Writes everything recorded so far to the file, which can then be read to there.
    ///
    /// Fails with `InvalidArgument` where nothing is being recorded, and with `FileFailed`
    /// where the file has refused.
    pub fn flush(&self) -> Result<Summary> {
        assert_none_held();
        let session = match &*self.state.lock() {
            State::Recording(session) => session.clone(),
            State::Idle | State::Changing => return Err(not_recording()),
        };
        session.subscription.flush()?;
        session.summary()
    }

    /// Ends the recording: everything recorded is written, and the file closed.
    ///
    /// Waits for the disk, but no longer than `patience`. Fails as [`Self::flush`] does, and
    /// also then the recording has ended.
    pub fn stop(&self, patience: Option<Duration>) -> Result<Summary> {
        assert_none_held();
        let state = self.begin_change(|state| match state {
            State::Recording(_) => Ok(()),
            State::Idle | State::Changing => Err(NOT_RECORDING.to_owned()),
        })?;
        let State::Recording(session) = state else { return Err(not_recording()) };
        let detached = session.events.detach(&session.subscription, patience);
        if detached.is_err() && session.subscription.outcome().is_ok() {
            // It is still writing: no other recording can begin.
            return detached.and_then(|()| session.summary());
        }
        *self.state.lock() = State::Idle;
        detached?;
        let summary = session.summary()?;
        let (name, log) = (&session.name, session.log);
        log.write(LogLevel::Info, &format_args!("recorded to {name}: {summary}"));
        Ok(summary)
    }

    /// Takes the state out, if `may` lets it; nobody else can until a new one is put in.
    fn begin_change(
        &self,
        may: impl FnOnce(&State) -> std::result::Result<(), String>,
    ) -> Result<State> {
        let mut state = self.state.lock();
        may(&state).map_err(Error::invalid_argument)?;
        Ok(std::mem::replace(&mut *state, State::Changing))
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

const NOT_RECORDING: &str = "nothing is being recorded";

fn not_recording() -> Error {
    Error::invalid_argument(NOT_RECORDING)
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
