//! The programs from the package registry that make and check packages, in a virtual environment
//! of their own.

use std::path::PathBuf;

use steps::{Step, output, run};

use super::files::scratch;

/// Packages and versions.
const TOOLS: [(&str, &str); 4] = [
    ("auditwheel", "6.8.2"),
    ("cyclonedx-python-lib[json-validation]", "11.12.0"),
    ("setuptools", "80.9.0"),
    ("ziglang", "0.13.0"),
];

/// Python with the tools, installed if they are missing.
pub(super) fn python() -> Result<PathBuf, String> {
    let environment = scratch().join("tools");
    let python = environment.join("bin/python");
    let versions = TOOLS.map(|(name, version)| {
        let name = name.split('[').next().unwrap_or(name);
        format!("version('{name}') == '{version}'")
    });
    let check =
        format!("from importlib.metadata import version; assert {}", versions.join(" and "));
    if output(&Step::new(&python, &["-c", &check])).is_ok() {
        return Ok(python);
    }
    let mut create = Step::new("python3", &["-m", "venv", "--clear"]);
    create.extend([&environment]);
    run(&create)?;
    let mut install = Step::new(&python, &["-m", "pip", "install", "--quiet"]);
    install.extend(TOOLS.map(|(name, version)| format!("{name}=={version}")));
    run(&install)?;
    Ok(python)
}
