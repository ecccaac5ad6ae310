//! Call sites: where in a program memory was allocated, told by the profiles of C programs
//! (`c_tests/processes/call_sites.c`) and of Python programs (`tests/call_sites/program.py`).
//!
//! The C programs mark the lines that are to be told. The Python program checks itself, under
//! every version of Python that is found.

#[path = "c_interface/programs.rs"]
mod programs;
#[macro_use]
#[path = "support/python_cases.rs"]
mod python_cases;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use genesis::observe::location;
use genesis_profile::json;
use genesis_profile::model::{Frame, Profile, Site};
use programs::Language::C99;
use programs::{command, compile, compiler, library_folder, run, run_silently, sources, text};

const PROGRAM: &str = "processes/call_sites.c";
const LIBRARY: &str = "processes/call_sites_library.c";

/// The line of a C source that is marked with `mark`.
fn line(source: &str, mark: &str) -> u32 {
    let source = fs::read_to_string(sources().join(source)).unwrap();
    let mark = format!("/* HERE {mark} */");
    let at = source.lines().position(|line| line.ends_with(&mark)).expect("the mark");
    at as u32 + 1
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("call-sites-{name}"))
}

/// Runs a case of a program with call sites of a kind; returns its profile.
fn profile_of(program: &Path, case: &str, kind: &str, library: Option<&Path>) -> Profile {
    let file = program.file_name().unwrap().to_str().unwrap();
    let profile = path(&format!("{file}-{case}-{kind}.json"));
    let _ = fs::remove_file(&profile);
    let mut command = command(program);
    command.arg(case).arg(&profile).args(library).env("GENESIS_CALL_SITES", kind);
    assert_eq!(run_silently(&mut command), "");
    json::read(&fs::read(&profile).unwrap()).unwrap()
}

/// The call sites at which the live blocks of so many bytes were allocated.
fn sites(profile: &Profile, requested_bytes: u64) -> Vec<&Site> {
    let blocks = profile.live.iter().filter(|block| block.requested_bytes == requested_bytes);
    blocks.map(|block| &profile.sites[block.site as usize]).collect()
}

/// Whether the frame is of our C program, at the marked line.
fn is_at(frame: &Frame, source: &str, mark: &str, function: &str) -> bool {
    frame.file.ends_with(source) && frame.line == line(source, mark) && frame.function == function
}

#[test]
fn a_c_program_is_told_its_own_lines() {
    let program = compile("call-sites", PROGRAM, C99, true);
    for kind in ["python", "native", "all"] {
        let profile = profile_of(&program, "two_places", kind, None);
        let [alone] = sites(&profile, 1000)[..] else { panic!("{profile:#?}") };
        let [first, second] = sites(&profile, 2000)[..] else { panic!("{profile:#?}") };
        assert!(is_at(&alone.frames[0], PROGRAM, "alone", "alone"), "{alone:#?}");
        assert!(is_at(&first.frames[0], PROGRAM, "twice", "twice"), "{first:#?}");
        assert!(is_at(&first.frames[1], PROGRAM, "caller", "two_places"), "{first:#?}");
        assert_eq!(first, second);
        assert!(first.frames.iter().any(|frame| frame.function == "main"), "{first:#?}");
        let of_alone = format!("c_tests/{PROGRAM}:{} (alone)", line(PROGRAM, "alone"));
        assert!(location(alone).ends_with(&of_alone), "{}", location(alone));
        // A loop may have become two calls, of one name and line.
        let counts = |site: &Site| -> u64 {
            let of_site = profile.call_sites.iter();
            let of_site = of_site.filter(|one| profile.sites[one.site as usize] == *site);
            of_site.map(|one| one.counts.allocations).sum()
        };
        assert_eq!([counts(alone), counts(first)], [1, 2]);
    }
}

#[test]
fn sites_are_not_looked_for_where_they_are_off() {
    let program = compile("call-sites-off", PROGRAM, C99, true);
    let profile = profile_of(&program, "two_places", "off", None);
    assert!(profile.live.iter().all(|block| block.site == 0), "{profile:#?}");
    assert_eq!(profile.sites[0], Site::default());
}

#[test]
fn a_stripped_program_is_told_its_file() {
    let program = compile("call-sites-stripped", PROGRAM, C99, true);
    assert!(Command::new("strip").arg(&program).status().unwrap().success());
    let profile = profile_of(&program, "two_places", "native", None);
    let (alone, twice) = (sites(&profile, 1000)[0], sites(&profile, 2000)[0]);
    for site in [alone, twice] {
        let frame = &site.frames[0];
        assert_eq!((Path::new(&frame.file), frame.line), (&*program, 0), "{site:#?}");
        assert!(frame.function.starts_with("0x"), "{site:#?}");
    }
    assert_ne!(alone.frames[0], twice.frames[0]);
}

#[test]
fn stacks_of_every_kind_are_walked() {
    let program = compile("call-sites-kinds", PROGRAM, C99, true);
    let profile = profile_of(&program, "recursion", "native", None);
    let deep = sites(&profile, 4000)[0];
    assert!(is_at(&deep.frames[0], PROGRAM, "deep", "deep"), "{deep:#?}");
    assert_eq!(deep.frames.len(), 32);
    // Through the frame that the kernel made, to the code that was interrupted.
    let profile = profile_of(&program, "signal_handler", "native", None);
    let [first, second] = sites(&profile, 5000)[..] else { panic!("{profile:#?}") };
    assert!(is_at(&first.frames[0], PROGRAM, "handler", "on_signal"), "{first:#?}");
    let is_raise = |frame: &Frame| is_at(frame, PROGRAM, "raise", "signal_handler");
    assert!(first.frames.iter().any(is_raise), "{first:#?}");
    assert_eq!(first, second);
    let profile = profile_of(&program, "threads", "native", None);
    let of_threads = sites(&profile, 7000);
    assert_eq!(of_threads.len(), 4 * 1000);
    let is_there = |site: &&Site| is_at(&site.frames[0], PROGRAM, "in thread", "in_thread");
    assert!(of_threads.iter().all(is_there), "{:#?}", of_threads[0]);
}

/// Compiles the library that programs load.
fn shared_library(name: &str) -> PathBuf {
    let library = path(name);
    let folder = library_folder();
    let folder = folder.to_str().unwrap();
    let mut command = compiler(C99);
    command.arg(sources().join(LIBRARY)).args(["-shared", "-fPIC", "-pthread", "-o"]);
    command.arg(&library).args(["-L", folder, "-lgenesis"]);
    // Cargo's LD_LIBRARY_PATH may have another copy first.
    let run_path = format!("-Wl,--disable-new-dtags,-rpath,{folder}");
    let output = command.arg(run_path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    library
}

#[test]
fn a_loaded_library_is_told_and_may_go() {
    let library = shared_library("loaded.so");
    let program = compile("call-sites-loading", PROGRAM, C99, true);
    // It is unloaded before its addresses are named: some name, and no harm.
    let profile = profile_of(&program, "in_library", "native", Some(&library));
    let site = sites(&profile, 6000)[0];
    let is_caller = |frame: &Frame| frame.function == "in_library" && frame.line != 0;
    assert!(site.frames.iter().any(is_caller), "{site:#?}");
}

/// Runs a case of the Python program under `python`; it checks itself.
fn works_in_python(case: &str, python: &Path) {
    let name = python.file_name().expect("a program's name").display();
    let library = shared_library(&format!("{name}-{case}.so"));
    let mut command = command(python);
    command
        // Of forks beside threads, which is what is tested.
        .args(["-W", "ignore::DeprecationWarning"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/call_sites/program.py"))
        .arg(case)
        .arg(path(&format!("{case}-{name}.json")))
        .env("GENESIS_LIBRARY", library_folder().join("libgenesis.so"))
        .env("GENESIS_BACKEND", "sim")
        .env("FOREIGN_LIBRARY", &library);
    let output = run(&mut command);
    assert_eq!(text(&output.stderr), "", "{case}, {name}");
}

python_cases! { works_in_python:
    with_and_without_the_lock
    code_of_every_kind
    threads
    a_busy_thread
    known_stacks_take_no_lock
    foreign_threads
    kinds_of_sites
    deep_recursion
    much_code
    errors_on_their_way
    during_collections
    at_exit
    daemons_at_exit
    waits_without_the_lock
    forked_children
}
