//! What the tests share: C programs of `tests/programs` compiled and run under the preload library
//! on simcuda.
#![allow(dead_code)] // each test binary uses a part of it

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// A program that takes longer hangs.
const TIME_LIMIT_SECONDS: &str = "120";

/// The folders in which the driver is found by name and from which the runtime is linked.
struct Folders {
    driver: PathBuf,
    runtime: PathBuf,
}

static FOLDERS: LazyLock<Folders> = LazyLock::new(|| {
    let folder = |name: &str, file: &str| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let link = folder.join(format!("link-{}", std::process::id()));
        std::os::unix::fs::symlink(beside("libsimcuda.so"), &link).unwrap();
        fs::rename(link, folder.join(file)).unwrap();
        folder
    };
    Folders { driver: folder("driver", "libcuda.so.1"), runtime: folder("runtime", "libcudart.so") }
});

/// A library under test, in the folder of this program.
pub fn beside(name: &str) -> PathBuf {
    let path = env::current_exe().unwrap().with_file_name(name);
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// Compiles `tests/programs/NAME.c` for one test alone.
pub fn compile(test: &str, name: &str) -> PathBuf {
    compile_with(test, name, &[])
}

/// [`compile`] with further arguments, which come before the runtime.
pub fn compile_with(test: &str, name: &str, arguments: &[&OsStr]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
    let mut command = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-I"]);
    command.arg(root.join("../../include")).arg("-o").arg(&program);
    command.arg(root.join("tests/programs").join(name).with_extension("c")).args(arguments);
    command.arg("-L").arg(&FOLDERS.runtime).args(["-lcudart", "-ldl"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A program with the preload library preloaded. simcuda is the driver, found by its name, and the
/// runtime of programs that are linked with it.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", TIME_LIMIT_SECONDS]).arg(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["GENESIS_", "SIMCUDA_", "MXNET_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    let folders = [&FOLDERS.driver, &FOLDERS.runtime];
    let search: OsString = env::join_paths(folders).unwrap();
    command.env("LD_LIBRARY_PATH", search);
    command.env("LD_PRELOAD", beside("libgenesis_preload.so"));
    command
}

/// Runs a command line, which must succeed; returns what it printed on standard error.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}
