//! The limit of work for one comparison of rules.

/// A number of comparisons of two texts. A rule of a megabyte can stand for 10^12 single permissions, so the author
/// of rules must not decide how long comparing them takes. Once the budget is spent, nothing more counts as held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget(u64);

impl Budget {
    /// A budget of this many comparisons.
    pub fn new(comparisons: u64) -> Self {
        Self(comparisons)
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// Takes so many comparisons out.
    pub(crate) fn spend(&mut self, comparisons: usize) {
        let comparisons = u64::try_from(comparisons).unwrap_or(u64::MAX);
        self.0 = self.0.saturating_sub(comparisons);
    }

    /// Whether any of these is wanted, as far as the budget goes. Even to look at none costs something.
    pub(crate) fn any<T: Copy>(&mut self, all: &[T], mut wanted: impl FnMut(T) -> bool) -> bool {
        if self.is_spent() {
            return false;
        }
        let found = all.iter().position(|&one| wanted(one));
        self.spend(found.unwrap_or(all.len()) + 1);
        found.is_some()
    }
}

impl Default for Budget {
    /// A fraction of a second. Five hundred Roles of ten ordinary rules each, for an owner with as many rules as
    /// the ClusterRole `admin`, take a tenth of it.
    fn default() -> Self {
        Self(100_000_000)
    }
}
