//! What is shown, one process or a list of them to choose from, and the effect of each key.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Course, Found, Shared, find, find_all, find_shared};

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct App {
    pub(super) page: Page,
    pub(super) shared: Vec<Shared>,
}

/// What is shown.
#[derive(Debug)]
pub(super) enum Page {
    List { found: Vec<Found>, selected: usize },
    Process(View),
}

/// One process.
#[derive(Debug)]
pub(super) struct View {
    pub(super) process_id: u32,
    pub(super) course: Course,
    pub(super) state: State,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// It has published nothing for so many seconds.
    Quiet(u64),
    /// It has ended; its last reading stays on the screen.
    Ended,
}

impl App {
    /// Shows the process if there is exactly one and no device is shared, else a list.
    pub(crate) fn new(mut found: Vec<Found>, shared: Vec<Shared>) -> Self {
        let page = match found.len() {
            1 if shared.is_empty() => Page::Process(View::new(found.swap_remove(0))),
            _ => Page::List { found, selected: 0 },
        };
        Self { page, shared }
    }

    /// Reads the processes again.
    pub(crate) fn refresh(&mut self) {
        match &mut self.page {
            Page::Process(view) => view.update(find(view.process_id)),
            Page::List { .. } => {
                self.list(find_all());
                self.shared = find_shared();
            }
        }
    }

    /// Handles `key`; returns true if it ends the view.
    pub(crate) fn press(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, &mut self.page) {
            (KeyCode::Char('c'), _) if is_control => return true,
            (KeyCode::Char('q') | KeyCode::Esc, _) => return true,
            (KeyCode::Up | KeyCode::Char('k'), Page::List { selected, .. }) => {
                *selected = selected.saturating_sub(1);
            }
            (KeyCode::Down | KeyCode::Char('j'), Page::List { found, selected }) => {
                *selected = (*selected + 1).min(found.len().saturating_sub(1));
            }
            (KeyCode::Enter, Page::List { found, selected }) if *selected < found.len() => {
                self.page = Page::Process(View::new(found.swap_remove(*selected)));
            }
            (KeyCode::Backspace, Page::Process(_)) => self.list(find_all()),
            _ => {}
        }
        false
    }

    /// Shows the list `now`, with the same process selected as before if it is still there.
    pub(super) fn list(&mut self, now: Vec<Found>) {
        let selected_id = match &self.page {
            Page::List { found, selected } => found.get(*selected).map(Found::process_id),
            Page::Process(view) => Some(view.process_id),
        };
        let same = now.iter().position(|found| Some(found.process_id()) == selected_id);
        let before = match &self.page {
            Page::List { selected, .. } => *selected,
            Page::Process(_) => 0,
        };
        let selected = same.unwrap_or(before).min(now.len().saturating_sub(1));
        self.page = Page::List { found: now, selected };
    }
}

impl View {
    pub(super) fn new(found: Found) -> Self {
        let mut view = Self {
            process_id: found.process_id(),
            course: Course::default(),
            state: State::Running,
        };
        view.update(Some(found));
        view
    }

    /// Takes in a new reading of the process; `None` if it has ended.
    pub(super) fn update(&mut self, found: Option<Found>) {
        self.state = match found {
            None => State::Ended,
            Some(found) => {
                let state = if found.is_quiet() {
                    State::Quiet(found.age.as_secs())
                } else {
                    State::Running
                };
                self.course.add(found.profile);
                state
            }
        };
    }
}
