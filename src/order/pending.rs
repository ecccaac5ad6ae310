//! Freed blocks that other streams may still be using.
//!
//! Each block waits for one event a stream; the events of a stream complete in the order they
//! were recorded. So a queue per stream is polled from its head, no further than the first event
//! that is not complete; once the head is, the newest is asked for next, which stands for all. A
//! stream that had come to its end at the last poll is asked for the newest at once. A stream whose
//! event could not be had (it is being captured, it is another thread's default stream, it has
//! ended, the driver failed) leaves the block waiting for the next time the whole device is known
//! idle.
//!
//! A stream is told by its key, never by its handle: two streams' events complete in no order.
//!
//! An event is recorded without the lane's lock, because that blocks while the stream's queue is
//! full: [`PendingFrees::begin_recording`], then [`Recording::record`] with no lock held, then
//! [`PendingFrees::end_recording`]. Of several threads that record on one stream at a time nobody
//! can say whose event is the first; an event stands for those before it in the queue only if no
//! other was recorded at the same time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::events::EventStock;
use super::recorded::Recorded;
use super::{Contexts, EventPool, OWN_CONTEXT, Stream, StreamKey};
use crate::driver::{self, Event};
use crate::memory::Slot;

/// Above this many queues, empty ones are dropped.
const QUEUES_KEPT: usize = 32;

/// The pending blocks of one lane, as what each waits for. A block appears once for each of
/// its streams and is ready when it has come out as often as it went in.
#[derive(Debug, Default)]
pub struct PendingFrees {
    queues: Vec<StreamQueue>,
    /// What waits for the device to be idle, with the lane's epoch when it was freed.
    for_idle: Vec<(Slot, u32)>,
    events: usize,
    stock: EventStock,
    /// On which streams events are being recorded, and whether several at a time on one.
    recordings: Vec<(StreamKey, bool)>,
}

/// An event for a pending block on its way.
#[derive(Debug)]
pub struct Recording {
    stream: Stream,
    /// Where its event is from, unless that is the own context of the device.
    others: Option<Arc<EventPool>>,
    idle: Option<Event>,
}

/// One wait of a pending block.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    event: Event,
    slot: Slot,
    /// Whether the event stands for those before it in the queue, too.
    is_newest: bool,
}

#[derive(Debug)]
struct StreamQueue {
    stream: StreamKey,
    /// Where its events are from, unless that is the own context of the device.
    others: Option<Arc<EventPool>>,
    waiting: VecDeque<Waiting>,
    /// Whether everything was complete when it was last polled.
    keeps_up: bool,
}

impl StreamQueue {
    /// Asks for the newest of several events; complete, it stands for all. Gives how many came out.
    fn poll_newest(
        &mut self,
        own: &EventPool,
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

    fn is_complete(&self, own: &EventPool, event: Event) -> driver::Result<bool> {
        self.others.as_deref().unwrap_or(own).device().event_query(event)
    }
}

/// Takes back an event of the context that `others` are of, or of the own one.
fn put(own: &EventPool, others: Option<&EventPool>, stock: &mut EventStock, event: Event) {
    match others {
        None => stock.put(own, event),
        Some(others) => others.put(event),
    }
}

impl Recording {
    /// An event that stands for the work queued on the stream up to now, as [`EventPool::record`]
    /// gives it. No lock is held.
    pub fn record(&mut self, own: &EventPool) -> driver::Result<Event> {
        match &self.others {
            None => own.record_with(&mut self.idle, self.stream.handle),
            Some(others) => others.record(self.stream.handle),
        }
    }
}

impl PendingFrees {
    /// Whether an event is waited for, so that polling may help.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.events != 0
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.events == 0 && self.for_idle.is_empty()
    }

    /// Begins to record an event on a stream that the calling thread can name.
    pub fn begin_recording(&mut self, contexts: &Contexts, recorded: Recorded) -> Recording {
        let Recorded { stream, context } = recorded;
        let mut is_alone = true;
        for (_, is_shared) in self.recordings.iter_mut().filter(|(key, _)| *key == stream.key) {
            (is_alone, *is_shared) = (false, true);
        }
        self.recordings.push((stream.key, !is_alone));
        let (others, idle) = match context {
            OWN_CONTEXT => (None, self.stock.take(contexts.own())),
            context => (Some(contexts.get(context)), None),
        };
        Recording { stream, others, idle }
    }

    /// The recording has given `answer`: the block in `slot` waits for that event, or, in `epoch`,
    /// until the device is idle.
    pub fn end_recording(
        &mut self,
        own: &EventPool,
        recording: Recording,
        answer: driver::Result<Event>,
        (slot, epoch): (Slot, u32),
    ) {
        let Recording { stream, others, idle } = recording;
        // Those at a time on one stream are all marked as such, whichever of them is found.
        let index = self.recordings.iter().position(|(key, _)| *key == stream.key);
        let (_, is_shared) = index.map_or((stream.key, true), |i| self.recordings.swap_remove(i));
        if let Some(event) = idle {
            self.stock.put(own, event);
        }
        match answer {
            Ok(event) => {
                let waiting = Waiting { event, slot, is_newest: !is_shared };
                self.queue(stream.key, others, waiting);
            }
            Err(_) => self.wait_for_idle(slot, epoch),
        }
    }

    /// Whether an event is being recorded on the stream `key`.
    pub fn is_recording(&self, key: StreamKey) -> bool {
        self.recordings.iter().any(|(recording, _)| *recording == key)
    }

    fn queue(&mut self, stream: StreamKey, others: Option<Arc<EventPool>>, waiting: Waiting) {
        self.events += 1;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.stream == stream) {
            queue.waiting.push_back(waiting);
            return;
        }
        if self.queues.len() >= QUEUES_KEPT {
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }
        let waiting = VecDeque::from([waiting]);
        self.queues.push(StreamQueue { stream, others, waiting, keeps_up: false });
    }

    /// The stream `key` is about to end: what it is waited for with is kept by `ended` from now on.
    pub fn end_stream(&mut self, key: StreamKey, ended: StreamKey) {
        for queue in self.queues.iter_mut().filter(|queue| queue.stream == key) {
            queue.stream = ended;
        }
    }

    /// The block in `slot`, freed in `epoch`, waits until the device is idle.
    pub fn wait_for_idle(&mut self, slot: Slot, epoch: u32) {
        self.for_idle.push((slot, epoch));
    }

    /// The blocks that wait until the device is idle, once for each reason.
    pub fn waiting_for_idle(&self) -> impl Iterator<Item = Slot> + '_ {
        self.for_idle.iter().map(|&(slot, _)| slot)
    }

    /// Whether the block in `slot` waits until the device is idle.
    pub fn waits_for_idle(&self, slot: Slot) -> bool {
        self.for_idle.iter().any(|&(waiting, _)| waiting == slot)
    }

    /// Asks the driver which events are complete; `out` gets a slot for each.
    ///
    /// An event that the driver will not speak of is given up for the device's next idleness:
    /// `own` are the events of the device's own context, `epoch` is the lane's current one.
    pub fn poll(&mut self, own: &EventPool, epoch: u32, mut out: impl FnMut(Slot)) {
        let stock = &mut self.stock;
        for queue in &mut self.queues {
            let mut may_ask_newest = true;
            if queue.keeps_up {
                may_ask_newest = false;
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
                if std::mem::take(&mut may_ask_newest) {
                    self.events -= queue.poll_newest(own, stock, &mut out);
                }
            }
        }
    }

    /// The device has been idle since all frees up to `epoch`; `out` gets a slot for each wait.
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
