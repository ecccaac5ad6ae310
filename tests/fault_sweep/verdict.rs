//! What a step with a fault may come to.

use std::fmt;

use genesis::base::Status;
use simgpu::{Call, Code, Times};

/// Requests that a shortage may refuse: nothing may be waited for or given back.
pub const BESIDE_A_CAPTURE: &str = "beside a capture";
/// Steps for which freed blocks must be known to be out of use.
pub const SLEEP: &str = "sleep";
pub const WAKE: &str = "wake";
const BESIDE_CAPTURES: [&str; 5] = [
    BESIDE_A_CAPTURE,
    "captured",
    "captured again",
    "in a limited pool",
    "in a limited pool again",
];
/// Calls by which memory comes back, is known to be free, or gets addresses to move to: if one
/// fails, memory may be short.
const FINDING: [Call; 9] = [
    Call::MemoryInfo,
    Call::Free,
    Call::Reserve,
    Call::Release,
    Call::Unmap,
    Call::EventQuery,
    Call::StreamIsCapturing,
    Call::StreamGetContext,
    Call::Synchronize,
];

/// One step of the program and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub step: &'static str,
    /// What was live before, in bytes.
    pub live_bytes: u64,
    /// The error; `None` for success.
    pub status: Option<Status>,
    /// How many segments the driver has been asked for until then.
    pub asked: u64,
    /// Whether the device has less left than the step wanted, once it has ended.
    pub is_without_room: bool,
    /// Whether the fault had struck when the step ended, and whether it first did so in this step.
    pub is_struck: bool,
    pub is_struck_now: bool,
}

pub type Outcomes = Vec<Outcome>;

pub fn statuses(outcomes: &Outcomes) -> impl Iterator<Item = Option<Status>> {
    outcomes.iter().map(|outcome| outcome.status)
}

/// From the `nth` call of a kind on, so many fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub call: Call,
    pub nth: u64,
    pub code: Code,
    pub times: Times,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}, {}, {:?}", self.call.name(), self.nth, self.code, self.times)
    }
}

/// Before the fault strikes, a step ends as it does without it. From then on a step may fail where
/// it did not before: with the status that the code means, or as [`is_consequence`] allows.
pub fn judge(what: &str, fault: Fault, outcomes: &Outcomes, expected: &Outcomes) {
    assert_eq!(outcomes.len(), expected.len(), "{what}");
    assert!(outcomes.last().is_some_and(|last| last.is_struck), "{what}: it never struck");
    let is_shortage = fault.code == Code::OUT_OF_MEMORY;
    let meaning = if is_shortage { Status::OutOfMemory } else { Status::DriverFailed };
    let mut asked = 0;
    for (outcome, before) in outcomes.iter().zip(expected) {
        let is_right = outcome.status == before.status
            || outcome.is_struck
                && (outcome.status.is_none()
                    || outcome.status == Some(meaning)
                    || is_consequence(fault, outcome, before));
        assert!(is_right, "{what}: {outcome:?}, where there was {before:?}");
        // One shortage that passes costs no request anything: the ladder helps, except where nothing
        // may be waited for or given back, or where the driver has refused the request already, and it
        // was the last rung. What it gave back may serve a request that failed before, and then more
        // is live.
        let is_last_rung = fault.nth == before.asked && before.asked > asked + 1;
        asked = before.asked;
        if is_shortage && fault.call == Call::Allocate && fault.times == Times::Once {
            let is_helped = outcome.status.is_none()
                || outcome.status == before.status
                || outcome.live_bytes > before.live_bytes
                || outcome.step == BESIDE_A_CAPTURE
                || is_last_rung;
            assert!(is_helped, "{what}: the ladder should have helped: {outcome:?}, {before:?}");
        }
    }
}

/// A shortage that `fault` brought about: more is live than without it, or lies so that less can go
/// back to the device than the request wants, or a capture forbids to look again, or the call was one
/// of [`FINDING`], for which a pause may also be refused. A call of those that failed once has an
/// effect in its own step only.
fn is_consequence(fault: Fault, outcome: &Outcome, before: &Outcome) -> bool {
    let is_hidden =
        FINDING.contains(&fault.call) && (fault.times == Times::Forever || outcome.is_struck_now);
    let is_refused = [SLEEP, WAKE].contains(&outcome.step) && outcome.status == Some(Status::Busy);
    is_hidden && is_refused
        || outcome.status == Some(Status::OutOfMemory)
            && (outcome.live_bytes > before.live_bytes
                || outcome.is_without_room
                || BESIDE_CAPTURES.contains(&outcome.step)
                || is_hidden)
}
