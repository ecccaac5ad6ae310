//! The Debian packages: `libgenesis0`, `libgenesis-dev` and `genesis`, as Debian divides a library.
//!
//! debhelper makes them, from the tree with Debian's folders and from `packaging/debian`, where
//! each package has a list of its files; a file on no list is an error. They depend on nothing but
//! the C library and the compiler's own, so they run on Debian 11, Ubuntu 20.04 and newer.
//!
//! Not cargo-deb: it makes one package of one crate, without a library's shlibs file, and is 70
//! crates to compile, which takes a minute; debhelper comes with apt.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use steps::{Outcome, Step, root, run};

use super::build::Built;
use super::files::{self, create_empty, failed, files_under, scratch, write};
use super::tree::{self, Layout};
use super::version::{VERSION, source_date, source_date_text};

/// The packages.
pub(super) const PACKAGES: [&str; 3] = ["libgenesis0", "libgenesis-dev", "genesis"];

/// Debian's name of this machine's processor.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The folder of libraries of this machine's kind, below the prefix.
pub(super) fn library_folder() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// The file of the package `name`.
pub(super) fn file(name: &str) -> PathBuf {
    files::dist().join(file_name(name))
}

fn file_name(name: &str) -> String {
    format!("{name}_{VERSION}_{}.deb", architecture())
}

/// Makes all three.
pub(super) fn packages(built: &Built) -> Outcome {
    // debhelper leaves packages in the folder above that of the sources.
    let made = scratch().join("debian");
    let sources = made.join("sources");
    create_empty(&sources)?;
    copy_rules(&sources.join("debian"))?;
    let layout = Layout { library_folder: library_folder(), fixed_prefix: Some("/usr") };
    tree::write(&tree::entries(built, &layout)?, &sources.join("tree"))?;
    let make = Step::new(sources.join("debian/rules"), &["binary"]).within(&sources);
    run(&make.set("SOURCE_DATE_EPOCH", source_date()?).set("DEB_RULES_REQUIRES_ROOT", "no"))?;
    for name in PACKAGES {
        let package = made.join(file_name(name));
        fs::copy(&package, file(name)).map_err(failed(&package))?;
    }
    Ok(())
}

/// Copies `packaging/debian` to `folder`, with the version and its date in the changelog.
fn copy_rules(folder: &Path) -> Outcome {
    let date = source_date_text("--rfc-email")?;
    for rule in files_under(&root().join("packaging/debian"))? {
        let text = fs::read_to_string(&rule).map_err(failed(&rule))?;
        let text = text.replace("@version@", VERSION).replace("@date@", &date);
        write(&folder.join(rule.file_name().unwrap_or_default()), &text)?;
    }
    let program = folder.join("rules");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(failed(&program))
}
