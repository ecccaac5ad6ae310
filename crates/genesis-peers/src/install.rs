//! The peers and the headers they are compiled with, from the package registry.
//!
//! They go into their own virtual environment, without their dependencies: PyTorch's allocator is
//! in two small libraries of the wheel, and this release of RMM is headers only.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::results::failed;
use steps::{Outcome, Step, run};

/// The version of PyTorch that is measured.
pub(crate) const PYTORCH_VERSION: &str = "2.11.0";
/// The version of RMM measured: the last release that is headers only.
pub(crate) const RMM_VERSION: &str = "24.12.1";

/// Packages and versions: the peers, then the CUDA headers of the version that the PyTorch
/// wheel was built for.
const PACKAGES: [(&str, &str); 4] = [
    ("torch", PYTORCH_VERSION),
    ("librmm-cu12", RMM_VERSION),
    ("nvidia-cuda-runtime", "13.0.96"),
    ("nvidia-cuda-crt", "13.0.88"),
];

/// The folder of installed packages.
#[derive(Debug)]
pub(crate) struct Packages(PathBuf);

impl Packages {
    /// Installs what is missing under `folder`.
    pub(crate) fn install(folder: &Path) -> Result<Self, String> {
        let environment = folder.join("venv");
        let python = environment.join("bin/python");
        if !python.is_file() {
            let mut create = Step::new("python3", &["-m", "venv"]);
            create.extend([&environment]);
            run(&create)?;
        }
        let packages = Self(site_packages(&python)?);
        if PACKAGES.iter().all(|&(name, version)| packages.have(name, version)) {
            return Ok(packages);
        }
        packages.fetch(&python).map(|()| packages)
    }

    fn fetch(&self, python: &Path) -> Outcome {
        let mut install = Step::new(python, &["-m", "pip", "install", "--no-deps"]);
        install.extend(PACKAGES.iter().map(|(name, version)| format!("{name}=={version}")));
        run(&install)
    }

    fn have(&self, name: &str, version: &str) -> bool {
        self.0.join(format!("{}-{version}.dist-info", name.replace('-', "_"))).is_dir()
    }

    /// The folder or file `inside` the installed packages.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside)
    }
}

fn site_packages(python: &Path) -> Result<PathBuf, String> {
    let output = Command::new(python)
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output()
        .map_err(|error| failed(python, &error))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if path.is_empty() {
        return Err(failed(python, &"it does not print where its packages are"));
    }
    Ok(path.into())
}
