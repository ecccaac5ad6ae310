//! `cargo xtask test-frameworks`: the tests that run CuPy, RMM, Numba and ONNX Runtime on simcuda,
//! torch_memory_saver's own tests and vLLM's own allocator on Genesis, and MXNet on the host, without
//! a GPU. The C++ programs in examples/ are compiled and run by `test-packages`, in the pages about
//! them.
//!
//! All but MXNet come from the package registry into the environment that `test-torch` makes; with
//! PyTorch's CUDA libraries there, they take a gigabyte more. MXNet's wheels need an older Python
//! and an older NumPy, so each version has an environment of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::environments;
use crate::libraries::Profile;
use crate::suite;
use crate::torch;
use steps::{Outcome, Step, cargo, output, run, run_all};

/// What is installed, in the versions that the tests are written for.
const PACKAGES: [&str; 7] = [
    "cupy-cuda13x==14.2.0",
    "rmm-cu13==26.10.0",
    "numba-cuda==0.30.4",
    // Numba's compiler; a release of numba-cuda names no version of it.
    "numba==0.68.1",
    "onnxruntime-gpu==1.31.1",
    // Headers that those of the CUDA runtime include, which PyTorch does without.
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
];

/// torch_memory_saver's sources, which have its tests, and the variable that names their folder.
const SAVER: &str = "torch_memory_saver";
const SAVER_VERSION: &str = "0.0.10";
const SAVER_VARIABLE: &str = "TORCH_MEMORY_SAVER_TESTS";

/// vLLM's wheel, of which only the Python is unpacked, and the variable that names its folder.
const VLLM_VERSION: &str = "0.33.0";
const VLLM_VARIABLE: &str = "VLLM_FILES";
const UNPACK_PYTHON: &str = "import sys, zipfile\n\
    wheel = zipfile.ZipFile(sys.argv[1])\n\
    wheel.extractall(sys.argv[2], (name for name in wheel.namelist() if name.endswith('.py')))";

const MXNET_VERSIONS: [&str; 2] = ["1.9.1", "2.0.0b1"];
/// The last NumPy that MXNet works with, and the Pythons that NumPy works with.
const MXNET_NUMPY: &str = "numpy==1.23.5";
const MXNET_PYTHON: &str = "<3.12";
/// The tests of `tests/mxnet.rs` that need the environments: the words in their names, and their
/// number. The variable names the folder with the environments.
const MXNET_TESTS: &str = "_real_";
const MXNET_TESTS_PASS: &str = "test result: ok. 3 passed";
const MXNET_VARIABLE: &str = "GENESIS_TEST_ENVIRONMENTS";

/// Installs what is missing, builds, and runs `tests/frameworks` and MXNet's tests; `arguments` go
/// to pytest, and with any MXNet's tests are left out.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let mut tests = tests(Profile::Dev)?;
    tests.extend(arguments);
    run_all(&[tests])?;
    if arguments.is_empty() { mxnet() } else { Ok(()) }
}

/// Runs each matrix in full, then in part on streams that stand still.
pub(crate) fn nightly() -> Outcome {
    let tests = || tests(Profile::Release);
    run_all(&[tests()?.set(suite::FULL, "1"), torch::on_still_streams(tests()?)])
}

fn tests(profile: Profile) -> Result<Step, String> {
    let python = install()?;
    profile.build()?;
    let mut tests = torch::on_simcuda(&python, profile)
        .set(SAVER_VARIABLE, saver_tests()?)
        .set(VLLM_VARIABLE, vllm_files()?);
    tests.extend(["tests/frameworks"]);
    Ok(tests)
}

/// Gets everything that these tests need from the registry.
pub(crate) fn install_all() -> Outcome {
    install()?;
    saver_tests()?;
    vllm_files()?;
    mxnet_environments()
}

/// The environment's Python, with PyTorch and all of these.
pub(crate) fn install() -> Result<PathBuf, String> {
    torch::install()?;
    environments::install(torch::ENVIRONMENT, "python3", &PACKAGES)
}

/// The folder of torch_memory_saver's tests, from the registry if it is not there. To name the package
/// its sources must be asked, which want to know for which CUDA they would be built.
fn saver_tests() -> Result<PathBuf, String> {
    let sources = format!("{SAVER}-{SAVER_VERSION}");
    let target = steps::target_folder();
    let tests = target.join(&sources).join("test");
    if !tests.is_dir() {
        let mut download = download(&format!("{SAVER}=={SAVER_VERSION}"), &target);
        download.extend(["--no-binary", ":all:"]);
        let mut unpack = Step::new("tar", &["-xzf"]);
        unpack.extend([target.join(format!("{sources}.tar.gz"))]);
        run_all(&[download.set("TMS_CUDA_MAJOR", "13"), unpack.within(&target)])?;
    }
    Ok(tests)
}

/// The folder of vLLM's Python, from the registry if it is not there: 336 MB, of which 57 are kept.
fn vllm_files() -> Result<PathBuf, String> {
    let target = steps::target_folder();
    let files = target.join(format!("vllm-{VLLM_VERSION}"));
    if !files.is_dir() {
        let mut download = download(&format!("vllm=={VLLM_VERSION}"), &target);
        download.extend(["--only-binary", ":all:"]);
        run(&download)?;
        let wheel = wheel_of(&format!("vllm-{VLLM_VERSION}-"))?;
        let mut unpack = Step::new("python3", &["-c", UNPACK_PYTHON]);
        unpack.extend([&wheel, &files]);
        run(&unpack)?;
        fs::remove_file(&wheel).map_err(|error| format!("{}: {error}", wheel.display()))?;
    }
    Ok(files)
}

/// The file in the target folder whose name begins so and is a wheel's.
fn wheel_of(beginning: &str) -> Result<PathBuf, String> {
    let target = steps::target_folder();
    let entries = fs::read_dir(&target).map_err(|error| error.to_string())?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wheel = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(beginning) && name.ends_with(".whl")
    };
    paths.find(is_wheel).ok_or(format!("{}: no {beginning}*.whl", target.display()))
}

/// Gets a package from the registry into `folder`; which form of it is to be added.
fn download(package: &str, folder: &Path) -> Step {
    let mut download = Step::new("python3", &["-m", "pip", "download", "--quiet", "--no-deps"]);
    download.extend(["--dest".as_ref(), folder.as_os_str(), package.as_ref()]);
    download
}

/// An environment for each version of MXNet.
fn mxnet_environments() -> Outcome {
    for version in MXNET_VERSIONS {
        let (name, mxnet) = (format!("mxnet-venv-{version}"), format!("mxnet=={version}"));
        environments::install(&name, MXNET_PYTHON, &[&mxnet, MXNET_NUMPY])
            .map_err(|error| format!("{error} (MXNet needs a Python older than 3.12)"))?;
    }
    Ok(())
}

/// MXNet's wheels with Genesis in the place of their storage.
fn mxnet() -> Outcome {
    mxnet_environments()?;
    run(&suite::build_programs())?;
    // Of the whole workspace, as `cargo xtask test` builds it, so that nothing is compiled again.
    let mut tests = cargo(&["test", "--workspace", "--exclude=genesis-static", "--test", "mxnet"]);
    tests.extend(["--", "--ignored", MXNET_TESTS]);
    let tests = tests.set(MXNET_VARIABLE, steps::target_folder());
    let text = output(&tests)?;
    eprintln!("{text}");
    // A filter that matches nothing passes as well.
    if text.contains(MXNET_TESTS_PASS) {
        Ok(())
    } else {
        Err(format!("tests/mxnet.rs: \"{MXNET_TESTS_PASS}\" was expected"))
    }
}
