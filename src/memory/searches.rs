//! Searches for free extents. Each marks the extents that it finds, so that whether it has found one is
//! known without a set.

/// The searches of a device so far.
#[derive(Debug, Default)]
pub struct Searches {
    count: u64,
    /// For each extent, by number, the last search that has found it free, and its index among those
    /// found: apart from the extents, because a search reads all of them.
    marks: Vec<(u64, u32)>,
}

impl Searches {
    /// The number of a new search.
    pub fn begin(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Records that `search` has found the extent free, as the one of `index`.
    pub fn mark(&mut self, id: u32, search: u64, index: u32) {
        if let Some(mark) = self.marks.get_mut(id as usize) {
            *mark = (search, index);
        }
    }

    /// The index of the extent among those that `search` has found free.
    #[inline]
    pub fn index_in(&self, search: u64, id: u32) -> Option<usize> {
        let &(by, index) = self.marks.get(id as usize)?;
        (by == search).then_some(index as usize)
    }

    /// The extent `id` is new: no search has found it.
    pub(super) fn add(&mut self, id: u32) {
        if self.marks.len() <= id as usize {
            self.marks.resize(id as usize + 1, (0, 0));
        }
        self.marks[id as usize] = (0, 0);
    }
}
