//! Names that events refer to by number: annotations and tags.
//!
//! The table is bounded: names after the last number share one name, "(others)".

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::lock::{Lock, rank};

/// The most names.
const CAPACITY: usize = 1 << 16;
const OTHERS: &str = "(others)";

/// Names by number and numbers by name. Any thread; a name keeps its number.
#[derive(Debug, Default)]
pub struct Names {
    table: Lock<Option<Table>, { rank::LEAF }>,
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    pub(super) const fn new() -> Self {
        Self { table: Lock::new(None) }
    }

    /// The number of `name`.
    pub fn number(&self, name: &str) -> u32 {
        let mut table = self.table.lock();
        let table = table.get_or_insert_default();
        if let Some(&number) = table.numbers.get(name) {
            return number;
        }
        let name = if table.names.len() < CAPACITY - 1 { name } else { OTHERS };
        if let Some(&number) = table.numbers.get(name) {
            return number;
        }
        let (name, number) = (Arc::<str>::from(name), table.names.len() as u32);
        table.names.push(Arc::clone(&name));
        table.numbers.insert(name, number);
        number
    }

    /// All names so far, by number.
    pub fn all(&self) -> Vec<Arc<str>> {
        self.table.lock().as_ref().map_or_else(Vec::new, |table| table.names.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers_and_are_bounded() {
        let names = Names::new();
        assert_eq!([names.number("a"), names.number("b"), names.number("a")], [0, 1, 0]);
        (0..2 * CAPACITY).for_each(|n| _ = names.number(&n.to_string()));
        assert_eq!(names.all().len(), CAPACITY);
        assert_eq!(&*names.all()[names.number("one more") as usize], OTHERS);
    }
}
