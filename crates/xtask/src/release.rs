//! The release build: what packages are made of, and what PyTorch and the other frameworks are
//! tested with, as users have it.

use std::fs;

use steps::{Outcome, cargo, run, target_folder};

/// One list for all commands: with another one cargo would compile dependencies again.
const PACKAGES: [&str; 6] =
    ["cumem-allocator", "genesis", "genesis-cli", "genesis-preload", "genesis-static", "simcuda"];

/// The library that vLLM is to find, as cargo names it, and by its own name, which vLLM's search
/// prescribes.
const BUILT_CUMEM: &str = "libcumem_allocator.so";
pub(crate) const CUMEM: &str = "cumem_allocator-genesis.so";

/// Builds everything that is used in release.
pub(crate) fn build() -> Outcome {
    let mut build = cargo(&["build", "--release"]);
    build.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    run(&build)?;
    name_cumem()
}

/// Gives vLLM's library its name: another file, because a link's name is not the one that is mapped.
pub(crate) fn name_cumem() -> Outcome {
    let folder = target_folder().join("release");
    let (built, named) = (folder.join(BUILT_CUMEM), folder.join(CUMEM));
    // A process that has mapped the one before keeps it.
    let _ = fs::remove_file(&named);
    fs::copy(&built, &named)
        .map(drop)
        .map_err(|error| format!("{} cannot be copied: {error}", built.display()))
}
