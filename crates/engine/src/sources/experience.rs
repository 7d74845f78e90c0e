//! What was learnt of a filter from stripe to stripe, or from row group to row group: what it costs, and how many rows
//! it drops. The cheapest way to drop a row comes first; a filter that drops next to none rests for some turns.
//!
//! (The order of filters by cost over the share of rows that they drop: Hellerstein and Stonebraker, "Predicate
//! Migration", SIGMOD 1993.)

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experience {
    /// Nanoseconds a row, reading its columns included.
    cost: f64,
    passing: f64,
    is_tried: bool,
    /// Turns for which the filter is not tried.
    resting: usize,
}

impl Experience {
    /// How much of it a new turn replaces: others change their filters while they are used.
    const NEW_SHARE: f64 = 0.25;

    /// A guess, before the filter was tried: what it costs a row, and the share of rows that pass.
    pub(crate) fn guess(cost: f64, passing: f64) -> Self {
        Self { cost, passing, is_tried: false, resting: 0 }
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn add(&mut self, nanoseconds: u128, rows: usize, passed: usize) {
        if rows == 0 {
            return;
        }
        let (cost, passing) = (nanoseconds as f64 / rows as f64, passed as f64 / rows as f64);
        let share = if self.is_tried { Self::NEW_SHARE } else { 1.0 };
        self.cost += (cost - self.cost) * share;
        self.passing += (passing - self.passing) * share;
        self.is_tried = true;
    }

    /// The share of rows that pass.
    pub(crate) fn passing(&self) -> f64 {
        self.passing
    }

    /// The cost of dropping a row.
    pub(crate) fn rank(&self) -> f64 {
        self.cost / (1.0 - self.passing).max(1e-6)
    }

    /// The filter was narrowed, so that at most this share of rows may be expected to pass: it is tried again.
    pub(crate) fn narrowed(&mut self, passing: f64) {
        self.passing = self.passing.min(passing);
        self.resting = 0;
    }

    /// Has the filter rest for so many turns.
    pub(crate) fn rest(&mut self, turns: usize) {
        self.resting = turns;
    }

    /// Whether the filter may be tried; if it rests, one turn less from now on.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.resting == 0;
        self.resting = self.resting.saturating_sub(1);
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::Experience;

    #[test]
    fn what_drops_a_row_at_less_cost_comes_first() {
        let mut narrow = Experience::guess(1.0, 0.5);
        let wide = Experience::guess(9.0, 0.5);
        assert!(narrow.rank() < wide.rank());
        narrow.add(1000, 1000, 990);
        assert!(narrow.rank() > wide.rank(), "it drops one row of a hundred");
        narrow.add(0, 0, 0);
        assert!((narrow.passing() - 0.99).abs() < 1e-9, "no rows tell nothing");
    }

    #[test]
    fn a_filter_rests_for_some_turns_or_until_it_is_narrowed() {
        let mut filter = Experience::guess(1.0, 0.5);
        assert!(filter.is_due() && filter.is_due());
        filter.rest(2);
        assert_eq!([0; 4].map(|_| filter.is_due()), [false, false, true, true]);
        filter.rest(2);
        filter.narrowed(0.25);
        assert!(filter.is_due());
        assert!((filter.passing() - 0.25).abs() < 1e-9);
    }
}
