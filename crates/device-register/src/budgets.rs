//! Who may take how much, and who gives back first: sums over the entries of a register.
//!
//! ```text
//! taken     = max(charged + promised, guarantee)
//! room      = total − charged − Σ taken of the others        promises do not count within the own guarantee
//!             at most the container's limit − Σ (charged + promised) of its processes
//! budget    = guarantee + (total − Σ guarantees) × weight / Σ weights,   at most the limit
//! spare     = charged − guarantee     for who stays within its budget with what it needs
//!           = charged − budget        for who goes beyond it
//! ```
//!
//! So a guarantee is kept free for its owner also while it is not used. Budgets only say who gives:
//! a process below its budget gets what anybody has cached; one above it gets only what others hold
//! above theirs. Without a weight a process has no budget beyond its guarantee, and gives all else.
//!
//! A container's limit counts for all its processes together. What one of them gives back helps the
//! others against that limit; what a process outside gives does not.

use std::cmp::Reverse;

use crate::entry::Entry;

/// The processes that share a device: one, and those beside it.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    /// The one.
    pub own: Entry,
    /// The others.
    pub others: Vec<Entry>,
}

impl Neighbourhood {
    fn all(&self) -> impl Iterator<Item = &Entry> {
        self.others.iter().chain([&self.own])
    }

    /// The device's memory, in bytes. A process that the driver limits sees less of it than others.
    fn total_bytes(&self) -> u64 {
        self.all().map(|entry| entry.total_bytes).fold(0, u64::max)
    }

    /// How much more the one may charge at `now_ns`, in bytes.
    pub fn room_bytes(&self, now_ns: u64) -> u64 {
        self.device_room_bytes(now_ns).min(self.container_room_bytes(now_ns))
    }

    /// What the limit of the one's container leaves, in bytes; `u64::MAX` if it has none.
    fn container_room_bytes(&self, now_ns: u64) -> u64 {
        if self.own.container == 0 {
            return u64::MAX;
        }
        let inside = self.others.iter().filter(|other| self.is_beside(other));
        let taken =
            inside.map(|other| other.charged_bytes.saturating_add(other.promised_bytes_at(now_ns)));
        let all_bytes = taken.fold(self.own.charged_bytes, u64::saturating_add);
        self.own.container_limit_bytes.saturating_sub(all_bytes)
    }

    /// Returns true if the other is in the one's container, which has a limit.
    fn is_beside(&self, other: &Entry) -> bool {
        self.own.container != 0 && other.container == self.own.container
    }

    /// What the device has left for the one, in bytes.
    fn device_room_bytes(&self, now_ns: u64) -> u64 {
        let own_bytes = self.own.charged_bytes;
        let left_bytes = |held: &dyn Fn(&Entry) -> u64| {
            let taken = self.others.iter().map(|other| held(other).max(other.guarantee_bytes));
            let all_bytes = taken.fold(own_bytes, u64::saturating_add);
            self.total_bytes().saturating_sub(all_bytes)
        };
        let unpromised_bytes = left_bytes(&|other| {
            other.charged_bytes.saturating_add(other.promised_bytes_at(now_ns))
        });
        let guaranteed_bytes = self.own.guarantee_bytes.saturating_sub(own_bytes);
        left_bytes(&|other| other.charged_bytes).min(guaranteed_bytes.max(unpromised_bytes))
    }

    /// What `one` of them may hold if everybody wants more, in bytes.
    pub fn budget_bytes(&self, one: &Entry) -> u64 {
        let guarantees = self.all().map(|entry| entry.guarantee_bytes);
        let open_bytes = self.total_bytes().saturating_sub(guarantees.fold(0, u64::saturating_add));
        let weights: u64 = self.all().map(|entry| u64::from(entry.weight)).sum();
        let part = u128::from(open_bytes) * u128::from(one.weight) / u128::from(weights.max(1));
        one.guarantee_bytes.saturating_add(part as u64).min(one.limit_bytes)
    }

    /// The most that the one gives back for `asker`, one of the others, which needs so many bytes more.
    pub fn spare_bytes(&self, asker: &Entry, needed_bytes: u64) -> u64 {
        let all_bytes = asker.charged_bytes.saturating_add(needed_bytes);
        let keeps_bytes = if all_bytes <= self.budget_bytes(asker) {
            self.own.guarantee_bytes
        } else {
            self.budget_bytes(&self.own).max(self.own.guarantee_bytes)
        };
        self.own.charged_bytes.saturating_sub(keeps_bytes)
    }

    /// Who can help the one to `wanted_bytes` more at `now_ns`: if its container's limit does not leave
    /// as much, only those in the container.
    pub fn helpers(&self, wanted_bytes: u64, now_ns: u64) -> impl Iterator<Item = &Entry> {
        let is_full = self.container_room_bytes(now_ns) < wanted_bytes;
        let can_help = move |other: &&Entry| other.door != 0 && (!is_full || self.is_beside(other));
        self.others.iter().filter(can_help)
    }

    /// Whom of `helpers` the one asks for how many of `missing_bytes`: those first that are furthest
    /// above their budget, each for what it says is cached.
    pub fn asked<'a>(
        &self,
        helpers: impl Iterator<Item = &'a Entry>,
        missing_bytes: u64,
    ) -> Vec<(&'a Entry, u64)> {
        let excess =
            |other: &Entry| i128::from(other.charged_bytes) - i128::from(self.budget_bytes(other));
        let mut order: Vec<&Entry> = helpers.collect();
        order.sort_by_key(|other| Reverse(excess(other)));
        let mut left_bytes = missing_bytes;
        let mut part = |other: &Entry| {
            let bytes = other.cached_bytes.min(left_bytes);
            left_bytes -= bytes;
            bytes
        };
        let parts = order.into_iter().map(|other| (other, part(other)));
        parts.filter(|(_, bytes)| *bytes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{NO_LIMIT, PROMISE_LASTS};

    /// One that holds `charged` of 100, a third of it cached.
    fn entry(door: u64, charged_bytes: u64) -> Entry {
        Entry {
            door,
            weight: 100,
            total_bytes: 100,
            charged_bytes,
            cached_bytes: charged_bytes / 3,
            limit_bytes: NO_LIMIT,
            ..Entry::default()
        }
    }

    fn with(own: Entry, others: &[Entry]) -> Neighbourhood {
        Neighbourhood { own, others: others.to_vec() }
    }

    #[test]
    fn a_guarantee_is_kept_free_and_what_is_promised_too() {
        let room = |own: Entry, other: Entry, now_ns| with(own, &[other]).room_bytes(now_ns);
        let guaranteed = Entry { guarantee_bytes: 50, ..entry(2, 10) };
        assert_eq!(room(entry(1, 20), guaranteed.clone(), 0), 30);
        assert_eq!(room(guaranteed.clone(), entry(1, 20), 0), 70);
        let promised =
            |bytes| Entry { promised_bytes: bytes, promised_since_ns: 1, ..entry(3, 10) };
        assert_eq!(room(entry(1, 20), promised(40), 5), 30);
        let late_ns = 5 + PROMISE_LASTS.as_nanos() as u64;
        assert_eq!(room(entry(1, 20), promised(40), late_ns), 70);
        // Within a guarantee only what is held counts.
        assert_eq!(room(guaranteed.clone(), promised(60), 5), 40);
        assert_eq!(room(guaranteed, Entry { charged_bytes: 70, ..promised(60) }, 5), 20);
    }

    #[test]
    fn nothing_underflows() {
        let everything =
            Entry { charged_bytes: u64::MAX, guarantee_bytes: u64::MAX, ..entry(2, 0) };
        let one = with(entry(1, 20), &[everything.clone(), everything.clone()]);
        assert_eq!(one.room_bytes(0), 0);
        assert_eq!(one.budget_bytes(&everything), u64::MAX);
        assert_eq!(one.asked(one.helpers(5, 0), 5), []);
        let other = with(everything, &[entry(1, 20)]);
        assert_eq!((other.room_bytes(0), other.spare_bytes(&entry(1, 20), 5)), (0, 0));
    }

    #[test]
    fn budgets_add_up_to_the_device() {
        let first = Entry { guarantee_bytes: 40, ..entry(1, 0) };
        let second = Entry { weight: 200, ..entry(2, 0) };
        let all = with(first.clone(), &[second.clone(), entry(3, 0)]);
        let budgets = [&first, &second, &entry(3, 0)].map(|one| all.budget_bytes(one));
        assert_eq!(budgets, [55, 30, 15]);
        assert_eq!(all.budget_bytes(&Entry { limit_bytes: 20, ..first }), 20);
    }

    #[test]
    fn who_holds_most_above_its_budget_is_asked_first_and_for_no_more_than_is_missing() {
        let (some, most) = (entry(2, 30), Entry { cached_bytes: 50, ..entry(3, 60) });
        let all = with(entry(1, 10), &[some.clone(), most.clone(), entry(0, 90)]);
        let asked = |bytes| all.asked(all.helpers(bytes, 0), bytes);
        assert_eq!(asked(55), [(&most, 50), (&some, 5)]);
        assert_eq!(asked(20), [(&most, 20)]);
        assert_eq!(asked(0), []);
    }

    #[test]
    fn who_is_above_its_budget_gets_only_what_others_hold_above_theirs() {
        let giver = |charged_bytes, asker_bytes| {
            let own = Entry { guarantee_bytes: 20, ..entry(2, charged_bytes) };
            let asker = entry(1, asker_bytes);
            with(own, std::slice::from_ref(&asker)).spare_bytes(&asker, 10)
        };
        // Budgets are 40 for the asker, 60 for the giver.
        assert_eq!(giver(45, 30), 25);
        assert_eq!(giver(45, 31), 0);
        assert_eq!(giver(68, 31), 8);
    }

    #[test]
    fn without_weights_all_is_given_but_what_is_guaranteed() {
        let own = Entry { weight: 0, guarantee_bytes: 20, ..entry(2, 90) };
        let asker = Entry { weight: 0, ..entry(1, 10) };
        let all = with(own, std::slice::from_ref(&asker));
        assert_eq!(all.spare_bytes(&asker, 80), 70);
        assert_eq!(all.asked(all.helpers(80, 0), 80), [(&asker, 3)]);
    }

    #[test]
    fn a_containers_limit_counts_for_its_processes_together() {
        let inside =
            |door, bytes| Entry { container: 7, container_limit_bytes: 50, ..entry(door, bytes) };
        let elsewhere = Entry { container: 8, ..inside(4, 25) };
        let (beside, outside) = (inside(2, 15), entry(3, 20));
        let others = [beside.clone(), outside.clone(), elsewhere.clone()];
        let all = with(inside(1, 10), &others);
        assert_eq!(all.room_bytes(0), 25);
        let promised = Entry { promised_bytes: 5, ..beside.clone() };
        assert_eq!(with(inside(1, 10), &[promised]).room_bytes(0), 20);
        // Each is told its own limit.
        let other_limit = Entry { container_limit_bytes: 200, ..inside(1, 10) };
        assert_eq!(with(other_limit, &others).room_bytes(0), 30, "the device's");
        assert_eq!(with(outside.clone(), &[inside(1, 40), beside.clone()]).room_bytes(0), 25);
        assert_eq!(with(inside(1, 40), std::slice::from_ref(&beside)).room_bytes(0), 0);
        // Only those inside help against it.
        assert_eq!(all.helpers(26, 0).collect::<Vec<_>>(), [&beside]);
        assert_eq!(all.helpers(25, 0).count(), 3);
    }
}
