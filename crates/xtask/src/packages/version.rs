//! The version of what is packaged, the date that its files have, and what it runs on.

use steps::{Step, output};

/// The version of everything in the workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The number in the library's soname. Programs are linked with it: a release with the same number
/// can replace an older one.
pub(super) const SOVERSION: &str = "0";
/// The oldest C library that portable packages run with: that of PyTorch's own wheels.
pub(super) const PORTABLE_GLIBC: &str = "2.28";

/// The time that every file in a package has, in seconds since 1970: `SOURCE_DATE_EPOCH`, else the
/// time of the last commit, else (without git) the time of `Cargo.lock`.
pub(super) fn source_date() -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let committed = output(&Step::new("git", &["log", "-1", "--format=%ct"]));
    let released = || output(&Step::new("stat", &["--format=%Y", "Cargo.lock"]));
    Ok(committed.or_else(|_| released())?.trim().to_owned())
}

/// The same time as text, in the `format` of date(1).
pub(super) fn source_date_text(format: &str) -> Result<String, String> {
    let date = format!("--date=@{}", source_date()?);
    Ok(output(&Step::new("date", &["--utc", &date, format]))?.trim().to_owned())
}
