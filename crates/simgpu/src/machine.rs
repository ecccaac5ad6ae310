//! A machine: its state, the one lock around it, and the ways through that lock.
//!
//! Every call takes the lock once, for its whole duration. No call waits while it holds the
//! lock, because waiting for a simulated device means running its queues. (A call that finds a
//! queue full which only another thread can empty lets the lock go: see `room`.) Where calls take
//! time, that passes before the lock is taken. So calls are
//! atomic, and threads are ordered by the lock. With addresses only, a call takes well under a
//! microsecond. The few that programs make all the time skip the lock where they would change
//! nothing: see `quiet`.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::call::Call;
use crate::code::Result;
use crate::config::{Config, StoreKind};
use crate::cost::CostTable;
use crate::quiet::Quiet;
use crate::room::Room;
use crate::state::State;

/// The shortest time that a call takes really, in nanoseconds. The system wakes no thread so soon that less
/// would be meant.
const LEAST_REAL_NS: u64 = 10_000;

/// What is done before each call; see [`Machine::before_each_call`].
struct Before(Box<dyn Fn(Call) + Send + Sync>);

/// A simulated machine. All methods may be called from any thread.
#[derive(Debug)]
pub struct Machine {
    store: StoreKind,
    /// What calls cost, if they take time.
    real_costs: Option<CostTable>,
    /// What tests do before each call; then no call skips the lock.
    before: OnceLock<Before>,
    /// What is known without the lock.
    pub(crate) quiet: Arc<Quiet>,
    /// Where threads wait that found a queue full.
    room: Arc<Room>,
    state: Mutex<State>,
}

/// The state, under the lock. On drop, publishes whether the machine is idle.
#[derive(Debug)]
pub(crate) struct Locked<'a>(MutexGuard<'a, State>);

impl Machine {
    /// A machine as `config` says. `INVALID_VALUE` if it cannot be, `OUT_OF_MEMORY` if the host
    /// lacks address space or files.
    pub fn new(config: Config) -> Result<Arc<Self>> {
        let store = config.store;
        let real_costs = config.takes_time.then(|| config.costs.clone());
        let state = State::new(config)?;
        let (quiet, room) = (Arc::clone(&state.quiet), Arc::clone(&state.room));
        Ok(Arc::new(Self {
            store,
            real_costs,
            before: OnceLock::new(),
            quiet,
            room,
            state: Mutex::new(state),
        }))
    }

    /// What the machine was made of.
    pub fn config(&self) -> Config {
        self.lock().config.clone()
    }

    /// Which store the machine has.
    pub fn store(&self) -> StoreKind {
        self.store
    }

    /// From now on calls `before` in each thread that makes a driver call, before the call has done
    /// anything: to let other threads go on there. Only the first one that is set counts.
    pub fn before_each_call(&self, before: impl Fn(Call) + Send + Sync + 'static) {
        let _ = self.before.set(Before(Box::new(before)));
    }

    /// The state, for what is not a driver call.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let mut state = Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        if state.streams.elsewhere > 0 {
            state.settle();
        }
        state
    }

    /// The state, for a driver call in `context`: counted, charged, and subject to the script.
    pub(crate) fn enter(&self, context: u32, call: Call) -> Result<Locked<'_>> {
        if let Some(Before(before)) = self.before.get() {
            before(call);
        }
        self.take_time(call);
        let mut state = self.lock();
        state.count(context, call)?;
        while call.waits_beside_a_full_queue() && self.room.is_any_queue_full() {
            state = self.sleep(state);
        }
        Ok(state)
    }

    /// Lets other threads go on for as long as `call` takes, before it has done anything.
    fn take_time(&self, call: Call) {
        let nanoseconds = self.real_costs.as_ref().map_or(0, |costs| costs.get(call).base_ns());
        if nanoseconds >= LEAST_REAL_NS {
            thread::sleep(Duration::from_nanos(nanoseconds));
        }
    }

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

    /// Returns `state` as soon as the queue of a stream has room. Captured work needs none.
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
        // Nothing returns before its end.
        self.room.begin();
        while is_full(&state) {
            let first = state.streams.slots[slot as usize].done + 1;
            match state.complete(slot, first) {
                Ok(nanoseconds) => {
                    if let Ok(device) = state.device_mut(device) {
                        let waits = &mut device.usage.host_waits;
                        waits.nanoseconds = waits.nanoseconds.saturating_add(nanoseconds);
                    }
                }
                Err(_) => state = self.sleep(state),
            }
        }
        self.room.end();
        Ok(state)
    }

    /// Lets the lock go until another thread has completed something.
    fn sleep<'a>(&'a self, state: Locked<'a>) -> Locked<'a> {
        let turn = self.room.enter();
        drop(state);
        self.room.wait(turn);
        let state = self.lock();
        self.room.leave();
        state
    }

    /// Counts `call` in `context` and returns true if that is all the call does: if the machine
    /// is quiet, and what the call is about `is_known`.
    #[inline(always)]
    pub(crate) fn quietly(
        &self,
        context: u32,
        call: Call,
        is_known: impl FnOnce(&Quiet) -> bool,
    ) -> bool {
        if self.before.get().is_some() {
            return false;
        }
        let quiet = &*self.quiet;
        // Asked first: what is read afterwards was written before the machine became quiet.
        quiet.is_set() && is_known(quiet) && quiet.count(context, call)
    }
}

impl Debug for Before {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Before")
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.quiet.set(self.0.is_quiet());
        if std::mem::take(&mut self.0.has_moved) {
            self.0.note_completions();
            self.0.room.tell();
        }
    }
}
