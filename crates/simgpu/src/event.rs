//! Events: a point in a stream's queue, to be asked about, waited for and waited on.
//!
//! An event stands for an operation of a stream: it is complete when that operation is. Waits
//! take that operation over when they are enqueued, so recording an event again, or destroying
//! it, does not disturb them. An event never recorded is complete.

use crate::clock::Clock;
use crate::machine::{Machine, State};
use crate::quiet::Quiet;
use crate::{Call, Code, Result};

#[derive(Debug)]
pub(crate) struct Event {
    device: u32,
    timing: bool,
    recorded: Recorded,
}

#[derive(Clone, Debug)]
enum Recorded {
    Never,
    At { slot: u32, sequence: u64, time_ns: u64, clock: Option<Clock> },
    Captured(u64),
}

impl Machine {
    /// A new event of `device`; one with `timing` can be asked for elapsed time.
    pub fn event_create(&self, device: u32, timing: bool) -> Result<u64> {
        let mut state = self.enter(device, Call::EventCreate)?;
        Ok(state.events.insert(Event { device, timing, recorded: Recorded::Never }))
    }

    /// Destroys an event; waits enqueued before are not disturbed.
    pub fn event_destroy(&self, device: u32, event: u64) -> Result<()> {
        let mut state = self.enter(device, Call::EventDestroy)?;
        state.events.remove(event).ok_or(Code::INVALID_HANDLE)?;
        state.quiet.set_event(event, None);
        Ok(())
    }

    /// Makes `event` stand for all work of `stream` up to now. Both are of the same device. On
    /// a capturing stream, the event becomes part of the capture.
    pub fn event_record(&self, device: u32, event: u64, stream: usize) -> Result<()> {
        let is_known = |quiet: &Quiet| {
            let of_event = quiet.event_device(event);
            of_event.is_some() && of_event == quiet.stream_device(device, stream)
        };
        if self.quietly(device, Call::EventRecord, is_known) {
            return Ok(());
        }
        let mut state = self.enter(device, Call::EventRecord)?;
        let event_device = state.event(event)?.device;
        let slot = state.stream(device, stream, Call::EventRecord)?;
        let entry = &state.streams.slots[slot as usize];
        if entry.device != event_device {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = match entry.capture {
            Some(capture) => Recorded::Captured(capture),
            None => {
                let sequence = state.enqueue(slot, Vec::new(), 0)?;
                let is_tracing = state.detector.is_some();
                let clock = &state.streams.slots[slot as usize].clock;
                let clock = is_tracing.then(|| clock.clone());
                let time_ns = state.usage(event_device)?.driver_nanoseconds;
                Recorded::At { slot, sequence, time_ns, clock }
            }
        };
        let is_captured = matches!(recorded, Recorded::Captured(_));
        if let Some(entry) = state.events.get_mut(event) {
            entry.recorded = recorded;
            let is_plain = !entry.timing && !is_captured;
            state.quiet.set_event(event, is_plain.then_some(event_device));
        }
        Ok(())
    }

    /// Whether the work that `event` stands for has completed; if so, the host knows it.
    pub fn event_query(&self, device: u32, event: u64) -> Result<bool> {
        if self.quietly(device, Call::EventQuery, |quiet| quiet.event_device(event).is_some()) {
            return Ok(true);
        }
        let mut state = self.enter(device, Call::EventQuery)?;
        state.forbid_in_capture()?;
        let is_complete = match state.event(event)?.recorded {
            Recorded::Never => true,
            Recorded::At { slot, sequence, .. } => state.is_done(slot, sequence),
            Recorded::Captured(_) => return Err(Code::CAPTURED_EVENT),
        };
        if is_complete {
            state.observe_event(event);
        }
        Ok(is_complete)
    }

    /// Waits until `event` is complete. `LAUNCH_TIMEOUT` if it can never be.
    pub fn event_synchronize(&self, device: u32, event: u64) -> Result<()> {
        let mut state = self.enter(device, Call::EventSynchronize)?;
        state.forbid_in_capture()?;
        let goal = match state.event(event)?.recorded {
            Recorded::Never => None,
            Recorded::At { slot, sequence, .. } => Some((slot, sequence)),
            Recorded::Captured(_) => return Err(Code::CAPTURED_EVENT),
        };
        state.wait_for(device, goal.as_slice(), false)?;
        state.observe_event(event);
        Ok(())
    }

    /// Work enqueued on `stream` from now on comes after what `event` stands for. The two may
    /// be of different devices.
    pub fn stream_wait(&self, device: u32, stream: usize, event: u64) -> Result<()> {
        let is_known = |quiet: &Quiet| {
            quiet.event_device(event).is_some() && quiet.stream_device(device, stream).is_some()
        };
        if self.quietly(device, Call::StreamWait, is_known) {
            return Ok(());
        }
        let mut guard = self.enter(device, Call::StreamWait)?;
        let state = &mut *guard;
        state.event(event)?;
        let slot = state.stream(device, stream, Call::StreamWait)?;
        let (other, sequence) = match state.event(event)?.recorded {
            Recorded::Never => return Ok(()),
            Recorded::Captured(captured) => return state.join_capture(slot, captured),
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
                Recorded::Never => Err(Code::INVALID_HANDLE),
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
    fn event(&self, event: u64) -> Result<&Event> {
        self.events.get(event).ok_or(Code::INVALID_HANDLE)
    }

    /// The host knows that `event` is complete, and all that came before it.
    fn observe_event(&mut self, event: u64) {
        let Some(detector) = &mut self.detector else { return };
        let Some(event) = self.events.get(event) else { return };
        if let Recorded::At { slot, sequence, clock, .. } = &event.recorded {
            detector.observe(*slot, *sequence, clock.as_ref());
        }
    }
}
