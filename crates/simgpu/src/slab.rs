//! A table whose keys are never reused: index and generation in one number.
//!
//! Key = generation × 2^32 + index + 1, so it is never 0. The key of a removed entry stays unknown
//! until its slot has been reused 2^32 times.

#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Adds `value` and returns its key.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        key(slot.generation, index)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let (generation, index) = parts(key)?;
        self.slots.get(index).filter(|slot| slot.generation == generation)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (generation, index) = parts(key)?;
        self.slots.get_mut(index).filter(|slot| slot.generation == generation)?.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let (generation, index) = parts(key)?;
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index as u32);
        Some(value)
    }

    /// Every entry with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (key(slot.generation, index as u32), value))
        })
    }
}

fn key(generation: u32, index: u32) -> u64 {
    (u64::from(generation) << 32) | (u64::from(index) + 1)
}

fn parts(key: u64) -> Option<(u32, usize)> {
    let index = (key & 0xFFFF_FFFF).checked_sub(1)?;
    Some(((key >> 32) as u32, index as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_removed_entries_stay_unknown() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(0), slab.get(u64::MAX)), (None, None));
        assert_eq!((slab.get(second), slab.len()), (Some(&'b'), 1));
    }
}
