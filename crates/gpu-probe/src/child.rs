//! Other programs, within a limit of time.
//!
//! A program that has not ended by then is killed with everything it started. Its output is
//! collected on threads of their own, so a full pipe cannot stop it.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two looks at a program.
const POLL: Duration = Duration::from_millis(5);

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) ran_out_of_time: bool,
}

impl Finished {
    /// Returns true if it ended by itself and with 0.
    pub(crate) fn is_success(&self) -> bool {
        !self.ran_out_of_time && self.status.success()
    }

    /// Why it did not succeed, in one line.
    pub(crate) fn reason(&self) -> String {
        if self.ran_out_of_time {
            return "ran out of time".to_owned();
        }
        let last = self.errors.lines().map(str::trim).rfind(|line| !line.is_empty());
        let ending = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("ended with {code}"),
            (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
        };
        last.map_or(ending.clone(), |line| format!("{ending}: {line}"))
    }

    /// The value that the program printed, as JSON in the last line of its output.
    pub(crate) fn value<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let last = self.output.lines().last().unwrap_or("");
        serde_json::from_str(last).map_err(|_| self.reason())
    }
}

/// Runs `command` for `limit` at most.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<Finished, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let named = |error: std::io::Error| format!("{name}: {error}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(named)?;
    let group = child.id() as libc::pid_t;
    let (output, errors) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let ending = Instant::now() + limit;
    let mut ran_out_of_time = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(named)? {
            break status;
        }
        if Instant::now() >= ending && !ran_out_of_time {
            ran_out_of_time = true;
            // SAFETY: the group is that of the child, which has not been waited for.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        std::thread::sleep(POLL);
    };
    Ok(Finished { status, output: text(output), errors: text(errors), ran_out_of_time })
}

fn collect<R: Read + Send + 'static>(pipe: Option<R>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is used all the same.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text(collected: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&collected.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit).unwrap()
    }

    #[test]
    fn the_last_line_is_the_value() {
        let finished = shell("echo noise; echo '[1, 2]'", Duration::from_secs(10));
        assert!(finished.is_success());
        assert_eq!(finished.value::<Vec<u32>>().unwrap(), [1, 2]);
    }

    #[test]
    fn failures_have_a_reason() {
        let finished = shell("echo why >&2; exit 3", Duration::from_secs(10));
        assert!(!finished.is_success());
        assert_eq!(finished.reason(), "ended with 3: why");
        assert_eq!(finished.value::<u32>().unwrap_err(), "ended with 3: why");
        let finished = shell("kill -9 $$", Duration::from_secs(10));
        assert_eq!(finished.reason(), "was ended by signal 9");
    }

    #[test]
    fn what_takes_too_long_is_ended_with_all_it_started() {
        let started = Instant::now();
        let finished = shell("sleep 60 & sleep 60", Duration::from_millis(100));
        assert!(finished.ran_out_of_time && !finished.is_success());
        assert_eq!(finished.reason(), "ran out of time");
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
