//! What PyTorch computes, on the page: checks beside each other for all modes.

use std::fmt::Write;

use super::{NOTHING, cell};
use crate::report::Checked;

pub(super) fn render(modes: &[Checked]) -> String {
    let mut text = "| check |".to_owned();
    for mode in modes {
        let _ = write!(text, " {} |", mode.title);
    }
    text += &format!("\n|---|{}\n", "---|".repeat(modes.len()));
    let mut names: Vec<&str> = Vec::new();
    for check in modes.iter().flat_map(|mode| &mode.checks) {
        if !names.contains(&&*check.name) {
            names.push(&check.name);
        }
    }
    for name in names {
        let _ = write!(text, "| {name} |");
        for mode in modes {
            let made = mode.checks.iter().find(|check| check.name == name);
            let seen = match made {
                None => NOTHING.to_owned(),
                Some(check) if check.passed => cell(&check.detail),
                Some(check) => format!("**failed**: {}", cell(&check.detail)),
            };
            let _ = write!(text, " {seen} |");
        }
        text.push('\n');
    }
    for mode in modes {
        if let Some(error) = &mode.error {
            let _ = writeln!(text, "\n*{}: {error}*", mode.title);
        }
    }
    text
}
