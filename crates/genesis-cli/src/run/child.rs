//! A program as a child of this process, which represents it while it runs.
//!
//! Signals that another process sends to this one (`kill`, a batch system) are sent on. Those of
//! the terminal are not, because the terminal sends them to the program as well. A signal that this
//! process was started to ignore, for instance by `nohup`, is not handled, so that the program also
//! ignores it.
//!
//! One thread does everything: the end of the child is a signal like the others, so nothing is sent
//! to its number after that.

use std::io;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::{Origin, WithOrigin};

const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Runs `command` until it ends. Fails only if it cannot be started or waited for.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let ignored = ignored_signals();
    let watched = PASSED_ON.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    // Before there is a child, so that no end is missed.
    let mut signals = SignalsInfo::<WithOrigin>::new(watched.chain([SIGCHLD]))?;
    let mut child = command.spawn()?;
    loop {
        for origin in signals.wait() {
            if origin.signal != SIGCHLD && origin.process.is_some() {
                pass_on(&child, &origin);
            }
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

fn pass_on(child: &Child, origin: &Origin) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some((process, signal)) = process.zip(Signal::from_named_raw(origin.signal)) {
        // It may have ended in the meantime, but its number is its own until it is waited for.
        let _ = kill_process(process, signal);
    }
}

/// A bit for each signal that this process ignores, the lowest for signal 1; none if the system
/// does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
