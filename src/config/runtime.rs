//! Reading and changing single options while the library runs.

use super::option::OptionSpec;
use super::settings::Settings;
use super::table::{find, unknown_name};
use crate::base::{Error, Result};

/// The value of the option `name`, as [`set`] reads it.
///
/// Fails with `InvalidArgument` if there is no such option.
pub fn get(settings: &Settings, name: &str) -> Result<String> {
    Ok((lookup(name)?.show)(settings))
}

/// Sets the option `name`; an empty or blank `value` restores the default.
///
/// `started` is true once devices have been opened, after which some options are fixed. Fails with
/// `InvalidArgument` and changes nothing if there is no such option, it is fixed, or the value is
/// invalid.
pub fn set(settings: &mut Settings, name: &str, value: &str, started: bool) -> Result<()> {
    let option = lookup(name)?;
    if started && !option.runtime {
        return Err(Error::invalid_argument(format!(
            "{name} cannot be changed once the library has started; set it in the environment, \
             or before the first allocation"
        )));
    }
    let text = match value.trim() {
        "" => option.default_value(),
        text => text.to_owned(),
    };
    (option.parse)(settings, &text)
        .map_err(|mistake| Error::invalid_argument(format!("{name}={text}: {mistake}")))
}

fn lookup(name: &str) -> Result<&'static OptionSpec> {
    find(name).ok_or_else(|| Error::invalid_argument(unknown_name(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::config::PoolType;

    #[test]
    fn what_is_set_is_in_force_and_blank_puts_the_default_back() {
        let mut settings = Settings::default();
        set(&mut settings, "GENESIS_CACHE_SIZE", " 2GB ", true).unwrap();
        assert_eq!(settings.cache_size_bytes, Some(2 << 30));
        assert_eq!(get(&settings, "GENESIS_CACHE_SIZE").unwrap(), "2GiB");
        set(&mut settings, "GENESIS_CACHE_SIZE", " ", true).unwrap();
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn some_options_are_fixed_once_started() {
        let mut settings = Settings::default();
        set(&mut settings, "GENESIS_POOL_TYPE", "exact", false).unwrap();
        let error = set(&mut settings, "GENESIS_POOL_TYPE", "Naive", true).unwrap_err();
        assert_eq!(error.status, Status::InvalidArgument);
        assert!(error.message.starts_with("GENESIS_POOL_TYPE cannot be changed once"), "{error}");
        assert_eq!(settings.strategy.pool_type, PoolType::Exact);
    }

    #[test]
    fn wrong_names_and_values_change_nothing() {
        let mut settings = Settings::default();
        for (name, value, message) in [
            ("GENESIS_LGO", "off", "GENESIS_LGO is not an option; did you mean GENESIS_LOG?"),
            ("LOG", "off", "LOG is not an option; did you mean GENESIS_LOG?"),
            ("", "off", " is not an option; `genesis options` lists them"),
            (
                "GENESIS_LOG",
                "wran",
                "GENESIS_LOG=wran: not a log level; valid: off, error, warn, info, debug \
                 (did you mean warn?)",
            ),
        ] {
            let error = set(&mut settings, name, value, false).unwrap_err();
            assert_eq!((error.status, &*error.message), (Status::InvalidArgument, message));
        }
        assert_eq!(settings, Settings::default());
        assert!(get(&settings, "GENESIS_NOTHING_LIKE_IT").is_err());
    }
}
