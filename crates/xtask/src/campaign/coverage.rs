//! `cargo xtask coverage`: which lines the suite runs.
//!
//! cargo-llvm-cov says how to compile, and what was run; the suite is that of `cargo xtask test`.
//! Processes that are killed leave no counts: what only they run counts as not run.

use std::env;
use std::path::PathBuf;

use clap::Args;

use steps::{Outcome, Step, output, run};

use super::{folder, toolchains};

const CARGO_LLVM_COV: (&str, &str) = ("cargo-llvm-cov", "0.9.1");
/// Whose lines count not: tests, the simulated machines, and the project's own commands.
const LEFT_OUT: &str = "(tests?|_tests\\.rs|_models\\.rs|benches|examples|crates/(simgpu|simcuda|gpu-probe|genesis-peers|steps|xtask))";

/// Measures which lines the suite runs, and lists those that it does not
#[derive(Debug, Args)]
pub(crate) struct CoverageArguments {
    /// Passed on to `cargo test`, which is then run in place of the suite
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the suite, and prints the lines that no test ran for each file, also if a test failed.
pub(crate) fn coverage(arguments: &CoverageArguments) -> Outcome {
    toolchains::install("stable", &["llvm-tools"])?;
    let (name, version) = CARGO_LLVM_COV;
    let program = toolchains::program(name, version)?;
    let built = folder("coverage")?;
    let measured = |step: Step| step.set("CARGO_TARGET_DIR", &built);
    let tell = |words: &[&str]| Step::new(&program, &[&["llvm-cov"], words].concat());
    let variables = output(&measured(tell(&["show-env"])))?;
    let with_all = |step: Step| {
        variables
            .lines()
            .filter_map(assignment)
            .fold(measured(step), |step, (name, value)| step.set(name, value))
    };
    run(&with_all(tell(&["clean", "--profraw-only"])))?;
    let itself = env::current_exe().map_err(|error| error.to_string())?;
    let mut test = Step::new(itself, &["test"]);
    test.extend(&arguments.arguments);
    let tested = run(&with_all(test));
    let page: PathBuf = built.join("report");
    let mut report = tell(&["report", "--ignore-filename-regex", LEFT_OUT, "--show-missing-lines"]);
    report.extend(["--html".as_ref(), "--output-dir".as_ref(), page.as_os_str()]);
    run(&with_all(report))?;
    tested
}

/// The name and the value in `NAME='VALUE'`.
fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let value = value.trim_matches(|quote| quote == '\'' || quote == '"');
    Some((name.trim_start_matches("export ").to_owned(), value.to_owned()))
}
