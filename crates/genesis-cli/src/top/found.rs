//! The processes that publish what they hold.
//!
//! A process writes its file every second, and removes it when it ends in good order. A process
//! that was killed leaves its file behind. Such a file is removed here: it is no longer written,
//! and its process has ended, or its number belongs to a process that began later. A process of
//! another container that shares the folder has a number that means nothing here. Its file is
//! fresh, so it is shown.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use genesis::observe::publication::{FOLDERS, INTERVAL, parse_file_name};
use genesis_profile::{Profile, json};

/// The process of a file that was not written for so long may have ended.
const QUIET: Duration = INTERVAL.saturating_mul(3);
/// A profile without a history is small; a larger file is not one.
const MOST_BYTES: u64 = 16 << 20;
/// The kernel's unit of time for programs, on every machine that has GPUs.
const TICKS_A_SECOND: u64 = 100;

/// A process and its last reading.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its contents.
    pub(crate) profile: Profile,
    /// How long ago it was written, or how far in the future if the clock was set back.
    pub(crate) age: Duration,
}

impl Found {
    /// The process's number.
    pub(crate) fn process_id(&self) -> u32 {
        self.profile.process_id
    }

    /// Returns true if the process has published nothing for too long.
    pub(crate) fn is_quiet(&self) -> bool {
        self.age > QUIET
    }
}

/// Every process of this user that publishes what it holds, by number; for the superuser those of
/// all users. Files of dead processes are removed.
pub(crate) fn find_all() -> Vec<Found> {
    find_in(&FOLDERS.map(Path::new))
}

/// The process of that number.
pub(crate) fn find(process_id: u32) -> Option<Found> {
    find_all().into_iter().find(|found| found.process_id() == process_id)
}

fn find_in(folders: &[&Path]) -> Vec<Found> {
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let files = entries.filter_map(|entry| {
        let (user_id, process_id) = parse_file_name(entry.file_name().to_str()?)?;
        Some((entry.path(), user_id, process_id))
    });
    let mut found: Vec<Found> = files
        .filter_map(|(path, user_id, process_id)| {
            let found = read(path, user_id, process_id)?;
            if found.is_quiet() && has_ended(&found.profile) {
                // Another `genesis top` may have been faster.
                let _ = std::fs::remove_file(&found.path);
                None
            } else {
                Some(found)
            }
        })
        .collect();
    found.sort_by_key(Found::process_id);
    found
}

/// The process of the file at `path`; `None` if that is not a profile, or not that user's.
fn read(path: PathBuf, user_id: u32, process_id: u32) -> Option<Found> {
    let metadata = path.symlink_metadata().ok()?;
    let is_right = |metadata: &Metadata| {
        metadata.is_file() && metadata.uid() == user_id && metadata.len() <= MOST_BYTES
    };
    if !is_right(&metadata) {
        return None;
    }
    let profile = json::read(&std::fs::read(&path).ok()?).ok()?;
    let age = SystemTime::now().duration_since(metadata.modified().ok()?);
    let age = age.unwrap_or_else(|future| future.duration());
    (profile.process_id == process_id).then_some(Found { path, profile, age })
}

/// Returns true if the process of `profile` has ended.
fn has_ended(profile: &Profile) -> bool {
    match start_unix_seconds(profile.process_id) {
        // The clock may have been corrected a little meanwhile.
        Some(start) => start > profile.started_unix_ns / 1_000_000_000 + 2 && !is_running(profile),
        None => !Path::new(&format!("/proc/{}", profile.process_id)).exists(),
    }
}

/// Returns true if the process of that number runs the program of `profile`.
fn is_running(profile: &Profile) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", profile.process_id)).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end() == profile.program
}

/// The time at which the process of that number began; `None` if there is none.
fn start_unix_seconds(process_id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The name, in brackets, may contain anything. Field 3 follows it.
    let (_, fields) = stat.rsplit_once(')')?;
    let start_ticks: u64 = fields.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let kernel = std::fs::read_to_string("/proc/stat").ok()?;
    let boot = kernel.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<u64>().ok()? + start_ticks / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use genesis::observe::publication::file_name;
    use genesis_profile::model::FORMAT;
    use std::os::unix::fs::MetadataExt;

    fn write(folder: &Path, profile: &Profile, age: Duration) -> PathBuf {
        write_at(folder, profile, SystemTime::now() - age)
    }

    fn write_at(folder: &Path, profile: &Profile, time: SystemTime) -> PathBuf {
        let user_id = folder.metadata().unwrap().uid();
        let path = folder.join(file_name(user_id, profile.process_id));
        let mut file = std::fs::File::create(&path).unwrap();
        json::write(profile, &mut file).unwrap();
        file.set_modified(time).unwrap();
        path
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_lives_is_not() {
        let folder = std::env::temp_dir().join(format!("genesis-found-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let own = std::process::id();
        let began = start_unix_seconds(own).unwrap();
        let profile = |process_id, started_s: u64| Profile {
            format: FORMAT.to_owned(),
            process_id,
            started_unix_ns: started_s * 1_000_000_000,
            ..Profile::default()
        };
        // No process has so high a number; a fresh file is of somewhere else.
        let elsewhere = write(&folder, &profile(1 << 30, began), Duration::ZERO);
        let killed = write(&folder, &profile((1 << 30) + 1, began), Duration::from_secs(60));
        let stopped = write(&folder, &profile(own, began), Duration::from_secs(60));
        std::fs::write(folder.join(file_name(0, 1)), "{").unwrap();
        let found = find_in(&[&folder, Path::new("/no/such")]);
        let paths: Vec<&PathBuf> = found.iter().map(|found| &found.path).collect();
        assert_eq!(paths, [&stopped, &elsewhere]);
        assert_eq!(found.iter().map(Found::is_quiet).collect::<Vec<_>>(), [true, false]);
        assert!(!killed.exists() && stopped.exists());
        // The number is another process's now.
        write(&folder, &profile(own, began - 1000), Duration::from_secs(60));
        assert_eq!(find_in(&[&folder]).len(), 1);
        assert!(!stopped.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
    #[test]
    fn a_clock_that_is_set_hides_no_process_and_keeps_none() {
        let folder = std::env::temp_dir().join(format!("genesis-set-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let profile = |process_id, started_s: u64, program: String| Profile {
            format: FORMAT.to_owned(),
            process_id,
            started_unix_ns: started_s * 1_000_000_000,
            program,
            ..Profile::default()
        };
        let own = std::process::id();
        let (began, hour) = (start_unix_seconds(own).unwrap(), Duration::from_secs(3600));
        // Set forward: this process seems to have begun an hour after it published.
        let arguments: Vec<String> = std::env::args().collect();
        write(&folder, &profile(own, began - 3600, arguments.join(" ")), hour);
        // Set back: the file of a process that was killed is of the future.
        let future = SystemTime::now() + hour;
        let killed = write_at(&folder, &profile(1 << 30, began, String::new()), future);
        let found = find_in(&[&folder]);
        assert_eq!(found.iter().map(Found::process_id).collect::<Vec<_>>(), [own]);
        assert!(found[0].is_quiet() && !killed.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
