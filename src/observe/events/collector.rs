//! The thread that collects events and passes them to the consumers.
//!
//! It sleeps until a quarter of the ring is full, a consumer's data has waited as long as it may,
//! or a command arrives. Then it empties the ring.
//!
//! A consumer that fails, by an error or a panic, gets no more events, and its subscription has the
//! error. If it was the last, events are no longer noted. The thread takes no lock of the heap,
//! because threads that hold one may wait for room in the ring.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::event::Event;
use super::ring::{Ring, WAKE_INTERVAL};
use super::{Consumer, Failure, Ticks};
use crate::base::{Error, Result, Status};

/// The number of events taken out of the ring at a time.
const BATCH: u64 = 512;
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// A command to the thread.
pub(super) enum Command {
    /// Adds a consumer.
    Attach(Subscriber),
    /// Passes everything noted before to the consumers, has them settle, and answers.
    Flush(SyncSender<()>),
    /// The same, and then removes the consumer of that number.
    Detach(u64, SyncSender<()>),
    /// Ends the thread. No consumer is left.
    Stop,
}

/// A consumer.
pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) consumer: Arc<Mutex<dyn Consumer>>,
    /// The number of its first event.
    pub(super) first: u64,
    pub(super) failure: Failure,
}

/// The state of the thread.
pub(super) struct Collector<'a> {
    pub(super) ring: &'a Ring,
    pub(super) is_on: &'a AtomicBool,
    pub(super) commands: Receiver<Command>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) time: Time,
    batch: Vec<(u64, Event)>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        ring: &'a Ring,
        is_on: &'a AtomicBool,
        commands: Receiver<Command>,
        time: Time,
    ) -> Self {
        let batch = Vec::with_capacity(BATCH as usize);
        Self { ring, is_on, commands, subscribers: Vec::new(), time, batch }
    }

    /// Collects until [`Command::Stop`].
    pub(super) fn run(&mut self) {
        loop {
            // No event is passed on before all commands are known that were sent before it: one of
            // them may add a consumer that it is for.
            let mut end = self.ring.taken();
            let (mut leaving, mut answers) = (Vec::new(), Vec::new());
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Attach(subscriber) => {
                        self.subscribers.push(subscriber);
                        self.is_on.store(true, Relaxed);
                        continue;
                    }
                    Command::Flush(answer) => answers.push(answer),
                    Command::Detach(number, answer) => {
                        leaving.push(number);
                        answers.push(answer);
                    }
                    Command::Stop => return,
                }
                // All that was noted before the command.
                end = self.ring.taken();
            }
            self.drain(end);
            let patience = self.settle(!answers.is_empty());
            if !leaving.is_empty() {
                self.subscribers.retain(|subscriber| !leaving.contains(&subscriber.number));
                self.note_who_is_left();
            }
            for answer in answers {
                // The sender may no longer wait.
                let _ = answer.try_send(());
            }
            if self.ring.taken() - self.ring.read() < WAKE_INTERVAL {
                thread::park_timeout(patience);
            }
        }
    }

    /// Passes all events with numbers below `end` to the consumers.
    fn drain(&mut self, end: u64) {
        self.time.proceed();
        while self.ring.read() < end {
            let (first, last) = (self.ring.read(), end.min(self.ring.read() + BATCH));
            for number in first..last {
                if let Some(mut event) = Event::unpack(self.ring.get(number)) {
                    event.time = self.time.nanoseconds(event.time);
                    self.batch.push((number, event));
                }
            }
            self.ring.release(last);
            let batch = std::mem::take(&mut self.batch);
            self.each(|subscriber, consumer| {
                let events = batch.iter().filter(|(number, _)| *number >= subscriber.first);
                events.for_each(|(_, event)| consumer.take(event));
                if consumer.is_full() {
                    consumer.settle(false)?;
                }
                Ok(())
            });
            self.batch = batch;
            self.batch.clear();
        }
    }

    /// Has the consumers write what waits; returns when to call again.
    fn settle(&mut self, is_asked: bool) -> Duration {
        let mut patience = LONGEST_SLEEP;
        self.each(|_, consumer| {
            patience = patience.min(consumer.settle(is_asked)?);
            Ok(())
        });
        patience
    }

    fn each(&mut self, mut body: impl FnMut(&Subscriber, &mut dyn Consumer) -> Result<()>) {
        let before = self.subscribers.len();
        self.subscribers.retain(|subscriber| {
            let done = catch_unwind(AssertUnwindSafe(|| match subscriber.consumer.lock() {
                Ok(mut consumer) => body(subscriber, &mut *consumer),
                Err(_) => Err(defect()),
            }));
            let Err(error) = done.unwrap_or_else(|_| Err(defect())) else { return true };
            let _ = subscriber.failure.set(error.clone());
            if let Ok(mut consumer) = subscriber.consumer.lock() {
                consumer.fail(&error);
            }
            false
        });
        if self.subscribers.len() < before {
            self.note_who_is_left();
        }
    }

    fn note_who_is_left(&self) {
        if self.subscribers.is_empty() {
            self.is_on.store(false, Relaxed);
        }
    }
}

fn defect() -> Error {
    Error::new(Status::Internal, "a consumer of events has a defect")
}

/// Converts ticks to nanoseconds: exactly at both ends of each interval between two drains, and
/// linearly within. It assumes only that ticks grow evenly.
pub(super) struct Time {
    ticks: Ticks,
    start: Instant,
    /// The interval of the events being read, as pairs of ticks and nanoseconds.
    from: (u64, u64),
    to: (u64, u64),
    /// Nanoseconds in a tick of that interval, times 2^32.
    rate: u64,
    latest_ns: u64,
}

impl Time {
    pub(super) fn new(ticks: Ticks, start: Instant) -> Self {
        let now = (ticks(), start.elapsed().as_nanos() as u64);
        Self { ticks, start, from: now, to: now, rate: 0, latest_ns: 0 }
    }

    /// Begins an interval that ends now, for the events noted since the last.
    fn proceed(&mut self) {
        self.from = self.to;
        self.to = ((self.ticks)(), self.start.elapsed().as_nanos() as u64);
        let span = self.to.0.saturating_sub(self.from.0).max(1);
        let passed_ns = u128::from(self.to.1.saturating_sub(self.from.1));
        self.rate = u64::try_from((passed_ns << 32) / u128::from(span)).unwrap_or(u64::MAX);
    }

    /// The time of an event at `ticks`; never before that of the event before it.
    fn nanoseconds(&mut self, ticks: u64) -> u64 {
        let passed = u128::from(ticks.saturating_sub(self.from.0)) * u128::from(self.rate);
        let time_ns = self.from.1.saturating_add((passed >> 32) as u64).min(self.to.1);
        self.latest_ns = self.latest_ns.max(time_ns);
        self.latest_ns
    }
}
