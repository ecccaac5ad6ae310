//! The fault script: rules for calls that fail or take longer.
//!
//! Rules are tried in the order they were made; each counts the calls that match it. The first
//! rule that strikes decides.

use crate::call::Call;
use crate::code::Code;

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
    /// This many calls in a row.
    Count(u64),
    /// Every call from then on.
    Forever,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    Fail(Code),
    DelayNs(u64),
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    pub(crate) calls_to_spare: u64,
    /// `None`: without end.
    pub(crate) strikes_left: Option<u64>,
    pub(crate) effect: Effect,
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) rules: Vec<Rule>,
}

impl Script {
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Counts a call, and returns the effect of the first rule that strikes it.
    pub(crate) fn strike(&mut self, device: u32, call: Call) -> Option<Effect> {
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
