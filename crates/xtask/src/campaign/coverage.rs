//! The lines that no test runs, by cargo-llvm-cov. What ships is compiled with counters, its tests are
//! run, with all programs that they start, and a table of the files is printed, with the numbers of
//! the lines that were never run beneath.
//!
//! A process that is killed, or replaced by another program, writes no counters: what only such a
//! process runs is among the holes. So is what needs a GPU, PyTorch, or a kernel that this one is not.

use steps::{Outcome, Step, run};

use super::{Left, toolchains};

const CARGO_LLVM_COV: (&str, &str) = ("cargo-llvm-cov", "0.9.1");
/// What is measured: the libraries that ship.
const PACKAGES: [&str; 4] = ["genesis", "genesis-preload", "device-register", "preload-report"];
/// Files that are not told of: those of other crates, and tests that stand beside the code.
const OTHERS: &str = "crates/(simgpu|simcuda|genesis-profile|genesis-replay|steps)/\
                      |_(tests|models)\\.rs|/tests/|/tests\\.rs";
/// All processes of one program share so many files of counters: one each would be gigabytes.
const FILES: &str = "genesis-%4m.profraw";
/// valgrind has no use for counters, and takes long.
const LEFT_OUT: &str = "is_clean_under_valgrind";

/// Runs the tests, and prints the holes also if one failed.
pub(super) fn run_all(left: &mut Left) -> Outcome {
    let (name, version) = CARGO_LLVM_COV;
    let program = match toolchains::program(name, version) {
        Ok(program) => program,
        Err(reason) => {
            left.lacks("coverage", Err(reason));
            return Ok(());
        }
    };
    if left.lacks("coverage", toolchains::add_component("llvm-tools")) {
        return Ok(());
    }
    let mut test = Step::new(program, &["llvm-cov", "--show-missing-lines", "--ignore-run-fail"]);
    test.extend(["--ignore-filename-regex", OTHERS]);
    test.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    test.extend(["--lib", "--tests", "--", "--skip", LEFT_OUT]);
    run(&test.set("LLVM_PROFILE_FILE_NAME", FILES))
}
