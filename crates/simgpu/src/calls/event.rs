//! Events: recording, querying, waiting for them on the host and on streams.
//!
//! An event stands for an operation of a stream: it is complete when that operation is. A wait
//! copies that operation when it is enqueued, so recording the event again, or destroying it,
//! does not change earlier waits. An event never recorded is complete.
//!
//! An event is recorded on streams of its own context only. It may be queried and waited for from
//! any context and device (CUDA's programming guide, "stream and event behavior"; the driver API
//! manual on `cuEventRecord`).

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::quiet::Quiet;
use crate::state::State;
use crate::tables::{Event, Recorded};

impl Machine {
    /// A new event of `context`; one with `timing` can measure elapsed time.
    pub fn event_create(&self, context: u32, timing: bool) -> Result<u64> {
        let mut state = self.enter(context, Call::EventCreate)?;
        let recorded = Recorded::Never;
        Ok(state.events.insert(Event { context, timing, recorded, note: None }))
    }

    /// Destroys an event; waits enqueued before do not change.
    pub fn event_destroy(&self, context: u32, event: u64) -> Result<()> {
        let mut state = self.enter(context, Call::EventDestroy)?;
        state.end_event(event)?;
        state.quiet.set_event(event, None);
        Ok(())
    }

    /// Makes `event` stand for all work of `stream` up to now. Both belong to the same context.
    /// On a capturing stream, the event becomes part of the capture.
    #[inline]
    pub fn event_record(&self, context: u32, event: u64, stream: usize) -> Result<()> {
        let is_known = |quiet: &Quiet| {
            let of_event = quiet.event_context(event);
            of_event.is_some() && of_event == quiet.stream_context(context, stream)
        };
        if self.quietly(context, Call::EventRecord, is_known) {
            return Ok(());
        }
        self.record_with_lock(context, event, stream)
    }

    fn record_with_lock(&self, context: u32, event: u64, stream: usize) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, Some(Call::EventRecord))?;
        let (event_context, timing) = (state.event(event)?.context, state.event(event)?.timing);
        state.forbid_elsewhere(event)?;
        let entry = &state.streams.slots[slot as usize];
        if entry.context != event_context {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = match entry.capture {
            Some(capture) => {
                state.check_capture(capture)?;
                Recorded::Captured(capture)
            }
            None => {
                let sequence = state.enqueue(slot, Vec::new(), 0)?;
                let is_tracing = state.detector.is_some();
                let clock = &state.streams.slots[slot as usize].clock;
                let clock = is_tracing.then(|| clock.clone());
                let time_ns = if timing {
                    state.usage(state.context_device(event_context)?)?.driver_nanoseconds
                } else {
                    0
                };
                Recorded::At { slot, sequence, time_ns, clock }
            }
        };
        let is_captured = matches!(recorded, Recorded::Captured(_));
        if let Some(entry) = state.events.get_mut(event) {
            entry.recorded = recorded;
            let is_plain = !entry.timing && !is_captured && entry.note.is_none();
            state.quiet.set_event(event, is_plain.then_some(event_context));
        }
        state.note_record(event);
        Ok(())
    }

    /// Returns true if the work that `event` stands for has completed; the host then knows it.
    #[inline]
    pub fn event_query(&self, context: u32, event: u64) -> Result<bool> {
        if self.quietly(context, Call::EventQuery, |quiet| quiet.event_context(event).is_some()) {
            return Ok(true);
        }
        self.query_with_lock(context, event)
    }

    fn query_with_lock(&self, context: u32, event: u64) -> Result<bool> {
        let mut state = self.enter(context, Call::EventQuery)?;
        state.forbid_in_capture()?;
        let is_complete = match state.event(event)?.recorded {
            Recorded::Never => true,
            Recorded::At { slot, sequence, .. } => state.is_done(slot, sequence),
            Recorded::Captured(capture) => return Err(state.refuse_captured(capture)),
            Recorded::Elsewhere => state.is_over_elsewhere(event),
        };
        if is_complete {
            state.observe_event(event);
        }
        Ok(is_complete)
    }

    /// Waits until `event` is complete. `LAUNCH_TIMEOUT` if it can never complete.
    pub fn event_synchronize(&self, context: u32, event: u64) -> Result<()> {
        let mut state = self.enter(context, Call::EventSynchronize)?;
        let device = state.context_device(context)?;
        state.forbid_in_capture()?;
        let goal = match state.event(event)?.recorded {
            Recorded::Never => None,
            Recorded::At { slot, sequence, .. } => Some((slot, sequence)),
            Recorded::Captured(capture) => return Err(state.refuse_captured(capture)),
            Recorded::Elsewhere => return state.synchronize_elsewhere(event),
        };
        state.wait_for(device, goal.as_slice(), false)?;
        state.observe_event(event);
        Ok(())
    }

    /// Work enqueued on `stream` from now on comes after what `event` stands for. The two may
    /// belong to different contexts and devices.
    pub fn stream_wait(&self, context: u32, stream: usize, event: u64) -> Result<()> {
        let is_known = |quiet: &Quiet| {
            quiet.event_context(event).is_some() && quiet.stream_context(context, stream).is_some()
        };
        if self.quietly(context, Call::StreamWait, is_known) {
            return Ok(());
        }
        let (mut guard, slot) = self.enter_work(context, stream, Some(Call::StreamWait))?;
        let state = &mut *guard;
        state.event(event)?;
        let (other, sequence) = match state.event(event)?.recorded {
            Recorded::Never => return Ok(()),
            Recorded::Captured(captured) => return state.join_capture(slot, captured),
            Recorded::Elsewhere => return state.wait_for_elsewhere(slot, event),
            Recorded::At { slot, sequence, .. } => (slot, sequence),
        };
        if let Some(capture) = state.streams.slots[slot as usize].capture {
            state.invalidate_capture(capture);
            return Err(Code::STREAM_CAPTURE_ISOLATION);
        }
        if state.detector.is_some() {
            let Some(entry) = state.events.get(event) else { return Ok(()) };
            let Recorded::At { clock, .. } = &entry.recorded else { return Ok(()) };
            let waiting = &mut state.streams.slots[slot as usize].clock;
            if let Some(clock) = clock {
                waiting.join(clock);
            }
            waiting.advance(other, sequence);
        }
        let is_done = state.is_done(other, sequence);
        let after = if is_done { Vec::new() } else { vec![(other, sequence)] };
        state.enqueue(slot, after, 0).map(|_| ())
    }

    /// Virtual driver time between the recording of two events with timing, in nanoseconds.
    /// `NOT_READY` while either is incomplete.
    pub fn event_elapsed_ns(&self, start: u64, end: u64) -> Result<u64> {
        let state = self.lock();
        let time_ns = |event| -> Result<u64> {
            let event = state.event(event)?;
            match event.recorded {
                _ if !event.timing => Err(Code::INVALID_HANDLE),
                Recorded::Never | Recorded::Elsewhere => Err(Code::INVALID_HANDLE),
                Recorded::Captured(_) => Err(Code::CAPTURED_EVENT),
                Recorded::At { slot, sequence, .. } if !state.is_done(slot, sequence) => {
                    Err(Code::NOT_READY)
                }
                Recorded::At { time_ns, .. } => Ok(time_ns),
            }
        };
        Ok(time_ns(end)?.saturating_sub(time_ns(start)?))
    }
}

impl State {
    pub(crate) fn event(&self, event: u64) -> Result<&Event> {
        self.events.get(event).ok_or(Code::INVALID_HANDLE)
    }

    /// Ends the events of a context.
    pub(crate) fn forget_events(&mut self, context: u32) {
        let of_context = self.events.iter().filter(|(_, event)| event.context == context);
        let keys: Vec<u64> = of_context.map(|(key, _)| key).collect();
        for key in keys {
            // It is there: the key was just found.
            let _ = self.end_event(key);
            self.quiet.set_event(key, None);
        }
    }

    /// The host learns that `event` is complete, and all that came before it.
    fn observe_event(&mut self, event: u64) {
        let Some(detector) = &mut self.detector else { return };
        let Some(event) = self.events.get(event) else { return };
        if let Recorded::At { slot, sequence, clock, .. } = &event.recorded {
            detector.observe(*slot, *sequence, clock.as_ref());
        }
    }
}
