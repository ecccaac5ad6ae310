//! The library under the compiler's sanitizers, which only unreleased compilers have.
//!
//! | sanitizer | what runs |
//! |---|---|
//! | ThreadSanitizer | random operations by several threads |
//! | AddressSanitizer, LeakSanitizer | the unit tests, the tests of heaps, and the fuzz targets on some inputs |
//!
//! ThreadSanitizer needs Rust's standard library compiled with it too, because a lock that it does
//! not see makes everything under it look like a race; so the library's sources are installed.
//! What is lost is told at the end of each test program; `tests/support/lost_memory.txt` lists what
//! tests lose with intent.
//!
//! The C and C++ programs are under AddressSanitizer, LeakSanitizer and
//! UndefinedBehaviorSanitizer on every change (`tests/c_interface.rs`). They have the C compiler's
//! own, which cannot be in one process with Rust's; so the tests that run them are left out here.

use steps::{Outcome, Step, root, run};

use super::fuzzing::{self, TARGET};
use super::{Left, folder, toolchains};

/// The first race or wrong order of locks ends the program.
const OF_THREADS: &str = "halt_on_error=1:second_deadlock_stack=1";
/// A request beyond all memory fails as it does elsewhere. A test program with so much memory ends,
/// before the machine has none left; and freed memory is watched up to some limit.
const OF_ADDRESSES: &str =
    "allocator_may_return_null=1:hard_rss_limit_mb=6144:quarantine_size_mb=64";
/// What tests lose with intent.
const LOST: &str = "tests/support/lost_memory.txt";
/// The tests that need no other program and no other process.
const TESTS: [&str; 15] = [
    "callbacks",
    "communication",
    "debugging",
    "elastic",
    "fault_sweep",
    "forecast",
    "fragmentation",
    "full_queues",
    "host_memory",
    "managed",
    "optimize",
    "pause",
    "random_operations",
    "suballocation",
    "warm_start",
];
/// Of those the ones that run C programs.
const WITH_C_PROGRAMS: [&str; 5] = [
    "c_programs::",
    "each_option_changes_its_own_kind_of_memory",
    "pageable_memory_needs_no_device",
    "pageable_memory_survives_fork",
    "wrong_settings_are_told_once",
];

/// Runs each in turn, and those after one that failed too.
pub(super) fn run_all(left: &mut Left) -> Outcome {
    if left.lacks("sanitizers", toolchains::install(toolchains::NIGHTLY, &["rust-src"])) {
        return Ok(());
    }
    let threads = run(&threads()?);
    let addresses = run(&addresses()?);
    let inputs = fuzzing::run_under_addresses(&[("ASAN_OPTIONS", OF_ADDRESSES)]);
    threads.and(addresses).and(inputs)
}

fn threads() -> Result<Step, String> {
    let mut test = test("thread")?;
    test.extend(["-Zbuild-std", "--test=random_operations"]);
    Ok(test.set("TSAN_OPTIONS", OF_THREADS))
}

/// One test at a time: with the shadow of all that it uses, each takes more memory than usual.
fn addresses() -> Result<Step, String> {
    let mut test = test("address")?;
    test.extend(["--no-fail-fast", "--lib"]);
    test.extend(TESTS.map(|name| format!("--test={name}")));
    test.extend(["--", "--test-threads=1"]);
    test.extend(WITH_C_PROGRAMS.iter().flat_map(|name| ["--skip", name]));
    let lost = root().join(LOST);
    let leaks = format!("suppressions={}:print_suppressions=0", lost.display());
    Ok(test.set("ASAN_OPTIONS", OF_ADDRESSES).set("LSAN_OPTIONS", leaks))
}

/// Tests of the library with `sanitizer`, in a folder of their own.
fn test(sanitizer: &str) -> Result<Step, String> {
    let mut test = Step::new("cargo", &["+nightly", "test", "--package=genesis"]);
    test.extend(["--target", TARGET, "--target-dir"]);
    test.extend([folder(&format!("sanitized-{sanitizer}"))?]);
    Ok(test.set("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")))
}
