//! The crates that the project is compiled from, by cargo-deny: known defects, versions that were
//! withdrawn, licences, and where crates come from. `deny.toml` has the rules.

use steps::{Outcome, Step, run};

use super::{Left, toolchains};

const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// Checks all of it.
pub(super) fn check(left: &mut Left) -> Outcome {
    let (name, version) = CARGO_DENY;
    match toolchains::program(name, version) {
        Ok(program) => run(&Step::new(program, &["--locked", "check"])),
        Err(reason) => {
            left.lacks("dependencies", Err(reason));
            Ok(())
        }
    }
}
