//! `cargo xtask dist`: every package, into `target/dist`.
//!
//! The same sources, compiler and folder give the same bytes: files are sorted, have one time
//! (`SOURCE_DATE_EPOCH`, else that of the last commit) and no owner.

use std::path::PathBuf;

use super::build::{Linker, VERSION, build, create, remove, scratch};
use super::tree::{self, Layout};
use super::{debian, source_date, wheel};
use crate::steps::{self, Outcome, Step, run};

/// Where packages are left.
pub(super) fn folder() -> PathBuf {
    steps::target_folder().join("dist")
}

/// The name of the archive, and of the one folder in it.
pub(super) fn archive_name() -> String {
    format!("genesis-{VERSION}-linux-{}", std::env::consts::ARCH)
}

/// Makes every package anew.
pub(crate) fn dist() -> Outcome {
    let built = build(Linker::Portable)?;
    remove(&folder())?;
    create(&folder())?;
    archive(&tree::entries(&built, &Layout { library_folder: "lib".into(), fixed_prefix: None })?)?;
    debian::packages(&built)?;
    wheel::wheel(&built)?;
    sums()?;
    println!("\nThe packages are in {}", folder().display());
    Ok(())
}

/// The tree, to be unpacked anywhere.
fn archive(entries: &[tree::Entry]) -> Outcome {
    let (name, staging) = (archive_name(), scratch().join("archive"));
    remove(&staging)?;
    tree::install(entries, &staging.join(&name))?;
    let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
    let mut pack = Step::new("tar", &options);
    pack.extend([format!("--mtime=@{}", source_date()?), "--use-compress-program=gzip -n".into()]);
    pack.extend(["--create".into(), format!("--directory={}", staging.display())]);
    pack.extend([format!("--file={}.tar.gz", folder().join(&name).display()), name]);
    run(&pack)
}

/// What `sha256sum --check` reads.
fn sums() -> Outcome {
    run(&Step::new("sh", &["-c", "sha256sum -- *.* > SHA256SUMS"]).within(folder()))
}
