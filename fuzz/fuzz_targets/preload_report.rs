//! The file in which preloaded processes report what was intercepted. Whatever it has, a process
//! takes a slot of it or none, and the command reads all slots.
#![no_main]

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use preload_report::{CALLS, Library, MOST_PROCESSES, Report, Slot};

/// Slots begin at multiples of this.
const STRIDE_BYTES: u64 = 65_536;
/// The header and the slots that are written to.
const PLACES: u64 = 4;
/// Where the header has the number of slots taken, and how many are too many to be made here.
const CLAIMED_AT: u64 = 16;
const MANY: u64 = 64;
/// A slot is mapped for the rest of the process, which may have so many mappings only.
const MOST_SLOTS: u32 = 20_000;

fuzz_target!(|data: &[u8]| {
    static SLOTS: AtomicU32 = AtomicU32::new(0);
    let path = format!("/dev/shm/genesis-fuzz-report-{}", std::process::id());
    let path = Path::new(&path);
    let report = Report::create(path).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut rest = data;
    // A place, an offset in words, a number of words, and the words.
    while let Some((&[place, at, words], after)) = rest.split_first_chunk() {
        let length = after.len().min(8 * usize::from(words % 32));
        let (written, after) = after.split_at(length);
        let offset = u64::from(place) % PLACES * STRIDE_BYTES + 8 * u64::from(at);
        file.write_all_at(written, offset).unwrap();
        rest = after;
    }
    let mut claimed = [0; 8];
    file.read_exact_at(&mut claimed, CLAIMED_AT).unwrap();
    let claimed = u64::from_le_bytes(claimed);
    let is_few = !(MANY..MOST_PROCESSES).contains(&claimed);
    if is_few && SLOTS.fetch_add(1, Relaxed) < MOST_SLOTS {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        if let Some(slot) = Slot::claim(&name) {
            slot.hand_out(7);
            slot.count(data.len() % (CALLS.len() + 1));
            slot.take_back(u64::MAX);
            slot.set_library(Library::Missing, Some(c"gone"));
            let processes = report.processes();
            let own = |process: &preload_report::Process| {
                process.process_id == std::process::id() && process.library_error == "gone"
            };
            assert!(processes.iter().any(own), "{processes:?}");
        }
    }
    let processes = report.processes();
    assert!(processes.len() as u64 <= report.process_count());
    let _ = report.other_version_count();
});
