//! The recorder: what is recorded is what happened, and reads back as such.
//!
//! In this process through the C functions, one test at a time as there is one recorder; and
//! in processes of their own (`c_tests/processes/tracing.c`) where the process is to end.

#[path = "c_interface/programs.rs"]
mod programs;
mod support;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use genesis::base::Status;
use genesis::config::LogLevel;
use genesis::ffi::allocation::{genesis_block_record_stream, genesis_free, genesis_malloc};
use genesis::ffi::callbacks::genesis_log_callback_set;
use genesis::ffi::genesis_stream;
use genesis::ffi::library::genesis_option_set;
use genesis::ffi::memory::genesis_cache_empty;
use genesis::ffi::statistics::{genesis_stats_get, genesis_stats_reset_peak};
use genesis::ffi::trace::{
    genesis_trace_flush, genesis_trace_iteration, genesis_trace_start, genesis_trace_stop,
};
use genesis::observe::Statistics;
use genesis_replay::gtr::{self, Action, Record};
use genesis_replay::program::{Kind, Program};
use programs::Language::C99;
use programs::{command, compile, run, run_silently, text};

/// A busy machine may take a while for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// The recorder of this process, which tests use in turn; with addresses only.
fn recorder() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    let guard = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, value) in [
        (c"GENESIS_BACKEND", c"sim"),
        (c"GENESIS_SIM_MEMORY", c"1TiB"),
        (c"GENESIS_TRACE_FLUSH_SECONDS", c"0.01"),
    ] {
        // Refused once the library has started, and then set already.
        // SAFETY: both are strings.
        let _ = unsafe { genesis_option_set(name.as_ptr(), value.as_ptr()) };
    }
    guard
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn start(path: &Path) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a string.
    assert_eq!(unsafe { genesis_trace_start(path.as_ptr()) }, Status::Success);
}

/// Ends the recording; returns what was logged meanwhile.
fn stop() -> String {
    static SAID: Mutex<String> = Mutex::new(String::new());
    unsafe extern "C" fn listen(_: *mut c_void, _: LogLevel, message: *const c_char) {
        // SAFETY: the library passes a string.
        let message = unsafe { CStr::from_ptr(message) };
        *SAID.lock().unwrap() = message.to_str().unwrap().to_owned();
    }
    // SAFETY: the callback needs no data; the texts are strings.
    unsafe {
        genesis_log_callback_set(Some(listen), std::ptr::null_mut());
        genesis_option_set(c"GENESIS_LOG".as_ptr(), c"info".as_ptr());
    }
    assert_eq!(genesis_trace_stop(), Status::Success);
    // SAFETY: as above.
    unsafe { genesis_option_set(c"GENESIS_LOG".as_ptr(), c"warn".as_ptr()) };
    std::mem::take(&mut *SAID.lock().unwrap())
}

fn stream(number: u64) -> genesis_stream {
    ((number + 1) * 0x1000) as usize as genesis_stream
}

fn allocate(bytes: u64, on: u64) -> usize {
    let block = genesis_malloc(bytes as usize, 0, stream(on));
    assert!(!block.is_null() || bytes == 0);
    block as usize
}

fn free(block: usize) {
    genesis_free(block as *mut c_void, 0, 0, stream(0));
}

fn requested_peak() -> u64 {
    let mut stats = Statistics { struct_size: size_of::<Statistics>(), ..Statistics::default() };
    // SAFETY: as long as it says.
    assert_eq!(unsafe { genesis_stats_get(0, &mut stats) }, Status::Success);
    stats.requested_bytes.peak
}

/// Makes the calls of a program, to the last free.
fn make_calls(program: &Program) {
    let mut blocks = vec![0; program.slot_count];
    for call in program.calls.iter().chain(&program.leftovers) {
        let (block, on) = (&mut blocks[call.slot as usize], u64::from(call.stream));
        match call.kind {
            Kind::Allocate => *block = allocate(call.requested_bytes, on),
            Kind::Free => free(*block),
            Kind::RecordStream => {
                let recorded = genesis_block_record_stream(*block as *mut c_void, stream(on));
                assert_eq!(recorded, Status::Success);
            }
            Kind::EmptyCache => assert_eq!(genesis_cache_empty(0), Status::Success),
        }
    }
}

/// A recorded trace, replayed and recorded once more, is the same program: every call, block,
/// stream and size, in order, and so the same live peak, which the statistics agree with.
#[test]
fn a_recorded_program_replays_as_itself() {
    let _guard = recorder();
    for name in ["fsdp_streams", "alternating"] {
        let mut program = support::replay::recorded(name);
        let (plain, compressed) = (path(&format!("{name}.gtr")), path(&format!("{name}.gtr.zst")));
        for path in [&plain, &compressed] {
            assert_eq!(genesis_stats_reset_peak(0), Status::Success);
            start(path);
            make_calls(&program);
            stop();
            assert_eq!(requested_peak(), program.live_peak_bytes);
        }
        let records = gtr::read_file(&plain).unwrap();
        assert_eq!(gtr::read_file(&compressed).unwrap(), records);
        let again = Program::prepare(&records).unwrap();
        let leftovers = std::mem::take(&mut program.leftovers);
        program.calls.extend(leftovers);
        program.iteration_ends.clear();
        assert!(again == program, "{name}: not the same program");
        let sizes = [&plain, &compressed].map(|path| path.metadata().unwrap().len());
        assert!(sizes[1] * 3 < sizes[0], "{sizes:?}");
    }
}

/// Pieces of a compressed trace are frames, and readers take them for one stream.
#[test]
fn what_was_flushed_can_be_read_while_the_program_runs() {
    let _guard = recorder();
    for name in ["flushed.gtr", "flushed.gtr.zst"] {
        let path = path(name);
        start(&path);
        for round in 1..=20 {
            let block = allocate(round * 1000, 0);
            free(block);
            assert_eq!(genesis_trace_iteration(round as u32), Status::Success);
            assert_eq!(genesis_trace_flush(), Status::Success);
            let records = gtr::read_file(&path).unwrap();
            assert_eq!(records.len() as u64, 3 * round);
            let last = records.last().unwrap();
            assert_eq!((last.action, u64::from(last.id)), (Action::IterationEnd, round));
        }
        stop();
        assert_eq!(gtr::read_file(&path).unwrap().len(), 60);
    }
}

/// A kill leaves a beginning of the file, which reads as one of what was recorded.
#[test]
fn each_beginning_of_a_trace_can_be_read() {
    let _guard = recorder();
    for path in ["cut.gtr", "cut.gtr.zst"].map(path) {
        start(&path);
        let flushed = Vec::from_iter((1..=20).map(|round| {
            free(allocate(round * 1000, 0));
            assert_eq!(genesis_trace_flush(), Status::Success);
            (path.metadata().unwrap().len() as usize, 2 * round as usize)
        }));
        stop();
        let (whole, records) = (std::fs::read(&path).unwrap(), gtr::read_file(&path).unwrap());
        assert_eq!(records.len(), 40);
        for bytes in flushed[0].0..=whole.len() {
            std::fs::write(&path, &whole[..bytes]).unwrap();
            let kept = gtr::recover_file(&path).unwrap().records;
            let least = flushed.iter().rfind(|(end, _)| *end <= bytes).unwrap().1;
            assert!(kept.len() >= least && records.starts_with(&kept), "{bytes}, {path:?}");
        }
    }
}

#[test]
fn nothing_asked_for_is_recorded_and_blocks_live_before_are_not() {
    let _guard = recorder();
    let path = path("before.gtr");
    let before = allocate(5000, 0);
    start(&path);
    assert_eq!(allocate(0, 0), 0);
    let after = allocate(7000, 0);
    free(before);
    let said = stop();
    assert!(said.ends_with("3 records, 1 left out as their blocks were there before it"), "{said}");
    free(after);
    let block =
        |action, id, requested_bytes| Record { action, device: 0, stream: 0, id, requested_bytes };
    assert_eq!(
        gtr::read_file(&path).unwrap(),
        [
            block(Action::Allocate, 0, 0),
            block(Action::Free, 0, 0),
            block(Action::Allocate, 1, 7000)
        ]
    );
}

/// Two handles of the default stream are one stream, the threads' own streams are several.
#[test]
fn streams_are_told_apart_as_the_library_does() {
    let _guard = recorder();
    let path = path("streams.gtr");
    start(&path);
    let allocate = |handle: usize| {
        let block = genesis_malloc(512, 0, handle as genesis_stream);
        free(block as usize);
    };
    for handle in [0, 1, 2, 0x5000, 2] {
        allocate(handle);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| allocate(2));
    });
    stop();
    let allocated = |record: &Record| record.action == Action::Allocate;
    let records = gtr::read_file(&path).unwrap();
    let streams: Vec<u16> =
        records.iter().filter(|record| allocated(record)).map(|record| record.stream).collect();
    assert_eq!(streams, [0, 0, 1, 2, 1, 3]);
}

/// Threads allocate on streams of their own and on a shared one, and free each other's blocks.
#[test]
fn threads_are_recorded_in_an_order_that_can_have_been() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 60_000;
    let _guard = recorder();
    for name in ["threads.gtr", "threads.gtr.zst"] {
        let path = path(name);
        start(&path);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| mpsc::channel::<usize>()).unzip();
        std::thread::scope(|scope| {
            for (thread, inbox) in (0..).zip(receivers) {
                let next = senders[((thread + 1) % THREADS) as usize].clone();
                scope.spawn(move || {
                    for block in 0..BLOCKS {
                        // No two sizes are equal: a record says whose it is.
                        let size = 1 + block * THREADS + thread;
                        let given = allocate(size, if block % 8 == 0 { thread } else { 99 });
                        if block % 2 == 0 {
                            free(given)
                        } else {
                            next.send(given).unwrap()
                        }
                        inbox.try_iter().for_each(free);
                    }
                    drop(next);
                    inbox.iter().for_each(free);
                });
            }
            drop(senders);
        });
        // Nothing left out, nothing put in: no free was recorded after its block was reused.
        let said = format!("recorded to {}: {} records", path.display(), 2 * THREADS * BLOCKS);
        assert_eq!(stop(), said);
        let records = gtr::read_file(&path).unwrap();
        // Every free is of a block that is live, and no block is allocated while live.
        let program = Program::prepare(&records).unwrap();
        assert_eq!(program.calls.len() as u64, 2 * THREADS * BLOCKS);
        assert_eq!(program.leftovers, []);
        let mut next = HashMap::new();
        for record in records.iter().filter(|record| record.action == Action::Allocate) {
            let (thread, block) =
                ((record.requested_bytes - 1) % THREADS, (record.requested_bytes - 1) / THREADS);
            let expected = next.entry(thread).or_insert(0);
            assert_eq!(block, *expected, "thread {thread} out of order");
            *expected += 1;
        }
        assert_eq!(next.into_values().collect::<Vec<_>>(), [BLOCKS; THREADS as usize]);
    }
}

/// Recordings begin and end while threads work: each is a program of its own.
#[test]
fn recordings_may_begin_and_end_at_any_time() {
    let _guard = recorder();
    let path = path("restarted.gtr");
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Also when a check fails: the scope waits for its threads.
        let _stop = OnDrop(|| is_over.store(true, Relaxed));
        for thread in 0..3 {
            let (is_over, rounds) = (&is_over, &rounds);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let blocks: Vec<usize> =
                        (1..20).map(|n| allocate(n * 512, (thread + n) % 3)).collect();
                    blocks.into_iter().for_each(free);
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        for _ in 0..30 {
            start(&path);
            // Of six rounds after this one, three began after it.
            let enough = rounds.load(Relaxed) + 6;
            wait_until(|| rounds.load(Relaxed) >= enough);
            stop();
            let program = Program::prepare(&gtr::read_file(&path).unwrap()).unwrap();
            assert!(program.calls.len() >= 3 * 2 * 19, "{} calls", program.calls.len());
            assert!(program.slot_count <= 3 * 19, "{} blocks live", program.slot_count);
        }
    });
}

/// A child that another thread has just forked holds the lock of the file for a moment.
#[test]
fn a_lock_that_soon_goes_is_waited_for() {
    let _guard = recorder();
    let path = path("locked.gtr");
    let mut holder =
        std::process::Command::new("flock").arg(&path).args(["sleep", "0.2"]).spawn().unwrap();
    let is_locked = || {
        let mut try_lock = std::process::Command::new("flock");
        !try_lock.arg("--nonblock").arg(&path).arg("true").status().unwrap().success()
    };
    wait_until(is_locked);
    start(&path);
    stop();
    assert!(holder.wait().unwrap().success());
}

/// Calls a function when it goes.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Returns once `is_so`, and fails if that takes longer than a busy machine would need.
#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A case of `tracing.c`, recorded to files of either kind: its path, and how it ended.
fn traced(case: &str) -> [(PathBuf, Output); 2] {
    let program = compile(case, "processes/tracing.c", C99, true);
    ["gtr", "gtr.zst"].map(|extension| {
        let path = path(&format!("{case}.{extension}"));
        let _ = std::fs::remove_file(&path);
        let mut command = command(&program);
        // Only what the program flushes, except in the case that waits for the library to do so.
        let is_flushed_by_time = case == "crash_later";
        let seconds = if is_flushed_by_time { "0.05" } else { "1000" };
        command.arg(case).env("GENESIS_TRACE", &path);
        command.env("GENESIS_BACKEND", "sim").env("GENESIS_TRACE_FLUSH_SECONDS", seconds);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().unwrap();
        if is_flushed_by_time {
            let is_whole = |trace: gtr::Recovered| trace.records.len() == 1000;
            wait_until(|| gtr::recover_file(&path).is_ok_and(is_whole));
        }
        // The program's standard input ends here, for which that case waits.
        (path, process.wait_with_output().unwrap())
    })
}

/// How many blocks of 512 and of 1024 bytes a trace allocates.
fn blocks(path: &Path) -> (usize, usize) {
    let program = Program::prepare(&gtr::read_file(path).unwrap()).unwrap();
    let count = |bytes| {
        let of_size = |call: &&_| {
            let call: &genesis_replay::program::Call = call;
            call.kind == Kind::Allocate && call.requested_bytes == bytes
        };
        program.calls.iter().filter(of_size).count()
    };
    (count(512), count(1024))
}

#[test]
fn a_process_that_ends_well_has_all_of_it() {
    for (path, output) in traced("end_well") {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(blocks(&path), (1000, 0));
    }
}

#[test]
fn a_crash_leaves_what_was_flushed() {
    for case in ["crash", "crash_later"] {
        for (path, output) in traced(case) {
            // `timeout` says so with a status, or by the same signal.
            let is_abort = output.status.signal() == Some(libc::SIGABRT)
                || output.status.code() == Some(128 + libc::SIGABRT);
            assert!(is_abort, "{output:?}");
            assert_eq!(
                text(&output.stderr).replace("timeout: the monitored command dumped core\n", ""),
                ""
            );
            assert_eq!(blocks(&path).0, 1000, "{case}");
        }
    }
}

/// Left without a word, a process loses at most what the ring and a piece hold.
#[test]
fn little_is_lost_without_any_flush() {
    for (path, output) in traced("leave_at_once") {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        // 131,072 events in the ring, 65,536 records in the piece, which is looked at every 1024.
        // It may have ended in the middle of a write.
        let kept = gtr::recover_file(&path).unwrap().records.len();
        assert!((800_000 - 131_072 - 66_560..=800_000).contains(&kept), "{kept}");
    }
}

#[test]
fn a_forked_child_is_not_recorded() {
    for (path, output) in traced("fork_in_the_middle") {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(blocks(&path), (1000, 1000));
    }
}

#[test]
fn a_full_disk_is_a_warning_and_the_end_of_the_recording() {
    for (path, output) in traced("run_out_of_disk") {
        assert!(output.status.success(), "{output:?}");
        let warning = format!("genesis: recording has ended: {}: File too large", path.display());
        let lines = text(&output.stderr);
        assert!(lines.starts_with(&warning) && lines.lines().count() == 1, "{lines}");
        // What was whole before is whole still.
        assert!(blocks(&path).0 >= 1000);
    }
}

#[test]
fn the_programs_signals_are_its_own() {
    for (path, output) in traced("be_signalled") {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(blocks(&path), (1000, 0));
    }
}

#[test]
fn a_file_that_cannot_be_made_is_one_warning() {
    let program = compile("unwritable", "processes/tracing.c", C99, true);
    for (path, reason) in [
        ("/nowhere/at/all.gtr", "No such file or directory (os error 2)"),
        ("/dev/full", "No space left on device (os error 28)"),
    ] {
        let output = run(command(&program).arg("end_well").env("GENESIS_TRACE", path));
        let warning = format!("genesis: GENESIS_TRACE: not recording: {path}: {reason}\n");
        assert_eq!(text(&output.stderr), warning);
    }
}

#[test]
fn processes_have_files_of_their_own() {
    let _guard = recorder();
    let program = compile("own_file", "processes/tracing.c", C99, true);
    let folder = path("own_files");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    for _ in 0..2 {
        let path = folder.join("rank-%p.gtr");
        run_silently(command(&program).arg("end_well").env("GENESIS_TRACE", path));
    }
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|path| blocks(path) == (1000, 0)));
    // A file that another process is recording to stays its own.
    let taken = folder.join("taken.gtr");
    start(&taken);
    let block = allocate(512, 0);
    let output = run(command(&program).arg("end_well").env("GENESIS_TRACE", &taken));
    assert!(text(&output.stderr).contains("another process is recording to it"), "{output:?}");
    free(block);
    stop();
    assert_eq!(gtr::read_file(&taken).unwrap().len(), 2);
}
