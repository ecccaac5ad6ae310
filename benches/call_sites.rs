//! What a call site costs: nanoseconds for each block that is allocated and freed while a profile
//! is made, with call sites of each kind and without. Only the allocation looks for one.
//!
//! The stacks are those of a Python program (`call_sites/measure.py`) that calls a C library
//! (`call_sites/churn.c`), in a process of its own; the best of several rounds is kept. The
//! program allocates as fast as the library returns, which no real program does, and the
//! collecting thread runs at the same time: it needs a processor of its own.
//!
//! `cargo bench --bench call_sites -- PYTHON` measures that Python instead of `python3`.

#[path = "../tests/c_interface/programs.rs"]
#[allow(dead_code)] // no program is run from here
mod programs;

use std::path::Path;
use std::process::{Command, ExitCode};

use programs::Language::C99;
use programs::{compiler, library_folder, text};

fn main() -> ExitCode {
    let python = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let folder = library_folder();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/call_sites");
    let churn = Path::new(env!("CARGO_TARGET_TMPDIR")).join("churn.so");
    let folder_text = folder.display().to_string();
    let mut compile = compiler(C99);
    compile.arg(sources.join("churn.c")).args(["-shared", "-fPIC", "-o"]).arg(&churn);
    compile.args(["-L", &folder_text, "-lgenesis", &format!("-Wl,-rpath,{folder_text}")]);
    let compiled = compile.output().expect("a C compiler is installed");
    if !compiled.status.success() {
        eprintln!("{}", text(&compiled.stderr));
        return ExitCode::FAILURE;
    }
    let mut measure = Command::new(python.as_deref().unwrap_or("python3"));
    measure.arg(sources.join("measure.py")).arg(folder.join("libgenesis.so")).arg(&churn);
    match measure.env("GENESIS_BACKEND", "sim").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        outcome => {
            eprintln!("{measure:?}: {outcome:?}");
            ExitCode::FAILURE
        }
    }
}
