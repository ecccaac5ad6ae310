//! Unit tests in Miri, which interprets the program and objects to what Rust leaves undefined: wrong
//! accesses, races, values that a type cannot have, and references that are used beside each other.
//!
//! It runs a few thousand steps in the time of one, and calls nothing of the system that it does not
//! know. So only tests that end within seconds there are run.

use steps::{Outcome, Step, run};

use super::{Left, folder, toolchains};

/// Which unit tests, by what their names begin with or contain.
const TESTS: [&str; 19] = [
    "base::blocking::",
    "base::error::",
    "base::reserve::",
    "base::size::",
    "base::thread::",
    "config::launcher::",
    "config::nearest::",
    "ffi::",
    "heap::pause::stages::",
    "heap::trough::",
    "heap::watch::",
    "instance::files::",
    "instance::neighbours::",
    "instance::sharing::handle::",
    "memory::extents::",
    "memory::strays::",
    "observe::events::event::",
    "order::recorded::",
    "order::stream::",
];
/// Tests ask for the time and for the environment; addresses are kept as numbers.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-permissive-provenance";

/// Runs the tests.
pub(super) fn run_all(left: &mut Left) -> Outcome {
    let components = ["rust-src", "miri"];
    if left.lacks("miri", toolchains::install(toolchains::NIGHTLY, &components)) {
        return Ok(());
    }
    let mut test = Step::new("cargo", &["+nightly", "miri", "test", "--package=genesis", "--lib"]);
    test.extend(["--target-dir".into(), folder("miri")?]);
    test.extend(["--"]);
    test.extend(TESTS);
    run(&test.set("MIRIFLAGS", FLAGS))
}
