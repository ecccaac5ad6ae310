//! What a check may need that is not everywhere: the one list of reasons to leave a test out.
//!
//! A test that needs such a thing is `#[ignore = "…"]`, with a reason of this list. It is run where
//! the thing is there, and listed at the end of the run where it is not. A test that is ignored
//! for any other reason is a failure.

use std::path::Path;

/// This file, for messages.
pub(super) const LIST: &str = "crates/xtask/src/suite/needs.rs";

/// How much is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// What is tested on every change.
    EveryChange,
    /// Every matrix in full.
    Nightly,
}

/// A reason for which tests are ignored.
struct Need {
    /// How the reason begins.
    reason: &'static str,
    /// Returns true if such a test can be run here.
    is_met: fn(Tier) -> bool,
}

const NEEDS: [Need; 4] = [
    // No machine of continuous integration has one.
    Need { reason: "needs a CUDA device", is_met: |_| Path::new("/dev/nvidiactl").exists() },
    Need { reason: "nightly", is_met: |tier| tier == Tier::Nightly },
    // The environments of Python are made by `cargo xtask test-frameworks`, which runs these.
    Need { reason: "needs the environments of test-frameworks", is_met: |_| false },
    // The second process of another test, which is run.
    Need { reason: "played by a process of", is_met: |_| false },
];

/// Returns true if `reason` is in the list.
pub(super) fn is_known(reason: &str) -> bool {
    NEEDS.iter().any(|need| reason.starts_with(need.reason))
}

/// Returns true if tests that are ignored for `reason` can be run here.
pub(super) fn is_met(reason: &str, tier: Tier) -> bool {
    NEEDS.iter().any(|need| reason.starts_with(need.reason) && (need.is_met)(tier))
}
