//! The settings: one table of options, the environment read once.

mod settings;

pub use settings::{BackendChoice, LogLevel, PoolType, SIM_MEMORY_BYTES, Settings};
