//! Steps: command lines of other programs, which are printed and then run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Done, or a message about what failed.
pub type Outcome = Result<(), String>;

/// The command line of another program.
#[derive(Debug)]
pub struct Step {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    folder: PathBuf,
}

impl Step {
    /// The command line of `program` with `arguments`.
    pub fn new(program: impl Into<OsString>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            variables: Vec::new(),
            folder: root().to_owned(),
        }
    }

    /// The same with `name` set to `value` in its environment.
    pub fn set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The same in `folder` instead of the root of the repository.
    pub fn within(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Appends `arguments`.
    pub fn extend<A: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = A>) {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.args(&self.arguments).envs(variables).current_dir(&self.folder);
        command
    }

    /// What a person would type.
    fn text(&self) -> String {
        let program = Path::new(&self.program).file_name().unwrap_or(&self.program);
        let words = std::iter::once(program).chain(self.arguments.iter().map(OsString::as_os_str));
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

/// The command line of the cargo that built this.
pub fn cargo(arguments: &[&str]) -> Step {
    Step::new(env!("CARGO"), arguments)
}

/// Runs one step, by default in the root of the repository.
pub fn run(step: &Step) -> Outcome {
    eprintln!("\n$ {}", step.text());
    let status = step.command().status().map_err(|error| format!("{}: {error}", step.text()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", step.text())) }
}

/// Runs one step without printing it, and returns what it wrote to standard output.
pub fn output(step: &Step) -> Result<String, String> {
    let output = step.command().output().map_err(|error| format!("{}: {error}", step.text()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{said}", step.text(), output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{}: {error}", step.text()))
}

/// Runs every step, also after one that failed, and prints a line for each at the end.
pub fn run_all(steps: &[Step]) -> Outcome {
    let results: Vec<(&Step, Duration, Outcome)> = steps
        .iter()
        .map(|step| {
            let started = Instant::now();
            let outcome = run(step);
            (step, started.elapsed(), outcome)
        })
        .collect();
    eprintln!();
    for (step, elapsed, outcome) in &results {
        let mark = if outcome.is_ok() { "ok    " } else { "FAILED" };
        eprintln!("{mark} {:6.1} s  {}", elapsed.as_secs_f64(), step.text());
    }
    match results.iter().filter(|(_, _, outcome)| outcome.is_err()).count() {
        0 => Ok(()),
        count => Err(format!("{count} of {} steps failed", steps.len())),
    }
}

/// The root of the repository.
pub fn root() -> &'static Path {
    // This crate is two folders below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."))
}

/// Where cargo builds.
pub fn target_folder() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
