//! Steps: command lines of other programs, which are printed and then run.
//!
//! How long each took is kept, for [`report`] to print at the end.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
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
        keep_bytecode(&mut command);
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

/// Lets Python compile each module once, even if the environment says not to keep what it compiles:
/// the modules of PyTorch take longer to compile than to import. It is kept below the target folder.
pub fn keep_bytecode(command: &mut Command) {
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    command.env("PYTHONPYCACHEPREFIX", target_folder().join("bytecode"));
}

/// The command line of the cargo that built this.
pub fn cargo(arguments: &[&str]) -> Step {
    Step::new(env!("CARGO"), arguments)
}

/// A step that has ended.
#[derive(Debug)]
struct Ended {
    text: String,
    elapsed: Duration,
    is_ok: bool,
}

static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
/// The report prints this much of a command line.
const REPORTED_CHARACTERS: usize = 84;

/// Does `work` as a step called `text`.
pub fn taken<T>(text: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    eprintln!("\n$ {text}");
    let started = Instant::now();
    let result = work();
    let ended = Ended { text: text.to_owned(), elapsed: started.elapsed(), is_ok: result.is_ok() };
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
    result
}

/// Prints a line for each step so far: how it ended, and how long it took.
pub fn report() {
    let all = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!();
    for Ended { text, elapsed, is_ok } in all.iter() {
        let mark = if *is_ok { "ok    " } else { "FAILED" };
        let text: String = text.chars().take(REPORTED_CHARACTERS).collect();
        eprintln!("{mark} {:6.1} s  {text}", elapsed.as_secs_f64());
    }
}

/// Runs one step, by default in the root of the repository.
pub fn run(step: &Step) -> Outcome {
    let text = step.text();
    taken(&text, || {
        let status = step.command().status().map_err(|error| format!("{text}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{text}: {status}")) }
    })
}

/// The same, and returns what the step wrote to standard output.
pub fn read(step: &Step) -> Result<String, String> {
    let text = step.text();
    taken(&text, || {
        let output = step.command().stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{text}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{text}: {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|error| format!("{text}: {error}"))
    })
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

/// Runs every step, also after one that failed.
pub fn run_all(steps: &[Step]) -> Outcome {
    match steps.iter().map(run).filter(Result::is_err).count() {
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
