//! What the tests need beside a Rust toolchain and a C compiler, installed if it is missing.

use std::process::{Command, Stdio};

use crate::steps::{Outcome, Step, run};

/// Programs that tests run, by the Debian package of the same name.
const PROGRAMS: [&str; 1] = ["valgrind"];

/// Installs what is missing, through apt-get; asks sudo where that needs another user.
pub(crate) fn install() -> Outcome {
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !runs(program)).collect();
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
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
