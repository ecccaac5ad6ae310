//! `cargo xtask mutants`: small changes of the code, of which each must fail a test.

use clap::Args;

use steps::{Outcome, cargo, run};

use super::folder;

/// Changes the code in small ways, and lists the changes that no test notices (needs
/// cargo-mutants)
#[derive(Debug, Args)]
pub(crate) struct MutantsArguments {
    /// Which part of the changes, such as 0/64
    #[arg(long)]
    shard: String,
    /// Files whose code is changed
    #[arg(default_values_t = ["src/strategy/**".to_owned(), "src/order/**".to_owned()])]
    files: Vec<String>,
}

/// Changes one shard of the code; the tests are those that take seconds.
pub(crate) fn mutants(arguments: &MutantsArguments) -> Outcome {
    let mut mutants = cargo(&["mutants", "--package", "genesis", "--jobs", "1", "--no-shuffle"]);
    mutants.extend(["--shard", &arguments.shard, "--output"]);
    mutants.extend([folder("mutants")?]);
    for file in &arguments.files {
        mutants.extend(["--file", file]);
    }
    mutants.extend(["--", "--lib", "--test", "heap_conformance", "--test", "random_operations"]);
    run(&mutants)
}
