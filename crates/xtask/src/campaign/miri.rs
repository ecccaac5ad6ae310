//! Parts of the library that ask nothing of the system, run by Miri, which notices undefined
//! behaviour: of pointers and their origin, of values, and between threads.
//!
//! Miri has no calls for memory that is mapped from files, no libraries to load and no C; what
//! needs these is left out, and so is what takes hours there.

use steps::{Outcome, Step, run};

use super::{Left, folder, toolchains};

/// The modules.
const MODULES: [&str; 5] = ["base::", "memory::", "observe::", "order::", "strategy::"];

/// Runs the tests of the modules.
pub(super) fn run_tests(left: &mut Left) -> Outcome {
    let installed = toolchains::install(toolchains::NIGHTLY, &["miri", "rust-src"]);
    if left.lacks("miri", installed) {
        return Ok(());
    }
    let mut miri = Step::new("cargo", &["+nightly", "miri", "test", "--package=genesis", "--lib"]);
    miri.extend(["--target-dir".into(), folder("miri")?]);
    miri.extend(["--"]);
    miri.extend(MODULES);
    // Clocks and the environment.
    run(&miri.set("MIRIFLAGS", "-Zmiri-disable-isolation"))
}
