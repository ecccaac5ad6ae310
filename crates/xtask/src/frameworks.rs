//! `cargo xtask test-frameworks`: the tests that run CuPy, RMM, Numba, ONNX Runtime and libtorch on
//! simcuda, without a GPU.
//!
//! The frameworks come from the package registry into the virtual environment that `test-torch`
//! makes; with PyTorch's CUDA libraries there, they take a gigabyte more.

use std::path::PathBuf;

use crate::steps::{Outcome, Step, run, run_all};
use crate::torch;

/// What is installed, in the versions that the tests are written for.
const PACKAGES: [(&str, &str); 6] = [
    ("cupy-cuda13x", "14.2.0"),
    ("rmm-cu13", "26.10.0"),
    ("numba-cuda", "0.30.4"),
    // Numba's compiler; a release of numba-cuda names no version of it.
    ("numba", "0.68.1"),
    ("onnxruntime-gpu", "1.31.1"),
    // Headers that those of the CUDA runtime include, which PyTorch does without.
    ("nvidia-cuda-crt", "13.0.88"),
];

/// Installs what is missing, builds, and runs `tests/frameworks`; `arguments` go to pytest.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let python = install()?;
    run(&torch::build())?;
    let mut tests = torch::on_simcuda(&python);
    tests.extend(["tests/frameworks"]);
    tests.extend(arguments);
    run_all(&[tests])
}

/// The virtual environment's Python, with PyTorch and all of these.
pub(crate) fn install() -> Result<PathBuf, String> {
    let python = torch::install()?;
    if !torch::has_packages(&python, &PACKAGES) {
        let mut install = Step::new(&python, &["-m", "pip", "install", "--quiet"]);
        install.extend(PACKAGES.map(|(name, version)| format!("{name}=={version}")));
        run(&install)?;
    }
    Ok(python)
}
