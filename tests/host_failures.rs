//! The host fails: threads cannot be started, files cannot be opened, disks are full. What was asked
//! for beside memory may fail with a status; memory is served all the same, and the program ends as
//! it would.
//!
//! Not tried: the process's own memory running out. Rust's collections end the process then, so
//! that nothing could be shown but that.

#[path = "c_interface/programs.rs"]
#[allow(dead_code)] // other tests use more of it
mod programs;

use std::path::PathBuf;
use std::process::Command;

use programs::Language::C99;
use programs::{command, compile, compile_by, compiler, text};

/// What starts threads or opens files from the first use on.
const SERVICES: [(&str, &str); 9] = [
    ("GENESIS_TRACE", "/dev/full"),
    ("GENESIS_TRACE", "/nowhere/trace"),
    ("GENESIS_PROFILE", "/dev/full"),
    ("GENESIS_PROFILE", "/nowhere/profile.json"),
    ("GENESIS_METRICS", "/dev/full"),
    ("GENESIS_METRICS", "/nowhere/metrics"),
    ("GENESIS_PLAN", "/nowhere/plan"),
    ("GENESIS_TOP", "on"),
    ("GENESIS_SHARE", "host_failures"),
];

#[test]
fn threads_cannot_be_started() {
    let mut shared = compiler(C99);
    shared.args(["-shared", "-fPIC"]);
    let library = compile_by(shared, "preloaded", "host_failures/no_threads.c", C99, false);
    let program = program("no_threads");
    for service in SERVICES {
        let said = ends_well(command(&program).env("LD_PRELOAD", &library), service);
        let is_of_threads = said.contains("Resource temporarily unavailable");
        assert!(is_of_threads || service.0 != "GENESIS_TOP", "no thread was refused: {said}");
    }
}

#[test]
fn files_cannot_be_opened() {
    let program = program("no_files");
    for service in SERVICES {
        ends_well(command(&program).arg("no-files"), service);
    }
}

#[test]
fn files_cannot_be_written() {
    let program = program("no_space");
    for service in SERVICES {
        ends_well(&mut command(&program), service);
    }
}

/// A backup then has a name for a moment.
#[test]
fn no_files_without_a_name() {
    let mut shared = compiler(C99);
    shared.args(["-shared", "-fPIC"]);
    let source = "host_failures/no_nameless_files.c";
    let library = compile_by(shared, "preloaded", source, C99, false);
    let program = program("no_nameless_files");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("backups");
    std::fs::create_dir_all(&folder).unwrap();
    let service = ("GENESIS_BACKUP_FOLDER", folder.to_str().unwrap());
    ends_well(command(&program).arg("to-disk").env("LD_PRELOAD", &library), service);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a file is left");
}

/// The program, in a file of the test's own.
fn program(prefix: &str) -> PathBuf {
    compile(prefix, "host_failures/program.c", C99, true)
}

/// Runs the program with an option, and returns what it said of failures.
fn ends_well(command: &mut Command, (option, value): (&str, &str)) -> String {
    command.env("GENESIS_BACKEND", "sim").env(option, value);
    let output = command.output().unwrap();
    let printed = text(&output.stdout);
    let said = text(&output.stderr).to_string();
    let is_well = output.status.success() && printed.contains("done");
    assert!(is_well, "{option}={value}: {}\n{printed}{said}", output.status);
    said
}
