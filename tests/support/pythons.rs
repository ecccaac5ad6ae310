//! The Pythons of a machine, by version.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Python `version`, such as 3.12: on the path, or where pyenv keeps them.
pub(crate) fn find(version: &str) -> Option<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let kept = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let kept = kept.map(|entry| entry.path().join("bin").join(format!("python{version}")));
    let mut all = [PathBuf::from(format!("python{version}"))].into_iter().chain(kept);
    all.find(|python| {
        // pyenv's own stand-ins on the path run, and fail, for versions that are not in use.
        let mut command = Command::new(python);
        command.args(["-c", "import ctypes"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}
