//! The crates that the project is compiled from, by cargo-deny: known defects, versions that were
//! withdrawn, licences, and where crates come from. `deny.toml` has the rules.

use steps::{Outcome, Step, run};

use super::{Left, toolchains};

const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// Checks all of it; known defects only if the list of them can be fetched.
pub(super) fn check(left: &mut Left) -> Outcome {
    let (name, version) = CARGO_DENY;
    let program = match toolchains::program(name, version) {
        Ok(program) => program,
        Err(reason) => {
            left.lacks("dependencies", Err(reason));
            return Ok(());
        }
    };
    let deny = |arguments: &[&str]| {
        let mut step = Step::new(&program, &["--locked"]);
        step.extend(arguments);
        run(&step)
    };
    deny(&["check", "licenses", "sources"])?;
    if left.lacks("known defects of dependencies", deny(&["fetch", "db"])) {
        return Ok(());
    }
    deny(&["check", "--disable-fetch", "advisories"])
}
