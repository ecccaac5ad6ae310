//! Files and folders: making, removing and listing them, and where packages are put together.

use std::fs;
use std::path::{Path, PathBuf};

use steps::{Outcome, target_folder};

/// Where packages are put together.
pub(super) fn scratch() -> PathBuf {
    target_folder().join("packages")
}

/// Where finished packages are left.
pub(super) fn dist() -> PathBuf {
    target_folder().join("dist")
}

/// A line that says what failed with `path`.
pub(super) fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Makes a folder and those above it.
pub(super) fn create(folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(failed(folder))
}

/// Removes a file or a folder, if there is one.
pub(super) fn remove(path: &Path) -> Outcome {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Makes an empty folder, in place of what was there.
pub(super) fn create_empty(folder: &Path) -> Outcome {
    remove(folder)?;
    create(folder)
}

/// Writes a file, and makes its folder.
pub(super) fn write(path: &Path, text: &str) -> Outcome {
    create(path.parent().unwrap_or(path))?;
    fs::write(path, text).map_err(failed(path))
}

/// The files in `folder` and below, sorted.
pub(super) fn files_under(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.is_dir() {
            files.extend(files_under(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
