//! The terminal: keys in, frames out, and restored however the view ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::App;
use super::draw::draw;

/// The time between two readings; processes write once a second.
const LOOK: Duration = Duration::from_millis(250);

/// Shows `app` until a key or a signal ends it.
pub(crate) fn show(mut app: App) -> io::Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    // A panic also restores the terminal.
    let mut terminal = ratatui::try_init()?;
    let shown = (|| {
        while !is_over.load(Relaxed) {
            terminal.draw(|frame| draw(frame, &app))?;
            if wait_for_key(&mut app, &is_over)? {
                return Ok(());
            }
            app.refresh();
        }
        Ok(())
    })();
    ratatui::restore();
    shown
}

/// Waits for a key, or for the next reading; returns true if the view ends.
fn wait_for_key(app: &mut App, is_over: &AtomicBool) -> io::Result<bool> {
    match event::poll(LOOK) {
        Ok(false) => return Ok(false),
        Ok(true) => {}
        // A signal came, and may end the view.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Ok(is_over.load(Relaxed));
        }
        Err(error) => return Err(error),
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => app.press(key),
        // The next frame has the new size.
        _ => false,
    })
}
