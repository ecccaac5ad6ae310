//! The library for AArch64: cross-compiled, and its unit tests run by qemu-user. That takes more than
//! 5 GB of memory; for `heap_conformance`, which is not run, it took 22 GB.
//!
//! QEMU translates each thread's instructions for the processor that is here, whose order of memory
//! accesses is stricter than AArch64's. So this finds what depends on the instructions, the kernel's
//! numbers, the sizes of pages and the layouts of C's types, and no missing fence.

use steps::{Outcome, Step, cargo, run};

use super::{Left, folder, toolchains};
use crate::prerequisites;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's cross compiler. Tests compile with it, too.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// What runs a program, and where it finds the C library.
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

/// Runs the unit tests.
pub(super) fn run_all(left: &mut Left) -> Outcome {
    let compilers = prerequisites::install(prerequisites::OF_AARCH64);
    let installed = compilers.and_then(|()| toolchains::add_target(TARGET));
    if left.lacks("aarch64", installed) {
        return Ok(());
    }
    let mut test = cargo(&["test", "--package", "genesis", "--target", TARGET, "--target-dir"]);
    test.extend([folder("aarch64")?]);
    test.extend(["--lib"]);
    run(&for_target(test))
}

/// The same step, for AArch64.
fn for_target(step: Step) -> Step {
    step.set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
        .set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .set("CC", COMPILER)
        .set("HOST_CC", "cc")
}
