//! `cargo xtask test-torch`: the tests that run the real PyTorch on simcuda, without a GPU.
//!
//! PyTorch's CUDA builds come from the package registry: the version that the tests are written
//! for into an environment that the tests of other frameworks share (about 5 GB; installed once),
//! and the newest into one beside it. On every change all tests run with the one, and every night
//! with the other. On every change the libraries are those of the tests, and every night those that
//! users have ([`Profile`]).

use std::path::{Path, PathBuf};

use crate::environments;
use crate::libraries::Profile;
use crate::suite::FULL;
use steps::{Outcome, Step, run, run_all};

/// The environment's folder below the target folder.
pub(crate) const ENVIRONMENT: &str = "torch-venv";
/// PyTorch in the version that the tests are written for.
const USUAL: &str = "torch==2.11.0";
/// What the tests use with it.
const PACKAGES: [&str; 4] = ["numpy", "matplotlib", "pytest", "pytest-xdist"];

/// The same with the newest release on the registry.
const NEWEST_ENVIRONMENT: &str = "torch-newest-venv";
const NEWEST: &str = "torch==2.15.0";

/// Those with the longest tests first, so that no processor is idle at the end.
const TESTS: [&str; 2] = ["crates/simcuda/tests", "tests/torch"];

/// Tests that streams must not stand still for: a process polls for what another has enqueued.
const PROCESSES_THAT_SHARE: [&str; 2] =
    ["tests/torch/test_sharing.py", "tests/torch/test_sharing_under_stress.py"];

/// PyTorch's own tests have an environment for what they import.
const SUITE_ENVIRONMENT: &str = "torch-suite-venv";
const OF_THE_SUITE: [&str; 2] = ["expecttest", "psutil"];
const SUITE: &str = "tests/torch/suite/run.py";

/// Which PyTorch the tests run with.
#[derive(Clone, Debug)]
pub(crate) enum Version {
    /// The one that they are written for.
    Usual,
    /// The newest release.
    Newest,
    /// A release by its number.
    Release(String),
}

impl Version {
    /// The name of the environment that has it, and how it is named to pip.
    fn names(&self) -> (String, String) {
        match self {
            Self::Usual => (ENVIRONMENT.to_owned(), USUAL.to_owned()),
            Self::Newest => (NEWEST_ENVIRONMENT.to_owned(), NEWEST.to_owned()),
            Self::Release(number) => (format!("torch-{number}-venv"), format!("torch=={number}")),
        }
    }
}

/// Installs what is missing, builds, and runs `tests/torch`; `arguments` go to pytest.
pub(crate) fn test(version: &Version, arguments: &[String]) -> Outcome {
    let python = installed(version)?;
    Profile::Dev.build()?;
    let mut tests = on_simcuda(&python, Profile::Dev);
    tests.extend(TESTS);
    tests.extend(arguments);
    run_all(&[tests])
}

/// Runs everything with the newest release, each matrix in full, then in part on streams that stand
/// still, and fails if there is a newer release.
pub(crate) fn nightly() -> Outcome {
    let python = installed(&Version::Newest)?;
    Profile::Release.build()?;
    let tests = || on_simcuda(&python, Profile::Release);
    let mut in_full = tests().set(FULL, "1");
    in_full.extend(TESTS);
    let mut still = on_still_streams(tests());
    still.extend(TESTS);
    still.extend(PROCESSES_THAT_SHARE.map(|file| format!("--ignore={file}")));
    run_all(&[in_full, still])?;
    check_newest()
}

/// Tests where streams do nothing until somebody waits for them, so that it shows where something is
/// waited for too little, or too much.
pub(crate) fn on_still_streams(tests: Step) -> Step {
    tests.set("SIMCUDA_PROGRESS", "manual")
}

/// Runs PyTorch's own tests of memory; `arguments` go to `tests/torch/suite/run.py`.
pub(crate) fn test_suite(version: &Version, arguments: &[String]) -> Outcome {
    let (_, torch) = version.names();
    let packages = [&[torch.as_str()], &PACKAGES[..], &OF_THE_SUITE].concat();
    let python = environments::install(SUITE_ENVIRONMENT, "python3", &packages)?;
    Profile::Release.build()?;
    let mut suite = python_on_simcuda(&python, Profile::Release);
    suite.extend([SUITE]);
    suite.extend(arguments);
    run(&suite)
}

/// pytest on simcuda, with the libraries of `profile`; what it is to run is to be added.
pub(crate) fn on_simcuda(python: &Path, profile: Profile) -> Step {
    let mut tests = python_on_simcuda(python, profile);
    tests.extend(["-m", "pytest", "-p", "no:cacheprovider", "-n", "auto"]);
    tests
}

/// Python on simcuda, with the libraries of `profile`; what it is to run is to be added.
pub(crate) fn python_on_simcuda(python: &Path, profile: Profile) -> Step {
    let built = profile.folder();
    let mut library = std::ffi::OsString::from("GENESIS_LIBRARY=");
    library.push(built.join("libgenesis.so"));
    let mut step = Step::new("env", &[]);
    step.extend([library, built.join("simcuda").into(), python.into()]);
    step
}

/// The environment's Python, with everything that the tests import.
pub(crate) fn install() -> Result<PathBuf, String> {
    installed(&Version::Usual)
}

fn installed(version: &Version) -> Result<PathBuf, String> {
    let (environment, torch) = version.names();
    environments::install(&environment, "python3", &[&[torch.as_str()], &PACKAGES[..]].concat())
}

/// Fails if the registry has a newer release than [`NEWEST`].
fn check_newest() -> Outcome {
    match environments::newer(NEWEST_ENVIRONMENT, "torch")? {
        Some(version) => Err(format!(
            "PyTorch {version} is on the registry: set it in crates/xtask/src/torch.rs, and see \
             what it has moved (cargo xtask test-torch --newest)"
        )),
        None => Ok(()),
    }
}
