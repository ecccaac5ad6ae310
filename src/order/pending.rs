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

use std::collections::VecDeque;
use std::sync::Arc;

use super::events::EventStock;
use super::recorded::Recorded;
use super::{Contexts, EventPool, OWN_CONTEXT, StreamKey};
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
}

#[derive(Debug)]
struct StreamQueue {
    stream: StreamKey,
    /// Where its events are from, unless that is the own context of the device.
    others: Option<Arc<EventPool>>,
    waiting: VecDeque<(Event, Slot)>,
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
        let Some(&(newest, _)) = self.waiting.back().filter(|_| self.waiting.len() > 1) else {
            return 0;
        };
        if self.is_complete(own, newest) != Ok(true) {
            return 0;
        }
        let count = self.waiting.len();
        let others = self.others.clone();
        for (event, slot) in self.waiting.drain(..) {
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

    /// The block in `slot` waits for the work queued up to now on a stream that the calling thread
    /// can name. Nothing has changed where no event can be had, as [`EventPool::record`] says.
    pub fn wait_for_stream(
        &mut self,
        contexts: &Contexts,
        slot: Slot,
        recorded: Recorded,
    ) -> driver::Result<()> {
        let Recorded { stream, context } = recorded;
        let (event, others) = match context {
            OWN_CONTEXT => (self.stock.record(contexts.own(), stream.handle)?, None),
            context => {
                let others = contexts.get(context);
                (others.record(stream.handle)?, Some(others))
            }
        };
        self.queue(stream.key, others, event, slot);
        Ok(())
    }

    fn queue(
        &mut self,
        stream: StreamKey,
        others: Option<Arc<EventPool>>,
        event: Event,
        slot: Slot,
    ) {
        self.events += 1;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.stream == stream) {
            queue.waiting.push_back((event, slot));
            return;
        }
        if self.queues.len() >= QUEUES_KEPT {
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }
        let waiting = VecDeque::from([(event, slot)]);
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
            while let Some(&(event, slot)) = queue.waiting.front() {
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
