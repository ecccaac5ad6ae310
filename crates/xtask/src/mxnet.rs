//! The tests of `tests/mxnet.rs` that need an environment of Python: the wheels of MXNet as they are,
//! and CUDA's headers, which come with PyTorch.

use std::path::PathBuf;

use crate::steps::{self, Outcome, Step, cargo, output, run};

/// The versions that the tests are written for.
const VERSIONS: [&str; 2] = ["1.9.1", "2.0.0b1"];
/// The last NumPy that MXNet works with, and the first Python that has none of it.
const NUMPY: &str = "numpy==1.23.5";
const FIRST_PYTHON_WITHOUT: (u32, u32) = (3, 12);
const WITH_HEADERS: [&str; 2] = [
    "the_header_compiles_with_the_headers_of_cuda",
    "memory_waits_for_the_events_of_a_real_handle",
];
const WITH_MXNET: &str = "a_real_mxnet_trains_on_genesis";

/// Installs what is missing, and runs them; PyTorch's environment must be there.
pub(crate) fn test() -> Outcome {
    let mut tests = cargo(&["test", "--test", "mxnet", "--", "--ignored", "--exact"]);
    tests.extend(WITH_HEADERS);
    if python_version()? < FIRST_PYTHON_WITHOUT {
        VERSIONS.into_iter().try_for_each(install)?;
        tests.extend([WITH_MXNET]);
    } else {
        eprintln!("\nNot made here:\n   1  needs a Python below 3.12, for MXNet: {WITH_MXNET}");
    }
    run(&tests)
}

fn python_version() -> Result<(u32, u32), String> {
    let script = "import sys; print('%d %d' % sys.version_info[:2])";
    let version = output(&Step::new("python3", &["-c", script]))?;
    let (major, minor) = version.trim().split_once(' ').ok_or("python3 has no version")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{version}: not a version"));
    Ok((number(major)?, number(minor)?))
}

/// Makes an environment with MXNet `version`; one that is complete stays.
fn install(version: &str) -> Outcome {
    let folder: PathBuf = steps::target_folder().join(format!("mxnet-venv-{version}"));
    let complete = folder.join("is-complete");
    if complete.exists() {
        return Ok(());
    }
    let mut create = Step::new("python3", &["-m", "venv", "--clear"]);
    create.extend([&folder]);
    run(&create)?;
    let mut install = Step::new(folder.join("bin/python"), &["-m", "pip", "install", "--quiet"]);
    install.extend([format!("mxnet=={version}"), NUMPY.to_owned()]);
    run(&install)?;
    std::fs::write(&complete, "").map_err(|error| format!("{}: {error}", complete.display()))
}
