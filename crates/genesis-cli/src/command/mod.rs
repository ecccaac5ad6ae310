//! The commands, one file each, and the arguments that replays have in common.

pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod options;
pub(crate) mod plan;
mod profile;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod timeline;
pub(crate) mod top;

use std::path::{Path, PathBuf};

use clap::Args;
use genesis::base::size::parse_bytes;
use genesis::config::Settings;
use genesis_replay::job::Job;
use genesis_replay::profile::ProfileJob;
use genesis_replay::{Error, Result, library};

/// The hidden command that runs one job from standard input.
pub(crate) const JOB_COMMAND: &str = "replay-job";

/// As many events as a profile can keep, so all of a trace. Only actual events take memory.
const MOST_EVENTS: &str = "4294967296";

/// The answer of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    /// True if the command found or met something wrong, which the text describes.
    pub(crate) is_failure: bool,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, is_failure: false }
    }
}

/// The device to replay on.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArguments {
    /// The device implementation: sim, host or cuda
    #[arg(long, default_value = "sim")]
    backend: String,
    /// The memory of each simulated device, such as 24GiB, which 24GB means too [default: 80GiB]
    #[arg(long, value_name = "BYTES")]
    device_memory: Option<String>,
    /// The most memory that may be reserved on each device
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// The library [default: $GENESIS_LIBRARY, or next to this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

/// How to replay, whatever the strategy.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    device: DeviceArguments,
    /// Threads that replay the whole trace at once, each on streams of its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    threads: u16,
    /// Passes after the first
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm: u16,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How to make a profile of a recorded trace; unused for a profile that is read.
#[derive(Debug, Args)]
#[command(next_help_heading = "How to replay a trace")]
pub(crate) struct ProfileArguments {
    /// The strategy [default: $GENESIS_POOL_TYPE, or the library's]
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    #[command(flatten)]
    device: DeviceArguments,
}

impl DeviceArguments {
    /// One cold replay of `trace` under `strategy`, or under the environment's, and under the
    /// settings `others`.
    fn job(&self, trace: &Path, strategy: Option<&str>, others: &[(&str, &str)]) -> Result<Job> {
        let mut settings = vec![("GENESIS_BACKEND".to_owned(), self.backend.clone())];
        let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
        if let Some(strategy) = strategy {
            set("GENESIS_POOL_TYPE", strategy);
        }
        if let Some(device_memory) = &self.device_memory {
            set("GENESIS_SIM_MEMORY", device_memory);
        }
        if std::env::var_os("GENESIS_LOG").is_none() {
            // Each refused request would log a line; the report counts them.
            set("GENESIS_LOG", "off");
        }
        others.iter().for_each(|(name, value)| set(name, value));
        check(&settings)?;
        Ok(Job {
            trace: trace.to_owned(),
            library: library::locate(self.library.as_deref())?,
            settings,
            limit_bytes: self.limit,
            threads: 1,
            warm_passes: 0,
            sample_count: 0,
        })
    }
}

impl ReplayArguments {
    /// The job of replaying `trace` under `strategy`, or under the environment's.
    fn job(&self, trace: &Path, strategy: Option<&str>, sample_count: usize) -> Result<Job> {
        Ok(Job {
            threads: self.threads.into(),
            warm_passes: self.warm.into(),
            sample_count,
            ..self.device.job(trace, strategy, &[])?
        })
    }
}

impl ProfileArguments {
    /// The job of replaying `trace` and writing its profile to `output`.
    pub(crate) fn job(&self, trace: &Path, output: PathBuf) -> Result<ProfileJob> {
        let others = [
            // The environment may ask for a profile of its own, but only one can be made at a time.
            ("GENESIS_PROFILE", "off"),
            ("GENESIS_PROFILE_EVENTS", MOST_EVENTS),
            // All calls are the replay's own.
            ("GENESIS_CALL_SITES", "off"),
        ];
        Ok(ProfileJob { job: self.device.job(trace, self.strategy.as_deref(), &others)?, output })
    }
}

/// Refuses `settings` that the library would refuse together with this environment: once, and
/// before anything runs.
fn check(settings: &[(String, String)]) -> Result<()> {
    let own = settings.iter().map(|(name, value)| (name.into(), value.into()));
    match Settings::from_variables(own.chain(std::env::vars_os())) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::usage(error.message.clone())),
    }
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "not a size such as 512MB or 24GiB".to_owned())
}
