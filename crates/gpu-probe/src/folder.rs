//! The folder that is carried: everything a run needs, found from the place of this program.
//!
//! ```text
//! run                        starts bin/gpu-probe; may be called from any folder
//! bin/gpu-probe              this program
//! bin/device_conformance     the test suite of devices
//! bin/genesis                the command, for replays
//! lib/libgenesis.so          the library, and libgenesis_preload.so
//! include/genesis.h          its header, for the program with a static runtime
//! simulated/libcuda.so.1     simcuda, for machines without a driver
//! python/genesis             the Python package
//! programs/                  training.py, pytorch_checks.py, static_runtime.c,
//!                            preloaded.c, and PyTorch's adapter for replays
//! traces/                    recorded programs
//! version                    which Genesis this is
//! ```
//!
//! Nothing in it names a path outside, so it may be copied anywhere on a machine of the same kind.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder, and the driver that its programs run on.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    pub(crate) simulated: bool,
}

impl Folder {
    /// The folder that this program is in.
    pub(crate) fn find() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let root = program.ancestors().nth(2).ok_or("this program stands in no folder")?;
        Ok(Self { root: root.to_owned(), simulated: false })
    }

    /// The path of a file or folder of it.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// A file of it, if it is there.
    pub(crate) fn file(&self, inside: &str) -> Result<PathBuf, String> {
        let path = self.path(inside);
        if path.is_file() { Ok(path) } else { Err(format!("{inside} is not in the folder")) }
    }

    /// Which Genesis this is.
    pub(crate) fn version(&self) -> String {
        let text = std::fs::read_to_string(self.path("version")).unwrap_or_default();
        if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
    }

    /// A command line of `program` on the chosen driver, without the environment's settings of
    /// allocators.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            let is_setting = ["GENESIS_", "MXNET_", "SIMCUDA_"]
                .iter()
                .any(|prefix| name_text.starts_with(prefix));
            if is_setting
                || name_text == "PYTORCH_CUDA_ALLOC_CONF"
                || name_text == "PYTORCH_ALLOC_CONF"
            {
                command.env_remove(&name);
            }
        }
        if self.simulated {
            command.env("LD_LIBRARY_PATH", self.path("simulated"));
        }
        command
    }

    /// This program again, to do one part of the work in a process of its own.
    pub(crate) fn probe(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.path("bin/gpu-probe"));
        command.args(arguments);
        command
    }

    /// Puts the symbols of the simulated driver first, for programs that have the CUDA runtime as a
    /// library.
    pub(crate) fn preload_simulated(&self, command: &mut Command) {
        if self.simulated {
            command.env("LD_PRELOAD", self.path("simulated/libcuda.so.1"));
        }
    }
}

/// A folder for files made during a run; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("gpu-probe-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
