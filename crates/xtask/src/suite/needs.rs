//! The one list of reasons for which a test may be left out: what some machines lack.
//!
//! A test that needs such a thing is `#[ignore = "…"]`, with a reason from this list. It is run if
//! the machine has the thing, and listed at the end of the run if not. A test that is ignored for
//! any other reason is a failure.

use std::path::Path;

use steps::{Step, output};

#[path = "../../../../tests/support/pythons.rs"]
mod pythons;

/// This file, for messages.
pub(super) const LIST: &str = "crates/xtask/src/suite/needs.rs";

/// The Pythons that tests name, the oldest first.
const PYTHONS: [&str; 7] = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"];

/// How much is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// What is tested on every change.
    EveryChange,
    /// Every matrix in full.
    Nightly,
}

/// Where a test runs that its program ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Here: what it needs is there.
    Here,
    /// In another test of the same run.
    InAnotherTest,
    /// Not in this run.
    Nowhere,
}

/// Where a test that is ignored for `reason` runs; `None` if the reason is not on the list.
pub(super) fn place(reason: &str, tier: Tier) -> Option<Place> {
    let here_if = |is_there: bool| if is_there { Place::Here } else { Place::Nowhere };
    if let Some(version) = reason.strip_prefix("needs Python ") {
        let is_default = default_python().is_some_and(|default| default == version);
        let is_here = is_python_here(version, tier);
        return Some(if is_default { Place::InAnotherTest } else { here_if(is_here) });
    }
    if reason.starts_with("played by a process of ") {
        return Some(Place::InAnotherTest);
    }
    match reason {
        "nightly" => Some(here_if(tier == Tier::Nightly)),
        // No machine of continuous integration has one.
        "needs a CUDA device" => Some(here_if(Path::new("/dev/nvidiactl").exists())),
        // `cargo xtask test-frameworks` makes those and runs these tests.
        "needs the environments of test-frameworks" => Some(Place::Nowhere),
        _ => None,
    }
}

/// Returns true if tests run under Python `version` in this run: nightly under every one that is
/// found, and on every change under the oldest of them and the default.
fn is_python_here(version: &str, tier: Tier) -> bool {
    match tier {
        Tier::Nightly => pythons::find(version).is_some(),
        Tier::EveryChange => {
            PYTHONS.into_iter().find(|one| pythons::find(one).is_some()) == Some(version)
        }
    }
}

/// The version of `python3`, with which tests run that need any Python.
fn default_python() -> Option<String> {
    let script = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = output(&Step::new("python3", &["-c", script])).ok()?;
    Some(version.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_of_the_list_are_reasons() {
        assert_eq!(place("nightly", Tier::Nightly), Some(Place::Here));
        assert_eq!(place("nightly", Tier::EveryChange), Some(Place::Nowhere));
        assert_eq!(place("needs Python 3.1", Tier::Nightly), Some(Place::Nowhere));
        assert_eq!(place("played by a process of x", Tier::Nightly), Some(Place::InAnotherTest));
        assert_eq!(place("", Tier::Nightly), None);
        assert_eq!(place("takes long", Tier::Nightly), None);
    }
}
