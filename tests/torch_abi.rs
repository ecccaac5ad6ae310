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

/// Compiles the fake of PyTorch with `flags` into a folder of its own.
fn fake_torch(name: &str, flags: &[&str]) -> PathBuf {
    let own = format!("fake-torch-{name}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
    fs::create_dir_all(&folder).unwrap();
    for (library, needed) in LIBRARIES {
        let file = format!("lib{library}.so");
        let mut command = compiler(Cpp17);
        command.args(["-shared", "-fPIC", "-fvisibility=hidden"]).args(flags);
        command.arg(source("fake_torch").join(format!("{library}.cpp"))).args(["-x", "none"]);
        command.arg(format!("-Wl,-soname,{file}")).arg(format!("-Wl,-rpath,{}", folder.display()));
        command.arg("-L").arg(&folder).args(needed.iter().map(|needed| format!("-l{needed}")));
        let output = command.arg("-o").arg(folder.join(file)).output().unwrap();
        assert!(output.status.success(), "{library}: {}", text(&output.stderr));
    }
    folder
}

/// Compiles a program that is linked with the library, for the test of this name alone.
fn program(test: &str, name: &str) -> PathBuf {
    let language = if name.ends_with(".c") { C99 } else { Cpp17 };
    compile(&format!("torch-{test}"), source(name).to_str().unwrap(), language, true)
}

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

/// Failed requests under a fake of PyTorch compiled with `flags`, which raises `raised`.
fn fails(name: &str, flags: &[&str], raised: &str) {
    let folder = fake_torch(name, flags);
    run_silently(quiet(program(name, "failures.c")).arg(&folder).arg(raised));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_shortage_is_torchs_own_error() {
    fails("today", &[], "OutOfMemoryError");
}

/// Wheels of PyTorch were built with libstdc++'s older string until 2.6.
#[test]
fn a_shortage_is_torchs_own_error_with_the_older_string() {
    fails("older", &["-D_GLIBCXX_USE_CXX11_ABI=0"], "OutOfMemoryError");
}

#[test]
fn a_shortage_is_a_runtime_error_where_torchs_own_is_not_found() {
    fails("check_fail", &["-DHIDE_OUT_OF_MEMORY"], "RuntimeError");
}

#[test]
fn a_shortage_is_null_where_nothing_to_throw_is_found() {
    fails("nothing", &["-DHIDE_OUT_OF_MEMORY", "-DHIDE_CHECK_FAIL"], "");
}

/// The exceptions leave nothing behind, and nothing is read that is not there.
#[test]
fn failures_are_clean_under_valgrind() {
    let folder = fake_torch("checked", &[]);
    let mut command = valgrind();
    command.arg(program("checked", "failures.c")).arg(&folder).arg("OutOfMemoryError");
    run_silently(&mut command);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn pools_keep_the_filter_as_long_as_they_are_begun() {
    run_silently(quiet(program("pools", "pools.cpp")).arg("1000"));
}

#[test]
fn pools_are_clean_under_valgrind() {
    let mut command = valgrind();
    run_silently(command.arg(program("pools-checked", "pools.cpp")).arg("10"));
}

#[test]
fn hooks_do_what_torch_expects() {
    run_silently(&mut quiet(program("hooks", "hooks.cpp")));
}
