//! What ships, checked with the oldest compiler that `rust-version` in Cargo.toml promises.

use steps::{Outcome, Step, run};

use super::{Left, folder, toolchains};
use crate::packages;

/// The workspace's `rust-version`, as rustup names the newest compiler of that version.
const VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// Checks what ships, without its tests.
pub(super) fn check(left: &mut Left) -> Outcome {
    if left.lacks("oldest", toolchains::install(VERSION, &[])) {
        return Ok(());
    }
    let mut check = Step::new("cargo", &[&format!("+{VERSION}"), "check", "--locked"]);
    check.extend(packages::SHIPPED.iter().flat_map(|package| ["--package", package]));
    check.extend(["--target-dir".into(), folder("oldest")?]);
    run(&check)
}
