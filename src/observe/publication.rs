//! The names of the files that running processes publish for `genesis top`: one file per process,
//! in a memory file system if the machine has one. `instance/publish.rs` writes the files; the
//! command reads them.

use std::time::Duration;

/// The folders of the files: the first that can be written is used.
pub const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];

/// The time between two writes of a file.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The name of the file of the process `process_id` of the user `user_id`.
pub fn file_name(user_id: u32, process_id: u32) -> String {
    format!("genesis-{user_id}-{process_id}.json")
}

/// The user and the process of the file with this name; `None` for other files.
pub fn parse_file_name(name: &str) -> Option<(u32, u32)> {
    let numbers = name.strip_prefix("genesis-")?.strip_suffix(".json")?;
    let (user, process) = numbers.split_once('-')?;
    let (user_id, process_id) = (user.parse().ok()?, process.parse().ok()?);
    (file_name(user_id, process_id) == name).then_some((user_id, process_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        assert_eq!(parse_file_name(&file_name(1000, 4321)), Some((1000, 4321)));
        for other in ["genesis-1.json", "genesis-1-2.json~", "genesis-01-2.json", "genesis-1--2"] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }
}
