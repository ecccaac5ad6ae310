//! One test program: where cargo has built it, and what came of running it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::needs::{self, Place, Tier};

/// A program of tests.
#[derive(Debug)]
pub(super) struct Program {
    /// The package and, if it is another, the target.
    pub(super) name: String,
    path: PathBuf,
    /// The folder of the package, in which its tests run.
    folder: PathBuf,
}

/// A program that has not ended by then hangs, and is ended: it takes `timeout`'s status, 124.
const LIMIT: &str = "10m";
const NIGHTLY_LIMIT: &str = "120m";

/// Asks the tests for every matrix in full; `tests/support/tier.rs` reads it.
pub(crate) const FULL: &str = "TEST_GENESIS_IN_FULL";
/// Tests by the reason for which they are ignored.
type Ignored = BTreeMap<String, Vec<String>>;

/// What came of a program.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) is_ok: bool,
    pub(super) passed: usize,
    /// Why tests were not run, and how many.
    pub(super) not_made: Vec<(String, usize)>,
    /// Those that were not run for a reason that is none.
    pub(super) unexplained: Vec<String>,
    elapsed: Duration,
    /// What it wrote, where it failed.
    text: String,
}

/// The programs in cargo's `messages`, of which each is one line of JSON.
pub(super) fn built(messages: &str) -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if message["profile"]["test"] == true {
            programs.extend(program(&message));
        }
    }
    if programs.is_empty() { Err("cargo has built no tests".to_owned()) } else { Ok(programs) }
}

fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let name = match kind {
        "test" if folder == steps::root() => target.to_owned(),
        "test" => format!("{package}/{target}"),
        _ => format!("{target} ({kind})"),
    };
    Some(Program { name, path, folder })
}

impl Program {
    /// Runs the tests, and then those of the ignored ones that can be run here.
    pub(super) fn run(&self, tier: Tier) -> Ran {
        let started = Instant::now();
        let mut ran = Ran { is_ok: true, ..Ran::default() };
        let ignored = ran.add(self.output(tier, &[]));
        let mut here = Vec::new();
        for (reason, tests) in ignored {
            match needs::place(&reason, tier) {
                Some(Place::Here) => here.extend(tests),
                Some(Place::InAnotherTest) => {}
                Some(Place::Nowhere) => ran.not_made.push((reason, tests.len())),
                None => ran.unexplained.push(format!("{tests:?}: \"{reason}\"")),
            }
        }
        if !here.is_empty() {
            let names = here.iter().map(String::as_str);
            let arguments: Vec<&str> = ["--ignored", "--exact"].into_iter().chain(names).collect();
            ran.add(self.output(tier, &arguments));
        }
        ran.elapsed = started.elapsed();
        ran
    }

    fn output(&self, tier: Tier, arguments: &[&str]) -> std::io::Result<Output> {
        let limit = if tier == Tier::Nightly { NIGHTLY_LIMIT } else { LIMIT };
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", limit]).arg(&self.path);
        command.args(arguments).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        steps::keep_bytecode(&mut command);
        command.env("LD_LIBRARY_PATH", library_path());
        if tier == Tier::Nightly {
            command.env(FULL, "1");
        }
        command.output()
    }
}

impl Ran {
    /// Takes in what came of one run, and returns the tests that it ignored.
    fn add(&mut self, output: std::io::Result<Output>) -> Ignored {
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                self.is_ok = false;
                self.text += &error.to_string();
                return Ignored::new();
            }
        };
        let written = String::from_utf8_lossy(&output.stdout);
        let (passed, ignored_count) = written.lines().find_map(counts).unwrap_or_default();
        let mut by_reason = Ignored::new();
        for (name, reason) in written.lines().filter_map(ignored) {
            by_reason.entry(reason).or_default().push(name);
        }
        self.passed += passed;
        // What a test writes past its harness could hide a line.
        let is_understood = by_reason.values().map(Vec::len).sum::<usize>() == ignored_count;
        if !output.status.success() || !is_understood {
            self.is_ok = false;
            self.text += &written;
            self.text += &String::from_utf8_lossy(&output.stderr);
            self.text += &format!("{}\n", output.status);
        }
        by_reason
    }

    /// Prints a line, after all that was written if it failed.
    pub(super) fn print(&self, program: &Program) {
        let mark = if self.is_ok { "ok    " } else { "FAILED" };
        let (seconds, name) = (self.elapsed.as_secs_f64(), &program.name);
        eprintln!("{}{mark} {seconds:6.1} s  {:4} tests  {name}", self.text, self.passed);
    }
}

/// Where cargo puts what tests of this workspace load.
fn library_path() -> std::ffi::OsString {
    let built = steps::target_folder().join("debug");
    let own = [built.join("deps"), built];
    let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&inherited));
    std::env::join_paths(folders).unwrap_or(inherited)
}

/// The name and the reason in a line on a test that was not run.
fn ignored(line: &str) -> Option<(String, String)> {
    let (name, reason) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = reason.strip_prefix(", ").unwrap_or_default();
    Some((name.to_owned(), reason.to_owned()))
}

/// How many tests passed and how many were ignored, in the line on all of them.
fn counts(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |of: &str| {
        let of = counts.split("; ").find_map(|part| part.strip_suffix(of))?;
        of.trim().parse().ok()
    };
    Some((count(" passed")?, count(" ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_ignored_tests_are_found() {
        let test = r#"{"profile":{"test":true},"executable":"/t/deps/top-1",
            "manifest_path":"/r/crates/a/Cargo.toml","target":{"name":"top","kind":["test"]}}"#;
        let library = r#"{"profile":{"test":false},"executable":null}"#;
        let messages = format!("{}\n{library}\n", test.replace('\n', ""));
        let programs = built(&messages).unwrap();
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].name, "a/top");
        assert!(built(library).is_err());
        let with_reason = ignored("test a::b ... ignored, needs a CUDA device");
        assert_eq!(with_reason, Some(("a::b".into(), "needs a CUDA device".into())));
        assert_eq!(ignored("test a ... ignored"), Some(("a".into(), String::new())));
        assert_eq!(ignored("test a ... ok"), None);
        let line = "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; \
                    finished in 0.03s";
        assert_eq!(counts(line), Some((5, 2)));
        assert_eq!(counts("test result: FAILED. 1 passed; 1 failed; 0 ignored"), Some((1, 0)));
    }
}
