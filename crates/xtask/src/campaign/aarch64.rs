//! The library on AArch64: compiled for it, and run by qemu where this machine's processor is
//! another.

use steps::{Outcome, cargo, run};

use super::{Left, folder, toolchains};
use crate::prerequisites;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILERS: [&str; 2] = ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"];
/// With the other processor's C library.
const RUNNER: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

/// Runs the library's own tests, heaps, random operations, and the C and C++ programs.
pub(super) fn test(left: &mut Left) -> Outcome {
    let installed = prerequisites::install(prerequisites::OF_AARCH64)
        .and_then(|()| toolchains::install_target(TARGET));
    if left.lacks("aarch64", installed) {
        return Ok(());
    }
    let mut test = cargo(&["test", "--package=genesis", "--target", TARGET, "--target-dir"]);
    test.extend([folder("aarch64")?]);
    test.extend(["--lib", "--test=heap_conformance", "--test=random_operations"]);
    test.extend(["--test=c_interface", "--test=torch_abi", "--no-fail-fast"]);
    // qemu runs no valgrind.
    test.extend(["--", "--skip=under_valgrind"]);
    let [c, cpp] = COMPILERS;
    run(&test
        .set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", c)
        .set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .set("CC_aarch64_unknown_linux_gnu", c)
        .set("CXX_aarch64_unknown_linux_gnu", cpp)
        // LeakSanitizer traces its own process, which qemu has no call for.
        .set("GENESIS_TEST_CFLAGS", "-fno-sanitize=all")
        .set("GENESIS_TEST_RUNNER", RUNNER))
}
