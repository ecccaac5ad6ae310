//! `genesis plan`: what a recorded program would need, and what would have served it.
//!
//! ```text
//! tiers      --tiers: the pools of a memory manager
//! recording  a trace, or a profile as one                ↔ Recording
//! fits       --device-memory: the smallest device of each strategy
//! batches    --batch: the largest batch
//! text       what fits, for people
//! batches_text  the largest batch, for people
//! ```

mod batches;
mod batches_text;
mod fits;
mod recording;
mod text;
mod tiers;

use std::path::PathBuf;

use clap::Args;
use genesis::base::size::parse_bytes;
use genesis_profile::tiers::TierOptions;
use genesis_replay::forecast::{MOST_DEVICE_BYTES, PAGE_BYTES};
use genesis_replay::{Error, Result};

use super::{Answer, DeviceArguments, ProfileArguments, bytes};

/// Say whether a program fits a device, from a recording; or propose pools for it
///
/// With --device-memory, the recording is replayed on simulated devices of that size and of others,
/// to find the smallest one for each strategy.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A profile (.json), or a trace (.gtr, .gtr.zst) to replay
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    input: Option<PathBuf>,
    /// Recordings of several batch sizes, to say the largest that fits: at least two. Without N it
    /// is the batch that the program has marked in its profile: genesis.mark("batch=8")
    #[arg(long, value_name = "N=INPUT", value_parser = batch, conflicts_with = "tiers")]
    batch: Vec<(Option<u64>, PathBuf)>,
    /// The strategies, several or separated by commas [default: all; with --tiers the library's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    strategy: Vec<String>,
    /// Passes of each replay after the first
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "tiers")]
    warm: u16,
    /// Print JSON instead of a table
    #[arg(long, conflicts_with = "tiers")]
    json: bool,
    /// Draw what each strategy needs into this SVG file; with --batch, memory over the batch
    #[arg(long, value_name = "FILE", conflicts_with = "tiers")]
    picture: Option<PathBuf>,
    /// Propose the tiers of a memory manager: sizes of blocks, their numbers, an arena
    #[arg(long)]
    tiers: bool,
    /// With --tiers: the device
    #[arg(long, value_name = "N", default_value_t = 0, requires = "tiers")]
    device: u32,
    /// With --tiers: the most of them
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=64),
        requires = "tiers"
    )]
    most_tiers: u16,
    /// With --tiers: larger requests go to the arena
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = bytes,
        default_value = "1MiB",
        requires = "tiers"
    )]
    largest: u64,
    #[command(flatten)]
    replay: DeviceArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    match &arguments.input {
        Some(input) if arguments.tiers => {
            tiers::run(input, arguments.tier_options(), &arguments.profile_arguments()?)
        }
        Some(input) => fits::run(input, arguments),
        None => batches::run(arguments),
    }
}

impl Arguments {
    fn tier_options(&self) -> TierOptions {
        TierOptions {
            device: self.device,
            most_tiers: self.most_tiers.into(),
            largest_bytes: self.largest,
        }
    }

    fn profile_arguments(&self) -> Result<ProfileArguments> {
        match &*self.strategy {
            [] | [_] => Ok(ProfileArguments {
                strategy: self.strategy.first().cloned(),
                device: self.replay.clone(),
            }),
            _ => Err(Error::usage("--tiers replays under one strategy")),
        }
    }

    /// The device asked about, in bytes.
    fn device_bytes(&self) -> Result<u64> {
        let DeviceArguments { backend, device_memory, limit, library: _ } = &self.replay;
        if backend != "sim" {
            return Err(Error::usage("--backend: only devices of sim have the size asked for"));
        }
        if limit.is_some() {
            return Err(Error::usage("--limit goes with --tiers; here --device-memory limits"));
        }
        let Some(text) = device_memory else {
            return Err(Error::usage("what to plan? --device-memory=BYTES or --tiers says it"));
        };
        let sizes = PAGE_BYTES..=MOST_DEVICE_BYTES;
        parse_bytes(text).filter(|bytes| sizes.contains(bytes)).ok_or_else(|| {
            Error::usage(format!("--device-memory={text}: not a size from 2MiB to 128TiB"))
        })
    }
}

/// A batch, where it is said, and the file of its recording.
fn batch(text: &str) -> std::result::Result<(Option<u64>, PathBuf), String> {
    let Some((batch, path)) = text.split_once('=') else {
        return Ok((None, text.into()));
    };
    match batch.parse() {
        Ok(batch) if batch > 0 => Ok((Some(batch), path.into())),
        _ => Err(format!("{batch}: not a batch of at least 1")),
    }
}
