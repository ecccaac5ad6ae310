//! Files that are whole whenever somebody reads them: written under another name, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The permissions of files that are for all whom the process's umask lets read them.
pub(super) const FOR_ALL: u32 = 0o666;

/// Makes or replaces the file at `path`, with the permissions `mode` and what `write` writes. If
/// that fails, what was there before is still there.
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
        fs::rename(&beside, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
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
