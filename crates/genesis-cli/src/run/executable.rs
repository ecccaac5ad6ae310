//! Why the dynamic loader would not preload a library into a program: `genesis run` says it when no
//! process has reported.
//!
//! Only the file's own headers are read (System V ABI, chapter 5): a program without an
//! interpreter starts without the dynamic loader, and one with another owner's rights is started
//! in secure mode, in which the loader leaves out libraries that are named by a path.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A segment that names the program's interpreter, the dynamic loader.
const PT_INTERP: u32 = 3;
/// The class of 64-bit programs.
const CLASS_64: u8 = 2;
const SET_USER_OR_GROUP: u32 = 0o6000;
/// A script's interpreter may be a script.
const MOST_SCRIPTS: usize = 4;

/// Why nothing can be preloaded into `program`, which is looked up as a shell does; `None` if no
/// reason is known.
pub(crate) fn obstacle(program: &OsStr) -> Option<String> {
    obstacle_of(&find(program)?, MOST_SCRIPTS)
}

fn obstacle_of(path: &Path, scripts: usize) -> Option<String> {
    let shown = path.display();
    if let Some(interpreter) = interpreter_of_script(path) {
        return (scripts > 0).then(|| obstacle_of(&interpreter, scripts - 1)).flatten();
    }
    if path.metadata().ok()?.permissions().mode() & SET_USER_OR_GROUP != 0 {
        return Some(format!(
            "{shown} runs with another user's rights (setuid), and the loader then preloads nothing"
        ));
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0; 64]).is_ok() {
        return Some(format!(
            "{shown} has capabilities of its own, and the loader then preloads nothing"
        ));
    }
    let file = File::open(path).ok()?;
    match has_interpreter(&file)? {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("{shown} is statically linked, and so loads no libraries at all"))
        }
        Err(NotOfThisMachine) => {
            Some(format!("{shown} is a program of another kind of machine than the library"))
        }
    }
}

/// A program with other word lengths than ours.
#[derive(Debug)]
struct NotOfThisMachine;

/// True if an ELF file names an interpreter; `None` if it is no ELF file, or broken.
fn has_interpreter(file: &File) -> Option<Result<bool, NotOfThisMachine>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header[..20], 0).ok()?;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    if header[4] != CLASS_64 {
        return Some(Err(NotOfThisMachine));
    }
    file.read_exact_at(&mut header, 0).ok()?;
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let (entry_bytes, count) = (short(54), short(56));
    let kinds = (0..count).map_while(|index| {
        let mut kind = [0; 4];
        let offset = table.checked_add(u64::from(index) * u64::from(entry_bytes))?;
        file.read_exact_at(&mut kind, offset).ok()?;
        Some(u32::from_le_bytes(kind))
    });
    Some(Ok(kinds.into_iter().any(|kind| kind == PT_INTERP)))
}

/// The interpreter that the first line of a script names; `None` for other files.
fn interpreter_of_script(path: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    let mut reader = BufReader::new(File::open(path).ok()?.take(256));
    reader.read_until(b'\n', &mut first).ok()?;
    let line = std::str::from_utf8(first.strip_prefix(b"#!")?).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

/// The file that is started for `program`.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths.find(|path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("genesis-{name}-{}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        assert_eq!(obstacle(OsStr::new("sh")), None);
        assert_eq!(obstacle(OsStr::new("/no/such/program")), None);
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let setuid = scratch("setuid", &own, 0o4755);
        assert!(obstacle(setuid.as_os_str()).unwrap().contains("setuid"));
        let script = scratch("script", format!("#! {} -x\n", setuid.display()).as_bytes(), 0o755);
        assert!(obstacle(script.as_os_str()).unwrap().contains("setuid"));
        let mut without = own;
        // No program headers.
        without[56..58].fill(0);
        let static_program = scratch("static", &without, 0o755);
        assert!(obstacle(static_program.as_os_str()).unwrap().contains("statically linked"));
        without[4] = 1;
        let other = scratch("other", &without, 0o755);
        assert!(obstacle(other.as_os_str()).unwrap().contains("another kind of machine"));
        let itself = std::env::temp_dir().join(format!("genesis-loop-{}", std::process::id()));
        fs::write(&itself, format!("#!{}\n", itself.display())).unwrap();
        assert_eq!(obstacle(itself.as_os_str()), None);
        for path in [setuid, script, static_program, other, itself] {
            fs::remove_file(path).unwrap();
        }
    }
}
