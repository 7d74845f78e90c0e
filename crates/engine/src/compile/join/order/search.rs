//! What trees of joins cost, and the cheapest.

use datafusion::common::JoinType;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::HashJoinExec;

use super::{Equality, Expr, Graph, Joined, Keys, Set, Step, Tree, columns_of, groups, rows, statistics};

/// So many times cheaper another order has to be than the one that is written.
const GAIN: f64 = 4.0;
/// Joins that cost no more are not worth a thought: some milliseconds.
const CHEAP: f64 = 1e6;
/// Of so many relations all trees are compared: 3^10 splits.
const ALL_TREES: usize = 10;
/// What a row of the build side costs, in rows of the probe side.
const BUILD_ROW: f64 = 2.0;
/// The least part of rows that are taken to be in a set of keys, and not to be in one.
const LEAST_INSIDE: f64 = 0.001;
const LEAST_OUTSIDE: f64 = 0.1;

impl Graph {
    /// Distinct values of an expression in its relation, if they are known.
    fn distinct(&self, expression: &Expr) -> Option<f64> {
        let [column] = columns_of(expression)[..] else { return None };
        let relation = &self.relations[self.relation_of_column(column)];
        relation.distinct[column - relation.first].map(|count| count.min(relation.rows).max(1.0))
    }

    /// The part of a relation's rows whose keys are in a set, or are not.
    pub(super) fn kept(&self, join: &HashJoinExec, on: &[(Expr, Expr)], relation: usize) -> Option<f64> {
        let found = statistics(join.right())?;
        let left = rows(join.right())?;
        let relation = &self.relations[relation];
        let (mut keys, mut all) = (left, relation.all_rows);
        if let [(key, asked)] = on {
            let column = asked.downcast_ref::<Column>();
            let distinct = column.and_then(|column| {
                found.column_statistics.get(column.index())?.distinct_count.get_value().copied()
            });
            keys = keys.min(distinct.map_or(f64::INFINITY, |count| count as f64));
            // Of a relation with a condition, only the distinct values behind it are known.
            if relation.rows >= relation.all_rows {
                all = self.distinct(key).unwrap_or(all);
            }
        }
        let mut inside = (keys / all.max(1.0)).min(1.0);
        // Groups by the keys are all keys, of which a HAVING leaves some.
        if let Some(groups) = groups(join.right()) {
            inside = inside.min(left / groups);
        }
        Some(match join.join_type() {
            JoinType::LeftSemi => inside.max(LEAST_INSIDE),
            _ => (1.0 - inside).max(LEAST_OUTSIDE),
        })
    }

    /// The part of pairs of rows of two relations that passes their equalities.
    pub(super) fn paired(&self, one: usize, other: usize) -> f64 {
        let [first, second] = [one, other].map(|relation| &self.relations[relation]);
        // No more keys than the smaller table has rows.
        let most = first.all_rows.min(second.all_rows).max(1.0);
        let (mut values, mut count) = (1.0, 0);
        for equality in &self.equalities {
            if equality.relations == [one, other] || equality.relations == [other, one] {
                values *= match equality.sides.each_ref().map(|side| self.distinct(side)) {
                    [Some(one), Some(other)] => one.max(other),
                    [one, other] => one.or(other).unwrap_or(most).max(most),
                };
                count += 1;
            }
        }
        if count > 1 {
            values = values.min(most);
        }
        1.0 / values
    }

    /// The rows of joined relations.
    fn rows(&self, joined: Joined) -> f64 {
        let is_in = |relation: usize| joined.relations >> relation & 1 == 1;
        let mut rows: f64 = (0..self.relations.len())
            .filter(|relation| is_in(*relation))
            .map(|relation| self.relations[relation].rows)
            .product();
        for (number, keys) in self.keys.iter().enumerate() {
            if joined.keys >> number & 1 == 1 {
                rows *= keys.kept;
            }
        }
        for one in (0..self.relations.len()).filter(|relation| is_in(*relation)) {
            for other in (one + 1..self.relations.len()).filter(|relation| is_in(*relation)) {
                rows *= self.pairs[one][other];
            }
        }
        rows.max(1.0)
    }

    /// All sets of keys of these relations.
    fn with_keys(&self, relations: Set) -> Joined {
        let of_these = |keys: &Keys| relations >> keys.relation & 1 == 1;
        let keys = self.keys.iter().enumerate().filter(|(_, keys)| of_these(keys));
        Joined { relations, keys: keys.fold(0, |all, (number, _)| all | 1 << number) }
    }

    fn cost_as_written(&self) -> f64 {
        let cost = |step: &Step| match step {
            Step::Join(left, right) => cost(self.rows(*left), self.rows(*right), self.rows(left.and(*right))),
            Step::Keys(number, joined) => {
                let after = Joined { keys: joined.keys | 1 << number, ..*joined };
                cost(self.rows(*joined), self.keys[*number].rows, self.rows(after))
            }
        };
        self.written.iter().map(cost).sum()
    }

    /// The cost of applying the sets of keys to each relation.
    fn cost_of_keys(&self) -> f64 {
        let mut applied = vec![0; self.relations.len()];
        let mut sum = 0.0;
        for (number, keys) in self.keys.iter().enumerate() {
            let before = Joined { relations: 1 << keys.relation, keys: applied[keys.relation] };
            applied[keys.relation] |= 1 << number;
            let after = Joined { keys: applied[keys.relation], ..before };
            sum += cost(self.rows(before), keys.rows, self.rows(after));
        }
        sum
    }

    /// A tree that costs much less than the one that is written.
    pub(super) fn better(&self) -> Option<Tree> {
        let written = self.cost_as_written();
        if written < CHEAP {
            return None;
        }
        let (cost, tree) =
            if self.relations.len() <= ALL_TREES { self.cheapest()? } else { self.by_pairs()? };
        (cost + self.cost_of_keys() < written / GAIN).then_some(tree)
    }

    /// For each relation, those that an equality connects with it.
    fn neighbours(&self) -> Vec<Set> {
        let mut neighbours = vec![0; self.relations.len()];
        for Equality { relations: [left, right], .. } in &self.equalities {
            neighbours[*left] |= 1 << right;
            neighbours[*right] |= 1 << left;
        }
        neighbours
    }

    /// The cheapest of all trees without cross products.
    fn cheapest(&self) -> Option<(f64, Tree)> {
        let count = self.relations.len();
        let neighbours = self.neighbours();
        let of_set = |set: usize| {
            (0..count).filter(|one| set >> one & 1 == 1).fold(0, |all, one| all | neighbours[one] as usize)
        };
        let near: Vec<usize> = (0..1 << count).map(of_set).collect();
        let rows: Vec<f64> = (0..1 << count).map(|set| self.rows(self.with_keys(set as Set))).collect();
        // The cost of each set and one side of its best join, which is the set itself for a single relation.
        let mut best: Vec<Option<(f64, usize)>> = vec![None; 1 << count];
        for set in 1_usize..1 << count {
            if set.is_power_of_two() {
                best[set] = Some((0.0, set));
                continue;
            }
            let mut side = (set - 1) & set;
            // Each pair of sides once.
            while side > set ^ side {
                let other = set ^ side;
                if near[side] & other != 0
                    && let (Some((left, _)), Some((right, _))) = (best[side], best[other])
                {
                    let sum = left + right + cost(rows[side], rows[other], rows[set]);
                    if best[set].is_none_or(|(least, _)| sum < least) {
                        best[set] = Some((sum, side));
                    }
                }
                side = (side - 1) & set;
            }
        }
        let whole = (1 << count) - 1;
        Some((best[whole]?.0, self.tree(&best, &rows, whole)))
    }

    fn tree(&self, best: &[Option<(f64, usize)>], rows: &[f64], set: usize) -> Tree {
        let side = best[set].map_or(set, |(_, side)| side);
        if side == set {
            return Tree::Relation(set.trailing_zeros() as usize);
        }
        let mut sides = [side, set ^ side];
        sides.sort_by(|one, other| rows[*one].total_cmp(&rows[*other]));
        Tree::Join(Box::new(sides.map(|side| self.tree(best, rows, side))))
    }

    /// Joins the pair that costs least, until one tree is left.
    fn by_pairs(&self) -> Option<(f64, Tree)> {
        let neighbours = self.neighbours();
        let mut trees: Vec<Tree> = (0..self.relations.len()).map(Tree::Relation).collect();
        let mut sum = 0.0;
        while trees.len() > 1 {
            let mut least: Option<(f64, usize, usize)> = None;
            for one in 0..trees.len() {
                for other in one + 1..trees.len() {
                    let [left, right] = [trees[one].relations(), trees[other].relations()];
                    let is_near =
                        |near: &Set, relation: usize| left >> relation & 1 == 1 && near & right != 0;
                    if !neighbours.iter().enumerate().any(|(relation, near)| is_near(near, relation)) {
                        continue;
                    }
                    let [rows, right_rows, both] =
                        [left, right, left | right].map(|set| self.rows(self.with_keys(set)));
                    let cost = cost(rows, right_rows, both);
                    if least.is_none_or(|(least, ..)| cost < least) {
                        least = Some((cost, one, other));
                    }
                }
            }
            let (cost, one, other) = least?;
            sum += cost;
            let right = trees.swap_remove(other);
            let left = trees.swap_remove(one);
            let rows = |tree: &Tree| self.rows(self.with_keys(tree.relations()));
            let mut sides = [left, right];
            if rows(&sides[0]) > rows(&sides[1]) {
                sides.reverse();
            }
            trees.push(Tree::Join(Box::new(sides)));
        }
        Some((sum, trees.pop()?))
    }
}

/// What joining costs, in rows of the probe side.
fn cost(left: f64, right: f64, joined: f64) -> f64 {
    left.max(right) + BUILD_ROW * left.min(right) + joined
}
