//! Freed blocks that other streams may still be using.
//!
//! A block waits for one event on each of those streams. The events of a stream complete in the
//! order they were recorded, so each stream has a queue of them. A poll takes complete events off
//! its head until it meets one that is not. If the oldest event has completed, query the newest;
//! its completion implies the rest. A stream that had completed everything at the last poll is
//! queried for its newest event first.
//!
//! A stream may yield no event: it is being captured, it is another thread's default stream, it
//! has ended, or the driver failed. Then the block waits until the whole device is known to be
//! idle.
//!
//! A stream is identified by its key, never by its handle: the events of two streams complete in
//! no order.
//!
//! An event is recorded without the lane's lock, because recording blocks while the stream's queue
//! is full: [`PendingFrees::begin_recording`], then [`Recording::record`] with no lock held, then
//! [`PendingFrees::end_recording`]. When several threads record on one stream at a time, the order
//! of their events is unknown. So an event implies those before it in the queue only if no other
//! was recorded at the same time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::events::EventStock;
use super::omission::Step;
use super::recorded::Recorded;
use super::{Contexts, EventCache, OWN_CONTEXT, Stream, StreamKey};
use crate::driver::{self, Event};
use crate::memory::Slot;

/// Above this many queues, empty ones are dropped.
const QUEUES_KEPT: usize = 32;

/// What the pending blocks of one lane wait for. A block appears once for each of its streams,
/// and is ready when it has come out as often as it went in.
#[derive(Debug, Default)]
pub struct PendingFrees {
    queues: Vec<StreamQueue>,
    /// The blocks that wait for the device to be idle after an epoch, mostly that of their free.
    for_idle: Vec<(Slot, u32)>,
    /// How many events are waited for.
    events: usize,
    stock: EventStock,
}

/// An event that is about to be recorded for a pending block.
#[derive(Debug)]
pub struct Recording {
    stream: Stream,
    /// The cache its event is from, unless that is the cache of the device's own context.
    others: Option<Arc<EventCache>>,
    idle: Option<Event>,
}

/// One wait of a pending block.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    event: Event,
    slot: Slot,
    /// Whether its completion implies that of those before it in the queue.
    is_newest: bool,
}

#[derive(Debug)]
struct StreamQueue {
    stream: StreamKey,
    /// The cache its events are from, unless that is the cache of the device's own context.
    others: Option<Arc<EventCache>>,
    waiting: VecDeque<Waiting>,
    /// Whether everything was complete at the last poll.
    keeps_up: bool,
    /// How many events are being recorded on the stream, …
    recordings: u32,
    /// … and whether there were several at a time since there were none.
    did_overlap: bool,
}

impl StreamQueue {
    fn new(stream: StreamKey, others: Option<Arc<EventCache>>) -> Self {
        let waiting = VecDeque::new();
        Self { stream, others, waiting, keeps_up: false, recordings: 0, did_overlap: false }
    }

    /// Queries the newest of several events; its completion implies the rest. Returns how many came
    /// out.
    fn poll_newest(
        &mut self,
        own: &EventCache,
        stock: &mut EventStock,
        out: &mut impl FnMut(Slot),
    ) -> usize {
        let newest = self.waiting.back().filter(|newest| newest.is_newest);
        let Some(newest) = newest.filter(|_| self.waiting.len() > 1) else {
            return 0;
        };
        if self.is_complete(own, newest.event) != Ok(true) {
            return 0;
        }
        let count = self.waiting.len();
        let others = self.others.clone();
        for Waiting { event, slot, .. } in self.waiting.drain(..) {
            out(slot);
            put(own, others.as_deref(), stock, event);
        }
        count
    }

    fn is_complete(&self, own: &EventCache, event: Event) -> driver::Result<bool> {
        if Step::PendingQuery.is_left_out() {
            return Ok(true);
        }
        self.others.as_deref().unwrap_or(own).driver().event_query(event)
    }
}

/// Takes back an event of the cache `others`, or of the own one.
fn put(own: &EventCache, others: Option<&EventCache>, stock: &mut EventStock, event: Event) {
    match others {
        None => stock.put(own, event),
        Some(others) => others.put(event),
    }
}

impl Recording {
    /// Records the event: see [`EventCache::record`]. No lock is held.
    pub fn record(&mut self, own: &EventCache) -> driver::Result<Event> {
        match &self.others {
            None => own.record_with(&mut self.idle, self.stream.handle),
            Some(others) => others.record(self.stream.handle),
        }
    }
}

impl PendingFrees {
    /// Returns true if an event is waited for, so that polling may help.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.events != 0
    }

    /// How many events are waited for.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Returns true if nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.events == 0 && self.for_idle.is_empty()
    }

    /// Begins to record an event on a stream that the calling thread can name.
    pub fn begin_recording(&mut self, contexts: &Contexts, recorded: Recorded) -> Recording {
        let Recorded { stream, context } = recorded;
        let (others, idle) = match context {
            OWN_CONTEXT => (None, self.stock.take(contexts.own())),
            context => (Some(contexts.get(context)), None),
        };
        let queue = self.queue(stream.key, &others);
        queue.recordings += 1;
        queue.did_overlap |= queue.recordings > 1;
        Recording { stream, others, idle }
    }

    /// The recording returned `answer`. The block in `slot`, freed in `epoch`, waits for that
    /// event, or, if there is none, until the device is idle.
    pub fn end_recording(
        &mut self,
        own: &EventCache,
        recording: Recording,
        answer: driver::Result<Event>,
        (slot, epoch): (Slot, u32),
    ) {
        let Recording { stream, others, idle } = recording;
        if let Some(event) = idle {
            self.stock.put(own, event);
        }
        // It is there, and under this name, as long as an event is being recorded.
        let queue = self.queue(stream.key, &others);
        let is_newest = !queue.did_overlap;
        queue.recordings -= 1;
        queue.did_overlap &= queue.recordings > 0;
        match answer {
            Ok(event) => {
                queue.waiting.push_back(Waiting { event, slot, is_newest });
                self.events += 1;
            }
            Err(_) => self.wait_for_idle(slot, epoch),
        }
    }

    /// Returns true if an event is being recorded on the stream `key`.
    pub fn is_recording(&self, key: StreamKey) -> bool {
        self.queues.iter().any(|queue| queue.stream == key && queue.recordings > 0)
    }

    /// The queue of `stream`, whose events are from the cache `others`.
    #[inline]
    fn queue(&mut self, stream: StreamKey, others: &Option<Arc<EventCache>>) -> &mut StreamQueue {
        match self.queues.iter().position(|queue| queue.stream == stream) {
            Some(index) => &mut self.queues[index],
            None => self.add_queue(stream, others.clone()),
        }
    }

    #[cold]
    fn add_queue(
        &mut self,
        stream: StreamKey,
        others: Option<Arc<EventCache>>,
    ) -> &mut StreamQueue {
        if self.queues.len() >= QUEUES_KEPT {
            self.queues.retain(|queue| !queue.waiting.is_empty() || queue.recordings > 0);
        }
        let index = self.queues.len();
        self.queues.push(StreamQueue::new(stream, others));
        &mut self.queues[index]
    }

    #[cfg(test)]
    pub(super) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The stream `key` is about to end: its queue is known as `ended` from now on.
    pub fn end_stream(&mut self, key: StreamKey, ended: StreamKey) {
        for queue in self.queues.iter_mut().filter(|queue| queue.stream == key) {
            queue.stream = ended;
        }
    }

    /// The block in `slot`, freed in `epoch`, waits until the device is idle.
    pub fn wait_for_idle(&mut self, slot: Slot, epoch: u32) {
        self.for_idle.push((slot, epoch));
    }

    /// The blocks that wait until the device is idle, once for each stream.
    pub fn waiting_for_idle(&self) -> impl Iterator<Item = Slot> + '_ {
        self.for_idle.iter().map(|&(slot, _)| slot)
    }

    /// Returns true if the block in `slot` waits until the device is idle.
    pub fn waits_for_idle(&self, slot: Slot) -> bool {
        self.for_idle.iter().any(|&(waiting, _)| waiting == slot)
    }

    /// Queries the driver for complete events; calls `out` with the slot of each.
    ///
    /// `own` is the cache of the device's own context, `epoch` the lane's current one. Where a
    /// query fails, the block waits until the device is idle after `epoch`.
    pub fn poll(&mut self, own: &EventCache, epoch: u32, mut out: impl FnMut(Slot)) {
        let stock = &mut self.stock;
        for queue in &mut self.queues {
            let mut may_query_newest = true;
            if queue.keeps_up {
                may_query_newest = false;
                self.events -= queue.poll_newest(own, stock, &mut out);
            }
            queue.keeps_up = true;
            while let Some(&Waiting { event, slot, .. }) = queue.waiting.front() {
                match queue.is_complete(own, event) {
                    Ok(false) => {
                        queue.keeps_up = false;
                        break;
                    }
                    Ok(true) => out(slot),
                    Err(_) => self.for_idle.push((slot, epoch)),
                }
                put(own, queue.others.as_deref(), stock, event);
                queue.waiting.pop_front();
                self.events -= 1;
                if std::mem::take(&mut may_query_newest) {
                    self.events -= queue.poll_newest(own, stock, &mut out);
                }
            }
        }
    }

    /// The device was idle after all frees up to `epoch`; calls `out` with the slot of each wait.
    pub fn device_was_idle(&mut self, epoch: u32, mut out: impl FnMut(Slot)) {
        self.for_idle.retain(|&(slot, freed_epoch)| {
            let waits = freed_epoch > epoch;
            if !waits {
                out(slot);
            }
            waits
        });
    }
}
