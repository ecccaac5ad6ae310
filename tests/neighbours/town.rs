//! Peers that share one device.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use device_register::{Entry, FOLDER, parse_file_name};
use genesis::config::PoolType;

use crate::peer::Peer;

/// How long a peer may take to write what it holds: it does so once a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// A device of 1 GiB and those who share it.
pub struct Town {
    name: String,
    common: PathBuf,
}

impl Town {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", process::id());
        let common = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.common"));
        Self { name, common }
    }

    /// A peer that shares the device, with other variables.
    pub fn peer(&self, variables: &[(&str, &str)]) -> Peer {
        self.peer_of(PoolType::Elastic, variables)
    }

    pub fn peer_of(&self, pool_type: PoolType, variables: &[(&str, &str)]) -> Peer {
        let common = self.common.to_str().unwrap();
        let own = [("SIMCUDA_COMMON", common), ("GENESIS_SHARE", &self.name)];
        let own = [&own[..], &[("SIMCUDA_STORE", "addresses")], variables].concat();
        Peer::start(pool_type, &own)
    }

    /// Where the register is.
    pub fn register(&self) -> Option<PathBuf> {
        let files = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap());
        let is_ours = |file: &fs::DirEntry| {
            let name = file.file_name();
            parse_file_name(name.to_str().unwrap_or("")).is_some_and(|(_, name)| name == self.name)
        };
        files.into_iter().find(is_ours).map(|file| file.path())
    }

    /// The entries of the living processes, by process.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = device_register::read(&self.register().unwrap()).unwrap().1;
        entries.sort_by_key(|entry| entry.process);
        entries
    }

    /// The entry of a process, as soon as `is_right`.
    pub fn entry(&self, peer: &Peer, is_right: impl Fn(&Entry) -> bool) -> Entry {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let entries = self.entries();
            let found = entries.into_iter().find(|entry| entry.process == peer.id()).unwrap();
            if is_right(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Checks that the entries are those of `peers`, and that each is true as soon as the last
    /// question is answered.
    pub fn check(&self, peers: &mut [Peer]) {
        let mut expected: Vec<u32> = peers.iter().map(Peer::id).collect();
        expected.sort_unstable();
        let entries = self.entries();
        assert_eq!(entries.iter().map(|entry| entry.process).collect::<Vec<_>>(), expected);
        for peer in peers {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let entry = self.entry(peer, |_| true);
                let held = [peer.number("reserved"), peer.census("used_bytes")];
                if held == [entry.charged_bytes; 2] && entry.promised_bytes == 0 {
                    break;
                }
                assert!(Instant::now() < deadline, "{entry:?} holds {held:?}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.common);
        self.register().map(fs::remove_file);
    }
}
