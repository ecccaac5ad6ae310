//! This process among those that share a device: what it writes into their register, and what it asks
//! of them.
//!
//! **Locks**: one, for the own entry, held while the register is read and written. None is held while
//! letters are on their way.

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
use crate::heap::{Neighbour, Neighbours, Taken};
use crate::process::{self, Mailbox, Watched, random_bytes};

/// How long answers to one question are waited for. A process that does not answer was stopped, or
/// waits for its driver; what it gives back later is there for the next request.
const PATIENCE: Duration = Duration::from_millis(200);
/// Others may take the memory first; they are asked so often for one request.
const MOST_ROUNDS: usize = 4;

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
        let mut own = Entry {
            process: std::process::id(),
            weight: settings.share_weight,
            total_bytes,
            limit_bytes: NO_LIMIT,
            door,
            key,
            program: program(),
            ..Entry::default()
        };
        let register = Register::join(&path, &card, &own).map_err(|error| named(&error))?;
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
            _watched: Watched::new(register.descriptor()),
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

    /// Asks others to give back `missing_bytes`: in the first `round` as much as each says that it
    /// has, later everybody for all of it. Returns what they gave.
    fn ask_once(&self, missing_bytes: u64, round: usize) -> u64 {
        let all = {
            let own = lock(&self.own);
            self.neighbourhood(&own)
        };
        let asked: Vec<(&Entry, u64)> = if round == 0 {
            all.asked(missing_bytes)
        } else {
            all.others.iter().map(|other| (other, missing_bytes)).collect()
        };
        let question =
            Question { uuid: self.uuid, asker: all.own.door, missing_bytes, ..NO_QUESTION };
        self.send(question, &asked).unwrap_or(0)
    }

    /// Sends the question to each with its part of the bytes, and waits for their answers.
    fn send(&self, question: Question, asked: &[(&Entry, u64)]) -> std::io::Result<u64> {
        let number = u64::from_le_bytes(random_bytes()?);
        let mailbox = Mailbox::open(&format!("genesis-question-{number:016x}"))?;
        let is_sent = |(other, bytes): &&(&Entry, u64)| {
            let letter = Question { number, key: other.key, bytes: *bytes, ..question }.encode();
            mailbox.send(&letters::door(other.door), &letter).is_ok()
        };
        let sent: Vec<u64> = asked.iter().filter(is_sent).map(|(other, _)| other.door).collect();
        let (answered, given_bytes) = self.collect(&mailbox, number, &sent);
        let mut silent = lock(&self.silent);
        silent.retain(|door| !sent.contains(door));
        silent.extend(sent.iter().filter(|door| !answered.contains(door)));
        Ok(given_bytes)
    }

    /// Waits for answers of those in `sent`, but not for those who did not answer the last time.
    /// Returns who has answered, and what they gave.
    fn collect(&self, mailbox: &Mailbox, number: u64, sent: &[u64]) -> (Vec<u64>, u64) {
        let silent = lock(&self.silent).clone();
        let deadline = Instant::now() + PATIENCE;
        let (mut answered, mut given_bytes) = (Vec::new(), 0u64);
        let mut letter = [0; letters::BYTES];
        while sent.iter().any(|door| !answered.contains(door) && !silent.contains(door)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(sender) = mailbox.receive(&mut letter, left) else { break };
            if sender.is_none() && left.is_zero() {
                break;
            }
            let answer = sender.and_then(|_| Answer::decode(&letter));
            if let Some(answer) = answer.filter(|answer| answer.number == number) {
                given_bytes = given_bytes.saturating_add(answer.bytes);
                answered.push(answer.door);
            }
        }
        (answered, given_bytes)
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

    fn ask(&self, bytes: u64, take: &mut dyn FnMut() -> Taken) {
        assert_none_held();
        let (mut missing_bytes, mut promised_bytes) = (bytes, 0);
        for round in 0..MOST_ROUNDS {
            if missing_bytes > 0 {
                match self.ask_once(missing_bytes, round) {
                    // What they say that they have cached is a moment old.
                    0 if round == 0 => continue,
                    0 => break,
                    given_bytes => {
                        promised_bytes += given_bytes;
                        self.change(|own| own.promise(given_bytes));
                    }
                }
            }
            match take() {
                Taken::Missing(bytes) if bytes > 0 => missing_bytes = bytes,
                _ => break,
            }
        }
        self.change(|own| own.promised_bytes = own.promised_bytes.saturating_sub(promised_bytes));
    }
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
