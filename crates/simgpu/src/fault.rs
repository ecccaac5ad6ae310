//! Scripted faults: calls that fail or take longer, capacity that shrinks.
//!
//! Rules are tried in the order they were made; each counts the calls that match it. The first
//! rule that strikes decides. A call that is made to fail was counted and changed nothing.

use crate::machine::{Machine, State};
use crate::{Call, Code, Result};

/// Which calls a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// This kind only; `None`: any.
    pub call: Option<Call>,
    /// On this device only; `None`: any.
    pub device: Option<u32>,
}

impl Target {
    /// Every call on every device.
    pub const ANY: Self = Self { call: None, device: None };

    /// Calls of one kind on any device.
    pub const fn call(call: Call) -> Self {
        Self { call: Some(call), device: None }
    }

    /// The same calls on one device only.
    pub const fn on(self, device: u32) -> Self {
        Self { call: self.call, device: Some(device) }
    }
}

/// How often a rule strikes once it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// One call.
    Once,
    /// So many calls in a row.
    Count(u64),
    /// Every call from then on.
    Forever,
}

/// The fault script of a machine; see [`Machine::faults`].
#[derive(Debug)]
pub struct Faults<'a> {
    machine: &'a Machine,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    Fail(Code),
    DelayNs(u64),
}

#[derive(Debug)]
struct Rule {
    target: Target,
    calls_to_spare: u64,
    strikes_left: Option<u64>,
    effect: Effect,
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
}

impl Machine {
    /// The fault script, to be changed at any time.
    pub fn faults(&self) -> Faults<'_> {
        Faults { machine: self }
    }
}

impl Faults<'_> {
    /// From the `nth` matching call on (1: the very next), `times` calls answer `code`.
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
    /// The total it reports stays. What is in use stays in use, even if it is more.
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

impl State {
    /// Applies the script to a call about to be made.
    pub(crate) fn apply_script(&mut self, device: u32, call: Call) -> Result<()> {
        let Some(effect) = self.script.strike(device, call) else { return Ok(()) };
        match effect {
            Effect::Fail(code) => Err(code),
            Effect::DelayNs(nanoseconds) => {
                self.device_mut(device)?.usage.charge_ns(nanoseconds);
                Ok(())
            }
        }
    }
}

impl Script {
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn strike(&mut self, device: u32, call: Call) -> Option<Effect> {
        let mut struck = None;
        for rule in &mut self.rules {
            let matches = rule.target.call.is_none_or(|wanted| wanted == call)
                && rule.target.device.is_none_or(|wanted| wanted == device);
            if !matches {
                continue;
            }
            if rule.calls_to_spare > 0 {
                rule.calls_to_spare -= 1;
            } else if struck.is_none() {
                if let Some(left) = &mut rule.strikes_left {
                    if *left == 0 {
                        continue;
                    }
                    *left -= 1;
                }
                struck = Some(rule.effect);
            }
        }
        self.rules.retain(|rule| rule.strikes_left != Some(0));
        struck
    }
}
