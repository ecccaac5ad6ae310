//! The Python wheel: `python/genesis` with the libraries and the program inside, for any Python.
//!
//! Built by the package's own `setup.py`, which takes them from an installed tree. Its platform is
//! what the libraries were linked for; if `auditwheel` finds another, making the wheel fails.
//!
//! Not maturin: it has no form for a library called by ctypes, and compiles every crate a second
//! time, for a target folder of its own.

use std::path::PathBuf;

use steps::{Outcome, Step, output, root, run};

use super::build::Built;
use super::files::{self, create_empty, remove, scratch};
use super::tools;
use super::tree::{self, Layout};
use super::version::{PORTABLE_GLIBC, VERSION, source_date};

/// The name of the platform in the wheel's file name.
fn platform() -> String {
    format!("manylinux_{}_{}", PORTABLE_GLIBC.replace('.', "_"), std::env::consts::ARCH)
}

/// The file.
pub(super) fn file() -> PathBuf {
    files::dist().join(format!("genesis-{VERSION}-py3-none-{}.whl", platform()))
}

/// Makes it.
pub(super) fn wheel(built: &Built) -> Outcome {
    let (tree, scratch) = (scratch().join("wheel/installed"), scratch().join("wheel/build"));
    remove(&tree)?;
    create_empty(&scratch)?;
    let layout = Layout { library_folder: "lib".into(), fixed_prefix: None };
    tree::write(&tree::entries(built, &layout)?, &tree)?;
    let python = tools::python()?;
    let mut make =
        Step::new(&python, &["-W", "ignore", "setup.py", "--quiet"]).within(root().join("python"));
    make.extend(["egg_info".as_ref(), "--egg-base".as_ref(), scratch.as_os_str()]);
    make.extend(["build".as_ref(), "--build-base".as_ref(), scratch.as_os_str()]);
    make.extend(["bdist_wheel", "--plat-name", &platform(), "--dist-dir"]);
    make.extend([files::dist()]);
    run(&make.set("GENESIS_INSTALLED", &tree).set("SOURCE_DATE_EPOCH", source_date()?))?;
    let mut audit = Step::new(&python, &["-m", "auditwheel", "show"]);
    audit.extend([file()]);
    let found = output(&audit)?;
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    if found.contains(&format!("following platform tag: \"{}\"", platform())) {
        Ok(())
    } else {
        Err(format!("the wheel is not of {}: {found}", platform()))
    }
}
