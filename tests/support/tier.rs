//! How much the tests do: some of each large matrix on every change, all of it every night.
//!
//! `cargo xtask nightly` asks for all; `cargo test` and `cargo xtask test` do not.

use std::env;

/// Set to 1 to run every matrix in full. The library warns of names of its own that are no options,
/// so it has another kind of name.
const VARIABLE: &str = "TEST_GENESIS_IN_FULL";

/// Returns true if every matrix is to be run in full.
pub fn is_full() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// `all` where matrices are run in full, else `some`.
pub fn some_or_all<T>(some: T, all: T) -> T {
    if is_full() { all } else { some }
}
