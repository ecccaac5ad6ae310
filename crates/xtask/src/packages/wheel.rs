//! The Python wheel: `python/genesis` with the libraries and the program inside, for any Python.
//!
//! Built by the package's own `setup.py`, which takes them from an installed tree. Its platform is
//! what the libraries were linked for; `auditwheel` must agree, or there is no wheel.

use std::path::PathBuf;

use super::build::{Built, PORTABLE_GLIBC, VERSION, remove, scratch};
use super::tree::{self, Layout};
use super::{dist, source_date, tools};
use crate::steps::{Outcome, Step, output, root, run};

/// What pip knows the platform by.
fn platform() -> String {
    format!("manylinux_{}_{}", PORTABLE_GLIBC.replace('.', "_"), std::env::consts::ARCH)
}

/// The file.
pub(super) fn file() -> PathBuf {
    dist::folder().join(format!("genesis-{VERSION}-py3-none-{}.whl", platform()))
}

/// Makes it.
pub(super) fn wheel(built: &Built) -> Outcome {
    let (tree, scratch) = (scratch().join("wheel/installed"), scratch().join("wheel/build"));
    remove(&tree)?;
    remove(&scratch)?;
    super::build::create(&scratch)?;
    let layout = Layout { library_folder: "lib".into(), fixed_prefix: None };
    tree::write(&tree::entries(built, &layout)?, &tree)?;
    let python = tools::python()?;
    let mut make =
        Step::new(&python, &["-W", "ignore", "setup.py", "--quiet"]).within(root().join("python"));
    make.extend(["egg_info".as_ref(), "--egg-base".as_ref(), scratch.as_os_str()]);
    make.extend(["build".as_ref(), "--build-base".as_ref(), scratch.as_os_str()]);
    make.extend(["bdist_wheel", "--plat-name", &platform(), "--dist-dir"]);
    make.extend([dist::folder()]);
    run(&make.set("GENESIS_INSTALLED", &tree).set("SOURCE_DATE_EPOCH", source_date()?))?;
    let mut audit = Step::new(&python, &["-m", "auditwheel", "show"]);
    audit.extend([file()]);
    let found = output(&audit)?;
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    match found.contains(&format!("following platform tag: \"{}\"", platform())) {
        true => Ok(()),
        false => Err(format!("the wheel is not of {}: {found}", platform())),
    }
}
