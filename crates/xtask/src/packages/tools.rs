//! The programs from the package registry that make and check packages, in their own environment.

use std::path::PathBuf;

use crate::environments;

/// Packages and versions.
const TOOLS: [&str; 4] = [
    "auditwheel==6.8.2",
    "cyclonedx-python-lib[json-validation]==11.12.0",
    "setuptools==80.9.0",
    "ziglang==0.13.0",
];

/// Returns the Python that has the tools; installs those that are missing.
pub(super) fn python() -> Result<PathBuf, String> {
    environments::install("packages/tools", "python3", &TOOLS)
}
