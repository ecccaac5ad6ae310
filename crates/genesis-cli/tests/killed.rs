//! Programs that record, killed in each of the calls that change their files: what they leave can be
//! read, or is said to be damaged, and the next run writes over it.
//!
//! A library that is preloaded (`c_tests/disturbances/killing.c`) kills the process in one of these
//! calls, before it or in the middle of what it writes. The program is a replay, whose trace is the same
//! each time.

#[path = "../../../tests/support/tier.rs"]
mod tier;

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use genesis_profile::Profile;
use genesis_replay::gtr::{self, Record};
use support::{genesis, scratch, stderr, trace};

const SHIM: &str = include_str!("../../../c_tests/disturbances/killing.c");

/// Where in a call the process ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Before,
    Half,
}

/// A folder that a program records into.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = scratch(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn trace(&self) -> PathBuf {
        self.0.join("run.gtr.zst")
    }

    fn profile(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Runs the program. Returns true if it was killed in its `at`-th change of a file.
    fn is_killed(&self, at: usize, end: End) -> bool {
        let told = self.0.with_extension("told");
        let _ = std::fs::remove_file(&told);
        let output = self.run(at, end, &told);
        // The command has its answer before the program writes its profile.
        let is_killed = told.exists();
        assert!(is_killed || output.status.success(), "{}", stderr(&output));
        is_killed
    }

    fn run(&self, at: usize, end: End, told: &Path) -> Output {
        let mut command = genesis();
        command
            .args(["replay", &trace("alternating"), "--strategy=Elastic", "--warm=0"])
            .env("LD_PRELOAD", shim())
            .env("KILL_FOLDER", &self.0)
            .env("KILL_AT", at.to_string())
            .env("KILL_TOLD", told)
            .env("GENESIS_TRACE", self.trace())
            .env("GENESIS_PROFILE", self.profile());
        if let End::Half = end {
            command.env("KILL_HALF", "1");
        }
        command.output().unwrap()
    }

    /// The files beside the two that are meant to be there.
    fn others(&self) -> Vec<PathBuf> {
        let files = self.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| *path != self.trace() && *path != self.profile()).collect()
    }
}

/// The library to preload, built at the first call.
fn shim() -> &'static Path {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    BUILT.get_or_init(|| support::built("killed", SHIM).trim_start_matches("--library=").into())
}

fn read(profile: &Path) -> Result<Profile, String> {
    let bytes = std::fs::read(profile).map_err(|error| error.to_string())?;
    genesis_profile::json::read(&bytes).map_err(|error| error.to_string())
}

/// Holds what a killed process left against what it should have written: a beginning of the trace
/// `whole`, and the profile of before, or a new one that is whole.
fn check(folder: &Folder, whole: &[Record], old: &Profile, what: &str) {
    check_trace(&folder.trace(), whole, what);
    let profile = read(&folder.profile()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(profile.history.events.len(), old.history.events.len(), "{what}");
}

/// Holds that the trace of a killed process is a beginning of `whole`, or is refused in one line.
fn check_trace(path: &Path, whole: &[Record], what: &str) {
    if !path.exists() {
        return;
    }
    match gtr::recover_file(path) {
        Ok(recovered) => assert!(whole.starts_with(&recovered.records), "{what}"),
        // Not even the first piece is whole.
        Err(error) => assert!(error.message.contains("run.gtr.zst: "), "{what}: {error}"),
    }
    let output = genesis().arg("replay").arg(path).args(["--strategy=Naive", "--warm=0"]).output();
    let output = output.unwrap();
    match output.status.code() {
        Some(0) => {}
        Some(2) => {
            let text = stderr(&output);
            assert!(text.lines().count() == 1 && text.contains("run.gtr.zst"), "{what}: {text}");
        }
        _ => panic!("{what}: {output:?}"),
    }
}

#[test]
fn what_killed_processes_leave_can_be_read() {
    let folder = Folder::new("killed");
    assert!(!folder.is_killed(0, End::Before));
    assert_eq!(folder.others(), [] as [PathBuf; 0]);
    let records = gtr::read_file(&folder.trace()).unwrap();
    let old = read(&folder.profile()).unwrap();
    assert!(records.len() > 100 && old.history.events.len() > 100);

    let mut at = 1;
    while folder.is_killed(at, End::Before) {
        check(&folder, &records, &old, &format!("before change {at}"));
        if folder.is_killed(at, End::Half) {
            check(&folder, &records, &old, &format!("in change {at}"));
        }
        at += tier::some_or_all(at, 1);
    }
    assert!(at > 32, "{at} changes: the pieces of both files");

    // The next run is not disturbed by what is left, and removes it once that is a minute old.
    let long_ago = SystemTime::now() - Duration::from_secs(120);
    for left in folder.others() {
        File::options().write(true).open(left).unwrap().set_modified(long_ago).unwrap();
    }
    assert!(!folder.is_killed(0, End::Before));
    assert_eq!(gtr::read_file(&folder.trace()).unwrap(), records);
    assert_eq!(folder.others(), [] as [PathBuf; 0]);
}
