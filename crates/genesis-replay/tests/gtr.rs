//! The trace format: what is written is read back, and no bytes make the reader panic.

use genesis_replay::gtr::{Action, Record, read, read_file, recover_file, write, write_file};
use genesis_replay::program::{IterationEnd, Kind, Program};
use proptest::prelude::*;

fn record(action: Action, stream: u16, id: u32, requested_bytes: u64) -> Record {
    Record { action, device: 0, stream, id, requested_bytes }
}

fn any_record() -> impl Strategy<Value = Record> {
    let action = prop_oneof![
        Just(Action::Allocate),
        Just(Action::Free),
        Just(Action::RecordStream),
        Just(Action::EmptyCache),
        Just(Action::IterationEnd),
        (6u8..).prop_map(Action::Unknown),
    ];
    (action, any::<u8>(), any::<u16>(), 0u32..6, any::<u64>()).prop_map(
        |(action, device, stream, id, requested_bytes)| Record {
            action,
            device,
            stream,
            id,
            requested_bytes,
        },
    )
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, records).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_written_is_read_back(records in prop::collection::vec(any_record(), 0..50)) {
        let plain = written(&records);
        prop_assert_eq!(plain.len(), 5 + 16 * records.len());
        prop_assert_eq!(&read(&plain[..]).unwrap(), &records);
        let compressed = zstd::encode_all(&plain[..], 1).unwrap();
        prop_assert_eq!(&read(&compressed[..]).unwrap(), &records);
    }

    #[test]
    fn frames_in_a_row_are_one_trace(
        records in prop::collection::vec(any_record(), 0..50),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let plain = written(&records);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(plain.len())).collect();
        cuts.extend([0, plain.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &plain[ends[0]..ends[1]]);
        let frames: Vec<u8> =
            pieces.flat_map(|piece| zstd::encode_all(piece, 1).unwrap()).collect();
        prop_assert_eq!(&read(&frames[..]).unwrap(), &records);
    }

    #[test]
    fn every_truncation_is_an_error(
        records in prop::collection::vec(any_record(), 1..20), cut in any::<prop::sample::Index>(),
    ) {
        let plain = written(&records);
        let kept = cut.index(plain.len());
        match read(&plain[..kept]) {
            Ok(fewer) => prop_assert_eq!((kept - 5) % 16, 0, "{} records", fewer.len()),
            Err(error) => prop_assert!(error.is_usage),
        }
        let compressed = zstd::encode_all(&plain[..], 1).unwrap();
        prop_assert!(read(&compressed[..cut.index(compressed.len())]).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), start in 0..3,
    ) {
        let magic: &[u8] = [&b""[..], b"GTR1\n", &[0x28, 0xB5, 0x2F, 0xFD]][start as usize];
        let whole = [magic, &bytes].concat();
        if let Ok(records) = read(&whole[..]) {
            let _ = Program::prepare(&records);
        }
    }

    #[test]
    fn no_records_make_the_preparation_panic(
        records in prop::collection::vec(any_record(), 0..60),
    ) {
        if let Ok(program) = Program::prepare(&records) {
            check_invariants(&program);
        }
    }
}

/// The promises of a prepared program, checked by walking through it.
fn check_invariants(program: &Program) {
    let mut slots = vec![None; program.slot_count];
    for call in program.calls.iter().chain(&program.leftovers) {
        assert!(usize::from(call.stream) < program.stream_count);
        assert!(usize::from(call.device) < program.device_count);
        if call.kind == Kind::EmptyCache {
            continue;
        }
        let slot = &mut slots[call.slot as usize];
        match call.kind {
            Kind::Allocate => assert_eq!(slot.replace(*call), None, "slot taken twice"),
            Kind::Free => {
                let allocation = slot.take().expect("freed while empty");
                assert_eq!(allocation.requested_bytes, call.requested_bytes);
                assert_eq!((allocation.device, allocation.stream), (call.device, call.stream));
            }
            _ => assert!(slot.is_some(), "recorded while empty"),
        }
    }
    assert!(slots.iter().all(Option::is_none));
    assert!(program.live_peak_bytes <= program.live_peak_rounded_bytes);
}

#[test]
fn slots_are_reused_and_peaks_are_those_of_the_live_set() {
    let program = Program::prepare(&[
        record(Action::Allocate, 0, 10, 1000),
        record(Action::Allocate, 7, 11, 1),
        record(Action::Free, 0, 10, 0),
        record(Action::Allocate, 0, 12, 600),
        record(Action::RecordStream, 9, 12, 0),
        record(Action::IterationEnd, 0, 0, 0),
        record(Action::Unknown(77), 0, 0, 0),
        record(Action::EmptyCache, 0, 0, 0),
    ])
    .unwrap();
    check_invariants(&program);
    assert_eq!((program.slot_count, program.stream_count, program.device_count), (2, 3, 1));
    assert_eq!((program.live_peak_bytes, program.live_peak_rounded_bytes), (1001, 1024 + 512));
    assert_eq!(program.iteration_ends, [IterationEnd { calls: 5, number: 0 }]);
    assert_eq!(program.unknown_records, 1);
    let streams: Vec<_> = program.calls.iter().map(|call| call.stream).collect();
    assert_eq!(streams, [0, 1, 0, 0, 2, 0]);
    assert_eq!(program.calls[3].slot, program.calls[0].slot);
    assert_eq!(program.leftovers.len(), 2);
}

#[test]
fn mistakes_are_refused_with_their_place() {
    let allocate = record(Action::Allocate, 0, 1, 8);
    for (records, message) in [
        (vec![record(Action::Free, 0, 1, 0)], "record 0: block 1 is freed while not live"),
        (
            vec![allocate, record(Action::Free, 0, 1, 0), record(Action::RecordStream, 1, 1, 0)],
            "record 2: block 1 is used on a stream while not live",
        ),
        (vec![allocate, allocate], "record 1: block 1 is allocated while live"),
        (
            vec![record(Action::Allocate, 0, 1, u64::MAX)],
            "record 0: more bytes are live than 64 bits can count",
        ),
    ] {
        assert_eq!(Program::prepare(&records).unwrap_err().message, message);
    }
    let half = |device, id| Record { device, ..record(Action::Allocate, 0, id, 1 << 63) };
    let error = Program::prepare(&[half(0, 1), half(1, 2)]).unwrap_err();
    assert_eq!(error.message, "record 1: more bytes are live than 64 bits can count");
    let mut bytes = written(&[allocate, allocate]);
    for (bytes, message) in [
        (b"GTR2\n".to_vec(), "not a trace: it does not start with \"GTR1\""),
        (bytes[..30].to_vec(), "truncated at byte 21: 9 of the record's 16 bytes"),
        (
            {
                bytes[21] = 0;
                bytes
            },
            "damaged at byte 21: operation 0",
        ),
    ] {
        assert_eq!(read(&bytes[..]).unwrap_err().message, message);
    }
}

/// What a crash leaves: pieces that were written whole, and a part of the next.
#[test]
fn what_stands_before_the_damage_can_be_recovered() {
    let records: Vec<Record> = (0..1000).map(|id| record(Action::Allocate, 0, id, 8)).collect();
    let plain = written(&records);
    let (first, second) = plain.split_at(5 + 16 * 600);
    let frame = |piece| zstd::encode_all(piece, 1).unwrap();
    let (frames, torn) = (frame(first), frame(second));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("torn.gtr");
    for (whole, torn) in [(first, second), (&frames[..], &torn[..])] {
        for kept in [1, torn.len() / 2 + 1, torn.len() - 1] {
            std::fs::write(&path, [whole, &torn[..kept]].concat()).unwrap();
            let recovered = recover_file(&path).unwrap();
            assert!(recovered.records.len() >= 600);
            assert_eq!(recovered.records, records[..recovered.records.len()]);
            let damage = recovered.damage.expect("it ends in the middle");
            assert_eq!(read_file(&path).unwrap_err(), damage);
            assert!(damage.message.contains("torn.gtr: "), "{damage}");
        }
        std::fs::write(&path, whole).unwrap();
        let recovered = recover_file(&path).unwrap();
        assert_eq!((recovered.records.len(), recovered.damage), (600, None));
    }
    for hopeless in [&b"nothing of the kind"[..], &plain[..20], &frames[..20]] {
        std::fs::write(&path, hopeless).unwrap();
        assert!(recover_file(&path).is_err());
    }
}

#[test]
fn files_are_compressed_by_name_and_read_by_content() {
    let records = vec![record(Action::Allocate, 0, 1, 8); 1000];
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (plain, compressed) = (folder.join("plain.gtr"), folder.join("trace.gtr.zst"));
    write_file(&plain, &records).unwrap();
    write_file(&compressed, &records).unwrap();
    assert!(compressed.metadata().unwrap().len() < plain.metadata().unwrap().len() / 10);
    // Under the wrong name it reads all the same.
    let disguised = folder.join("disguised.gtr");
    std::fs::rename(&compressed, &disguised).unwrap();
    assert_eq!(read_file(&plain).unwrap(), records);
    assert_eq!(read_file(&disguised).unwrap(), records);
    let error = read_file(&folder.join("missing.gtr")).unwrap_err();
    assert!(error.is_usage && error.message.contains("missing.gtr: "), "{error}");
}

#[test]
fn every_recorded_trace_is_what_its_description_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let description = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "zst") {
            continue;
        }
        let program = Program::prepare(&read_file(&path).unwrap()).unwrap();
        check_invariants(&program);
        assert_eq!((program.unknown_records, program.device_count), (0, 1));
        let row = format!(
            "| {} | {} | {} | {} |",
            program.calls.len(),
            program.iteration_ends.len(),
            program.stream_count,
            program.live_peak_bytes.div_ceil(1 << 20),
        );
        let name = format!("| `{}` |", genesis_replay::job::trace_name(&path));
        let line = description.lines().find(|line| line.starts_with(&name));
        assert!(line.is_some_and(|line| line.ends_with(&row)), "{name} … {row}: {line:?}");
        count += 1;
    }
    assert_eq!(count, 8);
}
