//! RMM's log: what RMM writes is understood, what is written is read back, and no bytes make the
//! reader panic.

use genesis_replay::gtr::{Action, Record, read};
use genesis_replay::program::{Kind, Program};
use genesis_replay::rmm_log::{HEADER, only_device, write};
use proptest::prelude::*;

/// A log of RMM 26.10, of two threads on two streams, with a request that failed.
const LOG: &str = "\
Thread,Time,Action,Pointer,Size,Stream
14172,18:04:44.331580,allocate,0x10000000000,700,0
14172,18:04:44.331629,allocate,0x10004000000,1048576,0x570000000000
14173,18:04:44.331820,allocate failure,(nil),1125899906842624,0
14172,18:04:44.331852,free,0x10000000000,700,0
14173,18:04:44.331860,allocate,0x10000000000,100,0x1
14172,18:04:44.331879,free,0x10004000000,1048576,0
14172,18:04:44.331900,free,0x10000000000,100,0
";

fn of(action: Action, stream: u16, id: u32, requested_bytes: u64) -> Record {
    Record { action, device: 0, stream, id, requested_bytes }
}

#[test]
fn what_rmm_writes_is_understood() {
    let expected = [
        of(Action::Allocate, 0, 0, 700),
        of(Action::Allocate, 1, 1, 1 << 20),
        of(Action::Free, 0, 0, 0),
        // The same address, and the legacy default stream by its other name.
        of(Action::Allocate, 0, 2, 100),
        // Freed on another stream: it was used there.
        of(Action::RecordStream, 0, 1, 0),
        of(Action::Free, 1, 1, 0),
        of(Action::Free, 0, 2, 0),
    ];
    assert_eq!(read(LOG.as_bytes()).unwrap(), expected);
    let compressed = zstd::encode_all(LOG.as_bytes(), 1).unwrap();
    assert_eq!(read(&compressed[..]).unwrap(), expected);
    assert_eq!(read(LOG.replace('\n', "\r\n").as_bytes()).unwrap(), expected);
    let program = Program::prepare(&expected).unwrap();
    assert_eq!((program.count(Kind::Allocate), program.stream_count), (3, 2));
}

#[test]
fn what_a_trace_has_no_form_for_is_left_out() {
    let log = format!(
        "{HEADER}\n\
         1,0:0,free,0x10,5,0\n\
         1,0:0,allocate,(nil),0,0\n\
         1,0:0,free,(nil),0,0\n\
         \n\
         {HEADER}\n\
         1,0:0,defragment,0x10,5,0\n"
    );
    let expected = [
        of(Action::Allocate, 0, 0, 0),
        of(Action::Free, 0, 0, 0),
        of(Action::Unknown(u8::MAX), 0, 0, 0),
    ];
    assert_eq!(read(log.as_bytes()).unwrap(), expected);
}

#[test]
fn what_is_wrong_is_named_by_its_line() {
    let first = "1,0:0,allocate,0x10,5,0";
    for (line, message) in [
        ("1,0:0,allocate,0x10", "line 3: 4 fields instead of 6"),
        ("1,0:0,allocate,0x20,five,0", "line 3: \"five\" is no size"),
        ("1,0:0,allocate,here,5,0", "line 3: \"here\" is no pointer"),
        ("1,0:0,allocate,0x10,5,0", "line 3: 0x10 is allocated while live"),
        ("1,0:0,allocate,(nil),5,0", "line 3: 5 bytes were allocated at no address"),
    ] {
        let error = read(format!("{HEADER}\n{first}\n{line}\n").as_bytes()).unwrap_err();
        assert_eq!(error.message, message);
    }
    let error = read(&b"Thread,Time\n"[..]).unwrap_err();
    assert!(error.message.starts_with("not a log of RMM's"), "{error}");
}

#[test]
fn a_log_is_of_one_device() {
    let on = |device| Record { device, ..of(Action::Allocate, 0, u32::from(device), 5) };
    assert_eq!(only_device(&[]).unwrap(), 0);
    assert_eq!(only_device(&[on(3), on(3)]).unwrap(), 3);
    assert!(only_device(&[on(0), on(3)]).unwrap_err().message.contains("[0, 3]"));
    let mut log = Vec::new();
    write(&mut log, &[on(0), on(3)], 3).unwrap();
    assert_eq!(read(&log[..]).unwrap().len(), 1);
}

/// A program as a log can express it, with streams numbered as they appear.
fn any_program() -> impl Strategy<Value = Vec<Record>> {
    let steps = prop::collection::vec((any::<prop::sample::Index>(), 0u64..5000, 0u16..4), 0..80);
    steps.prop_map(|steps| {
        let (mut records, mut live, mut streams) = (Vec::new(), Vec::<Record>::new(), Vec::new());
        for (next_id, (index, size, stream)) in (0..).zip(steps) {
            let mut number = |stream| {
                streams.iter().position(|&known| known == stream).unwrap_or_else(|| {
                    streams.push(stream);
                    streams.len() - 1
                }) as u16
            };
            if size % 3 == 0 && !live.is_empty() {
                let freed = live.swap_remove(index.index(live.len()));
                let user = number(stream);
                if user != freed.stream {
                    records.push(of(Action::RecordStream, user, freed.id, 0));
                }
                records.push(of(Action::Free, freed.stream, freed.id, 0));
            } else {
                let allocated = of(Action::Allocate, number(stream), next_id, size + 1);
                live.push(allocated);
                records.push(allocated);
            }
        }
        records
    })
}

/// The same with blocks numbered as they are allocated.
fn renumbered(records: &[Record]) -> Vec<Record> {
    let mut ids = std::collections::HashMap::new();
    let number = |record: &Record| {
        let next = ids.len() as u32;
        Record { id: *ids.entry(record.id).or_insert(next), ..*record }
    };
    records.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_written_is_read_back(records in any_program()) {
        let mut log = Vec::new();
        write(&mut log, &records, 0).unwrap();
        prop_assert_eq!(read(&log[..]).unwrap(), renumbered(&records));
    }

    #[test]
    fn no_lines_make_the_reader_panic(lines in "([0-9a-z(),.x:]{0,40}\n){0,8}") {
        let _ = read(format!("{HEADER}\n{lines}").as_bytes());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&[HEADER.as_bytes(), b"\n", &bytes[..]].concat()[..]);
    }
}
