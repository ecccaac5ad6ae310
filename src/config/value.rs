//! The syntax of values: readers that check them, and writers.
//!
//! A reader takes trimmed text and returns the value, or a sentence that says what is wrong and
//! what is valid. A reader reads back unchanged what its writer writes.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::nearest::nearest;
use super::settings::DebugModes;
use super::strategy::PoolType;
use crate::base::size::{ALIGNMENT_BYTES, LARGEST_REQUEST_BYTES, parse_bytes};

/// The result of a reader.
pub(super) type Read<T> = Result<T, String>;

/// The word for "no limit".
pub(super) const UNLIMITED: &str = "unlimited";
/// The word for "at no time".
pub(super) const NEVER: &str = "never";
/// The word for "not at all".
pub(super) const OFF: &str = "off";
/// The word for "yes".
pub(super) const ON: &str = "on";
/// The word for "the library chooses".
pub(super) const AUTO: &str = "auto";

/// One of `all` by its name, in any case.
pub(super) fn word<T: Copy>(
    text: &str,
    what: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Read<T> {
    if let Some(value) = all.iter().find(|value| name(**value).eq_ignore_ascii_case(text)) {
        return Ok(*value);
    }
    let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
    let mut message = format!("not {what}; valid: {}", names.join(", "));
    if let Some(near) = nearest(text, names.into_iter()) {
        message += &format!(" (did you mean {near}?)");
    }
    Err(message)
}

/// On or off.
pub(super) fn switch(text: &str) -> Read<bool> {
    word(text, "a switch", &[true, false], show_switch)
}

/// What [`switch`] reads back.
pub(super) const fn show_switch(value: bool) -> &'static str {
    if value { ON } else { OFF }
}

/// Yes or no, in the words of torch_memory_saver's variables.
pub(super) fn yes(text: &str) -> Read<bool> {
    let yes = ["1", "true", "yes"].iter().any(|word| word.eq_ignore_ascii_case(text));
    let no = ["0", "false", "no"].iter().any(|word| word.eq_ignore_ascii_case(text));
    if yes || no { Ok(yes) } else { Err("not 1 or 0".to_owned()) }
}

/// The field of a mode.
type ModeField = fn(&mut DebugModes) -> &mut bool;

/// The modes by name.
const DEBUG_MODES: [(&str, ModeField); 4] = [
    ("leaks", |modes| &mut modes.leaks),
    ("poison", |modes| &mut modes.poison),
    ("guard", |modes| &mut modes.guard),
    ("quarantine", |modes| &mut modes.quarantine),
];
/// The word for all modes but guard.
const ALL_MODES: &str = "all";

/// Modes of debugging: their names with commas between them, `all`, or `off`.
pub(super) fn debug_modes(text: &str) -> Read<DebugModes> {
    if is_zero(text) || text.eq_ignore_ascii_case(OFF) {
        return Ok(DebugModes::OFF);
    }
    let mut modes = DebugModes::OFF;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let index = word(part, "a mode", &[0, 1, 2, 3, 4], |index| {
            DEBUG_MODES.get(index).map_or(ALL_MODES, |mode| mode.0)
        });
        match DEBUG_MODES.get(index.map_err(|message| format!("{part} is {message}"))?) {
            Some((_, field)) => *field(&mut modes) = true,
            None => modes = DebugModes { guard: modes.guard, ..DebugModes::ALL },
        }
    }
    Ok(modes)
}

/// What [`debug_modes`] reads back.
pub(super) fn show_debug_modes(mut modes: DebugModes) -> String {
    if !modes.is_any() {
        return OFF.to_owned();
    }
    let on = DEBUG_MODES.iter().filter(|(_, field)| *field(&mut modes)).map(|(name, _)| *name);
    on.collect::<Vec<_>>().join(",")
}

/// A value that may be absent: the word `absent` (in any case) and 0 mean none.
pub(super) fn optional<T>(
    text: &str,
    absent: &str,
    read: impl Fn(&str) -> Read<T>,
) -> Read<Option<T>> {
    if is_zero(text) || text.eq_ignore_ascii_case(absent) {
        return Ok(None);
    }
    read(text).map(Some).map_err(|message| format!("{message}, or {absent}"))
}

/// What [`optional`] reads back.
pub(super) fn show_optional<T>(value: Option<T>, absent: &str, show: fn(T) -> String) -> String {
    value.map_or_else(|| absent.to_owned(), show)
}

/// Returns true if `text` is 0, with or without a unit.
fn is_zero(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end().parse() == Ok(0.0)
}

/// A size, in bytes. A fraction of a byte is an error and not 0.
pub(super) fn bytes(text: &str) -> Read<u64> {
    parse_bytes(text)
        .filter(|value_bytes| *value_bytes > 0 || is_zero(text))
        .ok_or_else(|| "not a size such as 4096, 512KB or 2GB".to_owned())
}

/// A size of at least `least_bytes` and at most the largest possible, in bytes.
pub(super) fn bytes_from(text: &str, least_bytes: u64) -> Read<u64> {
    let value_bytes = bytes(text)?;
    if (least_bytes..=LARGEST_REQUEST_BYTES).contains(&value_bytes) {
        Ok(value_bytes)
    } else {
        let (least, most) = (show_bytes(least_bytes), show_bytes(LARGEST_REQUEST_BYTES));
        Err(format!("not a size from {least} to {most}"))
    }
}

/// A power of two of at least the alignment of pointers, in bytes.
pub(super) fn page_bytes(text: &str) -> Read<u64> {
    let value_bytes = bytes_from(text, ALIGNMENT_BYTES)?;
    if value_bytes.is_power_of_two() {
        Ok(value_bytes)
    } else {
        Err("not a power of two".to_owned())
    }
}

/// A multiple of the alignment of pointers, in bytes.
pub(super) fn aligned_bytes(text: &str) -> Read<u64> {
    let value_bytes = bytes_from(text, ALIGNMENT_BYTES)?;
    if value_bytes % ALIGNMENT_BYTES == 0 {
        Ok(value_bytes)
    } else {
        Err(format!("not a multiple of {ALIGNMENT_BYTES} bytes"))
    }
}

/// The size in the largest unit that divides it.
pub(super) fn show_bytes(value_bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];
    let unit = match value_bytes {
        0 => 0,
        _ => (value_bytes.trailing_zeros() as usize / 10).min(UNITS.len() - 1),
    };
    format!("{}{}", value_bytes >> (10 * unit), UNITS[unit])
}

/// A whole number in `range`.
pub(super) fn whole<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Read<T> {
    match text.parse() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(format!("not a whole number from {} to {}", range.start(), range.end())),
    }
}

/// The exponent of the largest power of two that Round uses.
pub(super) fn cutoff(text: &str) -> Read<u32> {
    whole(text, 9..=46)
}

/// MXNet's names for strategies, with MXNet's meanings.
pub(super) fn mxnet_pool_type(text: &str) -> Read<PoolType> {
    const NAMES: &[(&str, PoolType)] =
        &[("Naive", PoolType::Exact), ("Round", PoolType::Round), ("Unpooled", PoolType::Naive)];
    let read = word(text, "a pool type of MXNet's", NAMES, |(name, _)| name);
    read.map(|(_, pool_type)| pool_type)
}

/// MXNet's switch that turns off all its pools; 0 leaves the pool type `as_it_is`.
pub(super) fn no_pool(as_it_is: PoolType, text: &str) -> Read<PoolType> {
    let is_on = whole(text, 0..=u32::MAX)? != 0;
    Ok(if is_on { PoolType::Naive } else { as_it_is })
}

/// 0 or a power of two.
pub(super) fn divisions(text: &str) -> Read<u32> {
    match text.parse::<u32>() {
        Ok(value) if value == 0 || value.is_power_of_two() => Ok(value),
        _ => Err("not 0 or a power of two".to_owned()),
    }
}

/// A fraction: above 0 and at most 1.
pub(super) fn fraction(text: &str) -> Read<f64> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("not a number above 0 and at most 1".to_owned()),
    }
}

/// A percentage: from 0 to 100.
pub(super) fn percent(text: &str) -> Read<f64> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value.abs()),
        _ => Err("not a number from 0 to 100".to_owned()),
    }
}

/// A time: seconds, above 0 and finite.
pub(super) fn seconds(text: &str) -> Read<f64> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("not a number of seconds above 0".to_owned()),
    }
}
