//! The release build: what packages are made of, and what PyTorch and the other frameworks are
//! tested with, as users have it.

use steps::{Step, cargo};

/// One list for all commands: with another one cargo would compile dependencies again.
const PACKAGES: [&str; 5] =
    ["genesis", "genesis-cli", "genesis-preload", "genesis-static", "simcuda"];

/// Builds everything that is used in release.
pub(crate) fn build() -> Step {
    let mut build = cargo(&["build", "--release"]);
    build.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    build
}
