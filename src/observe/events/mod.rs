//! The stream of events: everything that the library does, in order, for the consumers.
//!
//! ```text
//! threads of the program                    one thread of ours
//! event ── ring (event, ring) ─────────▶ collector ──▶ the recorder of traces
//!                                                  └─▶ the profile
//! ```
//!
//! A noted event costs its thread one reading of a clock, one number from an atomic and a cache
//! line: no lock, no system call, no host allocation. The collecting thread does everything else
//! and exists only while there is a consumer. Without one, an event costs the relaxed load of
//! [`EventStream::is_on`].
//!
//! **Order.** A free is noted before it is done, an allocation after it. So if a block's memory is
//! reused, the free comes before the allocation, on any threads. The events of a thread are in the
//! order of its calls.
//!
//! **Fork.** The child has no collecting thread. Its calls are refused before they come here, so it
//! neither notes nor waits.
//!
//! This layer gets the key of a stream as a number, and call sites from a function that `callsite`
//! registers.

mod collector;
mod event;
mod names;
mod ring;
mod thread;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

use genesis_profile::model::Site;
use once_cell::sync::OnceCell;

use super::changing::Changing;
use super::sites::{UNKNOWN, frame_text, location};
use crate::base::lock::assert_none_held;
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::driver;
use collector::{Collector, Command, Subscriber, Time};
pub use event::{Action, Event};
pub use names::Names;
#[cfg(test)]
pub(super) use ring::CAPACITY;
use ring::Ring;

/// A clock that grows evenly at any rate and is the same for all threads.
pub type Ticks = fn() -> u64;
/// Finds the number of the call site of the calling thread, 0 if unknown. No lock is held.
pub type SiteFinder = fn() -> u32;

/// Names the call site of a number.
pub type SiteNamer = fn(u32) -> Site;

/// A consumer of events, called only on the collecting thread.
pub trait Consumer: Send {
    /// Takes one event. Events come in order, and none is left out.
    fn take(&mut self, event: &Event);

    /// Returns true if [`Self::settle`] should be called at once.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns true if it needs the time of events. If no consumer does, no clock is read, and
    /// events have the time of an earlier one.
    fn wants_time(&self) -> bool {
        true
    }

    /// Does the work between events, such as writing: all of it if `is_asked`. Returns the time
    /// until it must be called again. An error ends the subscription.
    fn settle(&mut self, is_asked: bool) -> Result<Duration>;

    /// Called when the subscription has ended because of `error`.
    fn fail(&mut self, error: &Error);
}

/// The stream of a process, off at first.
#[derive(Debug)]
pub struct EventStream {
    is_on: AtomicBool,
    /// Whether one of the present consumers has needed the time.
    wants_time: AtomicBool,
    /// `None` for the processor's clock, which costs no call.
    ticks: Option<Ticks>,
    sites: OnceCell<SiteFinder>,
    site_namer: OnceCell<SiteNamer>,
    /// The number of users that want call sites.
    site_seekers: AtomicU64,
    /// Whether the user has turned call sites off.
    sites_are_off: AtomicBool,
    /// The number of users that want the call sites of frees.
    free_site_seekers: AtomicU64,
    /// Whether a thread has ever set metadata.
    has_metadata: AtomicBool,
    names: Names,
    /// Made for the first consumer and kept.
    ring: OnceCell<Ring>,
    start: OnceCell<Instant>,
    state: Changing<State>,
    next_number: AtomicU64,
}

#[derive(Debug)]
enum State {
    Idle,
    Collecting(Session),
}

#[derive(Debug)]
struct Session {
    link: Link,
    thread: JoinHandle<()>,
    subscriptions: usize,
}

/// A link to the collecting thread.
#[derive(Clone, Debug)]
struct Link {
    commands: Sender<Command>,
    thread: Thread,
}

/// The error that ended a subscription.
type Failure = Arc<OnceCell<Error>>;

/// The subscription of a consumer.
#[derive(Clone, Debug)]
pub struct Subscription {
    number: u64,
    link: Link,
    failure: Failure,
}

/// The stream for events of one device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceEvents {
    stream: &'static EventStream,
    device: DeviceOrdinal,
}

/// The longest wait for another thread that attaches or detaches.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(5);

impl EventStream {
    /// A stream that is off, with the time from the processor's clock.
    #[expect(clippy::new_without_default, reason = "a stream is a static, never a default")]
    pub const fn new() -> Self {
        Self::made(None)
    }

    /// A stream that is off, with the time from `ticks`.
    pub const fn with_clock(ticks: Ticks) -> Self {
        Self::made(Some(ticks))
    }

    const fn made(ticks: Option<Ticks>) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            wants_time: AtomicBool::new(false),
            ticks,
            sites: OnceCell::new(),
            site_namer: OnceCell::new(),
            site_seekers: AtomicU64::new(0),
            sites_are_off: AtomicBool::new(false),
            free_site_seekers: AtomicU64::new(0),
            has_metadata: AtomicBool::new(false),
            names: Names::new(),
            ring: OnceCell::new(),
            start: OnceCell::new(),
            state: Changing::new(State::Idle),
            next_number: AtomicU64::new(0),
        }
    }

    /// A stream without consumers, for heaps without a stream of their own.
    pub fn silent() -> &'static Self {
        static SILENT: EventStream = EventStream::new();
        &SILENT
    }

    /// Returns true if events are to be noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Notes `event` with the time. Waits while the ring is full, so only rare events are noted
    /// under locks of the heap.
    #[inline]
    pub(crate) fn note(&self, mut event: Event) {
        // A stream that is on has a ring.
        if let Some(ring) = self.ring.get() {
            if self.wants_time.load(Relaxed) {
                event.time = match self.ticks {
                    None => driver::ticks(),
                    Some(ticks) => ticks(),
                };
            }
            self.add_thread(&mut event);
            ring.push(event.pack(), || self.wake());
        }
    }

    /// The call site of this thread, if call sites are wanted; else 0.
    #[inline]
    pub fn site(&self) -> u32 {
        match self.site_seekers.load(Relaxed) {
            0 => 0,
            _ if self.sites_are_off.load(Relaxed) => 0,
            _ => match thread::site() {
                UNKNOWN => self.sites.get().map_or(UNKNOWN, |find| find()),
                found => found,
            },
        }
    }

    /// The call site of this thread's call that frees, if those are wanted; else 0.
    #[inline]
    pub fn free_site(&self) -> u32 {
        if self.free_site_seekers.load(Relaxed) == 0 { UNKNOWN } else { self.site() }
    }

    /// Returns true if call sites are wanted.
    #[inline]
    pub fn seeks_sites(&self) -> bool {
        self.site_seekers.load(Relaxed) != 0 && !self.sites_are_off.load(Relaxed)
    }

    /// Sets the function that finds call sites while they are wanted. The first one stays.
    pub fn set_site_finder(&self, find: SiteFinder) {
        let _ = self.sites.set(find);
    }

    /// Sets the function that names call sites. The first one stays.
    pub fn set_site_namer(&self, name: SiteNamer) {
        let _ = self.site_namer.set(name);
    }

    /// The call site `number` in a line; "" if unknown. Naming native code for the first time takes
    /// milliseconds.
    pub fn place(&self, number: u32) -> String {
        location(&self.name_site(number))
    }

    /// The stack of the call site `number`, a line for each frame, innermost first; empty if
    /// unknown.
    pub fn stack_lines(&self, number: u32) -> Vec<String> {
        self.name_site(number).frames.iter().map(frame_text).collect()
    }

    fn name_site(&self, number: u32) -> Site {
        match number {
            UNKNOWN => Site::default(),
            _ => self.site_namer.get().map_or_else(Site::default, |name| name(number)),
        }
    }

    /// Turns call sites off or on, for all users.
    pub fn set_sites_off(&self, are_off: bool) {
        self.sites_are_off.store(are_off, Relaxed);
    }

    /// Adds a user that wants call sites.
    pub fn seek_sites(&self) {
        self.site_seekers.fetch_add(1, Relaxed);
    }

    /// Removes a user that wanted call sites.
    pub fn stop_seeking_sites(&self) {
        self.site_seekers.fetch_sub(1, Relaxed);
    }

    /// Returns true if the call sites of frees are wanted.
    #[inline]
    pub fn seeks_free_sites(&self) -> bool {
        self.free_site_seekers.load(Relaxed) != 0 && !self.sites_are_off.load(Relaxed)
    }

    /// Adds a user that wants the call sites of frees, besides those of allocations.
    pub fn seek_free_sites(&self) {
        self.free_site_seekers.fetch_add(1, Relaxed);
    }

    /// Removes a user that wanted the call sites of frees.
    pub fn stop_seeking_free_sites(&self) {
        self.free_site_seekers.fetch_sub(1, Relaxed);
    }

    /// The names that events refer to.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The present time of events: nanoseconds since the stream was first on.
    pub fn now_ns(&self) -> u64 {
        self.start.get().map_or(0, |start| start.elapsed().as_nanos() as u64)
    }

    /// The stream for events of one device.
    pub fn of(&'static self, device: DeviceOrdinal) -> DeviceEvents {
        DeviceEvents { stream: self, device }
    }

    #[cold]
    fn wake(&self) {
        if let Some(link) = self.link() {
            link.thread.unpark();
        }
    }

    /// Passes every event noted from now on to `consumer`, on the collecting thread.
    ///
    /// Fails with `Busy` if another thread attaches or detaches for seconds, and with `FileFailed`
    /// if the thread cannot be started.
    pub fn attach(&'static self, consumer: Arc<Mutex<dyn Consumer>>) -> Result<Subscription> {
        assert_none_held();
        let session = match self.begin_change()? {
            State::Collecting(session) => Ok(session),
            State::Idle => self.spawn(),
        };
        let attached = session.map(|mut session| {
            session.subscriptions += 1;
            let failure = Failure::default();
            let number = self.next_number.fetch_add(1, Relaxed);
            // A consumer with a poisoned lock fails with its first event.
            if consumer.lock().is_ok_and(|consumer| consumer.wants_time()) {
                self.wants_time.store(true, Relaxed);
            }
            // There is a ring now.
            let first = self.ring.get().map_or(0, Ring::taken);
            let link = session.link.clone();
            let subscriber = Subscriber { number, consumer, first, failure: Arc::clone(&failure) };
            // Before the first event, so that the thread adds it in time.
            link.send(Command::Attach(subscriber));
            self.is_on.store(true, Relaxed);
            (Subscription { number, link, failure }, session)
        });
        match attached {
            Ok((subscription, session)) => {
                self.state.end(State::Collecting(session));
                Ok(subscription)
            }
            Err(error) => {
                self.state.end(State::Idle);
                Err(error)
            }
        }
    }

    /// Ends `subscription`. Its consumer then has every event noted before, and has settled.
    ///
    /// Waits for that no longer than `patience`. Fails as the consumer did, with `Busy` as
    /// [`Self::attach`] does, and with `FileFailed` after `patience`: then the thread is still
    /// busy, and no consumer can be attached or detached any more.
    pub fn detach(&self, subscription: &Subscription, patience: Option<Duration>) -> Result<()> {
        assert_none_held();
        let State::Collecting(mut session) = self.begin_change()? else {
            self.state.end(State::Idle);
            return Err(Error::invalid_argument("no events are being noted"));
        };
        if session.subscriptions == 1 {
            self.is_on.store(false, Relaxed);
        }
        let number = subscription.number;
        match session.link.ask(|answer| Command::Detach(number, answer), patience) {
            Err(error) if error.status == Status::Busy => {
                self.is_on.store(true, Relaxed);
                self.state.end(State::Collecting(session));
                return Err(error);
            }
            asked => asked?,
        }
        session.subscriptions -= 1;
        let state = match session.subscriptions {
            0 => {
                session.link.send(Command::Stop);
                drop(session.thread.join());
                State::Idle
            }
            _ => State::Collecting(session),
        };
        self.state.end(state);
        subscription.outcome()
    }

    /// Takes the state out for a change; waits for a change of another thread.
    fn begin_change(&self) -> Result<State> {
        let deadline = Instant::now() + PATIENCE_WITH_OTHERS;
        loop {
            if let Some(state) = self.state.begin(|_| Ok(()))? {
                return Ok(state);
            }
            if Instant::now() >= deadline {
                return Err(Error::new(Status::Busy, "another recording does not end"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn link(&self) -> Option<Link> {
        self.state.look(|state| match state {
            Some(State::Collecting(session)) => Some(session.link.clone()),
            Some(State::Idle) | None => None,
        })
    }

    fn spawn(&'static self) -> Result<Session> {
        self.wants_time.store(false, Relaxed);
        let ring = self.ring.get_or_init(Ring::new);
        let start = *self.start.get_or_init(Instant::now);
        let (commands, receiver) = channel();
        let time = Time::new(self.ticks.unwrap_or(driver::ticks), start);
        let thread = Builder::new()
            .name("genesis-events".to_owned())
            .spawn(move || Collector::new(ring, &self.is_on, receiver, time).run())
            .map_err(|error| {
                Error::new(Status::FileFailed, format!("no thread to collect events: {error}"))
            })?;
        let link = Link { commands, thread: thread.thread().clone() };
        Ok(Session { link, thread, subscriptions: 0 })
    }
}

impl DeviceEvents {
    /// Notes that `action` happened to `bytes` at `address`, 0 for none.
    #[inline]
    pub fn note(&self, action: Action, address: u64, bytes: u64) {
        if self.stream.is_on() {
            self.stream.note(Event { address, bytes, ..Event::new(action, self.device) });
        }
    }
}

impl Subscription {
    /// Passes everything noted so far to the consumer and has it settle.
    ///
    /// Fails as the consumer did.
    pub fn flush(&self) -> Result<()> {
        assert_none_held();
        self.outcome()?;
        self.link.ask(Command::Flush, None)?;
        self.outcome()
    }

    /// The error of the consumer, if it has failed.
    pub fn outcome(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }
}

impl Link {
    fn send(&self, command: Command) {
        // It fails only if the thread has ended, after the last consumer.
        let _ = self.commands.send(command);
        self.thread.unpark();
    }

    /// Sends a command and waits until it is done.
    fn ask(
        &self,
        command: impl FnOnce(SyncSender<()>) -> Command,
        patience: Option<Duration>,
    ) -> Result<()> {
        if std::thread::current().id() == self.thread.id() {
            // Called by a consumer; it would wait for itself.
            return Err(Error::new(Status::Busy, "events are being collected by this thread"));
        }
        let (sender, answer) = sync_channel(1);
        self.send(command(sender));
        let received = match patience {
            Some(patience) => answer.recv_timeout(patience),
            None => answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            // The thread ends only without consumers, after it has passed on everything.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::new(Status::FileFailed, "not all is written yet"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
