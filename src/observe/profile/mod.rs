//! The profile: levels over time, counts by size and by call site, and the latest events. A
//! consumer of the stream of events keeps them.
//!
//! ```text
//! collector (observe::events) ─▶ seen: live blocks, levels, counts ─┬─ series   over the whole run
//!                                                                   └─ history  the latest events
//! ```
//!
//! Memory is bounded: the history has a fixed number of events and a series a fixed number of
//! intervals; there are as many sizes and call sites as the program has. Only the table of live
//! blocks grows with the program's memory.
//!
//! The caller that starts a profile tells it the blocks that are live then, after the consumer is
//! attached. Calls of other threads at that moment may be counted or not; from then on every figure
//! is exact, because no event is left out.

mod history;
mod seen;
mod series;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use genesis_profile::model;

use super::changing::Changing;
use super::{Event, EventStream, Subscription};
use crate::base::lock::assert_none_held;
use crate::base::{Error, Result, Status};
use seen::Seen;

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

/// What a profile keeps, besides its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// How many of the latest events.
    pub history_events: usize,
    /// The call sites of allocations.
    pub has_sites: bool,
    /// The history has the call sites of frees where they are known, in place of those of the freed
    /// blocks' allocations, and the metadata of all calls.
    pub has_own_sites: bool,
    /// Frees have call sites.
    pub has_free_sites: bool,
}

/// Tells what exists when a profile begins.
pub trait Beginning {
    /// The memory of each device in use.
    fn held(&self) -> Vec<Held>;
    /// The live blocks: for each the event of an allocation, with what is known of it.
    fn live(&self) -> Vec<Event>;
}

/// The profiler of a process, off at first.
#[derive(Debug)]
pub struct Profiler {
    state: Changing<State>,
}

#[derive(Debug)]
enum State {
    Idle,
    Profiling(Session),
    Stopped(Session),
}

/// A profile that is being made, or was.
#[derive(Clone)]
struct Session {
    events: &'static EventStream,
    subscription: Subscription,
    seen: Arc<Mutex<Seen>>,
    keeping: Keeping,
    started_unix_ns: u64,
}

impl Profiler {
    /// A profiler that is off.
    #[expect(clippy::new_without_default, reason = "a profiler is a static, never a default")]
    pub const fn new() -> Self {
        Self { state: Changing::new(State::Idle) }
    }

    /// Returns true if a profile is being made.
    pub fn is_on(&self) -> bool {
        self.state.look(|state| matches!(state, Some(State::Profiling(_))))
    }

    /// Begins a profile of `events` that keeps what `keeping` says, and drops an earlier profile.
    /// `beginning` is asked for the memory held before the first event can come, and for live
    /// blocks afterwards.
    ///
    /// Fails with `InvalidArgument` while a profile is being made, and as
    /// [`EventStream::attach`] does.
    pub fn start(
        &self,
        events: &'static EventStream,
        keeping: Keeping,
        beginning: &impl Beginning,
    ) -> Result<()> {
        assert_none_held();
        let before = self.state.begin(|state| match state {
            State::Idle | State::Stopped(_) => Ok(()),
            State::Profiling(_) => Err(Error::invalid_argument("a profile is being made already")),
        })?;
        let changing = || Error::invalid_argument("a profile is just being started or stopped");
        drop(before.ok_or_else(changing)?);
        keeping.seek(events);
        let seen = Arc::new(Mutex::new(Seen::new(keeping, beginning.held())));
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
                let session = Session { events, subscription, seen, keeping, started_unix_ns };
                (State::Profiling(session), Ok(()))
            }
            Err(error) => {
                keeping.stop_seeking(events);
                (State::Idle, Err(error))
            }
        };
        self.state.end(state);
        outcome
    }

    /// Ends the profile, which stays for [`Self::describe`].
    ///
    /// Waits for the collecting thread, but no longer than `patience`. Fails with `InvalidArgument`
    /// if no profile is being made.
    pub fn stop(&self, patience: Option<Duration>) -> Result<()> {
        assert_none_held();
        let state = self.state.begin(|state| match state {
            State::Profiling(_) => Ok(()),
            State::Idle | State::Stopped(_) => Err(not_profiling()),
        })?;
        let Some(State::Profiling(session)) = state else { return Err(not_profiling()) };
        let detached = session.events.detach(&session.subscription, patience);
        let is_going_on = detached.as_ref().is_err_and(|error| error.status == Status::Busy);
        if !is_going_on {
            session.keeping.stop_seeking(session.events);
            let now_ns = session.events.now_ns();
            if let Ok(mut seen) = session.seen.lock() {
                seen.end(now_ns);
            }
        }
        self.state.end(if is_going_on {
            State::Profiling(session)
        } else {
            State::Stopped(session)
        });
        detached
    }

    /// Keeps what `keeping` says from now on, and none of the events before if `clears`.
    ///
    /// Fails with `InvalidArgument` if no profile is being made.
    pub fn keep(&self, keeping: Keeping, clears: bool) -> Result<()> {
        assert_none_held();
        let state = self.state.begin(|state| match state {
            State::Profiling(_) => Ok(()),
            State::Idle | State::Stopped(_) => Err(not_profiling()),
        })?;
        let Some(State::Profiling(mut session)) = state else { return Err(not_profiling()) };
        let before = std::mem::replace(&mut session.keeping, keeping);
        keeping.seek(session.events);
        before.stop_seeking(session.events);
        // Events of before count as such.
        let flushed = session.subscription.flush();
        if let Ok(mut seen) = session.seen.lock() {
            seen.keep(keeping, clears);
        }
        self.state.end(State::Profiling(session));
        flushed
    }

    /// Drops a profile that has ended.
    pub fn forget(&self) {
        assert_none_held();
        let is_over = |state: &State| match state {
            State::Stopped(_) => Ok(()),
            State::Idle | State::Profiling(_) => Err(not_profiling()),
        };
        if let Ok(Some(over)) = self.state.begin(is_over) {
            self.state.end(State::Idle);
            drop(over);
        }
    }

    /// The profile until now or until it ended: everything that events tell. The caller adds the
    /// program, the devices' names, call sites and the address space.
    ///
    /// Fails with `InvalidArgument` if no profile was begun.
    pub fn describe(&self) -> Result<model::Profile> {
        assert_none_held();
        let (session, is_on) = self.state.look(|state| match state {
            Some(State::Profiling(session)) => Ok((session.clone(), true)),
            Some(State::Stopped(session)) => Ok((session.clone(), false)),
            Some(State::Idle) | None => Err(not_profiling()),
        })?;
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

    /// The numbers and counts of the `most_sites` call sites that hold most, largest first; empty
    /// if no profile is being made. Copies nothing else, so it may be called every second.
    pub fn biggest_sites(&self, most_sites: usize) -> Vec<(u32, model::Counts)> {
        assert_none_held();
        let session = self.state.look(|state| match state {
            Some(State::Profiling(session)) => Some(session.clone()),
            _ => None,
        });
        let Some(session) = session else { return Vec::new() };
        // It fails if the profile is just being ended, which is complete then.
        let _ = session.subscription.flush();
        session.seen.lock().map(|seen| seen.biggest_sites(most_sites)).unwrap_or_default()
    }
}

impl Keeping {
    fn seek(self, events: &EventStream) {
        if self.has_sites {
            events.seek_sites();
        }
        if self.has_free_sites {
            events.seek_free_sites();
        }
    }

    fn stop_seeking(self, events: &EventStream) {
        if self.has_sites {
            events.stop_seeking_sites();
        }
        if self.has_free_sites {
            events.stop_seeking_free_sites();
        }
    }
}

fn not_profiling() -> Error {
    Error::invalid_argument("no profile is being made")
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut session = formatter.debug_struct("Session");
        session.field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
