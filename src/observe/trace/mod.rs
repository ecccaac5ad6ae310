//! The recorder: every call of a running program, in a file that `genesis replay` reads.
//!
//! ```text
//! threads of the program                            one thread of ours
//! event ── ring (event, ring) ──────────────────▶ writer ─ numbering ─ output ─▶ file
//! ```
//!
//! A recorded call costs its thread one number from an atomic and four stores: no lock, no
//! system call, no host allocation. Everything else is done by the writing thread, which
//! exists only while there is a recording. Where nothing is recorded, a call costs the one
//! relaxed load of [`Recorder::is_on`].
//!
//! **Order.** A free is recorded before it is done, an allocation after: so where a block's
//! memory is handed out again, the free that made it possible comes first in the trace, on
//! whatever threads. What a thread does stands in the order in which it did it.
//!
//! **What a crash loses** is what was not written yet: the calls of the last flush interval,
//! and never more than a ring and a piece hold. Pieces that were written stay readable.
//!
//! **Fork.** The child has no writing thread. The boundary refuses its calls before they come
//! here, so it neither records nor waits, and the parent's file is the parent's alone.
//!
//! The file comes in opened, the key of a stream comes in as a number: this layer knows
//! nothing of either. Blocks live when the recording begins are not in the trace.

mod event;
mod numbering;
mod output;
mod ring;
mod writer;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::Log;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::LogLevel;
use event::{Action, Event};
use numbering::Numbering;
use output::Output;
use ring::Ring;
use writer::{Command, Writer, discard};

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
    is_on: AtomicBool,
    /// Made by the first recording, and kept for the next.
    ring: OnceCell<Ring>,
    state: Lock<State, { rank::LEAF }>,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Somebody is starting or stopping a recording.
    Changing,
    Recording(Session),
}

#[derive(Debug)]
struct Session {
    link: Link,
    thread: JoinHandle<()>,
}

/// What it takes to talk to a writing thread.
#[derive(Clone, Debug)]
struct Link {
    name: Arc<str>,
    log: &'static Log,
    commands: Sender<Command>,
    thread: Thread,
    failure: Failure,
}

/// Why the writing thread ended before its time. Once it is there, the thread is done with the
/// recorder.
type Failure = Arc<OnceCell<Error>>;

impl Recorder {
    /// A recorder that is off.
    #[expect(clippy::new_without_default, reason = "a recorder is a static, never a default")]
    pub const fn new() -> Self {
        Self { is_on: AtomicBool::new(false), ring: OnceCell::new(), state: Lock::new(State::Idle) }
    }

    /// Whether calls are to be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Records that `address` was handed out, or NULL (0) for 0 bytes. `stream` is the key of
    /// its queue.
    #[inline]
    pub fn allocated(
        &self,
        address: u64,
        requested_bytes: u64,
        device: DeviceOrdinal,
        stream: u64,
    ) {
        let device = device.0 as u8;
        let action = Action::Allocate;
        self.push(Event { action, device, stream, address, amount: requested_bytes });
    }

    /// Records that the block at `address` is about to be freed.
    #[inline]
    pub fn freeing(&self, address: u64) {
        self.push(Event { action: Action::Free, device: 0, stream: 0, address, amount: 0 });
    }

    /// Records that the block at `address` is used on the queue of the key `stream`.
    #[inline]
    pub fn stream_recorded(&self, address: u64, stream: u64) {
        self.push(Event { action: Action::RecordStream, device: 0, stream, address, amount: 0 });
    }

    /// Records that the cache of `device` is being emptied.
    pub fn cache_emptied(&self, device: DeviceOrdinal) {
        let device = device.0 as u8;
        self.push(Event { action: Action::EmptyCache, device, stream: 0, address: 0, amount: 0 });
    }

    /// Records that iteration `number` of the program has ended.
    pub fn iteration_ended(&self, number: u32) {
        let amount = number.into();
        self.push(Event { action: Action::EndIteration, device: 0, stream: 0, address: 0, amount });
    }

    #[inline]
    fn push(&self, event: Event) {
        // There is a ring whenever it is on.
        if let Some(ring) = self.ring.get() {
            ring.push(event.pack(), || self.wake());
        }
    }

    #[cold]
    fn wake(&self) {
        if let Some(link) = self.link() {
            link.thread.unpark();
        }
    }

    /// Starts a recording to what `open` opens, and opens it only when it can be.
    ///
    /// What happens to it later is said to `log`. Fails with `InvalidArgument` while another
    /// is being made, as `open` fails, and with `FileFailed` where the file takes nothing.
    pub fn start(
        &'static self,
        log: &'static Log,
        open: impl FnOnce() -> Result<Target>,
    ) -> Result<()> {
        assert_none_held();
        self.begin_change(|state| match state {
            State::Recording(session) if session.link.failure.get().is_none() => {
                Err(format!("already recording to {}", session.link.name))
            }
            State::Changing => Err("a recording is just being started or stopped".to_owned()),
            State::Idle | State::Recording(_) => Ok(()),
        })?;
        let started = open().and_then(|target| self.spawn(target, log));
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
        let link = self.link().ok_or_else(not_recording)?;
        link.ask(Command::Flush, None)
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
        let State::Recording(Session { link, thread }) = state else { return Err(not_recording()) };
        self.is_on.store(false, Relaxed);
        let answer = link.ask(Command::Stop, patience);
        if answer.is_err() && link.failure.get().is_none() {
            // It is still writing: no other recording can begin.
            return answer;
        }
        if answer.is_ok() {
            // It has nothing left to do. One that failed may be in the middle of this call.
            drop(thread.join());
        }
        *self.state.lock() = State::Idle;
        if let Ok(summary) = &answer {
            link.log.write(LogLevel::Info, &format_args!("recorded to {}: {summary}", link.name));
        }
        answer
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

    fn link(&self) -> Option<Link> {
        match &*self.state.lock() {
            State::Recording(session) => Some(session.link.clone()),
            State::Idle | State::Changing => None,
        }
    }

    fn spawn(&'static self, target: Target, log: &'static Log) -> Result<Session> {
        let ring = self.ring.get_or_init(Ring::new);
        let output = Output::new(target.file, target.is_compressed)
            .map_err(|error| file_failed(&target.name, &error))?;
        let (sender, commands) = channel();
        let writer = Writer {
            ring,
            commands,
            output,
            flush_interval: target.flush_interval,
            first: ring.taken(),
            numbering: Numbering::default(),
        };
        let name: Arc<str> = target.name.into();
        let failure = Failure::default();
        let (its_name, its_failure) = (name.clone(), failure.clone());
        // On before the thread is there: one whose file fails at once switches it off for good.
        self.is_on.store(true, Relaxed);
        let thread = Builder::new()
            .name("genesis-trace".to_owned())
            .spawn(move || self.write(writer, &its_name, log, &its_failure))
            .map_err(|error| {
                self.is_on.store(false, Relaxed);
                discard(ring);
                file_failed(&name, &format_args!("no thread to write it: {error}"))
            })?;
        let link = Link { name, log, commands: sender, thread: thread.thread().clone(), failure };
        Ok(Session { link, thread })
    }

    /// The body of the writing thread.
    fn write(&self, mut writer: Writer<'_>, name: &str, log: &Log, failure: &Failure) {
        let error = match catch_unwind(AssertUnwindSafe(|| writer.run())) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => file_failed(name, &error),
            Err(_) => Error::new(Status::Internal, format!("{name}: the recorder has a defect")),
        };
        self.is_on.store(false, Relaxed);
        discard(writer.ring);
        let _ = failure.set(error.clone());
        // Only now: with it go the commands that nobody will answer.
        drop(writer);
        log.write(LogLevel::Warn, &format_args!("recording has ended: {error}"));
    }
}

impl Link {
    /// Has the writing thread do something, and waits until it is done.
    fn ask(
        &self,
        command: impl FnOnce(SyncSender<Summary>) -> Command,
        patience: Option<Duration>,
    ) -> Result<Summary> {
        let (sender, answer) = sync_channel(1);
        // Where it does not arrive, the answer does not either.
        let _ = self.commands.send(command(sender));
        self.thread.unpark();
        receive(&answer, patience).map_err(|reason| match (self.failure.get(), reason) {
            (Some(error), _) => error.clone(),
            (None, RecvTimeoutError::Timeout) => file_failed(&self.name, &"not all written yet"),
            // Somebody else has stopped the recording, which has written everything.
            (None, RecvTimeoutError::Disconnected) => not_recording(),
        })
    }
}

fn receive(
    answer: &Receiver<Summary>,
    patience: Option<Duration>,
) -> std::result::Result<Summary, RecvTimeoutError> {
    match patience {
        Some(patience) => answer.recv_timeout(patience),
        None => answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
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
