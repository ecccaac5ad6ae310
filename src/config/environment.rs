//! Reading the environment: variables in, settings and warnings out.
//!
//! The environment is a parameter, so that tests and tools pass their own; only the functions named
//! `…_environment` read the process's. For each option the first name that is set counts: its own,
//! then its aliases in order. An empty or blank variable is unset. All mistakes are reported in one
//! message, and with a mistake no setting is taken.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use super::device_limits;
use super::launcher;
use super::option::{OptionSpec, Parse};
use super::plan_options::GLOBAL_RANK;
use super::settings::{LogLevel, Settings};
use super::share_options::DEVICE_LIMITS;
use super::table::{OPTIONS, PREFIX, unknown_name};
use crate::base::{Error, Result, Status};

/// Variables with the prefix that are not options but belong to other programs.
const NOT_OPTIONS: &[&str] = &["GENESIS_LIBRARY", "GENESIS_PRELOAD_LIBRARY"];

impl Settings {
    /// The settings of the process's environment, with warnings for the user.
    pub fn from_environment() -> Result<(Self, Vec<String>)> {
        Self::from_variables(std::env::vars_os())
    }

    /// The log level before the settings are known: that of `GENESIS_LOG` if it can be read, even
    /// if another variable is wrong.
    pub fn log_level_from_environment() -> LogLevel {
        let mut settings = Self::default();
        if let Ok(text) = std::env::var("GENESIS_LOG") {
            // A mistake in it is reported with all others.
            let _ = super::runtime::set(&mut settings, "GENESIS_LOG", &text, false);
        }
        settings.log
    }

    /// The settings of `variables`, with warnings for the user.
    ///
    /// If a name occurs twice, the first value counts, as with `getenv`. Fails with
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
        if !environment.contains_key(OsStr::new(DEVICE_LIMITS.name)) {
            match device_limits::from_others(&environment) {
                Ok(limits) => settings.device_limits = limits,
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if !environment.contains_key(OsStr::new(GLOBAL_RANK.name)) {
            settings.global_rank = launcher::rank(&environment);
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

/// A warning for each variable that begins like an option and is none.
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
