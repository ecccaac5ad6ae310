//! Profiles to show: read from files, or made by replaying a trace.
//!
//! The first bytes of a file, not its name, tell which of the two it is. A trace is replayed in a
//! process of its own, which leaves its profile in a folder that only this user can read.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use genesis_profile::{Profile, json};
use genesis_replay::job::trace_name;
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result};

use super::{JOB_COMMAND, ProfileArguments};

/// The profile in `input`, or that of the trace in `input`. Remarks go to standard error.
pub(crate) fn load(input: &Path, arguments: &ProfileArguments) -> Result<Profile> {
    let profile = match read_if_profile(input)? {
        Some(profile) => profile,
        None => replay(input, arguments)?,
    };
    if profile.history.dropped_events > 0 {
        let dropped = grouped(profile.history.dropped_events);
        eprintln!(
            "genesis: {}: the first {dropped} events are not in it; sums and peaks are of all",
            input.display()
        );
    }
    Ok(profile)
}

/// The profile in `input`; `None` if it is a trace, or a file that is neither.
pub(super) fn read_if_profile(input: &Path) -> Result<Option<Profile>> {
    match kind(input)? {
        Kind::Profile => read(input).map(Some),
        Kind::Other => Ok(None),
        Kind::Form(what) => Err(Error::usage(format!(
            "{}: {what}, which cannot be read back; keep the profile as .json",
            input.display()
        ))),
    }
}

enum Kind {
    /// A document.
    Profile,
    /// Another form of a profile.
    Form(&'static str),
    /// A trace, or an unknown file, which the reader of traces will refuse.
    Other,
}

fn kind(path: &Path) -> Result<Kind> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(64).read_to_end(&mut start))
        .map_err(|error| unreadable(path, &error))?;
    let start = start.trim_ascii_start();
    Ok(match start.first() {
        Some(b'{') => Kind::Profile,
        Some(b'[') => Kind::Form("a list of events for another viewer"),
        Some(b'<') => Kind::Form("a page"),
        Some(0x80) => Kind::Form("a snapshot for PyTorch's viewer"),
        _ => Kind::Other,
    })
}

fn read(path: &Path) -> Result<Profile> {
    let document = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    json::read(&document).map_err(|error| Error::usage(format!("{}: {error}", path.display())))
}

fn replay(trace: &Path, arguments: &ProfileArguments) -> Result<Profile> {
    let folder = Folder::make()
        .map_err(|error| Error::failed(format!("cannot make a folder for the profile: {error}")))?;
    let output = folder.0.join("profile.json");
    let job = arguments.job(trace, output.clone())?;
    let profiled = job.run_apart(&[JOB_COMMAND])?;
    let name = trace_name(trace);
    if let Some(damage) = &profiled.damage {
        eprintln!("genesis: {name}: replayed to where the trace is damaged only: {damage}");
    }
    if profiled.unknown_records > 0 {
        let count = grouped(profiled.unknown_records);
        eprintln!("genesis: {name}: {count} records of unknown operations skipped");
    }
    if profiled.failures > 0 {
        let count = grouped(profiled.failures);
        eprintln!("genesis: {name}: {count} requests failed: out of memory");
    }
    Ok(Profile { program: name, ..read(&output)? })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::usage(format!("{}: {error}", path.display()))
}

/// A folder for this user only, removed when dropped.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn make() -> std::io::Result<Self> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Relaxed);
        let name = format!("genesis-replay-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
