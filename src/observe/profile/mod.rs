//! The profile: levels over time, what was allocated by size and by call site, and the latest
//! events, kept by a consumer of the stream of events.
//!
//! ```text
//! collector (observe::events) ──▶ seen: live blocks, levels, counts ─┬─ series   over the whole run
//!                                                                    └─ history  the latest events
//! ```
//!
//! Memory is bounded: the history has a fixed number of events, a series a fixed number of
//! intervals, sizes and call sites are as many as the program has; only the table of live blocks
//! grows with what is live.
//!
//! Blocks live when the profile begins are told to it by whoever starts it, once it is attached.
//! What threads do at that very moment may be counted one way or the other; from then on every
//! figure is exact, as no event is ever left out.

mod history;
mod seen;
mod series;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use genesis_profile::model;

use super::{EventStream, Subscription};
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::{Error, Result, Status};
use seen::Seen;

/// A block that was live when a profile began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its device's ordinal.
    pub device: u32,
    /// The key of its stream.
    pub stream: u64,
    /// Its address.
    pub address: u64,
    /// As asked for, in bytes.
    pub requested_bytes: u64,
    /// Its extent, in bytes.
    pub bytes: u64,
}

/// What a device held when a profile began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its ordinal.
    pub device: u32,
    /// Physical memory, in bytes.
    pub reserved_bytes: u64,
    /// Freed blocks that other streams may still use, in bytes.
    pub pending_bytes: u64,
}

/// Whoever knows what there is when a profile begins.
pub trait Beginning {
    /// What each device in use holds.
    fn held(&self) -> Vec<Held>;
    /// The live blocks.
    fn live(&self) -> Vec<Known>;
}

/// The profiler of a process, off at first.
#[derive(Debug)]
pub struct Profiler {
    state: Lock<State, { rank::LEAF }>,
}

#[derive(Debug)]
enum State {
    Idle,
    /// Somebody is starting or stopping a profile.
    Changing,
    Profiling(Session),
    Stopped(Session),
}

/// A profile that is being made, or was.
#[derive(Clone)]
struct Session {
    events: &'static EventStream,
    subscription: Subscription,
    seen: Arc<Mutex<Seen>>,
    started_unix_ns: u64,
}

impl Profiler {
    /// A profiler that is off.
    #[expect(clippy::new_without_default, reason = "a profiler is a static, never a default")]
    pub const fn new() -> Self {
        Self { state: Lock::new(State::Idle) }
    }

    /// Whether a profile is being made.
    pub fn is_on(&self) -> bool {
        matches!(&*self.state.lock(), State::Profiling(_))
    }

    /// Begins a profile of `events` that keeps the latest `history_events` of them; what was seen
    /// by an earlier one is dropped. `beginning` is asked for memory held before the first event can
    /// come, and for live blocks after it.
    ///
    /// Fails with `InvalidArgument` while a profile is being made, and as
    /// [`EventStream::attach`] does.
    pub fn start(
        &self,
        events: &'static EventStream,
        history_events: usize,
        beginning: &impl Beginning,
    ) -> Result<()> {
        assert_none_held();
        let before = self.begin_change(|state| match state {
            State::Idle | State::Stopped(_) => Ok(()),
            State::Profiling(_) => Err("a profile is being made already"),
            State::Changing => Err("a profile is just being started or stopped"),
        })?;
        drop(before);
        events.seek_sites();
        let seen = Arc::new(Mutex::new(Seen::new(history_events, beginning.held())));
        let consumer = Arc::clone(&seen);
        let attached = events.attach(consumer);
        let (state, outcome) = match attached {
            Ok(subscription) => {
                let now_ns = events.now_ns();
                let live = beginning.live();
                if let Ok(mut seen) = seen.lock() {
                    seen.adopt(&live, now_ns);
                }
                let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let started_unix_ns = since_1970.as_nanos() as u64;
                (State::Profiling(Session { events, subscription, seen, started_unix_ns }), Ok(()))
            }
            Err(error) => {
                events.stop_seeking_sites();
                (State::Idle, Err(error))
            }
        };
        *self.state.lock() = state;
        outcome
    }

    /// Ends the profile; what was seen stays, for [`Self::describe`].
    ///
    /// Waits for the collecting thread, but no longer than `patience`. Fails with
    /// `InvalidArgument` where no profile is being made.
    pub fn stop(&self, patience: Option<Duration>) -> Result<()> {
        assert_none_held();
        let state = self.begin_change(|state| match state {
            State::Profiling(_) => Ok(()),
            _ => Err(NOT_PROFILING),
        })?;
        let State::Profiling(session) = state else {
            return Err(Error::invalid_argument(NOT_PROFILING));
        };
        let detached = session.events.detach(&session.subscription, patience);
        let is_going_on = detached.as_ref().is_err_and(|error| error.status == Status::Busy);
        if !is_going_on {
            session.events.stop_seeking_sites();
            let now_ns = session.events.now_ns();
            if let Ok(mut seen) = session.seen.lock() {
                seen.end(now_ns);
            }
        }
        *self.state.lock() = match is_going_on {
            true => State::Profiling(session),
            false => State::Stopped(session),
        };
        detached
    }

    /// What was seen until now, or until the profile ended: everything that events tell. The
    /// program, the devices' names, call sites and the address space are the caller's to fill in.
    ///
    /// Fails with `InvalidArgument` where no profile was begun.
    pub fn describe(&self) -> Result<model::Profile> {
        assert_none_held();
        let (session, is_on) = match &*self.state.lock() {
            State::Profiling(session) => (session.clone(), true),
            State::Stopped(session) => (session.clone(), false),
            State::Idle | State::Changing => return Err(Error::invalid_argument(NOT_PROFILING)),
        };
        if is_on {
            session.subscription.flush()?;
        }
        let defect = |_| Error::new(Status::Internal, "the profiler has a defect");
        let mut profile = session.seen.lock().map_err(defect)?.describe(session.events.now_ns());
        profile.started_unix_ns = session.started_unix_ns;
        let names = session.events.names().all();
        profile.names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Ok(profile)
    }

    /// What was counted at the call sites that hold most, at most `most_sites` of them, the largest
    /// first: numbers of sites and counts. Empty where no profile is being made. For whoever looks
    /// every second: nothing is copied but that.
    pub fn biggest_sites(&self, most_sites: usize) -> Vec<(u32, model::Counts)> {
        assert_none_held();
        let session = match &*self.state.lock() {
            State::Profiling(session) => session.clone(),
            _ => return Vec::new(),
        };
        // A profile that is just being ended is as complete as it gets.
        let _ = session.subscription.flush();
        session.seen.lock().map(|seen| seen.biggest_sites(most_sites)).unwrap_or_default()
    }

    /// Takes the state out, if `may` lets it; nobody else can until a new one is put in.
    fn begin_change(
        &self,
        may: impl FnOnce(&State) -> std::result::Result<(), &'static str>,
    ) -> Result<State> {
        let mut state = self.state.lock();
        may(&state).map_err(Error::invalid_argument)?;
        Ok(std::mem::replace(&mut *state, State::Changing))
    }
}

const NOT_PROFILING: &str = "no profile is being made";

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut session = formatter.debug_struct("Session");
        session.field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
