//! The C interface, used by C and C++ programs.
//!
//! Each file in `c_tests` is a program on one subject. It is compiled as C99 and as C++17 with
//! every warning an error and with the address and undefined behaviour sanitizers, which check
//! the program's own accesses and find memory that it or the library has lost. It runs under every
//! strategy if the subject depends on it: as C99, and nightly as C++17, too. On every change C++17
//! is only checked to be correct, as the calls are the same.
//!
//! Accesses within the library are not instrumented: valgrind checks them, ten times as slowly, so
//! that on every change it runs a few subjects under Elastic, without call sites, and nightly all
//! under every strategy.

#[path = "c_interface/programs.rs"]
mod programs;
#[path = "support/tier.rs"]
mod tier;
#[path = "c_interface/valgrind.rs"]
mod valgrind;

use std::fs;
use std::path::Path;
use std::process::Command;

use genesis::config::PoolType;
use programs::Language::{self, C99, Cpp17};
use programs::{command, compile, compile_by, compiler, run_silently, sources, text};

/// What has the compiler check a program's accesses as it runs, and end the first wrong one.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// The same but for AddressSanitizer.
const WITHOUT_ADDRESSES: [&str; 2] = ["-fsanitize=undefined", "-fno-sanitize-recover=all"];
/// The strategies of a subject that depends on them.
const EACH: &[PoolType] = PoolType::ALL;
/// Those of a subject that does not.
const ONE: &[PoolType] = &[PoolType::Caching];
/// That of a subject that pauses.
const PAGED: &[PoolType] = &[PoolType::Elastic];
/// Those that run under valgrind on every change.
const UNDER_VALGRIND: &[PoolType] = &[PoolType::Elastic];

/// Arguments for the program of `source`.
fn arguments(source: &str, is_checked: bool) -> Vec<&'static str> {
    match source {
        "identity.c" => vec![env!("CARGO_PKG_VERSION")],
        // The operations of each thread.
        "threads.c" if is_checked => vec!["400"],
        "threads.c" => vec![tier::some_or_all("5000", "20000")],
        _ => Vec::new(),
    }
}

/// The languages that `source` is written in: C is also C++.
fn languages(source: &str) -> &'static [Language] {
    if source.ends_with(".c") { &[C99, Cpp17] } else { &[Cpp17] }
}

/// What the program of `source` is checked with as it runs: not with AddressSanitizer where it asks
/// for more memory than that one's own allocator refuses without ending the program.
fn sanitizers(source: &str) -> [&'static str; 2] {
    if source == "host_memory.c" { WITHOUT_ADDRESSES } else { SANITIZERS }
}

/// Runs the program of `source` in its first language under each strategy of `pool_types`, and only
/// checks it in the other, since it makes the same calls; in a full run, runs it in each under every
/// strategy.
fn works(source: &str, pool_types: &[PoolType]) {
    for (number, &language) in languages(source).iter().enumerate() {
        let mut compiler = compiler(language);
        if number > 0 && !tier::is_full() {
            run_silently(compiler.arg("-fsyntax-only").arg(sources().join(source)));
            continue;
        }
        compiler.args(sanitizers(source));
        let program = compile_by(compiler, "sanitized", source, language, true);
        for pool_type in tier::some_or_all(pool_types, EACH) {
            let mut command = command(&program);
            command.env("GENESIS_POOL_TYPE", pool_type.name()).args(arguments(source, false));
            run_silently(&mut command);
        }
    }
}

/// Runs the program of `source` under valgrind.
fn is_clean(source: &str) {
    require_valgrind();
    let program = compile("valgrind", source, languages(source)[0], true);
    for pool_type in tier::some_or_all(UNDER_VALGRIND, EACH) {
        let mut command = command("valgrind");
        command
            .args(valgrind::ARGUMENTS)
            .arg(&program)
            .env("GENESIS_POOL_TYPE", pool_type.name())
            .args(arguments(source, true));
        if !tier::is_full() {
            // To name them is to read the library's debug information: most of the time.
            command.env("GENESIS_CALL_SITES", "off");
        }
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

/// Two tests for each source, and the list of all sources: under which strategies the program
/// runs, and when it runs under valgrind.
macro_rules! subjects {
    ($($name:ident: $source:literal, $pool_types:ident $(, $when:meta)?;)*) => {
        $(
            mod $name {
                #[test]
                fn works() {
                    super::works($source, super::$pool_types);
                }

                #[test]
                $(#[$when])?
                fn is_clean_under_valgrind() {
                    super::is_clean($source);
                }
            }
        )*
        const SOURCES: &[&str] = &[$($source),*];
    };
}

subjects! {
    arenas: "arenas.c", EACH, ignore = "nightly";
    allocator: "allocator.cpp", EACH, ignore = "nightly";
    blocks: "blocks.c", EACH, ignore = "nightly";
    cache: "cache.c", EACH, ignore = "nightly";
    callbacks: "callbacks.c", ONE, ignore = "nightly";
    forecast: "forecast.c", ONE, ignore = "nightly";
    free_call: "free_call.c", ONE, ignore = "nightly";
    host_memory: "host_memory.c", ONE, ignore = "nightly";
    managed: "managed.c", ONE;
    memory_resource: "memory_resource.cpp", ONE, ignore = "nightly";
    memory_saver: "memory_saver.c", PAGED, ignore = "nightly";
    identity: "identity.c", ONE, ignore = "nightly";
    limits: "limits.c", EACH, ignore = "nightly";
    logging: "logging.c", ONE, ignore = "nightly";
    many_gpus: "many_gpus.c", EACH, ignore = "nightly";
    named: "named.c", ONE, ignore = "nightly";
    null_arguments: "null_arguments.c", ONE;
    nvtx: "nvtx.c", ONE, ignore = "nightly";
    options: "options.c", ONE, ignore = "nightly";
    plugs: "plugs.c", ONE, ignore = "nightly";
    private_pools: "private_pools.c", ONE, ignore = "nightly";
    profile: "profile.c", ONE, ignore = "nightly";
    out_of_memory: "out_of_memory.c", EACH, ignore = "nightly";
    refusals: "refusals.c", EACH;
    statistics: "statistics.c", EACH, ignore = "nightly";
    streams: "streams.c", EACH, ignore = "nightly";
    tags: "tags.c", EACH, ignore = "nightly";
    threads: "threads.c", EACH, ignore = "nightly";
    trace: "trace.c", ONE, ignore = "nightly";
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
        ("genesis/memory_resource.hpp", Cpp17, &["-std=c++17", "-std=c++20"]),
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
