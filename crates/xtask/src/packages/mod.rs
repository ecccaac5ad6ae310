//! `cargo xtask install`, `uninstall`, `dist` and `test-packages`.
//!
//! One tree of files (`tree`) is what every package consists of: an installation under a prefix,
//! the same as an archive, Debian packages, and the Python wheel, which carries its libraries and
//! its program. [`build`] makes the files; `test` installs each package into an empty place and
//! uses it from there.

mod build;
mod consumers;
mod debian;
mod dependencies;
mod dist;
mod licences;
mod pages;
mod sbom;
mod test;
mod tools;
mod tree;
mod wheel;

use std::path::{Path, PathBuf};

use build::Linker;
use tree::Layout;

use crate::steps::{Outcome, Step, output};

pub(crate) use dist::dist;
pub(crate) use test::test;

/// Where to install.
#[derive(clap::Args, Debug)]
pub(crate) struct InstallArguments {
    /// The folder below which everything goes: absolute
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// The folder of libraries, below the prefix
    #[arg(long, default_value = "lib")]
    libdir: String,
    /// What to put before the prefix, to make a package of the result
    #[arg(long, value_name = "FOLDER")]
    destdir: Option<PathBuf>,
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
    let prefix = beneath(arguments.destdir.as_deref(), &arguments.prefix)?;
    let layout = Layout { library_folder: arguments.libdir.clone(), fixed_prefix: None };
    let entries = tree::entries(&build::build(Linker::Native)?, &layout)?;
    tree::install(&entries, &prefix)?;
    println!("Genesis {} is installed in {}", build::VERSION, prefix.display());
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

/// The time that packages give for all their files, in seconds since 1970: what
/// `SOURCE_DATE_EPOCH` says, else when the sources were last committed, or else released.
fn source_date() -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let committed = output(&Step::new("git", &["log", "-1", "--format=%ct"]));
    let released = || output(&Step::new("stat", &["--format=%Y", "Cargo.lock"]));
    Ok(committed.or_else(|_| released())?.trim().to_owned())
}

/// The same for people and for the bill of materials.
fn source_date_text() -> Result<String, String> {
    let date = format!("--date=@{}", source_date()?);
    Ok(output(&Step::new("date", &["--utc", &date, "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned())
}
