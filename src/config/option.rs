//! A row of the option table.

use super::settings::Settings;
use super::value::Read;

/// Reads a trimmed, non-empty value into the settings. If it is wrong, returns a sentence that says
/// why and changes nothing.
pub type Parse = fn(&mut Settings, &str) -> Result<(), String>;

/// Another library's variable, read if the option's own is unset.
#[derive(Debug)]
pub struct Alias {
    /// The environment variable.
    pub name: &'static str,
    /// Reads its value, which may have another syntax than the option's own.
    pub parse: Parse,
}

/// One option.
#[derive(Debug)]
pub struct OptionSpec {
    /// The environment variable, which is also the option's name everywhere else.
    pub name: &'static str,
    /// Other names, the preferred one first.
    pub aliases: &'static [Alias],
    /// How a value is written, in words.
    pub values: &'static str,
    /// What the option does, in one line.
    pub summary: &'static str,
    /// More about it; may be empty.
    pub help: &'static str,
    /// Whether the option may be changed after the library has started.
    pub runtime: bool,
    /// Reads a value.
    pub parse: Parse,
    /// Writes the present value as `parse` reads it.
    pub show: fn(&Settings) -> String,
}

impl OptionSpec {
    /// The value if nothing is set.
    pub fn default_value(&self) -> String {
        (self.show)(&Settings::default())
    }
}

/// Assigns what was read, or passes the error on.
pub(super) fn assign<T>(field: &mut T, read: Read<T>) -> Result<(), String> {
    read.map(|value| *field = value)
}
