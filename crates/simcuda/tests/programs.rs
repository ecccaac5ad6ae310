//! C programs on simcuda: each is compiled and run by the `simcuda` program in an environment of
//! its own. They stop with a line at the first result that is not CUDA's.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compiles a program and runs it.
fn run(name: &str, environment: &[(&str, &str)]) -> Output {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let file = format!("{name}-{}-{}", environment.len(), std::process::id());
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
        // Functions are called by name, without prototypes, as C17 still allows.
        .args(["-std=gnu17", "-Wall", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source.with_extension("c"))
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(env!("CARGO_BIN_EXE_simcuda"))
        .arg(&program)
        .envs(environment.iter().copied())
        .output()
        .expect("simcuda runs");
    let _ = std::fs::remove_file(program);
    output
}

/// Runs a program that must succeed, and returns what it said on standard error.
fn pass(name: &str, environment: &[(&str, &str)]) -> String {
    let output = run(name, environment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

#[test]
fn the_driver_answers_as_cuda_does() {
    let environment = [
        ("SIMCUDA_STORE", "bytes"),
        ("SIMCUDA_MEMORY", "1GiB"),
        ("SIMCUDA_DEVICES", "2"),
        ("SIMCUDA_PRICES", "b300"),
    ];
    let said = pass("driver", &environment);
    assert_eq!(said.matches("cuTexRefCreate is not implemented").count(), 1, "{said}");
}

#[test]
fn order_is_kept_and_races_are_found() {
    let said = pass("order", &[("SIMCUDA_PROGRESS", "manual")]);
    assert!(said.contains("simcuda: race on "), "{said}");
}

#[test]
fn contexts_devices_and_captures_are_kept_apart() {
    pass("contexts", &[("SIMCUDA_PROGRESS", "manual"), ("SIMCUDA_DEVICES", "2")]);
}

#[test]
fn the_runtime_is_preloaded() {
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("runtime.log");
    let faults = ("SIMCUDA_FAULTS", "cuMemAlloc:2:2,cudaMemset:1:700:2");
    let path = log.to_str().expect("a name in UTF-8");
    let said = pass("runtime", &[faults, ("SIMCUDA_LOG", path)]);
    assert!(said.contains("cudaCreateTextureObject is not implemented"), "{said}");
    let lines = std::fs::read_to_string(&log).expect("a log");
    assert!(lines.contains(&format!(" cudaMalloc({}) = 0\n", 60u64 << 30)), "{lines}");
    assert!(lines.contains(" cudaMalloc(1048576) = 2\n"), "{lines}");
}

#[test]
fn a_violation_may_end_the_process() {
    let environment = [("SIMCUDA_PROGRESS", "manual"), ("SIMCUDA_ON_VIOLATION", "abort")];
    let output = run("order", &environment);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("race on"));
}

#[test]
fn without_a_device_the_driver_does_not_start() {
    for (name, value) in [("CUDA_VISIBLE_DEVICES", ""), ("SIMCUDA_MEMORY", "plenty")] {
        let output = run("order", &[(name, value)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("is 100, not 0"), "{said}");
        assert_eq!(said.contains("SIMCUDA_MEMORY=plenty"), name == "SIMCUDA_MEMORY", "{said}");
    }
}
