//! The history's events in JSON: columns of little-endian integers, deflated.
//!
//! A million events as JSON objects would be 200 MB and slow to read. In columns they are a few
//! megabytes, because programs repeat themselves, and a browser reads them without making an object
//! for each. In JSON the events are an object:
//!
//! ```text
//! { "count": 1000000, "deflated": "eJzt…" }      base64 (RFC 4648) of a zlib stream (RFC 1950)
//! ```
//!
//! Inflated, it is the columns time, action, device, stream, address, requested bytes, block bytes,
//! site and name, in this order. Each column begins at a multiple of 8 bytes:
//!
//! ```text
//! u32  width     bytes of a stored value: 0, 1, 2, 4 or 8
//! u32  entries   length of the table, 0 if the column has none
//! u64  table     × entries
//! uN   values    × count, N = 8 · width; all of them 0 where the width is 0; padded to 8 bytes
//! ```
//!
//! With a table, the stored values are indices into it. Addresses always have one, so that a reader
//! can match events of one address without hashing. Times are stored as differences modulo 2^64,
//! the first from 0, so events out of order are kept.
//!
//! Input is not trusted: memory is allocated for a count only after that many values were found,
//! and a stream longer than its count allows is an error.

use std::collections::HashMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::{Action, Event};

const COLUMNS: usize = 9;
const ADDRESSES: usize = 4;
const MOST_EVENTS: u64 = 1 << 27;

/// The events in JSON.
#[derive(Serialize, Deserialize)]
pub struct Packed {
    /// The number of events.
    pub count: u64,
    /// Their columns.
    pub deflated: String,
}

/// For serde's `with`.
pub fn serialize<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    pack(events).serialize(serializer)
}

/// For serde's `with`.
pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    let packed = Packed::deserialize(deserializer)?;
    unpack(&packed).map_err(|error| D::Error::custom(format!("the history's events: {error}")))
}

/// The events in columns.
pub fn pack(events: &[Event]) -> Packed {
    let mut bytes = Vec::new();
    let mut before_ns = 0;
    let times: Vec<u64> = events
        .iter()
        .map(|event| {
            let difference = event.time_ns.wrapping_sub(before_ns);
            before_ns = event.time_ns;
            difference
        })
        .collect();
    write_column(&mut bytes, &times, false);
    let fields: [fn(&Event) -> u64; COLUMNS - 1] = [
        |event| event.action as u64,
        |event| event.device.into(),
        |event| event.stream.into(),
        |event| event.address,
        |event| event.requested_bytes,
        |event| event.block_bytes,
        |event| event.site.into(),
        |event| event.name.into(),
    ];
    for (column, field) in (1..).zip(fields) {
        let values: Vec<u64> = events.iter().map(field).collect();
        write_column(&mut bytes, &values, column == ADDRESSES);
    }
    Packed { count: events.len() as u64, deflated: BASE64.encode(deflate(&bytes)) }
}

/// A zlib stream of `bytes`.
pub fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to a vector does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The events in `packed`, or the error in it.
pub fn unpack(packed: &Packed) -> Result<Vec<Event>, String> {
    if packed.count > MOST_EVENTS {
        return Err(format!("{} of them are more than can be read", packed.count));
    }
    let count = packed.count as usize;
    let deflated = BASE64.decode(&packed.deflated).map_err(|error| error.to_string())?;
    // A column is a header, a table no longer than the values, and the values.
    let most_bytes = COLUMNS as u64 * (16 + 16 * packed.count);
    let mut bytes = Vec::new();
    let inflated = ZlibDecoder::new(deflated.as_slice()).take(most_bytes + 1);
    { inflated }.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let mut reader = Reader { bytes: &bytes, count };
    let mut columns = Vec::with_capacity(COLUMNS);
    for _ in 0..COLUMNS {
        columns.push(reader.column()?);
    }
    if !reader.bytes.is_empty() {
        return Err("there is more than the columns".to_owned());
    }
    let mut time_ns = 0_u64;
    let mut events = Vec::with_capacity(count);
    for row in 0..count {
        let value = |column: usize| columns[column].get(row);
        let narrow = |column: usize| {
            u32::try_from(value(column)).map_err(|_| format!("number {row} is out of range"))
        };
        time_ns = time_ns.wrapping_add(value(0));
        let action = u8::try_from(value(1)).ok().and_then(Action::from_number);
        events.push(Event {
            time_ns,
            action: action.ok_or_else(|| format!("number {row} has an unknown action"))?,
            device: narrow(2)?,
            stream: narrow(3)?,
            address: value(ADDRESSES),
            requested_bytes: value(5),
            block_bytes: value(6),
            site: narrow(7)?,
            name: narrow(8)?,
        });
    }
    Ok(events)
}

fn write_column(bytes: &mut Vec<u8>, values: &[u64], always_table: bool) {
    let plain_width = width_of(values.iter().copied().max().unwrap_or(0));
    let mut index_of = HashMap::new();
    let mut table = Vec::new();
    // For narrow columns a table would save nothing.
    let mut indices = Vec::new();
    if always_table || plain_width > 1 {
        indices.extend(values.iter().map(|&value| {
            *index_of.entry(value).or_insert_with(|| {
                table.push(value);
                table.len() as u64 - 1
            })
        }));
    }
    let index_width = width_of((table.len() as u64).saturating_sub(1));
    let with_table = 8 * table.len() + index_width * values.len();
    if always_table || (!table.is_empty() && with_table < plain_width * values.len()) {
        write_header(bytes, index_width, table.len());
        bytes.extend(table.iter().flat_map(|value| value.to_le_bytes()));
        write_values(bytes, index_width, &indices);
    } else {
        write_header(bytes, plain_width, 0);
        write_values(bytes, plain_width, values);
    }
}

fn write_header(bytes: &mut Vec<u8>, width: usize, entries: usize) {
    bytes.extend((width as u32).to_le_bytes());
    bytes.extend((entries as u32).to_le_bytes());
}

fn write_values(bytes: &mut Vec<u8>, width: usize, values: &[u64]) {
    for value in values {
        bytes.extend(&value.to_le_bytes()[..width]);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// The narrowest of the widths that holds values up to `largest`.
fn width_of(largest: u64) -> usize {
    match largest {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    count: usize,
}

struct Column<'b> {
    width: usize,
    values: &'b [u8],
    table: Vec<u64>,
}

impl<'b> Reader<'b> {
    fn column(&mut self) -> Result<Column<'b>, String> {
        let width = number(self.take(4)?) as usize;
        let entries = number(self.take(4)?) as usize;
        if ![0, 1, 2, 4, 8].contains(&width) {
            return Err(format!("a column of values of {width} bytes"));
        }
        let table: Vec<u64> = self.take(8 * entries)?.chunks_exact(8).map(number).collect();
        let values = self.take((width * self.count).next_multiple_of(8))?;
        let column = Column { width, values, table };
        let is_inside = |row| column.stored(row) < entries as u64;
        if entries > 0 && !(0..self.count).all(is_inside) {
            return Err("a column points outside its table".to_owned());
        }
        Ok(column)
    }

    fn take(&mut self, bytes: usize) -> Result<&'b [u8], String> {
        let (taken, rest) =
            self.bytes.split_at_checked(bytes).ok_or("the columns end too early")?;
        self.bytes = rest;
        Ok(taken)
    }
}

impl Column<'_> {
    fn stored(&self, row: usize) -> u64 {
        number(&self.values[row * self.width..(row + 1) * self.width])
    }

    fn get(&self, row: usize) -> u64 {
        let stored = self.stored(row);
        if self.table.is_empty() { stored } else { self.table[stored as usize] }
    }
}

/// Up to eight bytes, little-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn event()(
            time_ns in any::<u64>(), action in 1..=17_u8, device in any::<u32>(),
            stream in 0..3_u32, address in prop_oneof![0..9_u64, any::<u64>()],
            requested_bytes in any::<u64>(), block_bytes in 0..5_u64, site in 0..300_u32,
            name in any::<u32>(),
        ) -> Event {
            let action = Action::from_number(action).unwrap();
            Event { time_ns, action, device, stream, address, requested_bytes, block_bytes,
                    site, name }
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(events in prop::collection::vec(event(), 0..200)) {
            prop_assert_eq!(unpack(&pack(&events)).unwrap(), events);
        }

        /// Arbitrary columns are an error or events.
        #[test]
        fn nonsense_is_survived(
            count in prop_oneof![0..40_u64, any::<u64>()],
            mut words in prop::collection::vec(prop_oneof![0..3_u64, any::<u64>()], 0..60),
            widths in prop::collection::vec(0..9_u64, 9),
        ) {
            for (word, width) in words.iter_mut().step_by(5).zip(widths) {
                *word = width;
            }
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let packed = Packed { count, deflated: BASE64.encode(deflate(&bytes)) };
            if let Ok(events) = unpack(&packed) {
                prop_assert_eq!(events.len() as u64, count);
            }
        }
    }

    #[test]
    fn a_stream_longer_than_its_events_is_refused() {
        let deflated = BASE64.encode(deflate(&vec![0; 1 << 24]));
        assert!(unpack(&Packed { count: 1, deflated }).is_err());
    }

    #[test]
    fn repetition_is_cheap() {
        let event = |n: u64| Event {
            time_ns: n * 1000,
            action: Action::Allocate,
            address: 0x7f00_0000_0000 + (n % 1000) * 512,
            requested_bytes: 500,
            block_bytes: 512,
            ..Event::default()
        };
        let events: Vec<Event> = (0..100_000).map(event).collect();
        let packed = pack(&events);
        assert!(packed.deflated.len() < 20_000, "{}", packed.deflated.len());
    }
}
