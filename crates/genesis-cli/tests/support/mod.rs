//! What tests of the command have in common: running it, and checking its answers.
#![allow(dead_code, reason = "each program of tests uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use genesis_replay::library::FILE_NAME;

/// The command, with none of our variables set.
pub fn genesis() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_genesis"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GENESIS_") || text.starts_with("MXNET_") {
            command.env_remove(name);
        }
    }
    command
}

/// The answer of the command to `arguments`.
pub fn run(arguments: &[&str]) -> Output {
    genesis().args(arguments).output().unwrap()
}

/// The library of the command that is tested, not that of the tests: where a build of the library
/// itself puts it, or a build of what depends on it.
pub fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_genesis")).parent().unwrap();
    let path = folder.join(FILE_NAME);
    if path.is_file() { path } else { folder.join("deps").join(FILE_NAME) }
}

/// The path of a recorded program.
pub fn trace(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    folder.join(name).with_extension("gtr.zst").to_string_lossy().into_owned()
}

/// A file of the tests' own.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A library built from C, as an argument.
pub fn built(name: &str, code: &str) -> String {
    let (source, library) = (scratch(&format!("{name}.c")), scratch(&format!("lib{name}.so")));
    std::fs::write(&source, code).unwrap();
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(status.expect("a C compiler is installed").success());
    format!("--library={}", library.display())
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
pub fn check_refused(output: &Output, status: i32, message: &str) {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    let error = stderr(output);
    assert!(error.starts_with("genesis: ") && error.contains(message), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(stdout(output), "");
}
