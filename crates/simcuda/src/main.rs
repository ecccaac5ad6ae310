//! `simcuda COMMAND…`: runs a program on simulated GPUs.
//!
//! ```sh
//! simcuda python train.py                   # 80 GiB, one device
//! SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=16GiB simcuda python train.py
//! simcuda --install FOLDER                  # only installs the library and prints how to use it
//! ```
//!
//! The library is in this program's folder (or in `deps/` there, while tests run). It is linked
//! into a folder under the driver's names, where `LD_LIBRARY_PATH` finds it, and preloaded, which
//! puts its symbols before those of the runtime, cuBLAS and cuDNN.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

/// The library's name from cargo.
const BUILT_NAME: &str = "libsimcuda.so";
/// The names that programs look for: the driver's and its management library's.
const DRIVER_NAME: &str = "libcuda.so.1";
const NAMES: [&str; 2] = [DRIVER_NAME, "libnvidia-ml.so.1"];
/// The folder for the link, in this program's folder.
const FOLDER: &str = "simcuda-libraries";

fn main() -> ExitCode {
    match run(env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("simcuda: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<(), String> {
    let here = env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let here = here.parent().unwrap_or(Path::new("."));
    match arguments.as_slice() {
        [option, folder] if option == "--install" => {
            let folder = PathBuf::from(folder);
            install(here, &folder)?;
            for (name, value) in environment(&folder) {
                println!("{name}={}", value.to_string_lossy());
            }
            Ok(())
        }
        [program, rest @ ..] if !program.to_string_lossy().starts_with('-') => {
            let folder = here.join(FOLDER);
            install(here, &folder)?;
            let error = Command::new(program).args(rest).envs(environment(&folder)).exec();
            Err(format!("{}: {error}", program.to_string_lossy()))
        }
        _ => Err("usage: simcuda COMMAND… | simcuda --install FOLDER".to_owned()),
    }
}

/// Links the library into `folder` under the driver's names. Each link is renamed into place, so
/// several processes may do this at once.
fn install(here: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    let library = newest(&[here.join(BUILT_NAME), here.join("deps").join(BUILT_NAME)])
        .ok_or_else(|| format!("{BUILT_NAME} is not in {}: build it first", here.display()))?;
    fs::create_dir_all(folder).map_err(failed)?;
    for name in NAMES {
        let fresh = folder.join(format!("{name}.{}", std::process::id()));
        std::os::unix::fs::symlink(&library, &fresh).map_err(failed)?;
        fs::rename(&fresh, folder.join(name)).map_err(failed)?;
    }
    Ok(())
}

/// The environment that a program needs. Libraries already preloaded stay first: they may wrap
/// calls to CUDA.
fn environment(folder: &Path) -> [(&'static str, OsString); 2] {
    let joined = |parts: [Option<OsString>; 2]| {
        let parts: Vec<OsString> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        parts.join(OsStr::new(":"))
    };
    let own = |path: &Path| Some(path.as_os_str().to_owned());
    [
        ("LD_LIBRARY_PATH", joined([own(folder), env::var_os("LD_LIBRARY_PATH")])),
        ("LD_PRELOAD", joined([env::var_os("LD_PRELOAD"), own(&folder.join(DRIVER_NAME))])),
    ]
}

/// The file that was written last, as an absolute path.
fn newest(candidates: &[PathBuf]) -> Option<PathBuf> {
    let written = |path: &&PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    let there = candidates.iter().filter(|path| path.is_file());
    there.max_by_key(written).and_then(|path| path.canonicalize().ok())
}
