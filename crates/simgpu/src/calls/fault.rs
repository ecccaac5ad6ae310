//! Scripted faults: calls that fail or take longer, capacity that shrinks.
//!
//! `tables/script.rs` has the rules. A call that is made to fail was counted and changed nothing.

use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::tables::{Effect, Rule, Target, Times};

/// The fault script of a machine; see [`Machine::faults`].
#[derive(Debug)]
pub struct Faults<'a> {
    machine: &'a Machine,
}

impl Machine {
    /// The fault script; it may be changed at any time.
    pub fn faults(&self) -> Faults<'_> {
        Faults { machine: self }
    }
}

impl Faults<'_> {
    /// From the `nth` matching call on (1: the very next), `times` calls return `code`.
    pub fn fail(&self, target: Target, nth: u64, times: Times, code: Code) {
        self.add(target, nth, times, Effect::Fail(code));
    }

    /// From the `nth` matching call on, `times` calls take `nanoseconds` more of virtual time.
    pub fn delay(&self, target: Target, nth: u64, times: Times, nanoseconds: u64) {
        self.add(target, nth, times, Effect::DelayNs(nanoseconds));
    }

    /// Forgets every rule; capacities stay as they are.
    pub fn clear(&self) {
        self.machine.lock().script.rules.clear();
    }

    /// Lets `device` use no more than `bytes` from now on, as if another process held the rest.
    /// The total it reports does not change. What is in use stays in use, even if it is more.
    pub fn limit_capacity(&self, device: u32, bytes: u64) -> Result<()> {
        let mut state = self.machine.lock();
        let entry = state.device_mut(device)?;
        entry.available_bytes = bytes.min(entry.config.capacity_bytes);
        Ok(())
    }

    /// Undoes [`Self::limit_capacity`].
    pub fn restore_capacity(&self, device: u32) -> Result<()> {
        self.limit_capacity(device, u64::MAX)
    }

    fn add(&self, target: Target, nth: u64, times: Times, effect: Effect) {
        let strikes_left = match times {
            Times::Once => Some(1),
            Times::Count(count) => Some(count),
            Times::Forever => None,
        };
        let calls_to_spare = nth.saturating_sub(1);
        let rule = Rule { target, calls_to_spare, strikes_left, effect };
        self.machine.lock().script.rules.push(rule);
    }
}
