//! Merging sorted parts: one stripe of each is in memory, and each row is compared and copied a few times, however
//! many parts there are.
//!
//! A round writes the rows of all inputs up to a bound, the first of those rows that end what is visible of an input
//! with more to come. Each input finds its rows up to there by bisection, and only they are sorted together. An input
//! whose rows all precede those of the others is written as it is, so that parts of consecutive key ranges are
//! concatenated. Equal rows keep the order of their inputs.

use std::ops::Range;

use keirin_kernels::Level;

use crate::column::Column;
use crate::compaction::{Source, append, byte_count, empty, row_count};
use crate::error::Result;
use crate::part::STRIPE_ROWS;
use crate::schema::Definition;
use crate::sort::sort_rows;

/// Rows that are looked at in a round, of all inputs together.
const ROUND_ROWS: usize = if cfg!(test) { 64 } else { STRIPE_ROWS };
/// Approximate bytes of those rows.
pub(crate) const ROUND_BYTES: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };

/// Sorted rows: some in memory, the others behind them in a part.
pub(crate) struct Input {
    source: Source,
    rows: Vec<Column<'static>>,
    /// How many of the rows in memory are written.
    written: usize,
}

impl Input {
    /// A sorted part that is not read yet.
    pub(crate) fn new(source: Source) -> Self {
        Self { source, rows: Vec::new(), written: 0 }
    }

    /// Rows that were read to the end of their part, and sorted.
    pub(crate) fn of_rows(source: Source, rows: Vec<Column<'static>>) -> Self {
        Self { source, rows, written: 0 }
    }

    fn is_written(&self) -> bool {
        self.written == row_count(&self.rows)
    }

    /// The end of the rows in memory that a round looks at, if it is of as many inputs.
    fn visible(&self, input_count: usize) -> usize {
        let rows = row_count(&self.rows);
        let row_bytes = byte_count(&self.rows) / rows.max(1);
        let share = ROUND_ROWS.min(ROUND_BYTES / row_bytes.max(1)) / input_count;
        rows.min(self.written + share.max(1))
    }

    /// Whether there are rows behind `end` of those in memory.
    fn has_more(&self, end: usize) -> bool {
        end < row_count(&self.rows) || !self.source.is_at_end()
    }

    /// The rows from the first one that is not written up to `end`.
    fn to(&self, end: usize) -> Vec<Column<'_>> {
        self.rows.iter().map(|column| column.slice(self.written..end)).collect()
    }

    /// Reads on if all rows in memory are written. Fails if the rows are not in order.
    fn read(&mut self, keys: &Keys) -> Result<()> {
        if !self.is_written() || self.source.is_at_end() {
            return Ok(());
        }
        let mut checked = keys.empty();
        if let Some(last) = self.written.checked_sub(1) {
            keys.append(&mut checked, &self.rows, last..last + 1)?;
        }
        (self.rows, self.written) = (self.source.next(keys.level)?, 0);
        while row_count(&self.rows) == 0 && !self.source.is_at_end() {
            self.rows = self.source.next(keys.level)?;
        }
        keys.append(&mut checked, &self.rows, 0..row_count(&self.rows))?;
        if keys.order(&checked)?.is_sorted() { Ok(()) } else { Err(self.source.not_sorted()) }
    }
}

/// The columns of a table's key, as a table of their own.
struct Keys {
    definition: Definition,
    /// Their places among the columns of the table.
    places: Vec<usize>,
    level: Level,
}

impl Keys {
    fn new(level: Level, table: &Definition) -> Self {
        let places: Vec<usize> = table.keys.iter().filter_map(|key| table.index_of(key.field)).collect();
        let fields = places.iter().map(|place| table.fields[*place].clone()).collect();
        Self { definition: Definition { fields, ..table.clone() }, places, level }
    }

    fn empty(&self) -> Vec<Column<'static>> {
        empty(&self.definition)
    }

    /// Appends the keys of some of the rows.
    fn append(&self, keys: &mut [Column<'static>], rows: &[Column<'_>], range: Range<usize>) -> Result<()> {
        let of_rows: Vec<_> = self.places.iter().map(|place| rows[*place].slice(range.clone())).collect();
        append(keys, &of_rows)
    }

    fn order(&self, keys: &[Column<'_>]) -> Result<Vec<u32>> {
        sort_rows(self.level, &self.definition, keys)
    }

    /// The order of rows, each of an input, as places in `rows`. Equal rows keep their order.
    fn order_of(&self, inputs: &[Input], rows: &[(usize, usize)]) -> Result<Vec<usize>> {
        let mut keys = self.empty();
        for &(input, row) in rows {
            self.append(&mut keys, &inputs[input].rows, row..row + 1)?;
        }
        Ok(self.order(&keys)?.into_iter().map(|place| place as usize).collect())
    }

    /// The input whose rows in memory all precede those of the others, if there is one.
    fn alone(&self, inputs: &[Input]) -> Result<Option<usize>> {
        let firsts: Vec<_> = inputs.iter().enumerate().map(|(place, input)| (place, input.written)).collect();
        let order = self.order_of(inputs, &firsts)?;
        let (Some(&first), Some(&next)) = (order.first(), order.get(1)) else {
            return Ok(order.first().copied());
        };
        let mut pair = [(first, row_count(&inputs[first].rows) - 1), (next, inputs[next].written)];
        pair.sort_unstable();
        let order = self.order_of(inputs, &pair)?;
        Ok((pair[order[0]].0 == first).then_some(first))
    }

    /// For each input the end of the rows that a round writes.
    fn ends(&self, inputs: &[Input]) -> Result<Vec<usize>> {
        let mut ends: Vec<usize> = inputs.iter().map(|input| input.visible(inputs.len())).collect();
        let open: Vec<_> = (0..inputs.len())
            .filter(|input| inputs[*input].has_more(ends[*input]))
            .map(|input| (input, ends[input] - 1))
            .collect();
        let Some(&bound) = self.order_of(inputs, &open)?.first() else { return Ok(ends) };
        let bound = open[bound];
        // The rows of each input before its `least` precede the bound or are it; those from its end on do not.
        let mut least: Vec<usize> = inputs.iter().map(|input| input.written).collect();
        least[bound.0] = ends[bound.0];
        loop {
            let probes: Vec<_> = (0..inputs.len())
                .filter(|input| least[*input] < ends[*input])
                .map(|input| (input, least[input].midpoint(ends[input])))
                .collect();
            if probes.is_empty() {
                return Ok(ends);
            }
            let mut rows = probes;
            rows.push(bound);
            rows.sort_unstable();
            let mut is_before = true;
            for place in self.order_of(inputs, &rows)? {
                let (input, row) = rows[place];
                if rows[place] == bound {
                    is_before = false;
                } else if is_before {
                    least[input] = row + 1;
                } else {
                    ends[input] = row;
                }
            }
        }
    }
}

/// Writes the rows of all inputs in the order of the table's key.
pub(crate) fn merge(
    level: Level,
    table: &Definition,
    mut inputs: Vec<Input>,
    write: &mut dyn FnMut(&[Column<'_>]) -> Result<()>,
) -> Result<()> {
    let keys = Keys::new(level, table);
    loop {
        inputs.iter_mut().try_for_each(|input| input.read(&keys))?;
        inputs.retain(|input| !input.is_written());
        if inputs.is_empty() {
            return Ok(());
        }
        if let Some(alone) = keys.alone(&inputs)? {
            let input = &mut inputs[alone];
            let end = row_count(&input.rows);
            write(&input.to(end))?;
            input.written = end;
            continue;
        }
        let ends = keys.ends(&inputs)?;
        let mut rows = empty(table);
        for (input, end) in inputs.iter_mut().zip(ends) {
            append(&mut rows, &input.to(end))?;
            input.written = end;
        }
        let order = sort_rows(level, table, &rows)?;
        let sorted: Vec<_> = rows.iter().map(|column| column.take(level, &order)).collect();
        write(&sorted)?;
    }
}

#[cfg(test)]
mod tests {
    use keirin_kernels::Selection;

    use crate::column::{Column, Flags, Values};
    use crate::part::WriteOptions;
    use crate::schema::{DataType, Definition, SortKey};
    use crate::simulated_disk::Random;
    use crate::tests::recovery::{new, open};

    /// A nullable key, a second one, and a number that tells which row it is.
    type Row = (Option<i64>, i64, i64);

    fn columns(rows: &[Row]) -> [Column<'static>; 3] {
        let column = |values: Vec<i64>| Column { validity: None, values: Values::I64(values.into()) };
        let mut first = column(rows.iter().map(|row| row.0.unwrap_or(0)).collect());
        first.validity = Some(Flags::Owned(rows.iter().map(|row| row.0.is_some()).collect()));
        [
            first,
            column(rows.iter().map(|row| row.1).collect()),
            column(rows.iter().map(|row| row.2).collect()),
        ]
    }

    fn rows(columns: &[Column<'_>]) -> Vec<Row> {
        let numbers = |column: usize| match &columns[column].values {
            Values::I64(values) => &values[..],
            other => panic!("{other:?}"),
        };
        let valid = |row| columns[0].validity_bits().is_none_or(|bits| bits.get(row));
        (0..columns[0].row_count())
            .map(|row| (valid(row).then(|| numbers(0)[row]), numbers(1)[row], numbers(2)[row]))
            .collect()
    }

    /// The first key descends with the nulls last, the second ascends.
    fn sort(rows: &mut [Row]) {
        rows.sort_by_key(|(first, second, _)| (std::cmp::Reverse(*first), *second));
    }

    #[test]
    fn parts_are_merged_as_a_stable_sort_would() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let database = open(&new());
            let names = ["a", "b", "row"].map(|name| (name, DataType::I64));
            let mut definition = Definition::new("main", "t", names.to_vec());
            definition.keys = [true, false]
                .iter()
                .zip(0..)
                .map(|(is_descending, field)| SortKey {
                    field,
                    is_descending: *is_descending,
                    nulls_first: false,
                })
                .collect();
            let mut transaction = database.begin().unwrap();
            let table = transaction.create_table(definition).unwrap();
            let (mut expected, mut parts, mut number) = (Vec::new(), Vec::new(), 0);
            let key_count = [2, 50, 100_000][random.below(3)];
            // Parts of one range of keys, or of one range each.
            let step = [0, 0, 30, key_count][random.below(4)];
            for part in 0..1 + random.below(12) {
                let is_sorted = random.below(5) > 0;
                let mut part_rows: Vec<Row> = (0..1 + random.below(400))
                    .map(|_| {
                        number += 1;
                        let mut key = || i64::try_from(part * step + random.below(key_count)).unwrap();
                        let first = key();
                        ((first % 7 != 0).then_some(first), key(), number)
                    })
                    .collect();
                if is_sorted {
                    sort(&mut part_rows);
                }
                let options = WriteOptions { is_sorted, ..WriteOptions::default() };
                let mut writer = transaction.write_part(table, options).unwrap();
                for stripe in part_rows.chunks(1 + random.below(200)) {
                    writer.push(&columns(stripe)).unwrap();
                    writer.end_stripe().unwrap();
                }
                let part = writer.finish().unwrap();
                parts.push(part.number);
                transaction.add_part(table, part).unwrap();
                expected.extend(part_rows);
            }
            transaction.commit().unwrap();
            let mut transaction = database.begin().unwrap();
            transaction.compact(table, &parts, WriteOptions::default()).unwrap();
            transaction.commit().unwrap();

            sort(&mut expected);
            let snapshot = database.snapshot();
            let table = snapshot.table(table).unwrap();
            let mut merged = Vec::new();
            for part in table.parts() {
                let reader = snapshot.open_part(table, part).unwrap();
                assert_eq!(reader.keys().len(), 2);
                for stripe in 0..reader.stripe_count() {
                    let read = |column| reader.read(column, stripe, Selection::All).unwrap();
                    merged.extend(rows(&[0, 1, 2].map(read)));
                }
            }
            assert_eq!(merged, expected, "seed {seed}");
        }
    }
}
