//! Queues are finite: whoever finds one full waits for room.
//!
//! A real driver's launch, event record or wait returns at once until about a thousand operations
//! wait in the stream, and from then on only as the device takes one out. Here the caller runs the
//! queues itself, as if that time passed. Where that is of no use, because a test holds the stream
//! or one it comes after, the calling thread sleeps with the machine's lock let go, until another
//! thread has opened the gate; if none ever does, it sleeps for ever, as it would on a real one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::machine::{Locked, Machine};
use crate::{Call, Result};

/// Where threads wait until anything has been completed.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Changed under the machine's lock only, like what they wait for.
    waiting: AtomicUsize,
    /// How often something was completed while somebody waited.
    turn: Mutex<u64>,
    has_turned: Condvar,
}

impl Room {
    /// Something was completed; told by whoever holds the machine's lock.
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *self.turn.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.has_turned.notify_all();
        }
    }
}

impl Machine {
    /// The state and the slot of `stream`, for work to be enqueued there: as a driver call, or
    /// (`None`) as what a program does by other means.
    pub(crate) fn enter_work(
        &self,
        context: u32,
        stream: usize,
        call: Option<Call>,
    ) -> Result<(Locked<'_>, u32)> {
        let mut state = match call {
            Some(call) => self.enter(context, call)?,
            None => self.lock(),
        };
        state.context_device(context)?;
        let slot = state.stream(context, stream, call)?;
        Ok((self.with_room(state, slot)?, slot))
    }

    /// `state` as soon as the queue of a stream has room. Captured work needs none.
    fn with_room<'a>(&'a self, mut state: Locked<'a>, slot: u32) -> Result<Locked<'a>> {
        let is_full = |state: &Locked<'_>| {
            let stream = &state.streams.slots[slot as usize];
            stream.capture.is_none() && stream.queue.len() >= state.config.queue_depth
        };
        if !is_full(&state) {
            return Ok(state);
        }
        let device = state.streams.slots[slot as usize].device;
        state.device_mut(device)?.usage.host_waits.queue_full += 1;
        while is_full(&state) {
            let first = state.streams.slots[slot as usize].done + 1;
            match state.complete(slot, first) {
                Ok(nanoseconds) => {
                    let waits = &mut state.device_mut(device)?.usage.host_waits;
                    waits.nanoseconds = waits.nanoseconds.saturating_add(nanoseconds);
                }
                Err(_) => state = self.sleep(state),
            }
        }
        Ok(state)
    }

    /// Lets the lock go until another thread has completed something.
    fn sleep<'a>(&'a self, state: Locked<'a>) -> Locked<'a> {
        let room = &*self.room;
        room.waiting.fetch_add(1, Ordering::Relaxed);
        let before = *room.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(state);
        let turn = room.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = room.has_turned.wait_while(turn, |turn| *turn == before);
        drop(woken);
        let state = self.lock();
        room.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }
}
