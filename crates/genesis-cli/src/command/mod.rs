//! The commands, one file each, and the arguments that replays have in common.

pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod options;
pub(crate) mod replay;

use std::path::{Path, PathBuf};

use clap::Args;
use genesis::base::size::parse_bytes;
use genesis::config::Settings;
use genesis_replay::job::Job;
use genesis_replay::{Error, Result, library};

/// The hidden command that runs one job from standard input.
pub(crate) const JOB_COMMAND: &str = "replay-job";

/// How to replay, whatever the strategy.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The device implementation: sim, host or cuda
    #[arg(long, default_value = "sim")]
    backend: String,
    /// The memory of each simulated device, such as 24GiB [default: 80GiB]
    #[arg(long, value_name = "BYTES")]
    device_memory: Option<String>,
    /// The most memory that may be reserved on each device
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// Threads that replay the whole trace at once, each on streams of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Passes after the first
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm: u16,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The library [default: $GENESIS_LIBRARY, or beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
}

impl ReplayArguments {
    /// The job of replaying `trace` under `strategy`, or under the environment's.
    fn job(&self, trace: &Path, strategy: Option<&str>, sample_count: usize) -> Result<Job> {
        let mut settings = vec![("GENESIS_BACKEND".to_owned(), self.backend.clone())];
        let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
        if let Some(strategy) = strategy {
            set("GENESIS_POOL_TYPE", strategy);
        }
        if let Some(device_memory) = &self.device_memory {
            set("GENESIS_SIM_MEMORY", device_memory);
        }
        if std::env::var_os("GENESIS_LOG").is_none() {
            // Every refused request would be a line; the report counts them.
            set("GENESIS_LOG", "off");
        }
        check(&settings)?;
        Ok(Job {
            trace: trace.to_owned(),
            library: library::locate(self.library.as_deref())?,
            settings,
            limit_bytes: self.limit,
            threads: self.threads.into(),
            warm_passes: self.warm.into(),
            sample_count,
        })
    }
}

/// Refuses `settings` that the library would refuse on top of this environment: said here, it
/// is said once, and before anything runs.
fn check(settings: &[(String, String)]) -> Result<()> {
    let own = settings.iter().map(|(name, value)| (name.into(), value.into()));
    match Settings::from_variables(own.chain(std::env::vars_os())) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::usage(error.message)),
    }
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "not a size such as 512MB or 24GiB".to_owned())
}
