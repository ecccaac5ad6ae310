//! The preload library and the processes it is loaded into: fork and exec, every way to end,
//! threads, libraries that come and go, other interposers, and programs without CUDA.
//!
//! Each case is a C program of `tests/processes`, run as a process of its own. It is linked against
//! a small runtime, `runtime.c`, which opens simcuda under the driver's name as the real one opens
//! the driver. Nothing of CUDA is preloaded, so libraries are found as in real programs.

mod support;
#[path = "../../../tests/support/tier.rs"]
mod tier;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{env, fs};

use preload_report::{Library, Process, Report};
use support::beside;

/// Settings for the cases: the default, another strategy, and turned off.
const SETTINGS: [(&str, &str); 3] =
    [("GENESIS_POOL_TYPE", "Elastic"), ("GENESIS_POOL_TYPE", "Caching"), OFF];
const OFF: (&str, &str) = ("GENESIS_PRELOAD", "off");

/// What is built once for all tests of a run.
struct Built {
    folder: PathBuf,
    driver_folder: PathBuf,
    library: PathBuf,
}

static BUILT: LazyLock<Built> = LazyLock::new(build);

fn build() -> Built {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("processes");
    let driver_folder = folder.join("driver");
    fs::create_dir_all(&driver_folder).unwrap();
    let link = driver_folder.join(format!("link-{}", std::process::id()));
    std::os::unix::fs::symlink(beside("libsimcuda.so"), &link).unwrap();
    fs::rename(link, driver_folder.join("libcuda.so.1")).unwrap();
    let shared = ["-shared", "-fPIC"];
    compile(
        &folder,
        "runtime",
        "libcudart.so.12",
        &[&shared[..], &["-Wl,-soname,libcudart.so.12"]].concat(),
    );
    compile(&folder, "interposer", "interposer.so", &shared);
    let runtime = folder.join("libcudart.so.12");
    let with_runtime = [runtime.to_str().unwrap()];
    compile(&folder, "plugin", "plugin.so", &[&shared[..], &with_runtime].concat());
    for program in ["fork", "ending", "threads", "beside"] {
        compile(&folder, program, program, &with_runtime);
    }
    compile(&folder, "loading", "loading", &[]);
    Built { folder, driver_folder, library: beside("libgenesis_preload.so") }
}

/// Compiles `tests/processes/SOURCE.c`. An older file is replaced, as another run may be using it.
fn compile(folder: &Path, source: &str, name: &str, arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unfinished = folder.join(format!("{name}-{}", std::process::id()));
    let mut command = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"]);
    command.arg(root.join("../../include")).arg("-o").arg(&unfinished);
    command.arg(root.join("tests/processes").join(source).with_extension("c"));
    let output = command.args(arguments).args(["-pthread", "-ldl"]).output().unwrap();
    assert!(output.status.success(), "{source}: {}", text(&output.stderr));
    fs::rename(unfinished, folder.join(name)).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program with the preload library before it, and the runtime and driver to be found.
fn command(program: &Path) -> Command {
    let mut command = support::command(program);
    command.env("LD_LIBRARY_PATH", joined([&BUILT.folder, &BUILT.driver_folder]));
    command
}

fn joined<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> OsString {
    env::join_paths(paths).unwrap()
}

/// A case of a program of ours.
fn case(program: &str, arguments: &[&str]) -> Command {
    let mut command = command(&BUILT.folder.join(program));
    command.args(arguments);
    command
}

/// Runs a command line, which must succeed and print nothing on standard error.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Runs a case under every setting.
#[track_caller]
fn ends_well(program: &str, arguments: &[&str]) {
    for (name, value) in SETTINGS {
        run(case(program, arguments).env(name, value));
    }
}

/// A file for processes to report in.
fn new_report(test: &str) -> Report {
    let path = BUILT.folder.join(format!("report-{test}-{}", std::process::id()));
    Report::create(&path).unwrap()
}

/// The reports of the processes of a command line, except of `timeout`, which runs it.
#[track_caller]
fn reported(test: &str, command: &mut Command) -> Vec<Process> {
    let report = new_report(test);
    run(command.env("GENESIS_PRELOAD_REPORT", report.path()));
    let mut processes = report.processes();
    processes.retain(|process| !process.command_line.starts_with("timeout"));
    processes
}

/// Blocks that Genesis handed out to a process.
fn served(process: &Process) -> u64 {
    let allocations = process.calls.iter().filter(|call| call.name.contains("lloc"));
    allocations.map(|call| call.served).sum()
}

#[test]
fn a_forked_child_gets_cudas_error_and_its_parent_goes_on() {
    ends_well("fork", &["after_use"]);
}

#[test]
fn a_forked_child_is_reported_as_one() {
    let processes = reported("forked", &mut case("fork", &["after_use"]));
    let libraries: Vec<_> = processes.iter().map(|process| process.library).collect();
    // The parent, a child, another child with its own child, and one that becomes another program.
    let forked = Library::ForkedChild;
    assert_eq!(libraries, [Library::Open, forked, forked, forked, forked, Library::Open]);
    let mut off = case("fork", &["after_use"]);
    let processes = reported("forked_off", off.env(OFF.0, OFF.1));
    assert!(processes.len() > 3 && processes.iter().all(|one| one.library == Library::Off));
}

#[test]
fn a_child_forked_before_the_first_use_works() {
    ends_well("fork", &["before_use"]);
}

#[test]
fn a_program_that_becomes_another_is_served_again() {
    ends_well("fork", &["exec"]);
    let processes = reported("exec", &mut case("fork", &["exec"]));
    let served: Vec<_> = processes.iter().map(served).collect();
    assert_eq!(served, [1, 1], "{processes:?}");
    assert_eq!(processes[0].process_id, processes[1].process_id);
    assert_eq!((processes[0].live_bytes, processes[1].live_bytes), (1 << 20, 0));
}

#[test]
fn a_fork_while_threads_allocate_does_not_hang() {
    ends_well("fork", &["hammered"]);
}

#[test]
fn a_fork_during_the_first_use_does_not_hang() {
    ends_well("fork", &["during_first_use"]);
}

#[test]
fn a_process_may_end_at_any_time() {
    for how in [
        "with_live_blocks",
        "from_thread",
        "main_thread_first",
        "in_thread_destructors",
        "at_once",
        "at_exit",
        "while_others_work",
        "with_a_reset",
    ] {
        ends_well("ending", &[how]);
    }
}

#[test]
fn what_was_done_is_reported_however_a_process_ends() {
    for how in ["with_live_blocks", "at_once"] {
        let processes = reported(how, &mut case("ending", &[how]));
        let [process] = &processes[..] else { panic!("{processes:?}") };
        assert_eq!(process.library, Library::Open);
        assert!(process.has_seen_cuda && served(process) >= 64, "{process:?}");
        assert!(process.live_bytes > 32 * 1000 && process.peak_bytes >= process.live_bytes);
        assert!(process.command_line.ends_with(how), "{process:?}");
    }
}

#[test]
fn a_thousand_threads_have_a_stream_each() {
    // Each free is fenced on every stream, so a round takes as long as a million events.
    ends_well("threads", &["crowd", tier::some_or_all("2", "10")]);
}

#[test]
fn a_thread_without_a_context_gets_the_drivers_error() {
    ends_well("threads", &["without_contexts"]);
}

#[test]
fn libraries_of_cuda_come_and_go() {
    let plugin = BUILT.folder.join("plugin.so");
    ends_well("loading", &["plugin", plugin.to_str().unwrap()]);
    ends_well("loading", &["driver"]);
}

#[test]
fn without_a_driver_the_runtime_says_so() {
    let plugin = BUILT.folder.join("plugin.so");
    // A file that is no library hides a driver in the machine's own folders.
    let no_driver = BUILT.folder.join("no_driver");
    fs::create_dir_all(&no_driver).unwrap();
    fs::write(no_driver.join("libcuda.so.1"), "").unwrap();
    let folders = joined([&BUILT.folder, &no_driver]);
    for (name, value) in SETTINGS {
        let mut command = case("loading", &["missing", plugin.to_str().unwrap()]);
        run(command.env("LD_LIBRARY_PATH", &folders).env(name, value));
    }
}

#[test]
fn two_interposers_stand_beside_each_other() {
    let other = BUILT.folder.join("interposer.so");
    for (order, first, second) in
        [("genesis_first", &BUILT.library, &other), ("other_first", &other, &BUILT.library)]
    {
        for (name, value) in SETTINGS {
            let mut command = case("beside", &[order]);
            run(command.env("LD_PRELOAD", joined([first, second])).env(name, value));
        }
    }
}

#[test]
fn a_program_without_cuda_runs_unchanged() {
    for (name, value) in SETTINGS {
        let output = run(case("loading", &["without"]).env(name, value));
        assert_eq!(text(&output.stdout), "as ever\n");
    }
    let script = "echo one | cat; exec sh -c 'echo two; ls -d /'";
    let output = run(command(Path::new("sh")).args(["-c", script]));
    assert_eq!(text(&output.stdout), "one\ntwo\n/\n");
    let processes = reported("without", &mut case("loading", &["without"]));
    let [process] = &processes[..] else { panic!("{processes:?}") };
    assert!(!process.has_seen_cuda && process.calls.is_empty(), "{process:?}");
    assert_eq!(process.library, Library::NotAsked);
}

#[test]
fn turned_off_it_is_reported_so() {
    let processes = reported("off", case("ending", &["with_live_blocks"]).env(OFF.0, OFF.1));
    let [process] = &processes[..] else { panic!("{processes:?}") };
    assert_eq!((process.library, served(process)), (Library::Off, 0));
}

/// Genesis cannot serve: one line says so, and the program runs as without it.
#[track_caller]
fn is_cudas_own(test: &str, variable: (&str, &str), reason: &str) {
    let report = new_report(test);
    let mut command = case("ending", &["with_live_blocks"]);
    command.env(variable.0, variable.1).env("TEST_WITHOUT_GENESIS", "1");
    let output = command.env("GENESIS_PRELOAD_REPORT", report.path()).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("CUDA's own memory")).collect();
    let [line] = lines[..] else { panic!("{said}") };
    assert!(line.starts_with("genesis: ") && line.contains(reason), "{said}");
    let processes = report.processes();
    let process = processes.iter().find(|process| process.has_seen_cuda).unwrap();
    assert_eq!((process.library, served(process)), (Library::Missing, 0));
    assert!(process.library_error.contains(reason), "{process:?}");
    assert!(process.calls.iter().any(|call| call.name == "cudaMalloc" && call.passed >= 64));
}

#[test]
fn without_genesis_everything_is_cudas_own() {
    let path = "/no/such/libgenesis.so";
    is_cudas_own("no_file", ("GENESIS_LIBRARY", path), path);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    is_cudas_own("no_library", ("GENESIS_LIBRARY", source), "ELF");
    is_cudas_own("other_library", ("GENESIS_LIBRARY", "libc.so.6"), "libc.so.6 is not Genesis");
    is_cudas_own("host", ("GENESIS_BACKEND", "host"), "GENESIS_BACKEND is host");
    is_cudas_own("wrong", ("GENESIS_POOL_TYPE", "Rund"), "libgenesis.so does not start");
}
