//! `cargo xtask test-torch`: the tests that run the real PyTorch on simcuda, without a GPU.
//!
//! PyTorch's CUDA build comes from the package registry into an environment that the tests of
//! other frameworks share (about 5 GB; installed once). The libraries are built in release, as
//! users have them.

use std::path::{Path, PathBuf};

use crate::{environments, release};
use steps::{Outcome, Step, run, run_all};

/// The environment's folder below the target folder.
pub(crate) const ENVIRONMENT: &str = "torch-venv";
/// PyTorch in the version that the tests are written for, and what they use with it.
const PACKAGES: [&str; 5] = ["torch==2.11.0", "numpy", "matplotlib", "pytest", "pytest-xdist"];
/// Installs what is missing, builds, and runs `tests/torch`; `arguments` go to pytest.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let python = install()?;
    run(&release::build())?;
    let mut tests = on_simcuda(&python);
    tests.extend(["tests/torch", "crates/simcuda/tests"]);
    tests.extend(arguments);
    run_all(&[tests])
}

/// pytest on simcuda, with the library that was built; what it is to run is to be added.
pub(crate) fn on_simcuda(python: &Path) -> Step {
    let mut tests = python_on_simcuda(python);
    tests.extend(["-m", "pytest", "-p", "no:cacheprovider", "-n", "auto"]);
    tests
}

/// Python on simcuda, with the library that was built; what it is to run is to be added.
pub(crate) fn python_on_simcuda(python: &Path) -> Step {
    let built = steps::target_folder().join("release");
    let mut library = std::ffi::OsString::from("GENESIS_LIBRARY=");
    library.push(built.join("libgenesis.so"));
    let mut step = Step::new("env", &[]);
    step.extend([library, built.join("simcuda").into(), python.into()]);
    step
}

/// The environment's Python, with everything that the tests import.
pub(crate) fn install() -> Result<PathBuf, String> {
    environments::install(ENVIRONMENT, "python3", &PACKAGES)
}
