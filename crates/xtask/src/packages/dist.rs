//! `cargo xtask dist`: every package, into `target/dist`.
//!
//! The same sources, compiler and folder produce the same bytes: files are sorted, have one time
//! (`SOURCE_DATE_EPOCH`, else that of the last commit) and no owner.

use steps::{Outcome, Step, run};

use crate::libraries::Profile;

use super::build::{Compiled, Linker, compile};
use super::files::{self, create_empty, remove, scratch};
use super::tree::{self, Layout};
use super::version::{VERSION, source_date};
use super::{debian, wheel};

/// The name of the archive, and of the one folder in it.
pub(super) fn archive_name() -> String {
    format!("genesis-{VERSION}-linux-{}", std::env::consts::ARCH)
}

/// Builds and makes every package.
pub(crate) fn dist() -> Outcome {
    dist_compiled(&compile(Profile::Release)?)
}

/// Links and makes every package.
pub(super) fn dist_compiled(compiled: &Compiled) -> Outcome {
    let built = compiled.link(Linker::Portable)?;
    create_empty(&files::dist())?;
    archive(&tree::entries(&built, &Layout { library_folder: "lib".into(), fixed_prefix: None })?)?;
    debian::packages(&built)?;
    wheel::wheel(&built)?;
    sums()?;
    println!("\nThe packages are in {}", files::dist().display());
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
    pack.extend([format!("--file={}.tar.gz", files::dist().join(&name).display()), name]);
    run(&pack)
}

/// What `sha256sum --check` reads.
fn sums() -> Outcome {
    run(&Step::new("sh", &["-c", "sha256sum -- *.* > SHA256SUMS"]).within(files::dist()))
}
