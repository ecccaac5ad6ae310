//! C programs on the `cuda` backend, over simcuda: CUDA's own streams, events and devices.
//!
//! The subjects of `c_tests` run here as well as on the `host` backend (`tests/c_interface.rs`).
//! The programs of `c_tests/cuda` call simcuda themselves, so they run only here.
//! `options.c` runs only there: it is about the options of simulated devices.

#[path = "support/on_simcuda.rs"]
mod on_simcuda;
#[path = "c_interface/programs.rs"]
mod programs;
#[path = "support/tier.rs"]
mod tier;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use genesis::config::PoolType;
use programs::Language::{C99, Cpp17};
use programs::{command, compile, compiler, library_folder, run, run_silently, sources, text};

/// The strategies whose calls of the driver differ: segments, and addresses apart from memory.
const POOL_TYPES: [PoolType; 2] = [PoolType::Elastic, PoolType::Caching];

/// A command line that runs `program` on a device of simcuda, of which it sees bytes.
fn on_simcuda(program: &Path, pool_type: PoolType) -> Command {
    let mut command = command(program);
    on_simcuda::put_beneath(&mut command);
    command.env("GENESIS_BACKEND", "cuda");
    command.env("GENESIS_POOL_TYPE", pool_type.name()).env("SIMCUDA_STORE", "bytes");
    command.env("SIMCUDA_MEMORY", "1GiB").env("SIMCUDA_ON_VIOLATION", "abort");
    command
}

/// The C and C++ sources in `folder`.
fn sources_in(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_source =
        |path: &PathBuf| path.extension().is_some_and(|kind| kind == "c" || kind == "cpp");
    let names = paths.filter(is_source).map(|path| path.file_name().unwrap().to_owned());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn subjects_work_on_cuda() {
    let subjects = sources_in(&sources());
    assert!(subjects.len() > 20, "{subjects:?}");
    for subject in subjects.iter().filter(|name| *name != "options.c") {
        let language = if subject.ends_with(".c") { C99 } else { Cpp17 };
        let program = compile("cuda", subject, language, true);
        for &pool_type in &POOL_TYPES[..tier::some_or_all(1, 2)] {
            let mut command = on_simcuda(&program, pool_type);
            command.args(arguments(subject));
            if subject == "managed.c" {
                command.env("SIMCUDA_MEMORY", "64MiB");
            }
            run_silently(&mut command);
        }
    }
}

/// Arguments for the program of `source`.
fn arguments(source: &str) -> &'static [&'static str] {
    match source {
        "identity.c" => &[env!("CARGO_PKG_VERSION")],
        "threads.c" => &["2000"],
        _ => &[],
    }
}

#[test]
fn programs_of_simcuda_work() {
    let programs = sources_in(&sources().join("cuda"));
    assert!(programs.len() >= 2, "{programs:?}");
    for name in programs {
        let program = compile_with_simcuda(&name);
        for &pool_type in PoolType::ALL {
            let mut command = on_simcuda(&program, pool_type);
            let output = run(command.env("SIMCUDA_ON_VIOLATION", "report"));
            // What the program provokes is reported there; it asks what came of it.
            let errors = text(&output.stderr);
            assert!(errors.lines().all(|line| line.starts_with("simcuda: ")), "{name}: {errors}");
        }
    }
}

/// The program `name` of `c_tests/cuda`, linked against the library and simcuda.
fn compile_with_simcuda(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simcuda-{name}.program"));
    let mut compile = compiler(C99);
    compile.arg(sources().join("cuda").join(name)).arg("-o").arg(&program);
    for (folder, library) in [(library_folder(), "genesis"), (on_simcuda::folder(), "simcuda")] {
        let folder = folder.to_str().expect("the build folder's name is UTF-8");
        compile.args(["-L", folder, &format!("-l{library}")]);
        compile.arg(format!("-Wl,--disable-new-dtags,-rpath,{folder}"));
    }
    let output = compile.args(["-pthread", "-ldl"]).output().unwrap();
    assert!(output.status.success(), "{name}:\n{}", text(&output.stderr));
    program
}
