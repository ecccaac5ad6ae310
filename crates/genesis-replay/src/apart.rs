//! Work in a process of its own.
//!
//! The library reads its settings once a process, and its cache outlives a replay. So jobs that are
//! to be compared each get a fresh process: [`Job::run_apart`] starts the running program again
//! with arguments that lead it to [`serve`], passes the settings as its environment and the job on
//! its standard input, and reads the outcome from its standard output. A child that dies leaves no
//! outcome, which is reported as such.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::{Job, Progress};
use crate::library::PATH_VARIABLE;
use crate::profile::{ProfileJob, Profiled};
use crate::report::Report;
use crate::trial::{Trial, TrialJob};

/// The work of a process.
#[derive(Debug, Serialize, Deserialize)]
enum Task {
    Replay(Job),
    Profile(ProfileJob),
    Trial(TrialJob),
}

impl Job {
    /// Runs the job in a process of its own, under its settings: this program again, with
    /// `arguments` that lead it to [`serve`].
    pub fn run_apart(&self, arguments: &[&str]) -> Result<Report> {
        run_apart(&Task::Replay(self.clone()), &self.settings, arguments)
    }
}

impl ProfileJob {
    /// Runs the job in a process of its own, as [`Job::run_apart`] does.
    pub fn run_apart(&self, arguments: &[&str]) -> Result<Profiled> {
        run_apart(&Task::Profile(self.clone()), &self.job.settings, arguments)
    }
}

impl TrialJob {
    /// Runs the job in a process of its own, as [`Job::run_apart`] does, on a device of its size.
    pub fn run_apart(&self, arguments: &[&str]) -> Result<Trial> {
        run_apart(&Task::Trial(self.clone()), &self.settings(), arguments)
    }
}

/// Runs `task` by this program in a process of its own, under `settings`.
fn run_apart<T: DeserializeOwned>(
    task: &Task,
    settings: &[(String, String)],
    arguments: &[&str],
) -> Result<T> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::failed(format!("the replay's own process failed: {error}"))
    };
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_remove(PATH_VARIABLE)
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let Some(mut input) = child.stdin.take() {
        let task = serde_json::to_vec(task).map_err(|error| failed(&error))?;
        // A child that died early is reported below, with how it ended.
        let _ = input.write_all(&task);
    }
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    serde_json::from_slice::<Result<T>>(&output.stdout)
        .unwrap_or_else(|_| Err(failed(&output.status)))
}

/// Runs the task on standard input and writes its outcome to standard output: the other end of
/// [`Job::run_apart`].
pub fn serve(progress: Progress<'_>) -> std::io::Result<()> {
    let mut task = Vec::new();
    std::io::stdin().read_to_end(&mut task)?;
    match serde_json::from_slice::<Task>(&task) {
        Ok(Task::Replay(job)) => answer(&job.run(progress)),
        Ok(Task::Profile(job)) => answer(&job.run(progress)),
        Ok(Task::Trial(job)) => answer(&job.run()),
        Err(error) => answer(&Result::<()>::Err(Error::usage(format!("not a job: {error}")))),
    }
}

fn answer(outcome: &impl Serialize) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, outcome)?;
    output.flush()
}
