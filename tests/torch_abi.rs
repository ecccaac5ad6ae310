//! What PyTorch sees of the library, without PyTorch: its hooks called with the real types of
//! C++, and its exceptions caught by a fake of its libraries with the same names.
//!
//! The programs are in `tests/torch_abi`; the fake is compiled in several ways, as PyTorch is
//! and was.

#[path = "c_interface/programs.rs"]
mod programs;
#[path = "c_interface/valgrind.rs"]
mod valgrind;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use programs::Language::{C99, Cpp17};
use programs::{command, compile, compiler, run_silently, text};

/// The libraries of the fake, each with those that it needs.
const LIBRARIES: [(&str, &[&str]); 4] = [
    ("c10", &[]),
    ("c10_cuda", &["c10"]),
    ("torch_cuda", &["c10_cuda", "c10"]),
    ("torch_python", &["torch_cuda", "c10_cuda", "c10"]),
];

/// What the fake's devices have, in bytes as the option takes them.
const MEMORY: &str = "256MiB";

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch_abi").join(name)
}

/// The fake of PyTorch as today's is compiled.
fn todays_torch() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| fake_torch("today", &[]));
    &FOLDER
}

/// Compiles the fake of PyTorch with `flags` into a folder of its own.
fn fake_torch(name: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-torch-{name}"));
    fs::create_dir_all(&folder).unwrap();
    for (library, needed) in LIBRARIES {
        let file = format!("lib{library}.so");
        let mut command = compiler(Cpp17);
        command.args(["-shared", "-fPIC", "-fvisibility=hidden"]).args(flags);
        command.arg(source("fake_torch").join(format!("{library}.cpp"))).args(["-x", "none"]);
        command.arg(format!("-Wl,-soname,{file}")).arg(format!("-Wl,-rpath,{}", folder.display()));
        command.arg("-L").arg(&folder).args(needed.iter().map(|needed| format!("-l{needed}")));
        // Other runs of the tests may be using the library: theirs stays until it is closed.
        let unfinished = folder.join(format!("{file}-{}", std::process::id()));
        let output = command.arg("-o").arg(&unfinished).output().unwrap();
        assert!(output.status.success(), "{library}: {}", text(&output.stderr));
        fs::rename(unfinished, folder.join(file)).unwrap();
    }
    folder
}

/// Compiles a program that is linked with the library.
fn program(name: &str) -> PathBuf {
    let language = if name.ends_with(".c") { C99 } else { Cpp17 };
    compile("torch", source(name).to_str().unwrap(), language, true)
}

static FAILURES: LazyLock<PathBuf> = LazyLock::new(|| program("failures.c"));
static POOLS: LazyLock<PathBuf> = LazyLock::new(|| program("pools.cpp"));
static STREAMS: LazyLock<PathBuf> = LazyLock::new(|| program("streams.c"));

/// The command line that runs a program with messages off: failures are what it is about.
fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = command(program);
    command.env("GENESIS_SIM_MEMORY", MEMORY).env("GENESIS_LOG", "off");
    command
}

/// The same under valgrind: the program follows.
fn valgrind() -> Command {
    let mut command = quiet("valgrind");
    command.args(valgrind::ARGUMENTS);
    command
}

/// Failed requests under the fake of PyTorch in `folder`, which raises `raised`.
fn fails(folder: &Path, raised: &str) {
    run_silently(quiet(&*FAILURES).arg(folder).arg(raised));
}

#[test]
fn a_shortage_is_torchs_own_error() {
    fails(todays_torch(), "OutOfMemoryError");
}

/// Wheels of PyTorch were built with libstdc++'s older string until 2.6.
#[test]
#[ignore = "nightly"]
fn a_shortage_is_torchs_own_error_with_the_older_string() {
    fails(&fake_torch("older", &["-D_GLIBCXX_USE_CXX11_ABI=0"]), "OutOfMemoryError");
}

#[test]
#[ignore = "nightly"]
fn a_shortage_is_a_runtime_error_where_torchs_own_is_not_found() {
    fails(&fake_torch("check_fail", &["-DHIDE_OUT_OF_MEMORY"]), "RuntimeError");
}

#[test]
fn a_shortage_is_null_where_nothing_to_throw_is_found() {
    fails(&fake_torch("nothing", &["-DHIDE_OUT_OF_MEMORY", "-DHIDE_CHECK_FAIL"]), "");
}

/// The exceptions leave nothing behind, and nothing is read that is not there.
#[test]
fn failures_are_clean_under_valgrind() {
    let mut command = valgrind();
    run_silently(command.arg(&*FAILURES).arg(todays_torch()).arg("OutOfMemoryError"));
}

#[test]
fn pools_keep_the_filter_as_long_as_they_are_begun() {
    run_silently(quiet(&*POOLS).arg("1000"));
}

#[test]
#[ignore = "nightly"]
fn pools_are_clean_under_valgrind() {
    let mut command = valgrind();
    run_silently(command.arg(&*POOLS).arg("10"));
}

/// What streams leave free under the fake of PyTorch in `folder`, whose own streams are `known`.
fn streams(folder: &Path, known: &str) {
    let mut command = quiet(&*STREAMS);
    let settings = [("GENESIS_POOL_TYPE", "Elastic"), ("GENESIS_SIM_DEVICES", "2")];
    run_silently(command.envs(settings).arg(folder).arg(known));
}

#[test]
fn torchs_own_streams_are_known_from_those_of_others() {
    streams(todays_torch(), "known");
}

#[test]
fn without_torchs_functions_all_streams_are_those_of_others() {
    streams(&fake_torch("streams", &["-DHIDE_STREAMS"]), "unknown");
}

#[test]
fn hooks_do_what_torch_expects() {
    run_silently(&mut quiet(program("hooks.cpp")));
}
