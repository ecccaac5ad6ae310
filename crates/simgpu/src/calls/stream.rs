//! Streams as queues: what is enqueued, what has completed, waiting for it.
//!
//! An operation completes when it is at the head of its queue, its stream is not held, and all
//! operations it comes after have completed. Those were enqueued before it, so the relation has
//! no circle. Running what a wait needs therefore always ends: either the wait is over, or a
//! stream that a test holds is in the way, which is an error and not a hang.
//!
//! The legacy stream of a context and its *blocking* streams wait for each other, as CUDA's do.
//! Non-blocking ones (which include implicit streams) are ordered by events alone.
//!
//! A queue holds a limited number of operations: see `room`.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::config::Progress;
use crate::machine::Machine;
use crate::quiet::Quiet;
use crate::state::State;
use crate::tables::{Operation, Until};

impl Machine {
    /// A new stream of `context`; a `blocking` one is ordered with the legacy stream. Its handle
    /// may be one that a destroyed stream had.
    pub fn stream_create(&self, context: u32, blocking: bool) -> Result<usize> {
        let mut state = self.enter(context, Call::StreamCreate)?;
        state.create_stream(context, blocking)
    }

    /// Destroys a stream. Work in its queue still completes.
    pub fn stream_destroy(&self, context: u32, stream: usize) -> Result<()> {
        self.enter(context, Call::StreamDestroy)?.destroy_stream(context, stream)
    }

    /// The stream's id, which is never reused, unlike its handle. Legal at any time.
    pub fn stream_id(&self, context: u32, stream: usize) -> Result<u64> {
        let call = Call::StreamGetId;
        let mut id = None;
        let is_known = |quiet: &Quiet| {
            id = quiet.stream_id(stream);
            id.is_some()
        };
        if self.quietly(context, call, is_known)
            && let Some(id) = id
        {
            return Ok(id);
        }
        let mut state = self.enter(context, call)?;
        let slot = state.stream(context, stream, call)?;
        Ok(state.streams.slots[slot as usize].id)
    }

    /// The context in which a stream was made. Legal at any time.
    pub fn stream_context(&self, context: u32, stream: usize) -> Result<u32> {
        let mut state = self.enter(context, Call::StreamGetContext)?;
        let slot = state.stream(context, stream, Call::StreamGetContext)?;
        Ok(state.streams.slots[slot as usize].context)
    }

    /// Returns true if all work of `stream` has completed.
    pub fn stream_query(&self, context: u32, stream: usize) -> Result<bool> {
        let mut state = self.enter(context, Call::StreamQuery)?;
        state.forbid_in_capture()?;
        let slot = state.stream(context, stream, Call::StreamQuery)?;
        state.forbid_on_capturing(slot)?;
        if state.is_legacy(slot) {
            state.forbid_legacy_in_capture(slot)?;
        }
        let entry = &state.streams.slots[slot as usize];
        let is_done = entry.done == entry.enqueued;
        if is_done {
            state.observe_stream(slot);
        }
        Ok(is_done)
    }

    /// Waits for all work of `stream`. `LAUNCH_TIMEOUT` if it can never finish.
    pub fn stream_synchronize(&self, context: u32, stream: usize) -> Result<()> {
        let mut state = self.enter(context, Call::StreamSynchronize)?;
        let device = state.context_device(context)?;
        let slot = state.stream(context, stream, Call::StreamSynchronize)?;
        state.forbid_stream_wait(slot)?;
        let goal = (slot, state.streams.slots[slot as usize].enqueued);
        state.wait_for(device, &[goal], false)?;
        state.observe_stream(slot);
        Ok(())
    }

    /// Waits for all work of `stream` as part of another call, such as a copy to the host. Not a
    /// call of its own.
    pub fn wait_within_call(&self, context: u32, stream: usize) -> Result<()> {
        self.lock().wait_within_call(context, stream)
    }

    /// Waits for all work of `context`, but not for that of other contexts of its device.
    /// `LAUNCH_TIMEOUT` if it can never finish.
    pub fn synchronize(&self, context: u32) -> Result<()> {
        let mut state = self.enter(context, Call::Synchronize)?;
        let device = state.context_device(context)?;
        state.forbid_while_device_captures(device)?;
        state.wait_for_context(context, false)
    }

    /// Enqueues work that takes `nanoseconds` of virtual time, which a host that waits for it is
    /// charged.
    pub fn delay(&self, context: u32, stream: usize, nanoseconds: u64) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, None)?;
        if state.streams.slots[slot as usize].capture.is_none() {
            state.enqueue(slot, Vec::new(), nanoseconds)?;
        }
        Ok(())
    }

    /// Completes up to `operations` operations of `stream` and returns how many. It stops early at
    /// an empty queue, at a wait that is not over, and if the stream is held.
    pub fn advance(&self, context: u32, stream: usize, operations: u64) -> Result<u64> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        Ok((0..operations).take_while(|_| state.step(slot) == Step::Completed).count() as u64)
    }

    /// Completes all work of `stream`, and what it waits for.
    pub fn run_to_idle(&self, context: u32, stream: usize) -> Result<()> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        let goal = state.streams.slots[slot as usize].enqueued;
        state.complete(slot, goal).map(|_| ())
    }

    /// Completes all work of `device`, of all its contexts, and what it waits for. The host does
    /// not learn that it is complete.
    pub fn run_device_to_idle(&self, device: u32) -> Result<()> {
        let mut state = self.lock();
        state.device(device)?;
        let slots = state.streams.of_device(device).collect();
        for (slot, sequence) in state.open_goals(slots) {
            state.complete(slot, sequence)?;
        }
        Ok(())
    }

    /// How many operations of `stream` have not completed.
    pub fn pending(&self, context: u32, stream: usize) -> Result<u64> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        let entry = &state.streams.slots[slot as usize];
        Ok(entry.enqueued - entry.done)
    }

    /// The end of what is enqueued on `stream` now. It stays valid when the handle is reused for
    /// another stream. Not a call of its own.
    pub fn mark(&self, context: u32, stream: usize) -> Result<Mark> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        Ok(Mark { slot, sequence: state.streams.slots[slot as usize].enqueued })
    }

    /// Returns true if all work up to `mark` has completed. Not a call of its own.
    pub fn is_reached(&self, mark: Mark) -> bool {
        self.lock().is_done(mark.slot, mark.sequence)
    }

    /// Holds `stream` back, or lets it go on. A held stream completes nothing, and a wait for it
    /// returns `LAUNCH_TIMEOUT`.
    pub fn hold(&self, context: u32, stream: usize, held: bool) -> Result<()> {
        let mut state = self.lock();
        let slot = state.stream(context, stream, None)?;
        let was_held = std::mem::replace(&mut state.streams.slots[slot as usize].held, held);
        state.streams.held = state.streams.held + usize::from(held) - usize::from(was_held);
        // A thread that sleeps before the full queue can go on by itself now.
        state.has_moved |= was_held && !held;
        state.settle();
        Ok(())
    }

    /// Changes how streams advance from now on.
    pub fn set_progress(&self, progress: Progress) {
        let mut state = self.lock();
        state.progress = progress;
        state.settle();
    }
}

/// A place in a stream; see [`Machine::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    slot: u32,
    sequence: u64,
}

/// The result of trying to complete one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Completed,
    /// This one must complete first, as a slot and a number.
    Blocked(u32, u64),
    /// It waits for another process.
    Elsewhere,
    Held,
    Empty,
}

impl State {
    /// Puts an operation at the end of a queue and returns its number.
    pub(crate) fn enqueue(
        &mut self,
        slot: u32,
        after: Vec<(u32, u64)>,
        duration_ns: u64,
    ) -> Result<u64> {
        self.enqueue_until(slot, after, None, duration_ns)
    }

    /// [`Self::enqueue`], also after what another process recorded.
    pub(crate) fn enqueue_until(
        &mut self,
        slot: u32,
        mut after: Vec<(u32, u64)>,
        until: Option<Until>,
        duration_ns: u64,
    ) -> Result<u64> {
        if self.streams.slots[slot as usize].blocking {
            self.order_with_legacy(slot, &mut after)?;
        }
        if self.detector.is_some() {
            self.refresh_clock(slot);
        }
        let is_ready = self.progress == Progress::Automatic
            && until.as_ref().is_none_or(Until::is_over)
            && after.iter().all(|&(other, sequence)| self.is_done(other, sequence));
        let stream = &mut self.streams.slots[slot as usize];
        stream.enqueued += 1;
        if is_ready && !stream.held && stream.queue.is_empty() {
            stream.done = stream.enqueued;
        } else {
            self.streams.elsewhere += usize::from(until.is_some());
            stream.queue.push_back(Operation { after, until, duration_ns });
            self.streams.queued += 1;
        }
        let sequence = stream.enqueued;
        if self.detector.is_some() {
            stream.clock.advance(slot, sequence);
        }
        Ok(sequence)
    }

    /// Returns true if operation `sequence` of a stream has completed.
    pub(crate) fn is_done(&self, slot: u32, sequence: u64) -> bool {
        self.streams.slots[slot as usize].done >= sequence
    }

    pub(crate) fn wait_within_call(&mut self, context: u32, stream: usize) -> Result<()> {
        let device = self.context_device(context)?;
        let slot = self.stream(context, stream, None)?;
        self.forbid_stream_wait(slot)?;
        let goal = (slot, self.streams.slots[slot as usize].enqueued);
        self.wait_for(device, &[goal], true)?;
        self.observe_stream(slot);
        Ok(())
    }

    /// Waits for all work of `context`; the host then knows that it is complete.
    pub(crate) fn wait_for_context(&mut self, context: u32, implicit: bool) -> Result<()> {
        let device = self.context_device(context)?;
        let goals = self.open_goals(self.streams.of_context(context).collect());
        self.wait_for(device, &goals, implicit)?;
        for (slot, _) in goals {
            self.observe_stream(slot);
        }
        Ok(())
    }

    /// Waits until `goals` have completed and charges the wait to `device`.
    pub(crate) fn wait_for(
        &mut self,
        device: u32,
        goals: &[(u32, u64)],
        implicit: bool,
    ) -> Result<()> {
        let mut waited_ns = 0u64;
        let mut outcome = Ok(());
        let is_blocked = goals.iter().any(|&(slot, sequence)| !self.is_done(slot, sequence));
        for &(slot, sequence) in goals {
            match self.complete(slot, sequence) {
                Ok(nanoseconds) => waited_ns = waited_ns.saturating_add(nanoseconds),
                Err(code) => outcome = outcome.and(Err(code)),
            }
        }
        let waits = &mut self.device_mut(device)?.usage.host_waits;
        *(if implicit { &mut waits.implicit } else { &mut waits.explicit }) += 1;
        waits.blocked += u64::from(is_blocked);
        waits.nanoseconds = waits.nanoseconds.saturating_add(waited_ns);
        outcome
    }

    /// The streams of `slots` with work that is unfinished or not known to the host as complete,
    /// each with its last operation.
    fn open_goals(&self, slots: Vec<u32>) -> Vec<(u32, u64)> {
        let detector = self.detector.as_ref();
        let is_open = |&(slot, sequence): &(u32, u64)| {
            !self.is_done(slot, sequence)
                || detector.is_some_and(|detector| detector.host.get(slot) < sequence)
        };
        slots
            .into_iter()
            .map(|slot| (slot, self.streams.slots[slot as usize].enqueued))
            .filter(is_open)
            .collect()
    }

    /// Runs queues until operation `sequence` of a stream has completed; returns the virtual
    /// time of what was run.
    pub(crate) fn complete(&mut self, slot: u32, sequence: u64) -> Result<u64> {
        let mut elapsed_ns = 0u64;
        let mut goals = vec![(slot, sequence)];
        while let Some(&(slot, sequence)) = goals.last() {
            if self.is_done(slot, sequence) {
                goals.pop();
                continue;
            }
            let front = self.streams.slots[slot as usize].queue.front();
            let duration_ns = front.map_or(0, |operation| operation.duration_ns);
            match self.step(slot) {
                Step::Completed => elapsed_ns = elapsed_ns.saturating_add(duration_ns),
                Step::Blocked(other, sequence) => goals.push((other, sequence)),
                Step::Elsewhere => self.wait_elsewhere(slot)?,
                Step::Held | Step::Empty => return Err(Code::LAUNCH_TIMEOUT),
            }
        }
        Ok(elapsed_ns)
    }

    fn step(&mut self, slot: u32) -> Step {
        let stream = &self.streams.slots[slot as usize];
        let Some(operation) = stream.queue.front() else { return Step::Empty };
        if stream.held {
            return Step::Held;
        }
        let unfinished = |&&(other, sequence): &&(u32, u64)| !self.is_done(other, sequence);
        if let Some(&(other, sequence)) = operation.after.iter().find(unfinished) {
            return Step::Blocked(other, sequence);
        }
        if operation.until.as_ref().is_some_and(|until| !until.is_over()) {
            return Step::Elsewhere;
        }
        let stream = &mut self.streams.slots[slot as usize];
        let waited = stream.queue.pop_front().is_some_and(|done| done.until.is_some());
        self.streams.elsewhere -= usize::from(waited);
        stream.done += 1;
        self.streams.queued -= 1;
        self.has_moved = true;
        Step::Completed
    }

    /// Drops the work of a stream whose context ends. The host knows that it is over.
    pub(crate) fn cut_short(&mut self, slot: u32) {
        let stream = &mut self.streams.slots[slot as usize];
        self.streams.queued -= stream.queue.len();
        let waiting = stream.queue.iter().filter(|operation| operation.until.is_some());
        self.streams.elsewhere -= waiting.count();
        self.streams.held -= usize::from(stream.held);
        stream.queue.clear();
        (stream.done, stream.held) = (stream.enqueued, false);
        self.has_moved = true;
        self.observe_stream(slot);
    }

    /// With automatic progress, completes everything that can complete.
    pub(crate) fn settle(&mut self) {
        let mut is_moving = self.progress == Progress::Automatic;
        while is_moving {
            is_moving = false;
            for slot in 0..self.streams.slots.len() as u32 {
                while self.step(slot) == Step::Completed {
                    is_moving = true;
                }
            }
        }
    }

    /// Returns true if this is the legacy stream of its context.
    pub(crate) fn is_legacy(&self, slot: u32) -> bool {
        let context = self.streams.slots[slot as usize].context;
        self.contexts[context as usize].legacy == slot
    }

    /// The streams that are ordered with a legacy stream.
    pub(crate) fn blocking_streams(&self, legacy: u32) -> Vec<u32> {
        let is_other =
            |&other: &u32| other != legacy && self.streams.slots[other as usize].blocking;
        let context = self.streams.slots[legacy as usize].context;
        self.streams.of_context(context).filter(is_other).collect()
    }

    /// Orders the next operation of a blocking stream after the legacy stream's work. If `slot` is
    /// the legacy stream itself: after the work of all blocking streams.
    fn order_with_legacy(&mut self, slot: u32, after: &mut Vec<(u32, u64)>) -> Result<()> {
        let context = self.streams.slots[slot as usize].context;
        let legacy = self.contexts[context as usize].legacy;
        let others = if slot == legacy { self.blocking_streams(slot) } else { vec![legacy] };
        if slot == legacy {
            self.forbid_legacy_in_capture(slot)?;
        }
        for other in others {
            let sequence = self.streams.slots[other as usize].enqueued;
            if sequence == 0 {
                continue;
            }
            if !self.is_done(other, sequence) {
                after.push((other, sequence));
            }
            if self.detector.is_some() {
                let clock = std::mem::take(&mut self.streams.slots[other as usize].clock);
                self.streams.slots[slot as usize].clock.join(&clock);
                self.streams.slots[other as usize].clock = clock;
            }
        }
        Ok(())
    }
}
