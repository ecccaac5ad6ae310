//! `cargo xtask test-torch`: the tests that run the real PyTorch on simcuda, without a GPU.
//!
//! PyTorch's CUDA build comes from the package registry into a virtual environment under cargo's
//! target folder (about 5 GB; installed once). The libraries are built in release, as users have
//! them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::steps::{self, Outcome, Step, run, run_all};

/// The version of PyTorch that the tests are written for.
const PYTORCH_VERSION: &str = "2.11.0";
/// What is installed beside it.
const PACKAGES: [&str; 3] = ["numpy", "pytest", "pytest-xdist"];
/// What of this workspace they use.
const BUILT: [&str; 4] = ["genesis", "genesis-cli", "genesis-preload", "simcuda"];

/// Installs what is missing, builds, and runs `tests/torch`; `arguments` go to pytest.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let python = install()?;
    run(&build())?;
    let mut tests = on_simcuda(&python);
    tests.extend(["tests/torch", "crates/simcuda/tests"]);
    tests.extend(arguments);
    run_all(&[tests])
}

/// Builds what tests on simcuda use of this workspace.
pub(crate) fn build() -> Step {
    let mut build = crate::cargo(&["build", "--release"]);
    build.extend(BUILT.iter().flat_map(|package| ["--package", package]));
    build
}

/// pytest on simcuda, with the library that was built; what it is to run is to be added.
pub(crate) fn on_simcuda(python: &Path) -> Step {
    let built = steps::target_folder().join("release");
    let mut library = std::ffi::OsString::from("GENESIS_LIBRARY=");
    library.push(built.join("libgenesis.so"));
    let mut tests = Step::new("env", &[]);
    tests.extend([library, built.join("simcuda").into(), python.into()]);
    tests.extend(["-m", "pytest", "-p", "no:cacheprovider", "-n", "auto"]);
    tests
}

/// The virtual environment's Python, with everything that the tests import.
pub(crate) fn install() -> Result<PathBuf, String> {
    let environment = steps::target_folder().join("torch-venv");
    let python = environment.join("bin/python");
    let wanted = [("torch", PYTORCH_VERSION)].into_iter();
    let wanted: Vec<_> = wanted.chain(PACKAGES.map(|package| (package, ""))).collect();
    if has_packages(&python, &wanted) {
        return Ok(python);
    }
    let mut create = Step::new("python3", &["-m", "venv"]);
    create.extend([&environment]);
    run(&create)?;
    let mut install = Step::new(&python, &["-m", "pip", "install", "--quiet"]);
    install.extend([format!("torch=={PYTORCH_VERSION}")]);
    install.extend(PACKAGES);
    run(&install)?;
    Ok(python)
}

/// Whether all of `packages` are there, in their versions or, where that is empty, in any.
pub(crate) fn has_packages(python: &Path, packages: &[(&str, &str)]) -> bool {
    let mut script = "from importlib.metadata import version".to_owned();
    for (package, wanted) in packages {
        script += &format!("; found = version('{package}').split('+')[0]");
        script += &format!("; assert found == '{wanted}' or not '{wanted}'");
    }
    let mut command = Command::new(python);
    command.args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
