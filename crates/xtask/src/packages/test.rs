//! `cargo xtask test-packages`: each package is installed into an empty place and used from there,
//! and the commands of the pages in `docs/` are run on what was installed.
//!
//! Everything is compiled once, in the profile of the tier, then linked once for each linker. The checks of the packages and
//! the pages do not depend on each other, so they run side by side.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use steps::{Outcome, Step, output, root, run, target_folder};

use super::build::{Compiled, compile};
use super::consumers::Installed;
use super::files::{self, create, create_empty, failed, files_under, remove, scratch};
use super::install::{InstallArguments, install_compiled};
use super::pages::{self, Place};
use super::parallel::{self, Job};
use super::{debian, dist, sbom, tools, tree, wheel};
use crate::libraries::Profile;
use crate::suite::Tier;
use crate::{environments, prerequisites};

/// The environment with the wheel, below the target folder.
const WHEEL_ENVIRONMENT: &str = "packages/test/venv";

/// Makes and tests every package, and runs every page of the tier; or runs only the pages that are
/// named.
pub(crate) fn test(named: &[PathBuf], tier: Tier) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_PACKAGES)?;
    let profile = Profile::of(tier);
    let simcuda = profile.folder().join("simcuda");
    // The tools are fetched and unpacked while the compiler runs.
    let compiled = std::thread::scope(|scope| {
        let tools = scope.spawn(tools::python);
        let compiled = compile(profile)?;
        tools.join().map_err(|_| "the tools were not installed")??;
        Ok::<_, String>(compiled)
    })?;
    let folder = scratch().join("test");
    let whole = named.is_empty();
    if whole {
        installation(&compiled, &folder.join("installation"))?;
    }
    dist::dist_compiled(&compiled)?;
    let prefix = unpack(&folder.join("archive"))?;
    let python = wheel_environment()?;
    if whole {
        run(&wheel_test(&python, "alone").set("GENESIS_BACKEND", "host"))?;
    }
    lend_torch(&python)?;
    let place = Place { prefix, python, simcuda, scratch: folder.join("pages") };
    let mut jobs: Vec<Job<'_>> = Vec::new();
    if whole {
        jobs.push(Box::new(|| debian_packages(&folder.join("debian"))));
        // It reads each file again and again, and finds what only a change of the packages brings.
        if tier == Tier::Nightly {
            jobs.push(Box::new(debian_lint));
        }
        jobs.push(Box::new(|| archive(&place.prefix, &folder.join("archive-consumers"))));
        jobs.push(Box::new(|| wheel_under_torch(&place)));
    }
    for page in pages::pages(named, tier)? {
        let place = &place;
        jobs.push(Box::new(move || pages::run(&page, place)));
    }
    parallel::run_all(jobs)
}

/// `cargo xtask install` and `uninstall`. Programs are built against the archive instead, which
/// differs in the linker only.
fn installation(compiled: &Compiled, folder: &Path) -> Outcome {
    remove(folder)?;
    let prefix = folder.join("prefix");
    let libdir = "lib".to_owned();
    let arguments = InstallArguments { prefix: prefix.clone(), libdir, destdir: None };
    install_compiled(compiled, &arguments)?;
    let installed = Installed { prefix: prefix.clone(), library_folder: arguments.libdir };
    installed.check_symbols()?;
    run(&Step::new(prefix.join("bin/genesis"), &["doctor"]).set("GENESIS_BACKEND", "host"))?;
    tree::uninstall(&prefix)?;
    nothing_under(&prefix)
}

fn nothing_under(folder: &Path) -> Outcome {
    match files_under(folder)?.first() {
        None => Ok(()),
        Some(left) => Err(format!("{} is left", left.display())),
    }
}

/// The unpacked archive.
fn archive(prefix: &Path, scratch: &Path) -> Outcome {
    let installed = Installed { prefix: prefix.to_owned(), library_folder: "lib".into() };
    installed.check(scratch)?;
    bill_of_materials(prefix)
}

/// Unpacks the archive, and returns its tree.
fn unpack(folder: &Path) -> Result<PathBuf, String> {
    create_empty(folder)?;
    let name = dist::archive_name();
    let mut unpack = Step::new("tar", &["--extract", "--file"]);
    unpack.extend([files::dist().join(format!("{name}.tar.gz"))]);
    run(&unpack.within(folder))?;
    Ok(folder.join(name))
}

/// Checks the bill of materials against CycloneDX's own schema.
fn bill_of_materials(prefix: &Path) -> Outcome {
    let script = "import sys\n\
        from cyclonedx.schema import SchemaVersion\n\
        from cyclonedx.validation.json import JsonStrictValidator\n\
        text = open(sys.argv[1]).read()\n\
        sys.exit(JsonStrictValidator(SchemaVersion.V1_5).validate_str(text))\n";
    let mut check = Step::new(tools::python()?, &["-c", script]);
    check.extend([prefix.join("share/doc/genesis").join(sbom::FILE_NAME)]);
    output(&check).map(|_| ())
}

/// The Debian packages, in a root of their own, where only the packages they should depend on are
/// installed.
fn debian_packages(folder: &Path) -> Outcome {
    let root = folder.join("root");
    remove(folder)?;
    pretend_installed(&root, &["libc6", "libgcc-s1"])?;
    let dpkg = |arguments: &[&str]| {
        let mut step = Step::new("dpkg", &["--force-not-root", "--force-script-chrootless"]);
        step.extend([format!("--root={}", root.display())]);
        step.extend(["--log=/dev/null"]);
        step.extend(arguments);
        step
    };
    let mut install = dpkg(&["--install"]);
    install.extend(debian::PACKAGES.map(debian::file));
    run(&install)?;
    let usr = root.join("usr");
    let installed = Installed { prefix: usr.clone(), library_folder: debian::library_folder() };
    installed.check(&folder.join("consumers"))?;
    run(&dpkg(&["--purge", "libgenesis-dev"]))?;
    run(&Step::new(usr.join("bin/genesis"), &["doctor"]).set("GENESIS_BACKEND", "host"))?;
    run(&dpkg(&["--purge", "genesis", "libgenesis0"]))?;
    if usr.exists() {
        nothing_under(&usr)?;
    }
    Ok(())
}

/// Debian's own checks of its packages.
fn debian_lint() -> Outcome {
    prerequisites::install(prerequisites::OF_THE_NIGHT)?;
    let mut lintian = Step::new("lintian", &["--fail-on", "error,warning", "--allow-root"]);
    lintian.extend(debian::PACKAGES.map(debian::file));
    run(&lintian)
}

/// Makes dpkg take `packages` of this machine for installed below `root`.
fn pretend_installed(root: &Path, packages: &[&str]) -> Outcome {
    let state = root.join("var/lib/dpkg");
    create(&state.join("updates"))?;
    let mut status = Step::new("dpkg-query", &["--status"]);
    status.extend(packages);
    files::write(&state.join("status"), &(output(&status)? + "\n"))?;
    for package in packages {
        let list = format!("info/{package}:{}.list", debian::architecture());
        files::write(&state.join(list), "")?;
    }
    Ok(())
}

/// Makes an environment with the wheel, and returns its Python.
fn wheel_environment() -> Result<PathBuf, String> {
    remove(&target_folder().join(WHEEL_ENVIRONMENT))?;
    environments::install(WHEEL_ENVIRONMENT, "python3", &[&wheel::file().to_string_lossy()])
}

/// The wheel's tests, of one `kind`.
fn wheel_test(python: &Path, kind: &str) -> Step {
    let mut test = Step::new(python, &[]);
    test.extend([root().join("tests/packages/wheel.py").as_os_str(), kind.as_ref()]);
    test
}

fn wheel_under_torch(place: &Place) -> Outcome {
    let mut under = Step::new(&place.simcuda, &[]);
    under.extend([&place.python, &root().join("tests/packages/wheel.py"), &PathBuf::from("torch")]);
    run(&under)
}

/// Lets `python` import what the environment of `test-frameworks` has, without a second copy of
/// 6 GB.
fn lend_torch(python: &Path) -> Outcome {
    let lent = site_packages(&crate::frameworks::install()?)?;
    let own = site_packages(python)?;
    // NVIDIA's own finder of libraries looks in the environment's folder only. Numba's CUDA part is
    // imported at the start by a .pth file, which has no effect in a folder named by another one.
    let libraries = own.join("nvidia");
    if !libraries.exists() {
        symlink(lent.join("nvidia"), &libraries).map_err(failed(&libraries))?;
    }
    let link = own.join("lent.pth");
    let text = format!("{}\nimport _numba_cuda_redirector\n", lent.display());
    fs::write(&link, text).map_err(failed(&link))
}

/// The folder in which `python` has its packages.
fn site_packages(python: &Path) -> Result<PathBuf, String> {
    let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
    Ok(output(&Step::new(python, &["-c", script]))?.trim().into())
}
