//! Operators on columns of text against arrow's kernels: short texts (4 to 20 bytes) and URLs (30 to 90).
//!
//! A batch has 256K rows and no nulls; equality is also shown for 16K rows, where a CPU learns by heart which
//! rows have the constant's length, and for 1M. `LIKE` has a race pick the method for each block of rows. `keirin` works on offsets, `keirin:views` on 16-byte views.

use arrow::array::{Array, BooleanArray, Scalar, StringArray, StringViewArray};
use arrow::compute::kernels::cmp;
use arrow::compute::kernels::comparison::{like as arrow_like, starts_with as arrow_starts_with};
use keirin_kernels::text::{
    Facts, Inequality, LikePattern, Pad, SearchMethod, Strings, Text, Views, char_lengths, compare_constant,
    equal_constant, facts, is_utf8, like, starts_with,
};
use keirin_kernels::{BitBuffer, Level, Selection, count_ones};
use keirin_race::Race;
use keirin_testkit::columns::Random;

use super::memory::below;
use crate::duel::{Lane, Report, Unit};

const ROW_COUNT: usize = 256 << 10;
const ROW_COUNT_QUICK: usize = 16 << 10;
const ROW_COUNT_LARGE: usize = 1 << 20;
/// Rows for which a race picks a variant.
const BLOCK_ROWS: usize = 32 << 10;

pub(super) fn run(report: &mut Report) {
    let row_count = if report.is_quick() { ROW_COUNT_QUICK } else { ROW_COUNT };
    for kind in [Kind::Short, Kind::Url] {
        let column = Column::new(kind, row_count, |_, _| {});
        equality(report, kind, &column);
        if !report.is_quick() {
            equality(report, kind, &Column::new(kind, ROW_COUNT_QUICK, |_, _| {}));
            equality(report, kind, &Column::new(kind, ROW_COUNT_LARGE, |_, _| {}));
        }
        order(report, kind, &column);
        block(report, kind, &column);
        likes(report, kind, row_count);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Short,
    Url,
}

impl Kind {
    fn name(self) -> &'static str {
        if self == Self::Short { "short" } else { "url" }
    }

    fn text(self, random: &mut Random) -> Vec<u8> {
        const LETTERS: &[u8] = b"etaonisrhdlucmfywgpbvkxq0123456789-/";
        let (head, len) = match self {
            Self::Short => ("", 4 + random.below(17)),
            Self::Url => ("http://", 23 + random.below(61)),
        };
        let letters = (0..len).map(|_| LETTERS[below(random, LETTERS.len())]);
        head.bytes().chain(letters).collect()
    }
}

struct Column {
    array: StringArray,
    view_array: StringViewArray,
    views: Vec<u128>,
}

impl Column {
    fn new(kind: Kind, row_count: usize, change: impl Fn(&mut Vec<u8>, &mut Random)) -> Self {
        let mut random = Random::new(11);
        let rows = (0..row_count).map(|_| {
            let mut row = kind.text(&mut random);
            change(&mut row, &mut random);
            String::from_utf8(row).expect("ASCII")
        });
        let array = StringArray::from_iter_values(rows);
        let view_array: StringViewArray = array.iter().collect();
        let views = view_array.views().to_vec();
        Self { array, view_array, views }
    }

    fn strings(&self) -> Strings<'_, i32> {
        Strings::new(Level::best(), self.array.value_offsets(), self.array.value_data())
            .expect("arrow checked it")
    }

    /// The column in blocks, each of which may be searched in its own way.
    fn blocks(&self) -> Vec<Strings<'_, i32>> {
        let (offsets, bytes) = (self.array.value_offsets(), self.array.value_data());
        let firsts = (0..self.array.len()).step_by(BLOCK_ROWS);
        let block = |first: usize| &offsets[first..=(first + BLOCK_ROWS).min(self.array.len())];
        firsts
            .map(|first| Strings::new(Level::best(), block(first), bytes).expect("arrow checked it"))
            .collect()
    }

    fn buffers(&self) -> Vec<&[u8]> {
        self.view_array.data_buffers().iter().map(|buffer| buffer.as_slice()).collect()
    }

    fn lane<'a>(&'a self, name: &str, rows: impl Fn(Strings<'a, i32>) -> BitBuffer + 'a) -> Lane<'a> {
        let strings = self.strings();
        Lane::new(name, move || ones(&rows(strings)))
    }
}

fn ones(rows: &BitBuffer) -> u64 {
    count_ones(Level::best(), rows.as_bits()) as u64
}

fn true_count(rows: &BooleanArray) -> u64 {
    rows.values().count_set_bits() as u64
}

fn equality(report: &mut Report, kind: Kind, column: &Column) {
    let level = Level::best();
    let count = column.array.len();
    let lens: &[usize] = if kind == Kind::Short { &[4, 8, 12, 16, 30] } else { &[4, 30, 45, 60, 90] };
    for len in lens {
        let of_that_len = (0..count).map(|row| column.array.value(row)).find(|text| text.len() == *len);
        let constant = of_that_len.map_or_else(|| "x".repeat(*len), str::to_owned);
        let bytes = constant.as_bytes();
        let scalar = Scalar::new(StringArray::from(vec![constant.as_str()]));
        let scalar_view = Scalar::new(StringViewArray::from(vec![constant.as_str()]));
        let size = match count {
            ROW_COUNT_QUICK => "l2",
            ROW_COUNT => "l3",
            _ => "large",
        };
        let name = format!("equal-constant/{}/{size}/{len}", kind.name());
        let equal = |left: &dyn arrow::array::Datum, right: &dyn arrow::array::Datum| {
            true_count(&cmp::eq(left, right).expect("the types agree"))
        };
        let lanes = vec![
            column.lane("keirin", |strings| equal_constant(level, strings, bytes)),
            Lane::new("arrow", || equal(&column.array, &scalar)),
            Lane::new("arrow:views", || equal(&column.view_array, &scalar_view)),
        ];
        report.case(&name, Unit::Rows, count, lanes);
    }
}

fn order(report: &mut Report, kind: Kind, column: &Column) {
    let (level, count) = (Level::best(), column.array.len());
    let buffers = column.buffers();
    let views = Views::new(&column.views, &buffers).expect("arrow checked it");
    let constant = if kind == Kind::Short { "middle" } else { "http://middle" };
    let scalar = Scalar::new(StringArray::from(vec![constant]));
    let less = Inequality::Less;
    let lanes = vec![
        column
            .lane("keirin", |strings| compare_constant(level, strings, less, constant.as_bytes(), Pad::None)),
        Lane::new("keirin:views", || {
            ones(&compare_constant(level, views, less, constant.as_bytes(), Pad::None))
        }),
        column.lane("keirin:pad-fill", |strings| {
            compare_constant(level, strings, less, constant.as_bytes(), Pad::Fill)
        }),
        Lane::new("arrow", || true_count(&cmp::lt(&column.array, &scalar).expect("the types agree"))),
        Lane::new("arrow:views", || {
            let scalar = Scalar::new(StringViewArray::from(vec![constant]));
            true_count(&cmp::lt(&column.view_array, &scalar).expect("the types agree"))
        }),
    ];
    report.case(&format!("less-constant/{}", kind.name()), Unit::Rows, count, lanes);

    let prefix = if kind == Kind::Short { "the" } else { "http://the" };
    let prefix_scalar = Scalar::new(StringArray::from(vec![prefix]));
    let lanes = vec![
        column.lane("keirin", |strings| starts_with(level, strings, prefix.as_bytes())),
        Lane::new("arrow", || {
            true_count(&arrow_starts_with(&column.array, &prefix_scalar).expect("both are text"))
        }),
    ];
    report.case(&format!("prefix/{}", kind.name()), Unit::Rows, count, lanes);
}

/// What is done once a block: facts, validation, lengths, case.
fn block(report: &mut Report, kind: Kind, column: &Column) {
    let (level, count, strings) = (Level::best(), column.array.len(), column.strings());
    let lanes = vec![Lane::new("keirin", move || u64::from(facts(level, strings).is_ascii))];
    report.case(&format!("facts/{}", kind.name()), Unit::Rows, count, lanes);

    let accented = Column::new(kind, count, |row, random| {
        let at = below(random, row.len());
        row.splice(at..at, "é".bytes());
    });
    for (name, column) in [("ascii", column), ("accented", &accented)] {
        let bytes = column.array.value_data();
        let strings = column.strings();
        let lanes = vec![
            Lane::new("keirin", move || u64::from(is_utf8(level, strings))),
            Lane::new("std", move || u64::from(std::str::from_utf8(bytes).is_ok())),
        ];
        report.case(&format!("utf8/{}/{name}", kind.name()), Unit::Bytes, bytes.len(), lanes);
        let known = Facts { is_ascii: name == "ascii", has_trailing_spaces: true };
        let total = |lengths: Vec<i32>| lengths.into_iter().map(|length| length as u64).sum();
        let lanes = vec![
            Lane::new("keirin", move || total(char_lengths(level, strings, known))),
            Lane::new("std", move || {
                column.array.iter().flatten().map(|text| text.chars().count() as u64).sum()
            }),
        ];
        report.case(&format!("char-length/{}/{name}", kind.name()), Unit::Rows, count, lanes);
    }
}

fn likes(report: &mut Report, kind: Kind, row_count: usize) {
    let level = Level::best();
    let plant = |row: &mut Vec<u8>, random: &mut Random, text: &[u8]| {
        let at = if kind == Kind::Url { 7 + below(random, row.len() - 6) } else { below(random, row.len()) };
        row.splice(at..at, text.iter().copied());
    };
    let patterns = [
        ("%google%", [0.0, 0.01, 0.5].as_slice()),
        ("%google%zyx%", &[0.05]),
        ("%goo_le%", &[0.01]),
        ("http%google%", &[0.01]),
    ];
    for (pattern, shares) in patterns {
        for share in shares {
            let name = format!("like/{}/{pattern}/{}%", kind.name(), share * 100.0);
            if !report.wants(&name) {
                continue;
            }
            let column = Column::new(kind, row_count, |row, random| {
                if random.chance(*share) {
                    if pattern.contains("zyx") && random.chance(0.5) {
                        plant(row, random, b"zyx");
                    }
                    plant(row, random, b"google");
                }
            });
            let prepared = LikePattern::new(pattern, Some('\\'));
            let scalar = Scalar::new(StringArray::from(vec![pattern]));
            let scalar_view = Scalar::new(StringViewArray::from(vec![pattern]));
            let all = Selection::All;
            let prepared = &prepared;
            let (blocks, race) =
                (&column.blocks(), &Race::new(&SearchMethod::ALL.map(SearchMethod::name), 0));
            let search = |block: &Strings<'_, i32>, method| ones(&like(level, *block, prepared, all, method));
            let raced = |block: &Strings<'_, i32>| {
                race.run(block.row_count() as u64, |arm| search(block, SearchMethod::ALL[arm]))
            };
            let fixed = |method: SearchMethod| {
                let work = move || blocks.iter().map(|block| search(block, method)).sum();
                Lane::new(&format!("keirin:{}", method.name()), work)
            };
            // No lane of ours comes behind one that does the same: it would find the branches learnt.
            let lanes = vec![
                Lane::new("keirin", || blocks.iter().map(raced).sum()),
                fixed(SearchMethod::EachRow),
                Lane::new("arrow", || {
                    true_count(&arrow_like(&column.array, &scalar).expect("both are text"))
                }),
                fixed(SearchMethod::WholeBuffer),
                Lane::new("arrow:views", || {
                    true_count(&arrow_like(&column.view_array, &scalar_view).expect("both are text"))
                }),
            ];
            report.case(&name, Unit::Rows, row_count, lanes);
        }
    }
}
