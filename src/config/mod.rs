//! The settings: one table of options, the environment read once.
//!
//! [`OPTIONS`] is the table. A row has an option's name, syntax, check and documentation; all
//! documentation of options is made from the rows. [`Settings`] has the values and, in its
//! `Default`, the defaults, which are written nowhere else.

mod backup_options;
mod device_limits;
mod document;
mod environment;
mod launcher;
mod managed_options;
mod nearest;
mod option;
mod plan_options;
mod runtime;
mod settings;
mod share_options;
mod strategy;
mod strategy_options;
mod table;
mod value;

pub use device_limits::dmem_limit_bytes;
pub use document::{describe, markdown_page};
pub use option::{Alias, OptionSpec, Parse};
pub use runtime::{get, set};
pub use settings::{
    BackendChoice, CallSites, DebugModes, DeviceLimits, ElasticPolicy, HandleType, LogLevel,
    Oversubscription, SIM_MEMORY_BYTES, Settings, StreamIds,
};
pub use strategy::{HostKind, PoolType, StrategySettings};
pub use table::OPTIONS;
