//! The folder that is carried to a machine with a GPU; `gpu-probe` describes what is in it.
//!
//! Everything is built in release, as users have it. Nothing in the folder names a place on the
//! machine that built it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steps::{Outcome, Step, cargo, root, run, target_folder};

/// The program that runs everything, in the folder.
pub(super) const RUN: &str = "run";

/// The program that measures, in the folder.
pub(super) const PROBE: &str = "bin/gpu-probe";

/// Finds its own folder, so it may be called from anywhere and by any name.
const RUN_SCRIPT: &str = "#!/bin/sh\n\
    # Measures this machine's GPU. Results go to gpu.json and gpu.md in --output; see --help.\n\
    exec \"$(dirname \"$(readlink -f \"$0\")\")/bin/gpu-probe\" run \"$@\"\n";

/// What is built, and where it goes.
const BUILT: [(&str, &str); 5] = [
    ("gpu-probe", PROBE),
    ("genesis", "bin/genesis"),
    ("libgenesis.so", "lib/libgenesis.so"),
    ("libgenesis_preload.so", "lib/libgenesis_preload.so"),
    ("libsimcuda.so", "simulated/libcuda.so.1"),
];
/// What is copied from the repository, and where it goes.
const COPIED: [(&str, &str); 8] = [
    ("include/genesis.h", "include/genesis.h"),
    ("crates/gpu-probe/programs/training.py", "programs/training.py"),
    ("crates/gpu-probe/programs/pytorch_checks.py", "programs/pytorch_checks.py"),
    ("crates/gpu-probe/programs/static_runtime.c", "programs/static_runtime.c"),
    ("crates/gpu-probe/programs/preloaded.c", "programs/preloaded.c"),
    ("benches/peers/torch.cpp", "programs/peers/torch.cpp"),
    ("benches/peers/face.hpp", "programs/peers/face.hpp"),
    ("benches/peers/stand_in.hpp", "programs/peers/stand_in.hpp"),
];
/// Folders that are copied, and the ending of the files wanted of them.
const FOLDERS: [(&str, &str); 2] = [("python/genesis", "py"), ("traces", "zst")];
const SUITE: &str = "device_conformance";

/// Makes the folder, or writes its files again.
pub(super) fn build(folder: &Path) -> Outcome {
    let mut compile = cargo(&["build", "--release"]);
    let packages = ["genesis", "genesis-cli", "genesis-preload", "gpu-probe", "simcuda"];
    compile.extend(packages.iter().flat_map(|name| ["--package", name]));
    run(&compile)?;
    let release = target_folder().join("release");
    for (built, place) in BUILT {
        copy(&release.join(built), &folder.join(place))?;
    }
    let suite_program = folder.join("bin").join(SUITE);
    copy(&suite()?, &suite_program)?;
    // Debugging information is most of the size, and has no use without the sources.
    let mut strip = Step::new("strip", &["--strip-debug"]);
    strip.extend(BUILT.iter().map(|(_, place)| folder.join(place)));
    strip.extend([suite_program]);
    run(&strip)?;
    for (original, place) in COPIED {
        copy(&root().join(original), &folder.join(place))?;
    }
    for (place, ending) in FOLDERS {
        copy_files(&root().join(place), &folder.join(place), ending)?;
    }
    write(&folder.join("version"), &version())?;
    let script = folder.join(RUN);
    write(&script, RUN_SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(named(&script))?;
    eprintln!("\n{} can be carried; run it with {}", folder.display(), script.display());
    Ok(())
}

/// Builds the suite of devices, and returns the path of its program from cargo's messages.
fn suite() -> Result<PathBuf, String> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--release", "--no-run", "--package", "genesis", "--test", SUITE])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo test: {error}"))?;
    if !output.status.success() {
        return Err(format!("the suite {SUITE} was not built: {}", output.status));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("cargo names no program of the suite {SUITE}"))
}

/// The program of the suite in cargo's messages, one message a line.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        if message["target"]["name"] != SUITE {
            return None;
        }
        message["executable"].as_str().map(PathBuf::from)
    })
}

/// The version, with the commit and whether files differ from it.
fn version() -> String {
    let output =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()).output();
    let state = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    format!("{} ({})\n", env!("CARGO_PKG_VERSION"), state.unwrap_or_default())
}

/// Copies the files with `ending`, folder by folder.
fn copy_files(from: &Path, to: &Path, ending: &str) -> Outcome {
    for entry in fs::read_dir(from).map_err(named(from))? {
        let path = entry.map_err(named(from))?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            if name != "__pycache__" {
                copy_files(&path, &to.join(name), ending)?;
            }
        } else if path.extension().is_some_and(|extension| extension == ending) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a file. The old one is removed first: it may be a running program.
fn copy(from: &Path, to: &Path) -> Outcome {
    make_room(to)?;
    fs::copy(from, to).map(|_| ()).map_err(named(from))
}

fn write(path: &Path, text: &str) -> Outcome {
    make_room(path)?;
    fs::write(path, text).map_err(named(path))
}

fn make_room(path: &Path) -> Outcome {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(named(folder))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(named(path)(error)),
        _ => Ok(()),
    }
}

fn named(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_program_is_found_among_messages() {
        let messages = r#"not a message
{"reason":"compiler-artifact","target":{"name":"genesis"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"device_conformance"},"executable":"/t/d-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/t/d-1")));
        assert_eq!(executable("{\"reason\":\"build-finished\"}"), None);
    }

    #[test]
    fn sources_are_copied_over_old_ones() {
        let folder = std::env::temp_dir().join(format!("bundle-{}", std::process::id()));
        let [from, to] = ["from", "to"].map(|name| folder.join(name));
        write(&from.join("inner/a.py"), "new").unwrap();
        write(&from.join("inner/a.txt"), "").unwrap();
        write(&from.join("__pycache__/a.py"), "").unwrap();
        write(&to.join("inner/a.py"), "old").unwrap();
        copy_files(&from, &to, "py").unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/a.py")).unwrap(), "new");
        assert!(!to.join("inner/a.txt").exists() && !to.join("__pycache__").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
