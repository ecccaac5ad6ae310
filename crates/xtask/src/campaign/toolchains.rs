//! Compilers other than the usual one, parts of them, and programs that cargo installs.

use std::path::PathBuf;

use steps::{Outcome, Step, cargo, output, run, target_folder};

/// The compiler with which sanitizers run, which only unreleased ones can.
pub(super) const NIGHTLY: &str = "nightly";

/// Has rustup install the compiler `toolchain`, and those of its `components` that are missing.
pub(super) fn install(toolchain: &str, components: &[&str]) -> Outcome {
    let list = ["component", "list", "--installed", "--toolchain", toolchain];
    let Ok(installed) = output(&Step::new("rustup", &list)) else {
        let profile = ["toolchain", "install", toolchain, "--profile", "minimal"];
        let mut install = Step::new("rustup", &profile);
        install.extend(components.iter().flat_map(|component| ["--component", component]));
        return run(&install);
    };
    let is_here = |component: &&str| installed.lines().any(|line| line.starts_with(component));
    let missing: Vec<&str> = components.iter().copied().filter(|one| !is_here(one)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut add = Step::new("rustup", &["component", "add", "--toolchain", toolchain]);
    add.extend(missing);
    run(&add)
}

/// Has rustup install `component` for the usual compiler.
pub(super) fn add_component(component: &str) -> Outcome {
    run(&Step::new("rustup", &["component", "add", component]))
}

/// Has rustup install the standard library for `target`, for the usual compiler.
pub(super) fn add_target(target: &str) -> Outcome {
    let installed = output(&Step::new("rustup", &["target", "list", "--installed"]))?;
    if installed.lines().any(|line| line == target) {
        return Ok(());
    }
    run(&Step::new("rustup", &["target", "add", target]))
}

/// Has cargo install `version` of the crate `name`, whose program has its name, below the target
/// folder; returns the program.
pub(super) fn program(name: &str, version: &str) -> Result<PathBuf, String> {
    let folder = target_folder().join("tools");
    let program = folder.join("bin").join(name);
    // cargo's own subcommands get their own name as their first argument.
    let told = output(&Step::new(&program, &[name.trim_start_matches("cargo-"), "--version"]));
    if !told.is_ok_and(|told| told.contains(version)) {
        let mut install = cargo(&["install", "--locked", "--quiet", "--version", version]);
        install.extend(["--root".into(), folder.into_os_string(), name.into()]);
        run(&install)?;
    }
    Ok(program)
}
