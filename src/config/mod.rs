//! The settings: one table of options, the environment read once.
//!
//! [`OPTIONS`] is the table: a row says how an option is called, written, checked, shown and
//! explained, and everything that users see of options is made from the rows. [`Settings`]
//! holds the values and, in its `Default`, the defaults: no default is written anywhere else.

mod document;
mod environment;
mod nearest;
mod runtime;
mod settings;
mod strategy;
mod strategy_options;
mod table;
mod value;

pub use document::{describe, markdown_page};
pub use runtime::{get, set};
pub use settings::{
    BackendChoice, CallSites, DebugModes, ElasticPolicy, HandleType, LogLevel, PoolType,
    SIM_MEMORY_BYTES, Settings, StreamIds,
};
pub use strategy::{HostKind, StrategySettings};
pub use table::{Alias, OPTIONS, OptionSpec, Parse};
