//! The host fails: threads cannot be started, files cannot be opened, disks are full. What was asked
//! for beside memory may fail with a status; memory is served all the same, and the program ends as
//! it would.
//!
//! And the host's own memory runs out, at every allocation in turn: then requests may fail too, with a
//! status.

#[path = "c_interface/programs.rs"]
#[allow(dead_code)] // other tests use more of it
mod programs;
#[path = "support/tier.rs"]
#[allow(dead_code)] // the same
mod tier;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use programs::Language::C99;
use programs::{command, compile, compile_by, compiler, run, text};

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

const STRATEGIES: [&str; 6] = ["Elastic", "Caching", "Arena", "Round", "Exact", "Naive"];
/// How many allocations fail in a row, and which part of the cases is run in full.
const ROWS: [(&str, usize); 3] = [("1", 1), ("40", 7), ("all", 1)];
/// The cases of a row are divided among so many processes, each of which has a time limit.
const PARTS: usize = 8;

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

/// Allocations of the library alone, not those of the program and of the C library.
#[test]
fn every_allocation_of_host_memory_fails() {
    let program = compile("failing", "host_failures/every_allocation.c", C99, true);
    let mut cases = Vec::new();
    for (strategy, name) in STRATEGIES.iter().enumerate() {
        for (row, (failing, one_in)) in ROWS.iter().enumerate() {
            let (step, parts) = tier::some_or_all((307, 1), (one_in * PARTS, PARTS));
            let first = tier::some_or_all(1 + 20 * strategy + row, 1);
            let firsts = (0..parts).map(|part| first + part * one_in);
            cases.extend(firsts.map(|first| (*name, *failing, first, step, "off")));
            // Where calls were made is looked up in all loaded objects, which takes 50 times as many
            // allocations as all else.
            let step = tier::some_or_all(40_009, 2003);
            if tier::is_full() || strategy == 0 {
                cases.push((*name, *failing, 1 + strategy + 6 * row, step, "native"));
            }
        }
    }
    in_parallel(&cases, |(strategy, failing, first, step, call_sites)| {
        let (first, step) = (first.to_string(), step.to_string());
        let folder = env!("CARGO_TARGET_TMPDIR");
        let arguments = [folder, strategy, failing, &first, &step];
        run(command(&program).args(arguments).env("GENESIS_CALL_SITES", call_sites));
    });
}

#[test]
fn addresses_of_the_process_are_limited() {
    let program = compile("limited", "host_failures/limited_memory.c", C99, true);
    in_parallel(&["Elastic", "Caching"], |strategy| {
        let mut limited = command(&program);
        limited.env("GENESIS_BACKEND", "sim").env("GENESIS_POOL_TYPE", strategy);
        run(&mut limited);
    });
}

/// Calls `body` for each case, on as many threads as there are processors.
fn in_parallel<T: Copy + Sync>(cases: &[T], body: impl Fn(T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            body(*case);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
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
