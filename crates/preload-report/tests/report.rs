//! What is written can be read: by threads, by a process that ends without notice, and across
//! versions.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use preload_report::{CALLS, Library, Report, Slot, call_index};

/// Set in the environment of a process that plays the writer.
const WRITER: &str = "PRELOAD_REPORT_TEST_WRITER";

fn new_report(test: &str) -> Report {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("report-{test}-{}", std::process::id()));
    Report::create(&path).unwrap()
}

fn claim(path: &Path) -> Option<Slot> {
    Slot::claim(&CString::new(path.as_os_str().as_bytes()).unwrap())
}

#[test]
fn what_is_counted_is_read() {
    let report = new_report("counted");
    let slot = claim(report.path()).unwrap();
    let malloc = call_index("cudaMalloc").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    slot.count(malloc);
                    slot.hand_out(100);
                    slot.take_back(100);
                }
            });
        }
    });
    slot.hand_out(1 << 40);
    slot.take_back(1 << 39);
    slot.count_passed(malloc);
    slot.count_refused(0);
    slot.count_fence();
    slot.see_cuda();
    // No such call; nothing happens.
    slot.count(CALLS.len());
    let processes = report.processes();
    let [process] = &processes[..] else { panic!("{processes:?}") };
    assert_eq!(process.process_id, std::process::id());
    assert!(process.command_line.contains("report"), "{process:?}");
    assert_eq!((process.library, process.has_seen_cuda), (Library::NotAsked, true));
    assert_eq!((process.live_bytes, process.peak_bytes), (1 << 39, 1 << 40));
    assert_eq!((process.total_bytes, process.fences), ((1 << 40) + 400_000, 1));
    let calls: Vec<_> =
        process.calls.iter().map(|c| (c.name, c.served, c.passed, c.refused)).collect();
    assert_eq!(calls, [(CALLS[0], 0, 0, 1), ("cudaMalloc", 4000, 1, 0)]);
}

#[test]
fn a_library_that_is_missing_says_why_in_the_room_there_is() {
    let report = new_report("missing");
    let long = CString::new("x".repeat(2000)).unwrap();
    claim(report.path()).unwrap().set_library(Library::Missing, Some(&long));
    let process = report.processes().remove(0);
    assert_eq!(process.library, Library::Missing);
    assert_eq!(process.library_error, "x".repeat(512));
}

#[test]
fn many_processes_end_as_they_like() {
    const PROCESSES: usize = 20;
    let report = new_report("processes");
    let writers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "writer"]).env(WRITER, report.path());
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    let mut expected: Vec<u32> = writers.iter().map(|writer| writer.id()).collect();
    for mut writer in writers {
        assert_eq!(writer.wait().unwrap().code(), Some(7));
    }
    let mut found: Vec<u32> = report.processes().iter().map(|p| p.process_id).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(report.processes().iter().all(|p| p.peak_bytes == 512 && p.calls[0].served == 1));
}

/// Ends at once, without any handler.
#[test]
#[ignore = "played by a process of many_processes_end_as_they_like"]
fn writer() {
    let slot = claim(Path::new(&env::var_os(WRITER).unwrap())).unwrap();
    slot.hand_out(512);
    slot.count(1);
    // SAFETY: ends this process.
    unsafe { libc::_exit(7) }
}

#[test]
fn another_versions_file_is_left_alone() {
    let report = new_report("version");
    let mut bytes = fs::read(report.path()).unwrap();
    bytes[8] ^= 1;
    fs::write(report.path(), &bytes).unwrap();
    assert!(claim(report.path()).is_none());
    assert_eq!((report.process_count(), report.other_version_count()), (0, 1));
    assert_eq!(report.processes(), []);
}

/// A program that writes where it must not may have written here.
#[test]
fn any_counts_are_read() {
    const FIRST_CALL_AT: u64 = 65_536 + 816;
    let report = new_report("garbage");
    claim(report.path()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(report.path()).unwrap();
    let counts = [u64::MAX, 1, 2].map(u64::to_le_bytes).concat();
    file.write_all_at(&counts, FIRST_CALL_AT).unwrap();
    let processes = report.processes();
    let [call] = &processes[0].calls[..] else { panic!("{processes:?}") };
    assert_eq!((call.name, call.served, call.passed, call.refused), (CALLS[0], u64::MAX, 1, 2));
}

#[test]
fn what_is_no_report_is_none() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("not-a-report");
    fs::write(&path, "short").unwrap();
    assert!(claim(&path).is_none());
    assert!(claim(Path::new("/no/such/file")).is_none());
    assert!(Report::create(&path).is_err());
}

#[test]
fn the_file_goes_with_its_maker() {
    let report = new_report("removed");
    let path = report.path().to_owned();
    assert!(path.exists());
    drop(report);
    assert!(!path.exists());
}
