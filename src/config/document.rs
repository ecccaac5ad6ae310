//! The options as users read them, made from the table.

use std::fmt::{self, Write};

use super::settings::Settings;
use super::table::{OPTIONS, OptionSpec};

/// Writes every option with the value in force, the default and what it means.
pub fn describe(settings: &Settings, writer: &mut dyn Write) -> fmt::Result {
    for (index, option) in OPTIONS.iter().enumerate() {
        if index > 0 {
            writeln!(writer)?;
        }
        let value = (option.show)(settings);
        let default = option.default_value();
        write!(writer, "{}={value}", option.name)?;
        if value != default {
            write!(writer, "  (default: {default})")?;
        }
        writeln!(writer, "\n    {}", option.summary)?;
        writeln!(writer, "    Values: {}; {}.", option.values.replace('`', ""), when(option))?;
        if !option.help.is_empty() {
            writeln!(writer, "    {}", option.help)?;
        }
        if !option.aliases.is_empty() {
            writeln!(writer, "    Where unset: {}.", aliases(option, ""))?;
        }
    }
    Ok(())
}

/// The options as a table in Markdown, for the README.
pub fn markdown_table() -> String {
    let mut table =
        String::from("| variable | default | values | what it does |\n|---|---|---|---|\n");
    for option in OPTIONS {
        let default = option.default_value();
        let mut meaning = option.summary.to_owned();
        if option.runtime {
            meaning += " May be changed at run time.";
        }
        if !option.aliases.is_empty() {
            meaning += &format!(" Where unset: {}.", aliases(option, "`"));
        }
        table += &format!("| `{}` | `{default}` | {} | {meaning} |\n", option.name, option.values);
    }
    table
}

fn when(option: &OptionSpec) -> &'static str {
    if option.runtime { "may be changed at run time" } else { "fixed once the library has started" }
}

fn aliases(option: &OptionSpec, quote: &str) -> String {
    let names: Vec<String> =
        option.aliases.iter().map(|alias| format!("{quote}{}{quote}", alias.name)).collect();
    names.join(", then ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_described_with_its_value_and_default() {
        let settings = Settings { sim_devices: 3, ..Settings::default() };
        let mut text = String::new();
        describe(&settings, &mut text).unwrap();
        for option in OPTIONS {
            assert!(text.contains(&format!("{}={}", option.name, (option.show)(&settings))));
            assert!(text.contains(option.summary) && text.contains(option.help));
        }
        assert!(text.contains("GENESIS_SIM_DEVICES=3  (default: 1)\n"), "{text}");
        assert_eq!(text.matches("(default:").count(), 1);
    }

    #[test]
    fn the_markdown_table_has_a_row_for_each_option_and_no_stray_column() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), OPTIONS.len() + 2);
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        assert!(table.contains("| `GENESIS_POOL_TYPE` | `Elastic` |"), "{table}");
        assert!(table.contains("`MXNET_GPU_MEM_POOL_PAGE_SIZE`, then `MXNET_GPU_POOL_PAGE_SIZE`"));
    }
}
