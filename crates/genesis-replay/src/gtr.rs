//! GTR1, the file format of recorded traces.
//!
//! The five bytes `GTR1\n`, then records of 16 bytes, little-endian:
//! `u8 op, u8 device, u16 stream, u32 id, u64 size`. A file may be compressed with Zstandard, in
//! one frame or, as the library's recorder writes it, in one for each piece. The format grows by
//! new operations and never by another layout of records, so an operation that this reader does
//! not know is kept as [`Action::Unknown`] (a replay skips and counts them). Operation 0 is never
//! assigned: a file that has it is damaged, and is refused.
//!
//! The first bytes of a file, not its name, decide how it is read: as a trace, as a compressed one,
//! or as a log of RMM's ([`crate::rmm_log`]).
//!
//! No input makes the reader panic. An error names the offset, in the uncompressed stream, of
//! the first byte that is wrong. [`crate::program`] checks that the records make sense together.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};
pub use crate::record::{Action, Record, Recovered};
use crate::rmm_log;

/// The start of every uncompressed trace.
const MAGIC: &[u8; 5] = b"GTR1\n";
/// The start of a Zstandard frame.
const ZSTD_MAGIC: &[u8; 4] = &[0x28, 0xB5, 0x2F, 0xFD];
/// The size of a record, in bytes.
const RECORD_BYTES: usize = 16;
/// Zstandard's level for writing: traces are written once and read often.
const ZSTD_LEVEL: i32 = 19;

/// Reads the trace in `path`, which must be whole.
pub fn read_file(path: &Path) -> Result<Vec<Record>> {
    recover_file(path)?.whole()
}

/// Reads the trace in `path`, up to its damage if it is damaged. A file that is no trace, or is
/// damaged before its first record, is an error.
pub fn recover_file(path: &Path) -> Result<Recovered> {
    let named = |error: Error| Error { message: format!("{}: {error}", path.display()), ..error };
    let file = File::open(path).map_err(|error| named(Error::usage(error.to_string())))?;
    let recovered = recover(BufReader::new(file)).map_err(named)?;
    Ok(Recovered { damage: recovered.damage.map(named), ..recovered })
}

/// Reads a trace, plain or compressed, which must be whole.
pub fn read(input: impl Read) -> Result<Vec<Record>> {
    recover(input)?.whole()
}

fn recover(mut input: impl Read) -> Result<Recovered> {
    let mut start = [0; ZSTD_MAGIC.len()];
    let start_bytes = fill(&mut input, &mut start, 0)?;
    let whole = (&start[..start_bytes]).chain(input);
    if start == *ZSTD_MAGIC {
        let decoder = zstd::Decoder::new(whole).map_err(|error| unreadable(&error, 0))?;
        read_plain(BufReader::new(decoder))
    } else {
        read_plain(BufReader::new(whole))
    }
}

fn read_plain(mut input: impl BufRead) -> Result<Recovered> {
    let mut magic = [0; MAGIC.len()];
    fill(&mut input, &mut magic, 0)?;
    if rmm_log::HEADER.as_bytes().starts_with(&magic) {
        return read_log(&magic, input);
    }
    if magic != *MAGIC {
        return Err(Error::usage("not a trace: it does not start with \"GTR1\""));
    }
    let mut recovered = Recovered::default();
    let mut offset = MAGIC.len() as u64;
    loop {
        match read_record(&mut input, offset) {
            Ok(Some(record)) => recovered.records.push(record),
            Ok(None) => return Ok(recovered),
            Err(damage) if recovered.records.is_empty() => return Err(damage),
            Err(damage) => return Ok(Recovered { damage: Some(damage), ..recovered }),
        }
        offset += RECORD_BYTES as u64;
    }
}

/// Reads a log whose first bytes, `start`, have been read.
fn read_log(start: &[u8], mut input: impl BufRead) -> Result<Recovered> {
    let mut header = start.to_vec();
    input.read_until(b'\n', &mut header).map_err(|error| unreadable(&error, 0))?;
    if header.trim_ascii_end() != rmm_log::HEADER.as_bytes() {
        let line = format!("not a log of RMM's: its first line is not {:?}", rmm_log::HEADER);
        return Err(Error::usage(line));
    }
    let recovered = rmm_log::recover(input);
    match recovered.damage {
        Some(damage) if recovered.records.is_empty() => Err(damage),
        damage => Ok(Recovered { damage, ..recovered }),
    }
}

/// The record at `offset`, or `None` at the end of the trace.
fn read_record(input: &mut impl Read, offset: u64) -> Result<Option<Record>> {
    let mut bytes = [0; RECORD_BYTES];
    match fill(input, &mut bytes, offset)? {
        0 => Ok(None),
        RECORD_BYTES => decode(&bytes, offset).map(Some),
        partial => Err(Error::usage(format!(
            "truncated at byte {offset}: {partial} of the record's {RECORD_BYTES} bytes"
        ))),
    }
}

/// Reads until `buffer` is full or the input ends; returns how many bytes were read.
fn fill(input: &mut impl Read, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error, offset + filled as u64)),
        }
    }
    Ok(filled)
}

fn unreadable(error: &std::io::Error, offset: u64) -> Error {
    Error::usage(format!("damaged at byte {offset}: {error}"))
}

fn decode(bytes: &[u8; RECORD_BYTES], offset: u64) -> Result<Record> {
    let [op, device, s0, s1, i0, i1, i2, i3, size @ ..] = *bytes;
    let action = Action::from_number(op)
        .ok_or_else(|| Error::usage(format!("damaged at byte {offset}: operation 0")))?;
    Ok(Record {
        action,
        device,
        stream: u16::from_le_bytes([s0, s1]),
        id: u32::from_le_bytes([i0, i1, i2, i3]),
        requested_bytes: u64::from_le_bytes(size),
    })
}

/// Writes `records` to `path`, compressed when its name ends in `.zst`.
pub fn write_file(path: &Path, records: &[Record]) -> std::io::Result<()> {
    let mut output = BufWriter::new(File::create(path)?);
    if path.extension().is_some_and(|extension| extension == "zst") {
        let mut encoder = zstd::Encoder::new(&mut output, ZSTD_LEVEL)?;
        write(&mut encoder, records)?;
        encoder.finish()?;
    } else {
        write(&mut output, records)?;
    }
    output.flush()
}

/// Writes a plain trace.
pub fn write(output: &mut impl Write, records: &[Record]) -> std::io::Result<()> {
    output.write_all(MAGIC)?;
    records.iter().try_for_each(|record| output.write_all(&encode(record)))
}

fn encode(record: &Record) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = record.action.number();
    bytes[1] = record.device;
    bytes[2..4].copy_from_slice(&record.stream.to_le_bytes());
    bytes[4..8].copy_from_slice(&record.id.to_le_bytes());
    bytes[8..].copy_from_slice(&record.requested_bytes.to_le_bytes());
    bytes
}
