//! A plan as a text, a line for each thing that was held:
//!
//! ```text
//! genesis plan 3
//! version 0.1.0
//! rank none                                   or a number
//! program python train.py                     its command line
//! device 0 Elastic 85899345920 2097152 64424509440 usual NVIDIA H100 80GB HBM3
//!                                             memory, granule and live peak in bytes; whether extents
//!                                             are to be finer; its name
//! lane 64424509440 61 12 12 rising ahead              its levels
//! area large 34359738368                      of that lane, in order
//! segment large 20971520                      of that lane, by address
//! extent 33554432 0 0:0:4096 0:1:0            bytes, home view, views: lane, area, offset
//! end
//! ```
//!
//! Whoever reads a file trusts none of it: each number is read with a limit or checked afterwards
//! ([`DevicePlan::check`]), and a text that ends early has no `end`.

use std::fmt::Write;
use std::str::{FromStr, SplitWhitespace};

use crate::base::DeviceOrdinal;
use crate::base::size::SizeClass;
use crate::config::PoolType;
use crate::heap::{DeviceModel, DevicePlan, ExtentPlan, LanePlan, Levels, ViewPlan};

const FIRST_LINE: &str = "genesis plan 3";
const LAST_LINE: &str = "end";
const NO_RANK: &str = "none";

/// Which process of which program a plan is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The library's version.
    pub(super) version: String,
    /// Its number among the program's processes on the machine.
    pub(super) rank: Option<u64>,
    /// The program's command line.
    pub(super) program: String,
}

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) identity: Identity,
    pub(super) devices: Vec<DevicePlan>,
}

type Read<T> = Result<T, String>;

impl Identity {
    /// Why it is not `here`, if it is not.
    pub(super) fn difference(&self, here: &Self) -> Option<String> {
        let pairs = [
            ("version", self.version.clone(), here.version.clone()),
            ("rank", show_rank(self.rank), show_rank(here.rank)),
            ("program", self.program.clone(), here.program.clone()),
        ];
        let differs = |(_, one, other): &(&str, String, String)| one != other;
        let (what, one, other) = pairs.into_iter().find(differs)?;
        Some(format!("it is of {what} `{one}`, and this is `{other}`"))
    }
}

impl Plan {
    /// The text of the plan.
    pub(super) fn text(&self) -> String {
        let Identity { version, rank, program } = &self.identity;
        let rank = show_rank(*rank);
        let mut text = format!("{FIRST_LINE}\nversion {version}\nrank {rank}\nprogram {program}\n");
        for device in &self.devices {
            // Writing to a text cannot fail.
            let _ = write_device(&mut text, device);
        }
        text + LAST_LINE + "\n"
    }

    /// The plan in a text; the error names the line that is wrong.
    pub(super) fn of_text(text: &str) -> Read<Self> {
        let mut plan = Self::default();
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
            return Err("it is no plan of this version of the format".to_owned());
        }
        for (number, line) in lines {
            if line == LAST_LINE {
                for device in &plan.devices {
                    device.check().map_err(|error| format!("device {}: {error}", device.device))?;
                }
                return Ok(plan);
            }
            plan.read_line(line).map_err(|error| format!("line {number}: {error}"))?;
        }
        Err("it ends early".to_owned())
    }

    fn read_line(&mut self, line: &str) -> Read<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split_whitespace();
        match word {
            "version" => rest.clone_into(&mut self.identity.version),
            "rank" if rest == NO_RANK => self.identity.rank = None,
            "rank" => self.identity.rank = Some(next(&mut words)?),
            "program" => rest.clone_into(&mut self.identity.program),
            "device" => self.devices.push(read_device(&mut words)?),
            "lane" => self.device()?.lanes.push(read_lane(&mut words)?),
            "area" => self.lane()?.areas.push(read_piece(&mut words)?),
            "segment" => self.lane()?.segments.push(read_piece(&mut words)?),
            "extent" => self.device()?.extents.push(read_extent(&mut words)?),
            _ => return Err(format!("`{word}` begins no line of a plan")),
        }
        Ok(())
    }

    fn device(&mut self) -> Read<&mut DevicePlan> {
        self.devices.last_mut().ok_or_else(|| "no device before it".to_owned())
    }

    fn lane(&mut self) -> Read<&mut LanePlan> {
        self.device()?.lanes.last_mut().ok_or_else(|| "no lane before it".to_owned())
    }
}

fn write_device(text: &mut String, device: &DevicePlan) -> std::fmt::Result {
    let DeviceModel { name, total_bytes, pool_type, granule_bytes } = &device.model;
    let (ordinal, pool_type, peak) = (device.device, pool_type.name(), device.peak_bytes);
    let sizes = word(device.needs_finer, SIZES);
    write!(text, "device {ordinal} {pool_type} {total_bytes} {granule_bytes} {peak} ")?;
    writeln!(text, "{sizes} {name}")?;
    for lane in &device.lanes {
        let Levels { peak, high, low, usual, is_falling, is_ahead } = lane.levels;
        let (direction, place) = (word(is_falling, DIRECTIONS), word(is_ahead, PLACES));
        writeln!(text, "lane {peak} {high} {low} {usual} {direction} {place}")?;
        for (kind, pieces) in [("area", &lane.areas), ("segment", &lane.segments)] {
            for (class, bytes) in pieces {
                writeln!(text, "{kind} {} {bytes}", word(*class == SizeClass::Large, CLASSES))?;
            }
        }
    }
    for ExtentPlan { bytes, views, home_view } in &device.extents {
        write!(text, "extent {bytes} {home_view}")?;
        for ViewPlan { lane, area, offset_bytes } in views {
            write!(text, " {lane}:{area}:{offset_bytes}")?;
        }
        text.push('\n');
    }
    Ok(())
}

/// The words for no and yes.
type Words = [&'static str; 2];
const DIRECTIONS: Words = ["rising", "falling"];
const PLACES: Words = ["past", "ahead"];
const CLASSES: Words = ["small", "large"];
const SIZES: Words = ["usual", "finer"];

fn word(value: bool, words: Words) -> &'static str {
    words[usize::from(value)]
}

fn choice(line: &mut SplitWhitespace<'_>, words: Words) -> Read<bool> {
    let found = line.next().and_then(|text| words.iter().position(|word| *word == text));
    found.map(|position| position == 1).ok_or_else(|| format!("not {} or {}", words[0], words[1]))
}

fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Read<T> {
    let word = words.next().ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("`{word}` is no number that may stand here"))
}

fn read_device(words: &mut SplitWhitespace<'_>) -> Read<DevicePlan> {
    let device = DeviceOrdinal(next(words)?);
    let name = words.next().unwrap_or_default();
    let pool_type = PoolType::ALL.iter().copied().find(|pool_type| pool_type.name() == name);
    let pool_type = pool_type.ok_or_else(|| format!("`{name}` is no strategy"))?;
    let (total_bytes, granule_bytes, peak_bytes) = (next(words)?, next(words)?, next(words)?);
    let needs_finer = choice(words, SIZES)?;
    let name = words.collect::<Vec<_>>().join(" ");
    let model = DeviceModel { name, total_bytes, pool_type, granule_bytes };
    let (lanes, extents) = (Vec::new(), Vec::new());
    Ok(DevicePlan { device, model, peak_bytes, needs_finer, lanes, extents })
}

fn read_lane(words: &mut SplitWhitespace<'_>) -> Read<LanePlan> {
    let (peak, high, low, usual) = (next(words)?, next(words)?, next(words)?, next(words)?);
    let (is_falling, is_ahead) = (choice(words, DIRECTIONS)?, choice(words, PLACES)?);
    let levels = Levels { peak, high, low, usual, is_falling, is_ahead };
    Ok(LanePlan { levels, ..LanePlan::default() })
}

fn read_piece(words: &mut SplitWhitespace<'_>) -> Read<(SizeClass, u64)> {
    let class = if choice(words, CLASSES)? { SizeClass::Large } else { SizeClass::Small };
    Ok((class, next(words)?))
}

fn read_extent(words: &mut SplitWhitespace<'_>) -> Read<ExtentPlan> {
    let (bytes, home_view) = (next(words)?, next(words)?);
    let view = |word: &str| {
        let mut numbers = word.splitn(3, ':').map(str::parse::<u64>);
        let mut number = || numbers.next().and_then(Result::ok);
        let view = (number(), number(), number());
        let (Some(lane), Some(area), Some(offset_bytes)) = view else {
            return Err(format!("`{word}` is no view"));
        };
        Ok(ViewPlan { lane: lane as usize, area: area as usize, offset_bytes })
    };
    Ok(ExtentPlan { bytes, home_view, views: words.map(view).collect::<Read<_>>()? })
}

fn show_rank(rank: Option<u64>) -> String {
    rank.map_or_else(|| NO_RANK.to_owned(), |rank| rank.to_string())
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
