//! The devices that processes share, and what each of them holds: from their registers.
//!
//! A register that nobody uses any more is removed here.

use std::path::Path;

use device_register::{Card, Entry, FOLDER, NO_LIMIT, Neighbourhood, parse_file_name};
use genesis::base::size::Bytes;
use genesis_profile::units;
use genesis_replay::table::Table;

/// A device and those who share it.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// The name under which they do.
    pub(super) name: String,
    pub(super) card: Card,
    /// At least one, by process.
    pub(super) entries: Vec<Entry>,
}

/// All devices that processes of this user share now.
pub(crate) fn find_shared() -> Vec<Shared> {
    find_in(Path::new(FOLDER))
}

fn find_in(folder: &Path) -> Vec<Shared> {
    let files = folder.read_dir().into_iter().flatten().flatten();
    let mut shared: Vec<Shared> = files
        .filter_map(|file| {
            let file_name = file.file_name();
            let (_, name) = parse_file_name(file_name.to_str()?)?;
            let (card, mut entries) = device_register::read(&file.path()).ok()?;
            entries.sort_by_key(|entry| entry.process);
            if entries.is_empty() {
                device_register::remove_unused(&file.path());
            }
            (!entries.is_empty()).then(|| Shared { name: name.to_owned(), card, entries })
        })
        .collect();
    shared.sort_by(|one, other| (&one.name, one.card.uuid).cmp(&(&other.name, other.card.uuid)));
    shared
}

/// As text: a table for each device.
pub(crate) fn describe_shared(shared: &[Shared]) -> String {
    shared.iter().map(Shared::describe).collect::<Vec<_>>().join("\n")
}

impl Shared {
    fn describe(&self) -> String {
        let total_bytes = self.entries.iter().map(|entry| entry.total_bytes).max().unwrap_or(0);
        let held_bytes: u64 = self.entries.iter().map(|entry| entry.charged_bytes).sum();
        let mut table = Table::new(&[
            "program",
            "process",
            "live",
            "cached",
            "held",
            "guarantee",
            "limit",
            "part",
        ]);
        for entry in &self.entries {
            let or_dash = |bytes: u64, none: u64| match bytes {
                bytes if bytes == none => "–".to_owned(),
                bytes => Bytes(bytes).to_string(),
            };
            let all = self.around(entry);
            table.add(vec![
                units::one_line(&entry.program),
                entry.process.to_string(),
                Bytes(entry.live_bytes).to_string(),
                Bytes(entry.cached_bytes).to_string(),
                Bytes(entry.charged_bytes).to_string(),
                or_dash(entry.guarantee_bytes, 0),
                or_dash(entry.limit_bytes, NO_LIMIT),
                or_dash(all.budget_bytes(entry), 0),
            ]);
        }
        let (card, uuid) = (units::one_line(&self.card.name), self.card.uuid_text());
        let (held, total) = (Bytes(held_bytes), Bytes(total_bytes));
        format!("{card}, {uuid}, shared as {}: {held} of {total} held\n\n{table}", self.name)
    }

    /// The others beside one.
    fn around(&self, one: &Entry) -> Neighbourhood {
        let others = self.entries.iter().filter(|other| other.door != one.door);
        Neighbourhood { own: one.clone(), others: others.cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use device_register::{Register, file_name};

    use super::*;

    fn entry(process: u32) -> Entry {
        Entry {
            process,
            door: u64::from(process),
            total_bytes: 80 << 30,
            charged_bytes: 20 << 30,
            live_bytes: 15 << 30,
            cached_bytes: 5 << 30,
            limit_bytes: NO_LIMIT,
            program: format!("program{process}"),
            ..Entry::default()
        }
    }

    #[test]
    fn all_processes_of_a_device_are_shown_while_they_live() {
        let folder = std::env::temp_dir().join(format!("genesis-shared-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let card = Card { uuid: [0xAB; 16], name: "NVIDIA H200".to_owned() };
        let path = folder.join(file_name(1, &card.uuid, "jobs"));
        let second = Entry { guarantee_bytes: 30 << 30, weight: 5, ..entry(2) };
        let members = [entry(1), second].map(|entry| Register::join(&path, &card, &entry).unwrap());
        let text = describe_shared(&find_in(&folder));
        let head = "NVIDIA H200, GPU-abababab-abab-abab-abab-abababababab, shared as jobs: \
                    40.00 GiB of 80.00 GiB held\n";
        assert!(text.starts_with(head), "{text}");
        let row = |program: &str| {
            let line = text.lines().find(|line| line.starts_with(program)).unwrap();
            line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect::<Vec<_>>()
        };
        let bytes = ["15.00 GiB", "5.00 GiB", "20.00 GiB"];
        assert_eq!(row("program1"), [&["program1", "1"], &bytes[..], &["–"; 3]].concat());
        let may = ["30.00 GiB", "–", "80.00 GiB"];
        assert_eq!(row("program2"), [&["program2", "2"], &bytes[..], &may].concat());
        drop(members);
        assert!(find_in(&folder).is_empty() && !path.exists());
        std::fs::remove_dir(&folder).unwrap();
    }
}
