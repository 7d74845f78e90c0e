//! Which values of a column are in one stripe and no other, as most are where a table is sorted by it.

/// Values that several stripes may have.
#[derive(Debug)]
pub(crate) struct Clusters {
    /// From the first value to the last, both included; ascending, with a gap between each and the next.
    shared: Vec<(i64, i64)>,
}

/// A table of fewer stripes is grouped soon enough.
const STRIPES_MIN: usize = 4;
/// Of the stripes, one in so many may share more than half of the values between its bounds.
const SHARING_MAX: usize = 8;

impl Clusters {
    /// Of stripes with values between these bounds; `None` if too many values are shared.
    pub(super) fn of(mut spans: Vec<(i64, i64)>) -> Option<Self> {
        if spans.len() < STRIPES_MIN {
            return None;
        }
        spans.sort_unstable();
        let mut shared: Vec<(i64, i64)> = Vec::new();
        let mut reach = spans[0].1;
        for (least, greatest) in &spans[1..] {
            if *least <= reach {
                let end = reach.min(*greatest);
                match shared.last_mut() {
                    Some(last) if *least <= last.1.saturating_add(1) => last.1 = last.1.max(end),
                    _ => shared.push((*least, end)),
                }
            }
            reach = reach.max(*greatest);
        }
        let clusters = Self { shared };
        let sharing = spans.iter().filter(|span| 2 * clusters.shared_in(**span) > width(**span)).count();
        (sharing * SHARING_MAX <= spans.len()).then_some(clusters)
    }

    /// How many values of a span are shared.
    fn shared_in(&self, (least, greatest): (i64, i64)) -> u128 {
        let first = self.shared.partition_point(|shared| shared.1 < least);
        let inside = self.shared[first..].iter().take_while(|shared| shared.0 <= greatest);
        inside.map(|shared| width((shared.0.max(least), shared.1.min(greatest)))).sum()
    }

    /// Which values only one stripe can have, asked one after another: fast for values of one stripe.
    pub(crate) fn look_up(&self) -> impl FnMut(i64) -> bool + '_ {
        // Between which values, both not included, nothing is shared.
        let mut gap = None;
        move |value| {
            if gap.is_some_and(|(start, end)| start < value && value < end) {
                return true;
            }
            let next = self.shared.partition_point(|shared| shared.1 < value);
            let (start, end) = (next.checked_sub(1).map(|last| self.shared[last].1), self.shared.get(next));
            if end.is_some_and(|shared| shared.0 <= value) {
                return false;
            }
            gap = Some((start.unwrap_or(i64::MIN), end.map_or(i64::MAX, |shared| shared.0)));
            true
        }
    }
}

/// How many values there are.
fn width((least, greatest): (i64, i64)) -> u128 {
    u128::from(greatest.abs_diff(least)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_stripes_are_shared() {
        let spans = [(10, 20), (i64::MIN, -5), (20, 30), (31, 40), (38, 50), (-4, 10), (60, i64::MAX)];
        let clusters = Clusters::of(spans.to_vec()).unwrap();
        assert_eq!(clusters.shared, [(10, 10), (20, 20), (38, 40)]);
        let mut is_whole = clusters.look_up();
        for value in (-10..70).chain([i64::MIN, i64::MAX]) {
            let stripes = spans.iter().filter(|span| (span.0..=span.1).contains(&value)).count();
            assert_eq!(is_whole(value), stripes < 2, "{value}");
        }
    }

    #[test]
    fn rows_in_no_order_have_no_clusters() {
        assert!(Clusters::of((0..20).map(|stripe| (stripe % 3, 1_000 - stripe)).collect()).is_none());
        assert!(Clusters::of(vec![(0, 5), (6, 9)]).is_none());
        // Stripes of one value each, which others have, too.
        assert!(Clusters::of((0..20).map(|stripe| (stripe / 2, stripe / 2)).collect()).is_none());
        assert!(Clusters::of((0..20).map(|stripe| (stripe, stripe + 1)).collect()).is_none());
        // One stripe of late rows among those in order.
        let mut spans: Vec<_> = (0..20).map(|stripe| (stripe * 10, stripe * 10 + 9)).collect();
        spans[7] = (0, 200);
        assert!(Clusters::of(spans).is_none());
    }
}
