//! Progress on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over the passes of one replay.
pub(crate) fn passes() -> impl FnMut(usize, usize) {
    let bar = styled(ProgressBar::no_length(), "{bar:30} pass {pos} of {len}");
    move |done, passes| {
        bar.set_length(passes as u64);
        bar.set_position(done as u64);
        if done == passes {
            bar.finish_and_clear();
        }
    }
}

/// A bar over `count` replays; its message says which one runs.
pub(crate) fn replays(count: usize) -> ProgressBar {
    styled(ProgressBar::new(count as u64), "{bar:30} {pos} of {len}  {msg}")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
