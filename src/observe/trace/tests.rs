//! The recorder with files of its own: its errors, and that no thread waits for ever.

use std::path::PathBuf;

use super::*;

use crate::base::DeviceOrdinal;
use crate::observe::events::CAPACITY;
use crate::observe::{Action, Event};

/// Statics: a stream of events, a recorder of it, and a log.
#[derive(Clone, Copy)]
struct Subject {
    events: &'static EventStream,
    recorder: &'static Recorder,
    log: &'static Log,
}

impl Subject {
    fn new() -> Self {
        Self {
            events: Box::leak(Box::new(EventStream::with_clock(|| 0))),
            recorder: Box::leak(Box::new(Recorder::new())),
            log: Box::leak(Box::new(Log::new(LogLevel::Off))),
        }
    }

    fn start(self, open: impl FnOnce() -> Result<Target>) -> Result<()> {
        self.recorder.start(self.events, self.log, open)
    }

    fn note(self, action: Action, address: u64) {
        self.events.note(Event { address, amount: 1, ..Event::new(action, DeviceOrdinal(0)) });
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("genesis-{}-{name}", std::process::id()))
}

fn target(path: &std::path::Path) -> Result<Target> {
    let name = path.display().to_string();
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| file_failed(&name, &error))?;
    Ok(Target { name, file, is_compressed: false, flush_interval: Duration::from_secs(3600) })
}

#[test]
fn one_recording_at_a_time() {
    let subject = Subject::new();
    let recorder = subject.recorder;
    let path = path("one");
    for misuse in [recorder.flush(), recorder.stop(None)] {
        assert_eq!(misuse.unwrap_err(), not_recording());
    }
    for _ in 0..2 {
        subject.start(|| target(&path)).unwrap();
        let second = subject.start(|| unreachable!("nothing is opened"));
        assert_eq!(second.unwrap_err().status, Status::InvalidArgument);
        subject.note(Action::Allocate, 0x1000);
        assert_eq!(recorder.flush().unwrap().records, 1);
        assert_eq!(path.metadata().unwrap().len(), 5 + 16);
        subject.note(Action::Free, 0x1000);
        subject.note(Action::Free, 0x2000);
        let summary = recorder.stop(None).unwrap();
        assert_eq!(summary, Summary { records: 2, left_out: 1, ..Summary::default() });
        assert_eq!(path.metadata().unwrap().len(), 5 + 32);
        assert!(!subject.events.is_on());
        std::fs::remove_file(&path).unwrap();
    }
}

/// A full ring makes threads wait, and nothing is lost.
#[test]
fn more_than_the_ring_holds() {
    const THREADS: u64 = 3;
    const BLOCKS: u64 = CAPACITY as u64;
    let subject = Subject::new();
    let recorder = subject.recorder;
    let path = path("full");
    subject.start(|| target(&path)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for block in 1..=BLOCKS {
                    subject.note(Action::Allocate, (thread << 40 | block) << 9);
                }
            });
        }
    });
    assert_eq!(recorder.stop(None).unwrap().records, THREADS * BLOCKS);
    assert_eq!(path.metadata().unwrap().len(), 5 + 16 * THREADS * BLOCKS);
    std::fs::remove_file(&path).unwrap();
}

/// A thread that saw the recorder on may come late: its event belongs to no recording.
#[test]
fn events_between_recordings_are_in_neither() {
    let subject = Subject::new();
    let recorder = subject.recorder;
    let path = path("late");
    subject.start(|| target(&path)).unwrap();
    recorder.stop(None).unwrap();
    subject.note(Action::Allocate, 0x1000);
    subject.start(|| target(&path)).unwrap();
    subject.note(Action::Free, 0x1000);
    let summary = recorder.stop(None).unwrap();
    assert_eq!((summary.records, summary.left_out), (0, 1));
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_refuses_ends_the_recording_and_holds_nobody_up() {
    let subject = Subject::new();
    let recorder = subject.recorder;
    let full = std::path::Path::new("/dev/full");
    let error = subject.start(|| target(full)).unwrap_err();
    assert_eq!(error.status, Status::FileFailed);
    assert!(error.message.starts_with("/dev/full: No space left on device"), "{error}");
    assert!(!subject.events.is_on());

    // A pipe without a reader takes the beginning, and then nothing.
    let (reader, writer) = std::io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let pipe = Target {
        name: "a pipe".to_owned(),
        file,
        is_compressed: true,
        flush_interval: Duration::from_secs(3600),
    };
    subject.start(|| Ok(pipe)).unwrap();
    drop(reader);
    // As callers do: only while it is on.
    for block in (1..).take_while(|_| subject.events.is_on()) {
        subject.note(Action::Allocate, block << 9);
    }
    for failed in [recorder.flush(), recorder.flush(), recorder.stop(None)] {
        assert_eq!(failed.unwrap_err().status, Status::FileFailed);
    }
    assert!(!subject.events.is_on());
    assert_eq!(recorder.stop(None).unwrap_err(), not_recording());

    // And another may begin.
    let path = path("after");
    subject.start(|| target(&path)).unwrap();
    recorder.stop(None).unwrap();
    std::fs::remove_file(&path).unwrap();
}
