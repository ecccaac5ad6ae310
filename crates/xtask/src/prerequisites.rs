//! What the tests need beside a Rust toolchain, a C compiler and Python, installed if it is missing.

use std::process::{Command, Stdio};

use steps::{Outcome, Step, run};

/// What the tests of the library run, by the Debian package of the same name.
pub(crate) const OF_THE_LIBRARY: &[&str] = &["valgrind"];
/// What the tests of the packages run.
pub(crate) const OF_THE_PACKAGES: &[&str] = &["cmake", "debhelper", "pkg-config"];
/// What checks Debian packages, every night.
pub(crate) const OF_THE_NIGHT: &[&str] = &["lintian"];
/// What the tests of the page run.
pub(crate) const OF_THE_PAGE: &[&str] = &["chromium"];
/// What compares the libraries' interfaces.
pub(crate) const OF_THE_INTERFACES: &[&str] = &["abigail-tools"];
/// What `cargo xtask peers` measures beside PyTorch's and RMM's allocators, which it fetches itself, and
/// what counts their instructions.
pub(crate) const OF_THE_PEERS: &[&str] = &["libmimalloc-dev", "valgrind"];
/// What compiles for AArch64, with the C library, and runs that.
pub(crate) const OF_AARCH64: &[&str] = &["g++-aarch64-linux-gnu", "qemu-user"];

/// Installs what any of the tests run and is missing.
pub(crate) fn install_all() -> Outcome {
    install(&[OF_THE_LIBRARY, OF_THE_PACKAGES, OF_THE_PAGE].concat())
}

/// Installs those of `programs` that are missing, through apt-get; asks sudo where that needs
/// another user.
pub(crate) fn install(programs: &[&'static str]) -> Outcome {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !runs(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !runs("apt-get") {
        return Err(format!("please install: {}", missing.join(", ")));
    }
    let needs_sudo = runs("sudo");
    let apt = |arguments: &[&str]| {
        let mut step =
            if needs_sudo { Step::new("sudo", &["apt-get"]) } else { Step::new("apt-get", &[]) };
        step.extend(arguments);
        run(&step)
    };
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--yes", "--quiet"], missing.as_slice()].concat())
}

fn runs(program: &str) -> bool {
    let (program, arguments): (_, &[&str]) = match program {
        // Many programs; this one can be asked for help outside of a package's sources.
        "debhelper" => ("dh_assistant", &["--help"]),
        "abigail-tools" => ("abidiff", &["--version"]),
        "g++-aarch64-linux-gnu" => ("aarch64-linux-gnu-g++", &["--version"]),
        "qemu-user" => ("qemu-aarch64", &["--version"]),
        // A library, which programs can be linked with.
        "libmimalloc-dev" => {
            ("cc", &["-shared", "-x", "c", "/dev/null", "-lmimalloc", "-o", "/dev/null"])
        }
        _ => (program, &["--version"]),
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
