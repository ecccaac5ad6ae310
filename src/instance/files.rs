//! The files that options name: each of a program's processes has one of its own, which is whole
//! whenever somebody reads it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::config::Settings;
use crate::process;

/// Stands for the process's rank in the path of a file.
pub(super) const RANK: &str = "%r";

/// Parts of a file's ending, before its last.
const INNER_ENDINGS: [&str; 2] = [".gtr", ".trace"];
/// A file that is being written is written to more often.
const LEFT_AFTER: Duration = Duration::from_secs(60);
/// The permissions of files that are for all whom the process's umask lets read them.
pub(super) const FOR_ALL: u32 = 0o666;

/// `path`, as an option names it: with the process's numbers, and with its rank if it is one of
/// several that have the same option. What is no plain file, such as a pipe, has no rank.
pub(super) fn own(path: &str, settings: &Settings) -> String {
    let path = process::numbered(path);
    let is_plain = fs::metadata(&path).map_or(true, |metadata| metadata.is_file());
    match settings.global_rank {
        _ if path.contains(RANK) => {
            let rank = settings.global_rank.or(settings.rank).unwrap_or(0);
            path.replace(RANK, &rank.to_string())
        }
        Some(rank) if is_plain => with_rank(&path, rank),
        _ => path,
    }
}

/// `run-rank3.gtr.zst` of `run.gtr.zst`.
fn with_rank(path: &str, rank: u64) -> String {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    // A leading dot hides a file and begins no ending.
    let last = path[name..].rfind('.').filter(|&dot| dot > 0).map_or(path.len(), |dot| name + dot);
    let inner = INNER_ENDINGS.iter().find(|inner| path[name..last].ends_with(*inner));
    let end = last - inner.map_or(0, |inner| inner.len());
    format!("{}-rank{rank}{}", &path[..end], &path[end..])
}

/// Makes or replaces the file at `path`, with the permissions `mode` and what `write` writes: under
/// another name, which is then changed. If that fails, what was there before is still there. What is
/// no file, such as a device, is not replaced.
pub(super) fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(format!(".{}~", std::process::id()));
    let written = create(&beside, mode).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()?;
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file, and not replaced"));
        }
        fs::rename(&beside, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Removes what killed processes have left of a [`replace`] of `path`: the files of numbers that no
/// process has, and that nobody has written to for [`LEFT_AFTER`]. In another container, processes
/// have other numbers.
pub(super) fn remove_left(path: &Path) {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(files) = fs::read_dir(folder.unwrap_or(Path::new("."))) else { return };
    for file in files.flatten() {
        let other = file.file_name();
        let number = other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let Some(number) = number.and_then(|number| number.strip_suffix('~')?.parse::<u32>().ok())
        else {
            continue;
        };
        let written = file.metadata().and_then(|metadata| metadata.modified());
        let is_old = written.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > LEFT_AFTER));
        if is_old && !Path::new(&format!("/proc/{number}")).exists() {
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Makes a new file: in a folder that others may write to, an existing one may be theirs. A file
/// left by a dead process with our number is removed once.
fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_stands_before_the_ending() {
        for (path, own) in [
            ("run.json", "run-rank3.json"),
            ("/a.b/run.gtr.zst", "/a.b/run-rank3.gtr.zst"),
            ("model-1.5.trace.json", "model-1.5-rank3.trace.json"),
            ("model-1.5.html", "model-1.5-rank3.html"),
            ("/a.b/run", "/a.b/run-rank3"),
            ("/a/.hidden", "/a/.hidden-rank3"),
        ] {
            assert_eq!(with_rank(path, 3), own);
        }
    }

    #[test]
    fn one_process_alone_has_no_rank_in_its_files() {
        let alone = Settings { rank: Some(2), ..Settings::default() };
        let third = Settings { global_rank: Some(3), ..alone.clone() };
        assert_eq!(own("run.json", &alone), "run.json");
        assert_eq!(own("%r/run.json", &alone), "2/run.json");
        assert_eq!(own("run.json", &third), "run-rank3.json");
        assert_eq!(own("%r/run.json", &third), "3/run.json");
        assert_eq!(own("/dev/null", &third), "/dev/null");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not set times of files")]
    fn what_killed_processes_left_is_removed() {
        let folder = std::env::temp_dir().join(format!("genesis-left-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * LEFT_AFTER;
        let make = |name: &str, is_old: bool| {
            let file = File::create(folder.join(name)).unwrap();
            if is_old {
                file.set_modified(long_ago).unwrap();
            }
        };
        // No process has a number beyond 2^22.
        let ours = format!("run.json.{}~", std::process::id());
        let stays = ["run.json", "run.json.8000001~", "run.json.x~", "other.json.8000000~", &ours];
        make("run.json.8000000~", true);
        stays.iter().for_each(|name| make(name, *name != "run.json.8000001~"));
        remove_left(&folder.join("run.json"));
        for name in stays {
            fs::remove_file(folder.join(name)).unwrap();
        }
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn only_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("genesis-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        for text in ["first", "second"] {
            replace(&file, 0o600, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        let failed = replace(&file, 0o600, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        replace(&link, 0o600, |_| Ok(())).unwrap_err();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside");
        fs::remove_dir_all(&folder).unwrap();
    }
}
