//! simcuda in the driver's place: the library that cargo has built for this test, of a
//! dev-dependency.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

/// The folder of `libsimcuda.so`.
pub fn folder() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Lets the program of `command` find simcuda under the driver's name, with its symbols first.
pub fn put_beneath(command: &mut Command) {
    let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simcuda");
    fs::create_dir_all(&libraries).unwrap();
    let driver = libraries.join("libcuda.so.1");
    // Put in place whole: another test may be using it.
    let thread = std::thread::current().id();
    let fresh = libraries.join(format!("{}-{thread:?}", process::id()));
    symlink(folder().join("libsimcuda.so"), &fresh).unwrap();
    fs::rename(&fresh, &driver).unwrap();
    command.env("LD_LIBRARY_PATH", &libraries).env("LD_PRELOAD", &driver);
}
