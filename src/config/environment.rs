//! Reading the environment: variables in, settings and warnings out.
//!
//! The environment comes in as a value, so that tests and tools bring their own; the only
//! functions that look at the process's are those named `…_environment`. For each option the
//! first name that is set decides: its own, then its aliases in order. A variable that is
//! empty or blank is unset. Everything wrong is reported in one message; nothing is taken
//! from an environment that has anything wrong in it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use super::nearest::nearest;
use super::settings::{LogLevel, Settings};
use super::table::{OPTIONS, OptionSpec, Parse};
use crate::base::{Error, Result, Status};

/// What the names of all options start with.
pub(super) const PREFIX: &str = "GENESIS_";

/// Variables with the prefix that are other programs' and not options.
const NOT_OPTIONS: &[&str] = &["GENESIS_LIBRARY", "GENESIS_PRELOAD_LIBRARY"];

impl Settings {
    /// The settings that the process's environment asks for, with warnings for the user.
    pub fn from_environment() -> Result<(Self, Vec<String>)> {
        Self::from_variables(std::env::vars_os())
    }

    /// How much may be said while nothing else is known: what `GENESIS_LOG` asks for, if that
    /// can be read, even where another variable is wrong.
    pub fn log_level_from_environment() -> LogLevel {
        let mut settings = Self::default();
        if let Ok(text) = std::env::var("GENESIS_LOG") {
            // A mistake in it is reported with all others.
            let _ = super::set(&mut settings, "GENESIS_LOG", &text, false);
        }
        settings.log
    }

    /// The settings that `variables` ask for, with warnings for the user.
    ///
    /// Of a name given twice the first value counts, as with `getenv`. Fails with
    /// `InvalidConfiguration` and a message that names every wrong variable.
    pub fn from_variables(
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Vec<String>)> {
        let mut environment = HashMap::new();
        for (name, value) in variables {
            if !value.as_encoded_bytes().trim_ascii().is_empty() {
                environment.entry(name).or_insert(value);
            }
        }
        let mut settings = Self::default();
        let mut warnings = unknown_names(&environment);
        let mut mistakes = Vec::new();
        for option in OPTIONS {
            if let Err(mistake) = apply(&mut settings, option, &environment, &mut warnings) {
                mistakes.push(mistake);
            }
        }
        match mistakes.len() {
            0 => Ok((settings, warnings)),
            _ => Err(Error::new(Status::InvalidConfiguration, join(mistakes))),
        }
    }
}

type Environment = HashMap<OsString, OsString>;

/// Sets one option from the first of its names that is set.
fn apply(
    settings: &mut Settings,
    option: &OptionSpec,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let lookup = |name: &'static str, parse: Parse| {
        environment.get(OsStr::new(name)).map(|value| (name, parse, value))
    };
    let own = lookup(option.name, option.parse);
    let aliases = option.aliases.iter().filter_map(|alias| lookup(alias.name, alias.parse));
    let mut set = own.into_iter().chain(aliases);
    let Some((name, parse, value)) = set.next() else {
        return Ok(());
    };
    if own.is_none() {
        for (other, _, other_value) in set.filter(|(_, _, other_value)| *other_value != value) {
            let (value, other_value) = (value.to_string_lossy(), other_value.to_string_lossy());
            warnings.push(format!("{name}={value} wins over {other}={other_value}"));
        }
    }
    let text = value
        .to_str()
        .ok_or_else(|| format!("{name}={}: not valid UTF-8", value.to_string_lossy()))?
        .trim();
    parse(settings, text).map_err(|mistake| format!("{name}={text}: {mistake}"))
}

/// A warning for each variable that looks like an option and is none.
fn unknown_names(environment: &Environment) -> Vec<String> {
    let mut warnings: Vec<String> = environment
        .keys()
        .map(|name| name.to_string_lossy())
        .filter(|name| name.starts_with(PREFIX) && !NOT_OPTIONS.contains(&&**name))
        .filter(|name| super::table::find(name).is_none())
        .map(|name| unknown_name(&name))
        .collect();
    warnings.sort();
    warnings
}

/// The sentence for a name that is no option's, with the nearest one that is.
pub(super) fn unknown_name(name: &str) -> String {
    let stem = name.strip_prefix(PREFIX).unwrap_or(name);
    let stems = OPTIONS.iter().filter_map(|option| option.name.strip_prefix(PREFIX));
    match nearest(stem, stems) {
        Some(near) => format!("{name} is not an option; did you mean {PREFIX}{near}?"),
        None => format!("{name} is not an option; `genesis options` lists them"),
    }
}

/// One line for all mistakes.
fn join(mut mistakes: Vec<String>) -> String {
    if mistakes.len() == 1 {
        return mistakes.remove(0);
    }
    let mut line = format!("{} settings are wrong:", mistakes.len());
    for (index, mistake) in mistakes.iter().enumerate() {
        line += &format!(" ({}) {mistake}", index + 1);
    }
    line
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
