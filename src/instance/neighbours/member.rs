//! This process among those that share a device: what it writes into their register, and what it asks
//! of them.
//!
//! **Locks**: one, for the own entry, held while the register is read and written. None is held while
//! letters are on their way.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use device_register::{Card, Entry, FOLDER, NO_LIMIT, Neighbourhood, Register, file_name, now_ns};

use super::letters::{self, Answer, NO_QUESTION, Question};
use crate::base::DeviceOrdinal;
use crate::base::lock::assert_none_held;
use crate::base::size::Bytes;
use crate::config::Settings;
use crate::driver::Device;
use crate::heap::{Neighbour, Neighbours, Taken, Wanted};
use crate::process::{self, Mailbox, Watched, random_bytes};

/// How long answers to one question are waited for: longer than the driver takes to give back 80 GiB in
/// extents of 2 MiB, at 72 µs each. A process that does not answer was stopped, or waits for its driver;
/// what it gives back later is there for the next request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Others may take the memory first; they are asked so often for one request.
const MOST_ROUNDS: usize = 4;
/// Once the time is over, so many letters that have arrived are still read. Strangers may send more.
const MOST_LATE: u32 = 1024;
/// The container of a process that cannot find out which it is in.
const SOME_CONTAINER: u64 = 1;

/// This process among those that share a device.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) device: DeviceOrdinal,
    pub(super) uuid: [u8; 16],
    // Before the register: a number that is closed may be another descriptor's.
    _watched: Watched,
    register: Register,
    own: Mutex<Entry>,
    /// The limit, which is in the own entry from the next time on that it is written.
    limit_bytes: AtomicU64,
    /// The doors of those who did not answer the last time; they are asked, but not waited for.
    silent: Mutex<Vec<u64>>,
}

impl Member {
    /// Joins those who share the device under `name`, as one who is asked at `(door, key)`. Returns
    /// also how much less is guaranteed than the settings ask for, if it is less.
    pub(super) fn join(
        device: &dyn Device,
        name: &str,
        settings: &Settings,
        (door, key): (u64, u64),
    ) -> Result<(Self, Option<Bytes>), String> {
        let identity = device.identity().ok_or("no other process can have the device")?;
        let total_bytes = device.memory_info().map_err(|error| error.to_string())?.total_bytes;
        let card = Card { uuid: identity.uuid, name: device.name() };
        let path = Path::new(FOLDER).join(file_name(process::user_id(), &card.uuid, name));
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let container_limit_bytes = settings.device_limits.of_container(device.ordinal());
        let mut own = Entry {
            process: std::process::id(),
            weight: settings.share_weight,
            total_bytes,
            limit_bytes: NO_LIMIT,
            door,
            key,
            container: container_limit_bytes.map_or(0, |_| container()),
            container_limit_bytes: container_limit_bytes.unwrap_or(0),
            program: program(),
            ..Entry::default()
        };
        let register = Register::join(&path, &card, &own).map_err(|error| named(&error))?;
        // At once: another thread may fork.
        let _watched = Watched::new(register.descriptor());
        // Both under one lock, so that guarantees never exceed the device.
        register.exclusively(|| {
            let others = register.others().unwrap_or_default();
            let guaranteed_bytes =
                others.iter().map(|other| other.guarantee_bytes).fold(0, u64::saturating_add);
            let left_bytes = total_bytes.saturating_sub(guaranteed_bytes);
            own.guarantee_bytes = settings.share_guarantee_bytes.min(left_bytes);
            register.write(&own).map_err(|error| named(&error))
        })?;
        let missing_bytes = settings.share_guarantee_bytes - own.guarantee_bytes;
        let member = Self {
            device: device.ordinal(),
            uuid: card.uuid,
            _watched,
            register,
            own: Mutex::new(own),
            limit_bytes: AtomicU64::new(NO_LIMIT),
            silent: Mutex::default(),
        };
        Ok((member, (missing_bytes > 0).then_some(Bytes(missing_bytes))))
    }

    /// This process and the others. If the register cannot be read, there are none.
    fn neighbourhood(&self, own: &Entry) -> Neighbourhood {
        Neighbourhood { own: own.clone(), others: self.register.others().unwrap_or_default() }
    }

    /// Leaves nothing behind, if nobody else shares the device.
    pub(super) fn leave(&self) {
        self.register.remove_if_alone();
    }

    /// Writes what is live and what is cached, and the limit.
    pub(super) fn set_levels(&self, live_bytes: u64, cached_bytes: u64) {
        self.change(|own| (own.live_bytes, own.cached_bytes) = (live_bytes, cached_bytes));
    }

    /// Changes the own entry.
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        let mut own = lock(&self.own);
        change(&mut own);
        self.write(&mut own);
    }

    fn write(&self, own: &mut Entry) {
        own.limit_bytes = self.limit_bytes.load(Relaxed);
        // Where nothing can be written, others see the last entry that could be.
        let _ = self.register.write(own);
    }

    /// Asks those who can help to give back what is missing: in the first `round` as much as each says
    /// that it has, later everybody for all of it. Returns what they gave.
    fn ask_once(&self, wanted: Wanted, round: usize) -> u64 {
        let Wanted { bytes, missing_bytes } = wanted;
        let all = {
            let own = lock(&self.own);
            self.neighbourhood(&own)
        };
        // Those who did not answer because they have ended are not to be remembered.
        let is_there = |door: &u64| all.others.iter().any(|other| other.door == *door);
        lock(&self.silent).retain(is_there);
        let helpers = all.helpers(bytes, now_ns());
        let asked: Vec<(&Entry, u64)> = if round == 0 {
            all.asked(helpers, missing_bytes)
        } else {
            helpers.map(|other| (other, missing_bytes)).collect()
        };
        let question =
            Question { uuid: self.uuid, asker: all.own.door, missing_bytes, ..NO_QUESTION };
        self.send(question, &asked).unwrap_or(0)
    }

    /// Sends the question to each with its part of the bytes, and waits for their answers.
    fn send(&self, question: Question, asked: &[(&Entry, u64)]) -> std::io::Result<u64> {
        // The mailbox's name can be read by everybody, the question's number by those who are asked.
        let [name, number] = [random_bytes()?, random_bytes()?].map(u64::from_le_bytes);
        let mailbox = Mailbox::open(&format!("genesis-question-{name:016x}"))?;
        let is_sent = |(other, bytes): &&(&Entry, u64)| {
            let letter = Question { number, key: other.key, bytes: *bytes, ..question }.encode();
            mailbox.send(&letters::door(other.door), &letter).is_ok()
        };
        let sent: Vec<Sent> = asked
            .iter()
            .filter(is_sent)
            .map(|(other, _)| Sent { door: other.door, is_answered: false })
            .collect();
        let (sent, given_bytes) = self.collect(&mailbox, number, sent);
        let mut silent = lock(&self.silent);
        silent.retain(|door| sent.iter().all(|one| one.door != *door));
        silent.extend(sent.iter().filter(|one| !one.is_answered).map(|one| one.door));
        Ok(given_bytes)
    }

    /// Waits for answers to `sent`, but not of those who did not answer the last time. Returns who has
    /// answered, and what they gave.
    fn collect(&self, mailbox: &Mailbox, number: u64, mut sent: Vec<Sent>) -> (Vec<Sent>, u64) {
        let silent = lock(&self.silent).clone();
        let deadline = Instant::now() + PATIENCE;
        let (mut given_bytes, mut late) = (0u64, 0);
        let mut letter = [0; letters::BYTES];
        while sent.iter().any(|one| !one.is_answered && !silent.contains(&one.door)) {
            let left = deadline.saturating_duration_since(Instant::now());
            late += u32::from(left.is_zero());
            let Ok(sender) = mailbox.receive(&mut letter, left) else { break };
            if late > MOST_LATE || sender.is_none() && left.is_zero() {
                break;
            }
            let answer = sender.and_then(|_| Answer::decode(&letter));
            let Some(answer) = answer.filter(|answer| answer.number == number) else { continue };
            let is_of = |one: &&mut Sent| one.door == answer.door && !one.is_answered;
            if let Some(one) = sent.iter_mut().find(is_of) {
                one.is_answered = true;
                given_bytes = given_bytes.saturating_add(answer.bytes);
            }
        }
        (sent, given_bytes)
    }

    /// How much this process gives back for the question's asker, at most.
    pub(super) fn spare_bytes(&self, question: &Question) -> u64 {
        let own = lock(&self.own);
        let all = self.neighbourhood(&own);
        let asker = all.others.iter().find(|other| other.door == question.asker);
        let spare_bytes = asker.map_or(0, |one| all.spare_bytes(one, question.missing_bytes));
        spare_bytes.min(question.bytes)
    }
}

/// A question that is on its way to one of the others.
#[derive(Debug)]
struct Sent {
    door: u64,
    is_answered: bool,
}

/// What the register says of one of those who share the device.
fn described(all: &Neighbourhood, one: &Entry) -> Neighbour {
    let part_bytes = all.budget_bytes(one);
    Neighbour {
        process: one.process,
        program: one.program.clone(),
        live_bytes: one.live_bytes,
        cached_bytes: one.cached_bytes,
        held_bytes: one.charged_bytes,
        guarantee_bytes: one.guarantee_bytes,
        limit_bytes: Some(one.limit_bytes).filter(|&bytes| bytes != NO_LIMIT),
        part_bytes: Some(part_bytes).filter(|&bytes| bytes > 0),
    }
}

impl Neighbours for Member {
    fn charge(&self, bytes: u64) -> bool {
        let mut own = lock(&self.own);
        self.register.exclusively(|| {
            let has_room = bytes <= self.neighbourhood(&own).room_bytes(now_ns());
            if has_room {
                own.charged_bytes += bytes;
                self.write(&mut own);
            }
            has_room
        })
    }

    fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Relaxed);
    }

    fn refund(&self, bytes: u64) {
        self.change(|own| own.charged_bytes = own.charged_bytes.saturating_sub(bytes));
    }

    fn room_bytes(&self) -> u64 {
        let own = lock(&self.own);
        self.neighbourhood(&own).room_bytes(now_ns())
    }

    fn list(&self) -> Vec<Neighbour> {
        let all = {
            let own = lock(&self.own);
            self.neighbourhood(&own)
        };
        std::iter::once(&all.own).chain(&all.others).map(|one| described(&all, one)).collect()
    }

    fn ask(&self, mut wanted: Wanted, take: &mut dyn FnMut() -> Taken) {
        assert_none_held();
        let mut promised_bytes = 0u64;
        for round in 0..MOST_ROUNDS {
            if wanted.missing_bytes > 0 {
                match self.ask_once(wanted, round) {
                    // What they say that they have cached is a moment old.
                    0 if round == 0 => continue,
                    0 => break,
                    given_bytes => {
                        promised_bytes = promised_bytes.saturating_add(given_bytes);
                        self.change(|own| own.promise(given_bytes));
                    }
                }
            }
            match take() {
                Taken::Missing(bytes) if bytes > 0 => wanted.missing_bytes = bytes,
                _ => break,
            }
        }
        self.change(|own| own.promised_bytes = own.promised_bytes.saturating_sub(promised_bytes));
    }
}

/// The number of the container that the process is in: of the namespace that has its files, which
/// each container has for itself. The kernel gives no other namespace that is in use the same.
fn container() -> u64 {
    std::fs::metadata("/proc/self/ns/mnt").map_or(SOME_CONTAINER, |found| found.ino())
}

/// The first word of the command line, without its folder.
fn program() -> String {
    let line = process::command_line();
    let word = line.split(' ').next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Ignores poison: a thread that panicked leaves nothing inconsistent here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
