//! The library under the compiler's ThreadSanitizer. Rust's standard library is compiled with it too,
//! because a lock that it does not see makes everything under it look like a race. That needs a
//! nightly compiler and the library's sources (`rustup component add rust-src --toolchain nightly`).
//!
//! The C and C++ programs are under AddressSanitizer, LeakSanitizer and
//! UndefinedBehaviorSanitizer on every change (`tests/c_interface.rs`).

use steps::{Outcome, Step, run};

use super::fuzzing::TARGET;
use super::{Left, folder, toolchains};

/// The first race or wrong order of locks ends the program.
const OPTIONS: &str = "halt_on_error=1:second_deadlock_stack=1";

/// Runs random operations by several threads under each strategy.
pub(super) fn run_all(left: &mut Left) -> Outcome {
    if left.lacks("sanitizers", toolchains::install(toolchains::NIGHTLY, &["rust-src"])) {
        return Ok(());
    }
    let mut test = Step::new("cargo", &["+nightly", "test", "-Zbuild-std", "--package=genesis"]);
    test.extend(["--target", TARGET, "--target-dir"]);
    test.extend([folder("sanitized-thread")?]);
    test.extend(["--test=random_operations"]);
    run(&test.set("RUSTFLAGS", "-Zsanitizer=thread").set("TSAN_OPTIONS", OPTIONS))
}
