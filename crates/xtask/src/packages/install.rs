//! `cargo xtask install` and `uninstall`: the tree for this machine, under a prefix.

use std::path::{Path, PathBuf};

use steps::Outcome;

use crate::libraries::Profile;

use super::build::{self, Compiled, Linker};
use super::tree::{self, Layout};
use super::version::VERSION;

/// Where to install.
#[derive(clap::Args, Debug)]
pub(crate) struct InstallArguments {
    /// The folder below which everything goes: absolute
    #[arg(long, default_value = "/usr/local")]
    pub(super) prefix: PathBuf,
    /// The folder of libraries, below the prefix
    #[arg(long, default_value = "lib")]
    pub(super) libdir: String,
    /// What to put before the prefix, to make a package of the result
    #[arg(long, value_name = "FOLDER")]
    pub(super) destdir: Option<PathBuf>,
}

/// Where to remove.
#[derive(clap::Args, Debug)]
pub(crate) struct UninstallArguments {
    /// The folder below which it was installed
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
}

/// Builds and installs for this machine.
pub(crate) fn install(arguments: &InstallArguments) -> Outcome {
    install_compiled(&build::compile(Profile::Release)?, arguments)
}

/// Links and installs for this machine.
pub(super) fn install_compiled(compiled: &Compiled, arguments: &InstallArguments) -> Outcome {
    let prefix = beneath(arguments.destdir.as_deref(), &arguments.prefix)?;
    let layout = Layout { library_folder: arguments.libdir.clone(), fixed_prefix: None };
    let entries = tree::entries(&compiled.link(Linker::Native)?, &layout)?;
    tree::install(&entries, &prefix)?;
    println!("Genesis {VERSION} is installed in {}", prefix.display());
    Ok(())
}

/// Removes what was installed.
pub(crate) fn uninstall(arguments: &UninstallArguments) -> Outcome {
    tree::uninstall(&arguments.prefix)
}

/// `prefix` below `destination`.
fn beneath(destination: Option<&Path>, prefix: &Path) -> Result<PathBuf, String> {
    let below = prefix.strip_prefix("/");
    let below = below.map_err(|_| format!("{}: not an absolute path", prefix.display()))?;
    Ok(destination.unwrap_or(Path::new("/")).join(below))
}
