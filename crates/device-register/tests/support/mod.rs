//! A folder for a register, entries, and a child that is killed at a system call.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process, ptr};

use device_register::{Card, Entry, NO_LIMIT, file_name};

/// A folder of its own in memory, removed at the end.
pub struct Scratch {
    pub folder: PathBuf,
    /// Where the register is.
    pub path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("genesis-test-register-{name}-{}-{number}", process::id());
        let folder = Path::new(device_register::FOLDER).join(folder);
        fs::create_dir(&folder).unwrap();
        let path = folder.join(file_name(1, &card().uuid, name));
        Self { folder, path }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn card() -> Card {
    Card { uuid: *b"a device of four", name: "Simulated H100".to_owned() }
}

pub fn entry(process: u32) -> Entry {
    Entry {
        process,
        weight: 100,
        total_bytes: 80 << 30,
        limit_bytes: NO_LIMIT,
        door: u64::from(process),
        program: format!("program {process}"),
        ..Entry::default()
    }
}

pub fn make_pipe(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// `some` on every change, `all` every night (tests/support/tier.rs of the project).
pub fn some_or_all<T>(some: T, all: T) -> T {
    if env::var_os("TEST_GENESIS_IN_FULL").is_some_and(|value| value == "1") { all } else { some }
}

/// Runs `life` in a child, which is killed when it has entered or left `calls` system calls.
/// Returns true if the life was over before.
pub fn live_until(calls: u32, life: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread alone, and ends without leaving this function; the parent
    // only waits for it.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let nothing = ptr::null_mut::<libc::c_void>();
            libc::ptrace(libc::PTRACE_TRACEME, 0, nothing, nothing);
            libc::raise(libc::SIGSTOP);
            let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(life)).is_ok();
            libc::_exit(i32::from(!is_well));
        }
        let mut status = 0;
        let mut wait = || {
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert!(!libc::WIFEXITED(status) || libc::WEXITSTATUS(status) == 0, "the life failed");
            libc::WIFSTOPPED(status)
        };
        assert!(wait());
        for _ in 0..calls {
            let nothing = ptr::null_mut::<libc::c_void>();
            assert_eq!(libc::ptrace(libc::PTRACE_SYSCALL, child, nothing, nothing), 0);
            if !wait() {
                return true;
            }
        }
        libc::kill(child, libc::SIGKILL);
        while wait() {}
        false
    }
}

/// xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}
