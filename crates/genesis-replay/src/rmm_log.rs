//! RMM's log of allocations, as `rmm.mr.LoggingResourceAdaptor` writes it: reading and writing.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 14172,18:04:44.331580,allocate,0x10000000000,700,0
//! 14172,18:04:44.331852,free,0x10000000000,700,0x570000000000
//! ```
//!
//! A log read becomes records:
//!
//! | in the log | as records |
//! |---|---|
//! | a pointer, from its allocation to its free | a block with a number of its own |
//! | a stream's handle | a number, in order of appearance |
//! | a free on another stream than the block's own | a use on that stream, then the free |
//! | a failed request; a free of a block allocated before the log began | nothing |
//! | an action of another name | an unknown record |
//! | thread, time | nothing |
//!
//! All is on device 0, because RMM writes a file for each device.
//!
//! A log written has made-up addresses, a tebibyte apart, and counts microseconds instead of
//! telling the time. The free of a block names the last stream that used it. Emptied caches and
//! ends of iterations are left out.
//!
//! No input makes the reader panic. An error names the line that is wrong.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use crate::error::{Error, Result};
use crate::record::{Action, Record, Recovered};

/// The first line of every log.
pub const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// The operation that stands for actions of a name unknown to this reader.
const UNKNOWN_ACTION: Action = Action::Unknown(u8::MAX);
/// How a log writes a null pointer, and the default stream.
const NOTHING: [&str; 3] = ["(nil)", "0x0", "0"];
/// The other handle of the legacy default stream.
const LEGACY_STREAM: &str = "0x1";
/// How far apart the addresses of a written log are, as a power of two.
const ADDRESS_SHIFT: u32 = 40;
/// The same for handles of streams.
const STREAM_SHIFT: u32 = 12;

/// Reads a log after its header line, up to its damage if it is damaged.
pub(crate) fn recover(input: impl BufRead) -> Recovered {
    let mut reader = Reader::default();
    for (number, line) in (2..).zip(input.lines()) {
        let read = line.map_err(|error| error.to_string()).and_then(|line| reader.add(&line));
        if let Err(message) = read {
            let damage = Some(Error::usage(format!("line {number}: {message}")));
            return Recovered { records: reader.records, damage };
        }
    }
    Recovered { records: reader.records, damage: None }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    records: Vec<Record>,
    /// By their pointers: number, stream and size.
    live: HashMap<u64, Record>,
    streams: HashMap<String, u16>,
    next_id: u32,
}

impl Reader {
    fn add(&mut self, line: &str) -> std::result::Result<(), String> {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || line == HEADER {
            return Ok(()); // a log that was appended to
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [_thread, _time, action, pointer, size, stream] = fields[..] else {
            return Err(format!("{} fields instead of 6", fields.len()));
        };
        let size = size.parse().map_err(|_| format!("{size:?} is no size"))?;
        match action {
            "allocate" => self.allocate(address(pointer)?, size, stream),
            "free" => {
                self.free(address(pointer)?, stream);
                Ok(())
            }
            "allocate failure" => Ok(()),
            _ => {
                let (device, stream, id) = (0, 0, 0);
                let record =
                    Record { action: UNKNOWN_ACTION, device, stream, id, requested_bytes: 0 };
                self.records.push(record);
                Ok(())
            }
        }
    }

    fn allocate(
        &mut self,
        address: u64,
        size: u64,
        stream: &str,
    ) -> std::result::Result<(), String> {
        if address == 0 && size != 0 {
            return Err(format!("{size} bytes were allocated at no address"));
        }
        let stream = self.number_stream(stream);
        let id = self.next_id;
        self.next_id = id.checked_add(1).ok_or("more allocations than can be counted")?;
        let action = Action::Allocate;
        let record = Record { action, device: 0, stream, id, requested_bytes: size };
        self.records.push(record);
        if address == 0 {
            // A log never frees it. Freed here, empty blocks do not pile up in the trace.
            self.records.push(free_of(record));
        } else if self.live.insert(address, record).is_some() {
            return Err(format!("{address:#x} is allocated while live"));
        }
        Ok(())
    }

    fn free(&mut self, address: u64, stream: &str) {
        let stream = self.number_stream(stream);
        let Some(allocated) = self.live.remove(&address) else { return };
        if stream != allocated.stream {
            let action = Action::RecordStream;
            self.records.push(Record { action, stream, requested_bytes: 0, ..allocated });
        }
        self.records.push(free_of(allocated));
    }

    fn number_stream(&mut self, stream: &str) -> u16 {
        let is_default = NOTHING.contains(&stream) || stream == LEGACY_STREAM;
        let name = if is_default { NOTHING[0] } else { stream };
        // Beyond what can be numbered, the rest share a number.
        let next = u16::try_from(self.streams.len()).unwrap_or(u16::MAX);
        *self.streams.entry(name.to_owned()).or_insert(next)
    }
}

fn free_of(allocated: Record) -> Record {
    Record { action: Action::Free, requested_bytes: 0, ..allocated }
}

fn address(pointer: &str) -> std::result::Result<u64, String> {
    if NOTHING.contains(&pointer) {
        return Ok(0);
    }
    let digits = pointer.strip_prefix("0x").unwrap_or(pointer);
    u64::from_str_radix(digits, 16).map_err(|_| format!("{pointer:?} is no pointer"))
}

/// Writes the records of `device` as a log.
pub fn write(output: &mut impl Write, records: &[Record], device: u8) -> std::io::Result<()> {
    writeln!(output, "{HEADER}")?;
    let mut writer = Writer::default();
    for record in records.iter().filter(|record| record.device == device) {
        writer.add(output, record)?;
    }
    Ok(())
}

/// The device of all blocks in `records`; an error if there are several.
pub fn only_device(records: &[Record]) -> Result<u8> {
    let mut devices: Vec<u8> = records
        .iter()
        .filter(|record| record.action == Action::Allocate)
        .map(|record| record.device)
        .collect();
    devices.sort_unstable();
    devices.dedup();
    match devices[..] {
        [] => Ok(0),
        [device] => Ok(device),
        _ => Err(Error::usage(format!(
            "a log is of one device, and the trace of {devices:?}: choose one"
        ))),
    }
}

/// The state of a log that is being written.
#[derive(Default)]
struct Writer {
    /// Of each live block: its place, its size, and the stream that used it last.
    live: HashMap<u32, (u64, u64, u16)>,
    empty_places: Vec<u64>,
    places: u64,
    lines: u64,
}

impl Writer {
    fn add(&mut self, output: &mut impl Write, record: &Record) -> std::io::Result<()> {
        match record.action {
            Action::Allocate => {
                let place = self.empty_places.pop().unwrap_or_else(|| {
                    self.places += 1;
                    self.places
                });
                let block = (place, record.requested_bytes, record.stream);
                self.live.insert(record.id, block);
                self.line(output, "allocate", block)
            }
            Action::RecordStream => {
                if let Some(block) = self.live.get_mut(&record.id) {
                    block.2 = record.stream;
                }
                Ok(())
            }
            Action::Free => match self.live.remove(&record.id) {
                Some(block) => {
                    self.empty_places.push(block.0);
                    self.line(output, "free", block)
                }
                None => Ok(()),
            },
            Action::EmptyCache | Action::IterationEnd | Action::Unknown(_) => Ok(()),
        }
    }

    fn line(
        &mut self,
        output: &mut impl Write,
        action: &str,
        (place, size, stream): (u64, u64, u16),
    ) -> std::io::Result<()> {
        let seconds = self.lines / 1_000_000;
        let time = [seconds / 3600, seconds / 60 % 60, seconds % 60, self.lines % 1_000_000];
        self.lines += 1;
        write!(output, "0,{:02}:{:02}:{:02}.{:06},{action},", time[0], time[1], time[2], time[3])?;
        match size {
            0 => write!(output, "(nil)")?,
            _ => write!(output, "{:#x}", place << ADDRESS_SHIFT)?,
        }
        match stream {
            0 => writeln!(output, ",{size},0"),
            stream => writeln!(output, ",{size},{:#x}", u64::from(stream) << STREAM_SHIFT),
        }
    }
}
