//! Profiles to show: read from files, or made by replaying a trace.
//!
//! The first bytes of a file, not its name, tell which of the two it is. A trace is replayed in a
//! process of its own, which leaves its profile in a folder that only this user can read.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use genesis_profile::units::one_line;
use genesis_profile::{Profile, json};
use genesis_replay::job::trace_name;
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result};

use super::{JOB_COMMAND, ProfileArguments};

/// Before the rank in the name of a file.
const RANK_MARK: &str = "-rank";

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

/// The profiles in `inputs`, with the names of their processes: by rank where the profiles or the
/// files' names have it, otherwise in the given order. A folder stands for the profiles and traces
/// in it.
pub(crate) fn load_all(
    inputs: &[PathBuf],
    arguments: &ProfileArguments,
) -> Result<Vec<(String, Profile)>> {
    let mut files = Vec::new();
    for input in inputs {
        if input.is_dir() { files.extend(files_in(input)?) } else { files.push(input.clone()) }
    }
    let mut processes = Vec::new();
    for file in &files {
        let profile = load(file, arguments)?;
        let rank = profile.rank.or_else(|| rank_in(file));
        let name = rank.map_or_else(|| one_line(&trace_name(file)), |rank| format!("rank {rank}"));
        processes.push((rank, name, profile));
    }
    processes.sort_by_key(|(rank, ..)| rank.unwrap_or(u64::MAX));
    if let Some(pair) =
        processes.windows(2).find(|pair| pair[0].0.is_some() && pair[0].0 == pair[1].0)
    {
        return Err(Error::usage(format!("two files are of {}: leave one out", pair[0].1)));
    }
    Ok(processes.into_iter().map(|(_, name, profile)| (name, profile)).collect())
}

/// The profiles and traces in a folder, by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_input = |file: &Path| {
        let name = file.to_string_lossy();
        let is_profile = name.ends_with(".json") && !name.ends_with(".trace.json");
        file.is_file() && (is_profile || name.ends_with(".gtr") || name.ends_with(".gtr.zst"))
    };
    files.retain(|file| is_input(file));
    files.sort();
    if files.is_empty() {
        let message = format!("{}: no profile (.json) and no trace (.gtr) in it", folder.display());
        return Err(Error::usage(message));
    }
    Ok(files)
}

/// The rank that the library has put into the name of a file.
fn rank_in(file: &Path) -> Option<u64> {
    let name = file.file_name()?.to_str()?;
    let (_, after) = name.rsplit_once(RANK_MARK)?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().ok()
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
