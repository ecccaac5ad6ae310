//! The C interface, used by C and C++ programs.
//!
//! Each file in `c_tests` is a program on one subject. It is compiled as C99 and as C++17 with
//! every warning an error, and run under every strategy; then once more under valgrind, which
//! must find no invalid access and no memory that was lost.

#[path = "c_interface/programs.rs"]
mod programs;
#[path = "c_interface/valgrind.rs"]
mod valgrind;

use std::fs;
use std::path::Path;
use std::process::Command;

use genesis::config::PoolType;
use programs::Language::{self, C99, Cpp17};
use programs::{command, compile, compiler, run_silently, sources, text};

/// Operations of each thread in `threads.c`; natively, and where every access is checked.
const THREAD_OPERATIONS: [&str; 2] = ["20000", "400"];

/// Arguments for the program of `source`.
fn arguments(source: &str, is_checked: bool) -> Vec<&'static str> {
    match source {
        "identity.c" => vec![env!("CARGO_PKG_VERSION")],
        "threads.c" => vec![THREAD_OPERATIONS[usize::from(is_checked)]],
        _ => Vec::new(),
    }
}

/// The languages that `source` is written in: C is also C++.
fn languages(source: &str) -> &'static [Language] {
    if source.ends_with(".c") { &[C99, Cpp17] } else { &[Cpp17] }
}

/// Runs the program of `source` in each language and under every strategy.
fn works(source: &str) {
    for &language in languages(source) {
        let program = compile("native", source, language, true);
        for pool_type in PoolType::ALL {
            let mut command = command(&program);
            command.env("GENESIS_POOL_TYPE", pool_type.name()).args(arguments(source, false));
            run_silently(&mut command);
        }
    }
}

/// Runs the program of `source` under valgrind, with every strategy.
fn is_clean(source: &str) {
    require_valgrind();
    let program = compile("valgrind", source, languages(source)[0], true);
    for pool_type in PoolType::ALL {
        let mut command = command("valgrind");
        command
            .args(valgrind::ARGUMENTS)
            .arg(&program)
            .env("GENESIS_POOL_TYPE", pool_type.name())
            .args(arguments(source, true));
        run_silently(&mut command);
    }
}

/// Fails with advice where there is no valgrind: a check not made must not pass.
fn require_valgrind() {
    let found = Command::new("valgrind").arg("--version").output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "valgrind is not installed: `cargo xtask test` installs it, as does \
         `apt-get install valgrind`"
    );
}

/// Two tests for each source, and the list of all sources.
macro_rules! subjects {
    ($($name:ident: $source:literal;)*) => {
        $(
            mod $name {
                #[test]
                fn works() {
                    super::works($source);
                }

                #[test]
                fn is_clean_under_valgrind() {
                    super::is_clean($source);
                }
            }
        )*
        const SOURCES: &[&str] = &[$($source),*];
    };
}

subjects! {
    allocator: "allocator.cpp";
    blocks: "blocks.c";
    cache: "cache.c";
    callbacks: "callbacks.c";
    free_call: "free_call.c";
    host_memory: "host_memory.c";
    identity: "identity.c";
    limits: "limits.c";
    logging: "logging.c";
    named: "named.c";
    null_arguments: "null_arguments.c";
    nvtx: "nvtx.c";
    options: "options.c";
    plugs: "plugs.c";
    profile: "profile.c";
    out_of_memory: "out_of_memory.c";
    refusals: "refusals.c";
    statistics: "statistics.c";
    streams: "streams.c";
    tags: "tags.c";
    threads: "threads.c";
    trace: "trace.c";
}

#[test]
fn no_source_is_forgotten() {
    let is_source = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "c" || extension == "cpp")
    };
    let paths = fs::read_dir(sources()).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> = paths
        .filter(|path| is_source(path))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    let mut listed = SOURCES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

/// Each header needs nothing included before it, and is free of warnings in newer languages.
#[test]
fn headers_stand_alone() {
    let cases = [
        ("genesis.h", C99, &["-std=c99", "-std=c11", "-std=c17"][..]),
        ("genesis.h", Cpp17, &["-std=c++11", "-std=c++17", "-std=c++20"][..]),
        ("genesis/allocator.hpp", Cpp17, &["-std=c++17", "-std=c++20"][..]),
    ];
    for (header, language, standards) in cases {
        for standard in standards {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join(header);
            let mut command = compiler(language);
            command.args([standard, "-fsyntax-only", "-include"]);
            command.arg(source).args(["-x", if language == C99 { "c" } else { "c++" }]);
            let output = command.arg("/dev/null").output().unwrap();
            assert!(output.status.success(), "{header} {standard}: {}", text(&output.stderr));
            assert_eq!(text(&output.stderr), "", "{header} {standard}");
        }
    }
}
