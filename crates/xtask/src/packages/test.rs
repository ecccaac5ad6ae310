//! `cargo xtask test-packages`: each package is installed into an empty place and used from there;
//! then the commands of the pages in `docs/` are run on what was installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::build::{compile, create, failed, remove, scratch};
use super::consumers::Installed;
use super::{InstallArguments, debian, dist, pages, sbom, tools, tree, wheel};
use crate::prerequisites;
use crate::steps::{self, Outcome, Step, output, run};

/// Makes and tests every package, and runs every page; or only the pages that are named.
pub(crate) fn test(pages: &[PathBuf]) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_PACKAGES)?;
    compile(&["simcuda"])?;
    let folder = scratch().join("test");
    if pages.is_empty() {
        installation(&folder.join("installation"))?;
    }
    dist()?;
    let unpacked = unpack(&folder.join("archive"))?;
    let python = wheel_environment(&folder.join("venv"))?;
    if !pages.is_empty() {
        lend_torch(&python)?;
    }
    if pages.is_empty() {
        let archive = Installed { prefix: unpacked.clone(), library_folder: "lib".into() };
        archive.check(&folder.join("archive-consumers"))?;
        bill_of_materials(&unpacked)?;
        debian_packages(&folder.join("debian"))?;
        installed_wheel(&python)?;
    }
    pages::run(pages, &unpacked, &python, &folder.join("pages"))
}

/// `cargo xtask install` and `uninstall`.
fn installation(folder: &Path) -> Outcome {
    remove(folder)?;
    let prefix = folder.join("prefix");
    let libdir = "lib".to_owned();
    super::install(&InstallArguments {
        prefix: prefix.clone(),
        libdir: libdir.clone(),
        destdir: None,
    })?;
    let installed = Installed { prefix: prefix.clone(), library_folder: libdir };
    installed.check(&folder.join("consumers"))?;
    run(&Step::new(prefix.join("bin/genesis"), &["doctor"]).set("GENESIS_BACKEND", "host"))?;
    tree::uninstall(&prefix)?;
    nothing_under(&prefix)
}

fn nothing_under(folder: &Path) -> Outcome {
    match tree::files_under(folder)?.first() {
        None => Ok(()),
        Some(left) => Err(format!("{} is left", left.display())),
    }
}

/// The tree of the archive, which need not be where it was made.
fn unpack(folder: &Path) -> Result<PathBuf, String> {
    remove(folder)?;
    create(folder)?;
    let name = dist::archive_name();
    let mut unpack = Step::new("tar", &["--extract", "--file"]);
    unpack.extend([dist::folder().join(format!("{name}.tar.gz"))]);
    run(&unpack.within(folder))?;
    Ok(folder.join(name))
}

/// It is as CycloneDX says that such a document must be.
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

/// The Debian packages, in a root of their own that knows of the packages they should depend on and
/// of no others.
fn debian_packages(folder: &Path) -> Outcome {
    let root = folder.join("root");
    remove(folder)?;
    let state = root.join("var/lib/dpkg");
    create(&state.join("info"))?;
    create(&state.join("updates"))?;
    let depends = ["libc6", "libgcc-s1"];
    let known = Step::new("dpkg-query", &["--status", depends[0], depends[1]]);
    fs::write(state.join("status"), output(&known)? + "\n").map_err(failed(&state))?;
    for package in depends {
        let list = format!("info/{package}:{}.list", debian::architecture());
        fs::write(state.join(list), "").map_err(failed(&state))?;
    }
    let dpkg = |arguments: &[&str]| {
        let mut step = Step::new("dpkg", &["--force-not-root", "--force-script-chrootless"]);
        step.extend([format!("--root={}", root.display())]);
        step.extend(["--log=/dev/null"]);
        step.extend(arguments);
        step
    };
    let mut install = dpkg(&["--install"]);
    install.extend(debian::PACKAGES.map(|(name, _)| debian::file(name)));
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
    let mut lintian = Step::new("lintian", &["--fail-on", "error,warning", "--allow-root"]);
    lintian.extend(debian::PACKAGES.map(|(name, _)| debian::file(name)));
    run(&lintian)
}

/// A fresh virtual environment with the wheel, and its Python.
fn wheel_environment(folder: &Path) -> Result<PathBuf, String> {
    let mut create = Step::new("python3", &["-m", "venv", "--clear"]);
    create.extend([folder]);
    run(&create)?;
    let python = folder.join("bin/python");
    let mut install = Step::new(&python, &["-m", "pip", "install", "--quiet", "--no-index"]);
    install.extend([wheel::file()]);
    run(&install)?;
    Ok(python)
}

/// The wheel alone, then under the PyTorch that `test-torch` has installed.
fn installed_wheel(python: &Path) -> Outcome {
    let script = steps::root().join("tests/packages/wheel.py");
    let alone = |argument: &str| {
        let mut step = Step::new(python, &[]);
        step.extend([script.as_os_str(), argument.as_ref()]);
        step
    };
    run(&alone("alone").set("GENESIS_BACKEND", "host"))?;
    lend_torch(python)?;
    let mut under = Step::new(steps::target_folder().join("release/simcuda"), &[]);
    under.extend([python, &script, Path::new("torch")]);
    run(&under)
}

/// Lets `python` import what the environment of `test-frameworks` has, without a second copy of 6 GB.
fn lend_torch(python: &Path) -> Outcome {
    let lent = site_packages(&crate::frameworks::install()?)?;
    let own = site_packages(python)?;
    // NVIDIA's own finder of libraries looks in the environment's folder only, and Numba's CUDA part
    // comes in by an import at the start, which a folder that is lent does not bring along.
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
