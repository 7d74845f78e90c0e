//! Whole-column operators on text, at every level and in both layouts, against one row at a time.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may; its numbers are small")]

mod guard;

use std::cmp::Ordering;

use guard::AtPageEnd;
use keirin_kernels::text::{
    Inequality, LayoutError, LikePattern, Offset, Pad, SearchMethod, Strings, Text, Views, char_lengths,
    compare_constant, ends_with, equal_constant, facts, is_ascii, is_utf8, like, starts_with, trimmed,
};
use keirin_kernels::{BitBuffer, Bits, Level, Selection};
use keirin_testkit::columns::{Random, Spread, miri_or};
use keirin_testkit::oracle::{self, text as naive};
use proptest::prelude::*;

/// Rows in both layouts, with bytes before the first row that are no row's, ending where memory ends.
struct Column {
    rows: Vec<Vec<u8>>,
    offsets: AtPageEnd<i32>,
    wide_offsets: AtPageEnd<i64>,
    bytes: AtPageEnd<u8>,
    views: AtPageEnd<u128>,
}

impl Column {
    fn new(rows: &[impl AsRef<[u8]>], bytes_before: usize) -> Self {
        let rows: Vec<Vec<u8>> = rows.iter().map(|row| row.as_ref().to_vec()).collect();
        let mut bytes = vec![b'a'; bytes_before];
        let mut offsets = vec![i32::try_from(bytes.len()).unwrap()];
        let mut views = Vec::new();
        for row in &rows {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&u32::try_from(row.len()).unwrap().to_le_bytes());
            if row.len() <= 12 {
                view[4..4 + row.len()].copy_from_slice(row);
            } else {
                view[4..8].copy_from_slice(&row[..4]);
                view[8..12].copy_from_slice(&1_u32.to_le_bytes());
                view[12..].copy_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
            }
            views.push(u128::from_le_bytes(view));
            bytes.extend_from_slice(row);
            offsets.push(i32::try_from(bytes.len()).unwrap());
        }
        let wide_offsets: Vec<i64> = offsets.iter().copied().map(i64::from).collect();
        Self {
            rows,
            offsets: AtPageEnd::new(&offsets),
            wide_offsets: AtPageEnd::new(&wide_offsets),
            bytes: AtPageEnd::new(&bytes),
            views: AtPageEnd::new(&views),
        }
    }

    /// `row_count` rows of up to `len_max` letters of a small alphabet with spaces.
    fn random(row_count: usize, len_max: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut row = || -> Vec<u8> {
            let len = random.below(len_max + 1);
            (0..len).map(|_| *b"ab \t".get(random.below(6) as usize).unwrap_or(&b'a')).collect()
        };
        let rows: Vec<_> = (0..row_count).map(|_| row()).collect();
        Self::new(&rows, seed as usize % 9)
    }

    fn strings(&self, level: Level) -> Strings<'_, i32> {
        Strings::new(level, &self.offsets, &self.bytes).unwrap()
    }

    fn wide_strings(&self, level: Level) -> Strings<'_, i64> {
        Strings::new(level, &self.wide_offsets, &self.bytes).unwrap()
    }

    fn bits(&self, holds: impl Fn(&[u8]) -> bool) -> BitBuffer {
        self.rows.iter().map(|row| holds(row)).collect()
    }
}

/// Calls `$check!` with the column in each layout.
macro_rules! each_layout {
    ($column:expr, $level:expr, |$layout:ident| $check:expr) => {{
        let $layout = $column.strings($level);
        $check;
        let $layout = $column.wide_strings($level);
        $check;
        let buffers: [&[u8]; 2] = [&[], &$column.bytes];
        let $layout = Views::new(&$column.views, &buffers).unwrap();
        $check;
    }};
}

fn check_offsets<O: Offset>(level: Level, column: &Column, strings: Strings<'_, O>, constant: &[u8]) {
    let context = format!("{level}: {constant:?} among {:?}", column.rows);
    assert_eq!(equal_constant(level, strings, constant), column.bits(|row| row == constant), "{context}");
    assert_eq!(
        starts_with(level, strings, constant),
        column.bits(|row| row.starts_with(constant)),
        "{context}"
    );
    assert_eq!(ends_with(level, strings, constant), column.bits(|row| row.ends_with(constant)), "{context}");
}

fn naive_compare(pad: Pad, left: &[u8], right: &[u8]) -> Ordering {
    match pad {
        Pad::None => left.cmp(right),
        Pad::Trim => naive::trimmed(left).cmp(&naive::trimmed(right)),
        Pad::Fill => naive::compare_filled(left, right),
    }
}

const PADS: [Pad; 3] = [Pad::None, Pad::Trim, Pad::Fill];

fn check_order<T: Text>(level: Level, column: &Column, layout: T, constant: &[u8]) {
    for pad in PADS {
        for inequality in Inequality::ALL {
            let expected = column.bits(|row| inequality.holds(naive_compare(pad, row, constant)));
            let actual = compare_constant(level, layout, inequality, constant, pad);
            assert_eq!(actual, expected, "{level}: {inequality:?} {constant:?} {pad:?} {:?}", column.rows);
        }
    }
}

fn check_constants(column: &Column, constants: &[&[u8]]) {
    for level in Level::available() {
        for constant in constants {
            check_offsets(*level, column, column.strings(*level), constant);
            check_offsets(*level, column, column.wide_strings(*level), constant);
            each_layout!(column, *level, |layout| check_order(*level, column, layout, constant));
        }
    }
}

#[test]
fn constants_of_every_length_are_found_in_their_places() {
    let letters: Vec<u8> = b"abcdefghij".iter().copied().cycle().take(80).collect();
    let mut rows: Vec<Vec<u8>> = Vec::new();
    for len in (0..70).step_by(miri_or(23, 1)) {
        rows.push(letters[..len].to_vec());
        rows.push(letters[..len].iter().rev().copied().collect());
        // One wrong byte, wherever it stands.
        let mut wrong = letters[..len].to_vec();
        if let Some(byte) = wrong.get_mut(len * 7 % len.max(1)) {
            *byte = b'z';
        }
        rows.push(wrong);
        rows.push([&letters[..len], b"  "].concat());
    }
    let column = Column::new(&rows, 3);
    for len in (0..70).step_by(miri_or(23, 1)) {
        check_constants(&column, &[&letters[..len], &[&letters[..len], &b" "[..]].concat()]);
    }
}

#[test]
fn every_count_of_rows_is_compared() {
    for row_count in
        (0..=200).chain([255, 256, 257, 1023, 1025]).step_by(miri_or(65, 1)).take(miri_or(3, 300))
    {
        let column = Column::random(row_count, 3 + row_count as u64 % 18, row_count as u64);
        let own = column.rows.first().cloned().unwrap_or_default();
        check_constants(&column, &[b"", b"a", b"ab", b"aa ab aba", &own]);
    }
}

#[test]
fn rows_as_long_as_the_constant_are_compared_however_many_they_are() {
    let row_count = miri_or(150, 4500);
    for (len, one_in) in
        [(1, 1), (3, 3), (5, 17), (8, 2), (12, 5), (16, 17), (20, 60), (31, 17), (40, 9), (8, 2000)]
            .into_iter()
            .step_by(miri_or(4, 1))
    {
        let (constant, mut random) = (&b"abcdefgh".repeat(5)[..len], Random::new(one_in));
        let row = |number: usize| {
            // Hits come and go, and rows that are wrong are so at their end or anywhere.
            let is_hit = number / 700 % 2 == 1 && random.below(3) == 0;
            let mut row = constant.to_vec();
            if !is_hit {
                let place = if random.below(2) == 0 { len - 1 } else { random.below(len as u64) as usize };
                row[place] = b'-';
            }
            if random.below(one_in) > 0 {
                let other = random.below(30) as usize;
                row.resize(if other < len { other } else { other + 1 }, b'x');
            }
            row
        };
        let rows: Vec<_> = (0..row_count).map(row).collect();
        let column = Column::new(&rows, 1);
        for level in Level::available() {
            for (first, last) in [(0, row_count), (1, row_count), (7, row_count - 30), (66, 140)] {
                let expected: BitBuffer = rows[first..last].iter().map(|row| row == constant).collect();
                let strings = Strings::new(*level, &column.offsets[first..=last], &column.bytes).unwrap();
                let narrow = equal_constant(*level, strings, constant);
                let strings =
                    Strings::new(*level, &column.wide_offsets[first..=last], &column.bytes).unwrap();
                let wide = equal_constant(*level, strings, constant);
                let context = format!("{level}: {len} bytes, one row in {one_in}, {first}..{last}");
                assert_eq!(narrow, expected, "{context}");
                assert_eq!(wide, expected, "{context}");
            }
        }
    }
}

fn check_like(column: &Column, pattern: &str, escape: Option<char>, selected: Option<&[bool]>) {
    let prepared = LikePattern::new(pattern, escape);
    let holds = |row: &Vec<u8>| naive::like(std::str::from_utf8(row).unwrap(), pattern, escape);
    let is_selected = |row: usize| selected.is_none_or(|flags| flags[row]);
    let expected: BitBuffer =
        column.rows.iter().enumerate().map(|(index, row)| is_selected(index) && holds(row)).collect();
    let bits: Option<BitBuffer> = selected.map(|flags| flags.iter().copied().collect());
    let numbers: Vec<u32> = oracle::rows(column.rows.len(), None, selected).map(|row| row as u32).collect();
    let all = bits.as_ref().map_or(Selection::All, |bits| Selection::Bits(bits.as_bits()));
    for level in Level::available() {
        let context = || format!("{level}: {pattern:?} escape {escape:?} in {:?}", column.rows);
        for selection in [all, Selection::Rows(&numbers)] {
            for method in SearchMethod::ALL {
                let name = method.name();
                let strings = column.strings(*level);
                assert_eq!(
                    like(*level, strings, &prepared, selection, method),
                    expected,
                    "{name} {}",
                    context()
                );
                let wide = column.wide_strings(*level);
                assert_eq!(
                    like(*level, wide, &prepared, selection, method),
                    expected,
                    "{name} {}",
                    context()
                );
            }
        }
    }
}

#[test]
fn patterns_of_every_kind_match_what_they_say() {
    let rows = [
        "",
        "a",
        "ab",
        "abc",
        "b",
        "ba",
        "aab",
        "äb",
        "ä",
        "a%b",
        "a_b",
        "a\\b",
        "abab",
        "xabyabz",
        "aXXb",
        "日本語",
        "日本",
        "本",
        "abc日本語xyz",
        "google",
        "www.google.com/search?q=zyx",
        "GOOGLE",
        "goo",
        "gle",
        "aaaaaaaaaaaab",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        "%",
        "_",
        "\\",
        "%%",
        "!",
    ];
    let patterns = [
        "",
        "%",
        "%%",
        "_",
        "__",
        "_%",
        "%_",
        "%_%",
        "a",
        "a%",
        "%a",
        "%a%",
        "a%b",
        "%a%b%",
        "a_b",
        "%a_b%",
        "_b",
        "b_",
        "%b_",
        "_b%",
        "%日%",
        "日_語",
        "%_語%",
        "_本_",
        "%本%z",
        "a\\%b",
        "a\\_b",
        "a\\\\b",
        "\\",
        "a!%b",
        "!!",
        "%!%%",
        "%google%",
        "%google%zyx%",
        "www%zyx",
        "%aaab",
        "%aaab%",
        "a%aaab",
        "aaa_%b",
        "%a%a%a%b%",
        "%abab%",
        "ab%ab",
        "%\u{0}%",
    ];
    let repeated: Vec<&str> = rows.iter().copied().cycle().take(rows.len() * miri_or(1, 5)).collect();
    let column = Column::new(&repeated, 5);
    for pattern in patterns.into_iter().step_by(miri_or(7, 1)) {
        for escape in [None, Some('\\'), Some('!'), Some('%'), Some('本')].into_iter().take(miri_or(2, 5)) {
            check_like(&column, pattern, escape, None);
        }
        for spread in Spread::ALL.into_iter().skip(miri_or(6, 0)) {
            check_like(&column, pattern, Some('\\'), Some(&spread.rows(repeated.len(), 3)));
        }
    }
}

#[test]
fn a_literal_across_two_rows_is_in_neither() {
    for row_count in [1, 2, 31, 32, 33, 63, 64, 65, 200].into_iter().step_by(miri_or(7, 1)) {
        let rows: Vec<&str> =
            ["xgoo", "gle", "", "google", "", "", "goog"].into_iter().cycle().take(row_count).collect();
        check_like(&Column::new(&rows, 1), "%google%", None, None);
        check_like(&Column::new(&rows, 1), "%go%le%", None, None);
    }
}

/// A whole buffer is searched in blocks, which end early where hits are many, and in another way from where
/// too many places look like hits.
#[test]
#[cfg_attr(miri, ignore = "a long column")]
fn columns_of_many_blocks_are_searched_to_their_ends() {
    let filler = "a long way from here to there ".repeat(3);
    // One position in three looks like the needle, whose letters out of step no probe sees.
    let almost = "aab".repeat(27);
    let found = ["a".repeat(10), "a".repeat(10)].join("b");
    let same = "a".repeat(4 << 10);
    let fillers = vec![filler.as_str(); 800];
    let columns = [
        (vec!["the needle"; 6000], "%needle%"),
        (vec!["ee"; 20_000], "%e%"),
        ([&["needle"], fillers.as_slice(), &["needl", "e", "needle"]].concat(), "%needle%"),
        (
            [&[&*found], &[&*almost; 600][..], &[&*found; 5], &fillers, &[&*found]].concat(),
            "%aaaaaaaaaabaaaaaaaaaa%",
        ),
        (vec![&*same; 60], &format!("%{}%", "a".repeat(3 << 10))),
        (vec![&*same; 60], &format!("%{}b%", "a".repeat(3 << 10))),
        (vec!["all these have the letter e several times"; 4000], "%e%"),
    ];
    for (rows, pattern) in columns {
        check_like(&Column::new(&rows, 1), pattern, None, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(miri_or(2, 256)))]

    #[test]
    fn patterns_match_as_backtracking_says(
        rows in proptest::collection::vec("[abä日%_!]{0,20}", 0..70),
        pattern in "[abä日%%__!]{0,8}",
        has_escape: bool,
        selected in proptest::option::of(proptest::collection::vec(any::<bool>(), 70)),
    ) {
        let column = Column::new(&rows, 2);
        let selected = selected.as_ref().map(|flags| &flags[..rows.len()]);
        check_like(&column, &pattern, has_escape.then_some('!'), selected);
    }

    #[test]
    fn no_bytes_make_a_pattern_panic(
        rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..10),
        pattern in "[é%_]{0,6}",
    ) {
        let column = Column::new(&rows, 0);
        let pattern = LikePattern::new(&pattern, None);
        for level in Level::available() {
            for method in SearchMethod::ALL {
                let bits = like(*level, column.strings(*level), &pattern, Selection::All, method);
                prop_assert_eq!(bits.len(), rows.len());
            }
        }
    }

    #[test]
    fn padded_order_is_that_of_filled_texts(left in "[a \t]{0,12}", right in "[a \t]{0,12}") {
        let (left, right) = (left.as_bytes(), right.as_bytes());
        for pad in PADS {
            prop_assert_eq!(pad.compare(left, right), naive_compare(pad, left, right));
        }
        prop_assert_eq!(trimmed(left), naive::trimmed(left));
    }
}

fn check_scan(rows: &[&str]) {
    let column = Column::new(rows, 0);
    for level in Level::available() {
        each_layout!(column, *level, |layout| {
            let known = facts(*level, layout);
            assert_eq!(known.is_ascii, rows.iter().all(|row| row.is_ascii()), "{level}: {rows:?}");
            assert_eq!(
                known.has_trailing_spaces,
                rows.iter().any(|row| row.ends_with(' ')),
                "{level}: {rows:?}"
            );
            let lengths: Vec<i64> =
                char_lengths(*level, layout, known).into_iter().map(|length| length.index() as i64).collect();
            let expected: Vec<i64> = rows.iter().map(|row| row.chars().count() as i64).collect();
            assert_eq!(lengths, expected, "{level}: {rows:?}");
        });
        assert_eq!(is_ascii(*level, &column.bytes), column.bytes.is_ascii());
        #[cfg(feature = "arrow")]
        check_case_of_views(*level, rows);
        assert!(is_utf8(*level, column.strings(*level)));
    }
}

#[cfg(feature = "arrow")]
fn check_case_of_views(level: Level, rows: &[&str]) {
    use arrow_array::{Array, StringViewArray};
    use keirin_kernels::arrow::change_case_of_views;
    use keirin_kernels::text::Case;
    let nullable = |rows: &[&str], change: fn(&str) -> String| -> StringViewArray {
        let value = |(row, text): (usize, &&str)| (row % 5 != 3).then(|| change(text));
        rows.iter().enumerate().map(value).collect()
    };
    let texts = nullable(rows, str::to_owned);
    for (case, change) in
        [(Case::Lower, str::to_lowercase as fn(&str) -> String), (Case::Upper, str::to_uppercase)]
    {
        let changed = change_case_of_views(level, &texts, case);
        let expected = texts.is_ascii().then(|| nullable(rows, change));
        assert_eq!(changed, expected, "{level}: {rows:?}");
        if let Some(changed) = changed {
            changed.to_data().validate_full().expect("views, buffers and nulls fit");
        }
    }
}

#[test]
fn facts_lengths_and_cases_are_those_of_each_row() {
    check_scan(&[]);
    check_scan(&[""]);
    check_scan(&["", " ", ""]);
    check_scan(&["abc", "A long line that no view holds inside", "x "]);
    check_scan(&["twelve bytes", "@AZ[`az{\u{7f}", "it is not twelve bytes @AZ[`az{\u{7f}", "x"]);
    check_scan(&["Straße", "ÀÉÎ", "ὈΔΥΣΣΕΎΣ", "İstanbul", "日本語 日本語 日本語", ""]);
    let many: Vec<&str> =
        ["Ab", "", "Z[`{@", "É", "abcdefgh", "éééé"].into_iter().cycle().take(miri_or(70, 333)).collect();
    check_scan(&many);
    check_scan(&many.iter().copied().filter(|row| row.is_ascii()).collect::<Vec<_>>());
}

#[test]
fn rows_that_are_not_utf8_are_noticed() {
    let level = Level::best();
    let cut = Column::new(&[&"é".as_bytes()[..1], &"é".as_bytes()[1..]], 0);
    assert!(!is_utf8(level, cut.strings(level)), "both bytes together are UTF-8");
    let broken = Column::new(&[&b"\xFF"[..]], 0);
    assert!(!is_utf8(level, broken.strings(level)));
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    for level in Level::available() {
        let check =
            |offsets: &[i32]| Strings::new(*level, offsets, b"0123456789").map(|column| column.row_count());
        assert_eq!(check(&[]), Err(LayoutError::NoOffsets));
        assert_eq!(check(&[0]), Ok(0));
        assert_eq!(check(&[3, 3, 10]), Ok(2));
        for offsets in [&[-1, 2][..], &[0, 11], &[0, 5, 4], &[5, 4, 10], &[0, -1, 10], &[0, 11, 10]] {
            assert_eq!(check(offsets), Err(LayoutError::Offsets), "{offsets:?}");
        }
        let many: Vec<i32> = (0..100).map(|row| if row == 77 { 3 } else { row / 10 }).collect();
        assert_eq!(check(&many), Err(LayoutError::Offsets));
    }
    let buffer: &[u8] = b"a text of some length";
    let check = |len: u32, head: &[u8; 4], index: u32, offset: u32| {
        let mut view = [0; 16];
        view[..4].copy_from_slice(&len.to_le_bytes());
        view[4..8].copy_from_slice(head);
        view[8..12].copy_from_slice(&index.to_le_bytes());
        view[12..].copy_from_slice(&offset.to_le_bytes());
        Views::new(&[0, u128::from_le_bytes(view)], &[buffer]).map(|column| column.row(1).to_vec())
    };
    let refused = Err(LayoutError::View { row: 1 });
    assert_eq!(check(20, b"a te", 0, 0), Ok(buffer[..20].to_vec()));
    assert_eq!(check(2, b"ab\0\0", 0, 0), Ok(b"ab".to_vec()));
    assert_eq!(check(22, b"a te", 0, 0), refused);
    assert_eq!(check(20, b"a te", 1, 0), refused);
    assert_eq!(check(20, b"a te", 0, 2), refused);
    assert_eq!(check(20, b"text", 0, 0), refused);
    assert_eq!(check(2, b"abc\0", 0, 0), refused);
    assert_eq!(check(2, b"ab\0\0", 0, 1), refused);
    assert_eq!(check(u32::MAX, b"a te", 0, 0), refused);
}

#[test]
fn a_selection_of_another_length_is_a_bug_of_the_caller() {
    let column = Column::new(&["a", "b"], 0);
    let bits = Bits::new(&[1], 0, 1);
    let pattern = LikePattern::new("%a%", None);
    let attempt = std::panic::catch_unwind(|| {
        let level = Level::portable();
        like(level, column.strings(level), &pattern, Selection::Bits(bits), SearchMethod::WholeBuffer)
    });
    assert!(attempt.is_err());
}
