//! `cargo xtask test` and `cargo xtask nightly`: builds every test, and runs the test programs
//! side by side.
//!
//! `cargo test` runs some seventy programs one after the other, and each ends with its slowest
//! test alone on the machine. cargo-nextest runs tests side by side, but no package registry has
//! it built, and compiling it was judged to take longer than it saves (that was not timed). So the
//! programs are run here, as many at once as there are processors; each runs its tests in threads.
//!
//! A check that was not made is a failure: a test may be ignored only for a reason listed in
//! [`needs`]. If the machine has what the test needs, the test is run; otherwise it is listed at
//! the end.

mod needs;
mod program;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::prerequisites;
use steps::{Outcome, Step, cargo, read, run, taken};

pub(crate) use needs::Tier;
pub(crate) use program::FULL;
use program::{Program, Ran};

/// Always the whole workspace: cargo unites the features of what is built together, so building a
/// part would compile dependencies again. Without the static library: no test links it, and it
/// takes long to archive.
const BUILD: [&str; 3] = ["build", "--workspace", "--exclude=genesis-static"];
/// The programs and libraries that tests run and load.
const PROGRAMS: [&str; 2] = ["--lib", "--bins"];
/// The tests, and the examples (some are tested); cargo reports where it puts them.
const TESTS: [&str; 3] = ["--tests", "--examples", "--message-format=json-render-diagnostics"];

/// The libraries' own unit tests. Compiling those of the largest takes as long as compiling the
/// library, and nothing waits for them, so of one long list cargo starts them last: alone, with idle
/// processors beside them.
const UNIT_TESTS: [&str; 5] =
    ["test", "--no-run", "--workspace", "--exclude=genesis-static", "--lib"];

/// The programs that take longest, which are started first: one of them alone at the end would
/// leave processors idle.
const LONGEST: [&str; 9] = [
    "heap_conformance",
    "c_interface",
    "mxnet",
    "elastic",
    "call_sites",
    "debugging",
    "processes",
    "torch_abi",
    "genesis-profile/documents",
];

/// Builds and runs every test; with `arguments`, runs `cargo test` with them.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_LIBRARY)?;
    if arguments.is_empty() {
        return all(Tier::EveryChange);
    }
    // The library that programs load, which `cargo test` does not put into its place.
    run(&build_programs())?;
    let mut test = cargo(&["test", "--workspace"]);
    test.extend(arguments);
    run(&test)
}

/// Builds and runs every test, each matrix in full.
pub(crate) fn nightly() -> Outcome {
    prerequisites::install(prerequisites::OF_THE_LIBRARY)?;
    all(Tier::Nightly)
}

/// Builds the libraries and the programs.
pub(crate) fn build_programs() -> Step {
    cargo(&[&BUILD[..], &PROGRAMS].concat())
}

/// The same with the examples, which share what the tests are built of.
pub(crate) fn build_examples() -> Step {
    cargo(&[&BUILD[..], &PROGRAMS, &["--examples"]].concat())
}

fn all(tier: Tier) -> Outcome {
    run(&cargo(&UNIT_TESTS))?;
    let build = cargo(&[&BUILD[..], &PROGRAMS, &TESTS].concat());
    let mut programs = program::built(&read(&build)?)?;
    // Stable: the others stay in cargo's order.
    programs.sort_by_key(|program| !LONGEST.contains(&program.name.as_str()));
    let tests =
        taken(&format!("{} test programs", programs.len()), || run_programs(programs, tier));
    let documentation = run(&documentation(tier));
    tests.and(documentation)
}

/// The examples in comments, which only cargo runs.
fn documentation(tier: Tier) -> Step {
    let test = cargo(&["test", "--quiet", "--workspace", "--doc"]);
    if tier == Tier::Nightly { test.set(FULL, "1") } else { test }
}

/// Runs `programs` side by side, prints a line for each as it ends, and all that a failed one
/// wrote.
fn run_programs(programs: Vec<Program>, tier: Tier) -> Outcome {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Relaxed)) {
                    let ran = program.run(tier);
                    ran.print(program);
                    if let Ok(mut results) = results.lock() {
                        results.push((program, ran));
                    }
                }
            });
        }
    });
    let results = results.into_inner().map_err(|error| error.to_string())?;
    if results.len() < programs.len() {
        return Err("a test program was not run to its end".to_owned());
    }
    judge(&results)
}

/// Prints which checks were not made, and fails if one failed or was left out without a reason.
fn judge(results: &[(&Program, Ran)]) -> Outcome {
    let passed: usize = results.iter().map(|(_, ran)| ran.passed).sum();
    eprintln!("\n{passed} tests passed. Not made here:");
    for (program, ran) in results {
        for (reason, count) in &ran.not_made {
            eprintln!("{count:4} of {}: {reason}", program.name);
        }
    }
    let failed = results.iter().filter(|(_, ran)| !ran.is_ok);
    let failed: Vec<&str> = failed.map(|(program, _)| program.name.as_str()).collect();
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join(", ")));
    }
    let unexplained: Vec<String> = results
        .iter()
        .flat_map(|(program, ran)| {
            ran.unexplained.iter().map(|of| format!("{} {of}", program.name))
        })
        .collect();
    if !unexplained.is_empty() {
        let list = unexplained.join("\n  ");
        return Err(format!("ignored for a reason that is not in {}:\n  {list}", needs::LIST));
    }
    Ok(())
}
