//! Any bytes as a column of text: an error, or as many rows as were asked for, no more text than is allowed, and
//! every answer that of the decoded rows.

#![no_main]

use keirin_codecs::strings::{Buffer, Column, Dictionary, Rows};
use keirin_kernels::text::Text;
use keirin_kernels::{BitBuffer, Level, Selection};
use libfuzzer_sys::fuzz_target;

const BYTE_LIMIT: usize = 1 << 18;

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high, place], bytes)) = input.split_first_chunk::<3>() else { return };
    // Of their own, so that the sanitizer sees their end.
    let (bytes, count) = (bytes.to_vec(), usize::from(low) | usize::from(high & 0x0F) << 8);
    for level in [Level::portable(), Level::best()] {
        check(level, &bytes, count, usize::from(place));
    }
});

fn check(level: Level, bytes: &[u8], count: usize, place: usize) {
    let Ok(column) = Column::open(level, bytes, count, BYTE_LIMIT) else { return };
    assert_eq!(column.len(), count);
    assert!(!column.explain().is_empty());
    let middle = count * place / 256;
    let part = column.decode_range(level, middle..count);
    let rows: Vec<u32> = (0_u32..).take(count).step_by(1 + place % 32).collect();
    let kept: BitBuffer = (0..count).map(|row| row * place % 7 < 3).collect();
    let by_rows = column.select(level, Selection::Rows(&rows));
    let by_bits = column.select(level, Selection::Bits(kept.as_bits()));
    let is_wanted = |row: &[u8]| row.len() % 3 == 1 || row.contains(&b'e');
    let tested =
        column.test(level, |rows| (0..rows.row_count()).map(|row| is_wanted(rows.row(row))).collect());
    let selections = [
        (Selection::All, (0..count).collect()),
        (Selection::Rows(&rows), rows.iter().map(|row| *row as usize).collect()),
        (Selection::Bits(kept.as_bits()), kept.as_bits().ones().collect::<Vec<_>>()),
    ];
    let answers = selections.map(|(selection, rows)| {
        (rows, column.lengths(level, selection), column.dictionary(level, selection))
    });
    for (rows, lengths, dictionary) in &answers {
        assert!(lengths.as_ref().map_or(true, |lengths| lengths.len() == rows.len()));
        if let Ok(Some(Dictionary { codes, entries })) = dictionary {
            assert_eq!(codes.len(), rows.len());
            assert!(entries.bytes.len() <= BYTE_LIMIT);
            assert!(codes.iter().all(|code| (*code as usize) < entries.rows(level).row_count()));
        }
    }
    let Ok(text) = column.decode(level) else { return };
    assert!(text.bytes.len() <= BYTE_LIMIT);
    let all = text.rows(level);
    assert_eq!(all.row_count(), count);
    for (rows, lengths, dictionary) in answers {
        let wanted = || rows.iter().map(|row| all.row(*row));
        let wanted_lengths: Vec<usize> = wanted().map(<[u8]>::len).collect();
        let lengths = lengths.expect("what decodes has lengths");
        assert_eq!(lengths.iter().map(|length| *length as usize).collect::<Vec<_>>(), wanted_lengths);
        if let Some(Dictionary { codes, entries }) = dictionary.expect("what decodes has entries") {
            let entries = entries.rows(level);
            assert!(codes.iter().map(|code| entries.row(*code as usize)).eq(wanted()));
        }
    }
    // What decodes whole answers everything, but symbols whose rows end elsewhere than their text: nothing looks at
    // each row's end where all rows are wanted.
    if column.explain().starts_with("fsst(") {
        assert!(part.is_err() || part.is_ok_and(|text| text.offsets.len() == count - middle + 1));
        return;
    }
    assert_eq!(part, Ok(buffer(all, middle..count)));
    assert_eq!(by_rows, Ok(buffer(all, rows.iter().map(|row| *row as usize))));
    assert_eq!(by_bits, Ok(buffer(all, kept.as_bits().ones())));
    assert_eq!(tested, Ok((0..count).map(|row| is_wanted(all.row(row))).collect()));
}

fn buffer(all: Rows<'_>, rows: impl Iterator<Item = usize>) -> Buffer {
    rows.map(|row| all.row(row)).collect()
}
