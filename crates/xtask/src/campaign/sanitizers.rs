//! The library under the compiler's sanitizers: ThreadSanitizer over random operations by several
//! threads; AddressSanitizer and LeakSanitizer over these, heaps, and the C interface.
//!
//! Rust's standard library is compiled with them too, because a lock that ThreadSanitizer does not
//! see makes everything under it look like a race. That needs a nightly compiler and the library's
//! sources.
//!
//! The C and C++ programs of `tests/c_interface.rs` are under AddressSanitizer, LeakSanitizer and
//! UndefinedBehaviorSanitizer on every change; here the other programs are under the last.

use steps::{Outcome, Step, cargo, output, run_all};

use super::fuzzing::TARGET;
use super::{Left, folder, toolchains};

/// The first race or wrong order of locks ends the program.
const THREAD_OPTIONS: &str = "halt_on_error=1:second_deadlock_stack=1";
/// How many threads.
const THREADS: &str = "2,4,8";
/// What runs under AddressSanitizer beside the C interface.
const ADDRESSED: [&str; 4] =
    ["--lib", "--test=random_operations", "--test=heap_conformance", "--test=suballocation"];
/// The tests with C and C++ programs that are not those of the C interface.
const WITH_PROGRAMS: [&str; 6] = [
    "--test=debugging",
    "--test=host_failures",
    "--test=host_memory",
    "--test=processes",
    "--test=torch_abi",
    "--test=trace",
];
const UNDEFINED: &str = "-fsanitize=undefined -fno-sanitize-recover=all";

/// Runs the library under each.
pub(super) fn sanitize(left: &mut Left) -> Outcome {
    let programs = cargo(&[&["test", "--package=genesis"], &WITH_PROGRAMS[..]].concat())
        .set("GENESIS_TEST_CFLAGS", UNDEFINED);
    let mut steps = vec![programs];
    if !left.lacks("sanitizers", toolchains::install(toolchains::NIGHTLY, &["rust-src"])) {
        let threads = test("thread", &["--test=random_operations"])?;
        steps
            .push(threads.set("GENESIS_TEST_THREADS", THREADS).set("TSAN_OPTIONS", THREAD_OPTIONS));
        steps.push(test("address", &ADDRESSED)?);
        steps.push(c_interface()?);
    }
    run_all(&steps)
}

/// The tests of the library with `sanitizer`.
fn test(sanitizer: &str, tests: &[&str]) -> Result<Step, String> {
    let mut test = Step::new("cargo", &["+nightly", "test", "-Zbuild-std", "--package=genesis"]);
    test.extend(["--target", TARGET, "--target-dir"]);
    test.extend([folder(&format!("sanitized-{sanitizer}"))?]);
    test.extend(tests);
    Ok(test.set("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")))
}

/// The C programs with the library's AddressSanitizer: a process can have but one.
fn c_interface() -> Result<Step, String> {
    let sysroot = output(&Step::new("rustc", &["+nightly", "--print", "sysroot"]))?;
    let runtime = format!("{}/lib/rustlib/{TARGET}/lib/librustc-nightly_rt.asan.a", sysroot.trim());
    let flags = format!(
        "-fno-sanitize=all -Wl,--whole-archive,{runtime},--no-whole-archive,--export-dynamic -lm"
    );
    let test = test("address", &["--test=c_interface", "--", "works"])?;
    Ok(test.set("GENESIS_TEST_CFLAGS", flags))
}
