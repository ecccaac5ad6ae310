//! Freed blocks that other streams may still be using.
//!
//! Each block waits for one event a stream; the events of a stream complete in the order they
//! were recorded, so a queue per stream is polled from its head and no further than the first
//! event that is not complete; once the head is, the newest is asked for next. A stream whose event could not be had (it is being captured,
//! it is another thread's default stream, the driver failed) leaves the block waiting for the
//! next time the whole device is known idle.

use std::collections::VecDeque;

use super::{EventPool, StreamKey};
use crate::driver::Event;
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
}

#[derive(Debug)]
struct StreamQueue {
    stream: StreamKey,
    waiting: VecDeque<(Event, Slot)>,
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

    /// The block in `slot` waits for `event`, recorded on `stream`.
    pub fn wait_for_event(&mut self, slot: Slot, stream: StreamKey, event: Event) {
        self.events += 1;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.stream == stream) {
            queue.waiting.push_back((event, slot));
            return;
        }
        if self.queues.len() >= QUEUES_KEPT {
            self.queues.retain(|queue| !queue.waiting.is_empty());
        }
        self.queues.push(StreamQueue { stream, waiting: VecDeque::from([(event, slot)]) });
    }

    /// The block in `slot`, freed in `epoch`, waits until the device is idle.
    pub fn wait_for_idle(&mut self, slot: Slot, epoch: u32) {
        self.for_idle.push((slot, epoch));
    }

    /// Asks the driver which events are complete; `out` gets a slot for each.
    ///
    /// An event that the driver will not speak of is given up for the device's next idleness:
    /// `epoch` is the lane's current one.
    pub fn poll(&mut self, events: &EventPool, epoch: u32, mut out: impl FnMut(Slot)) {
        for queue in &mut self.queues {
            let mut may_ask_newest = true;
            while let Some(&(event, slot)) = queue.waiting.front() {
                match events.device().event_query(event) {
                    Ok(false) => break,
                    Ok(true) => out(slot),
                    Err(_) => self.for_idle.push((slot, epoch)),
                }
                events.put(event);
                queue.waiting.pop_front();
                self.events -= 1;
                // The newest complete means all are: one question for many blocks.
                if std::mem::take(&mut may_ask_newest)
                    && queue.waiting.len() > 1
                    && let Some(&(newest, _)) = queue.waiting.back()
                    && events.device().event_query(newest) == Ok(true)
                {
                    self.events -= queue.waiting.len();
                    for (event, slot) in queue.waiting.drain(..) {
                        out(slot);
                        events.put(event);
                    }
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
