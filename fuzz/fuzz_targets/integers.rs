//! Any bytes as a column of integers: an error, or as many rows as were asked for, and every answer that of the
//! decoded rows.

#![no_main]

use keirin_codecs::Error;
use keirin_codecs::integers::{Column, Int};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, low, high, place], bytes)) = input.split_first_chunk::<4>() else { return };
    // Of their own, so that the sanitizer sees their end.
    let (bytes, count) = (bytes.to_vec(), usize::from(low) | usize::from(high & 0x0F) << 8);
    for level in [Level::portable(), Level::best()] {
        match kind % 9 {
            0 => check::<u8>(level, &bytes, count, place),
            1 => check::<i8>(level, &bytes, count, place),
            2 => check::<u16>(level, &bytes, count, place),
            3 => check::<i16>(level, &bytes, count, place),
            4 => check::<u32>(level, &bytes, count, place),
            5 => check::<i32>(level, &bytes, count, place),
            6 => check::<u64>(level, &bytes, count, place),
            7 => check::<i64>(level, &bytes, count, place),
            _ => check::<i128>(level, &bytes, count, place),
        }
    }
});

fn check<T: Int>(level: Level, bytes: &[u8], count: usize, place: u8) {
    let Ok(column) = Column::<T>::open(level, bytes, count) else { return };
    assert_eq!(column.len(), count);
    assert!(!column.explain().is_empty());
    let middle = count * usize::from(place) / 256;
    let mut part = vec![T::default(); count - middle];
    let part_outcome = column.decode_into(level, middle, &mut part);
    let rows: Vec<u32> = (0_u32..).take(count).step_by(1 + usize::from(place % 32)).collect();
    let kept: BitBuffer = (0..count).map(|row| row * usize::from(place) % 7 < 3).collect();
    let by_rows = column.select(level, Selection::Rows(&rows));
    let by_bits = column.select(level, Selection::Bits(kept.as_bits()));
    let by_bits_narrow = column.select_narrow(level, Selection::Bits(kept.as_bits()));
    let sum = column.sum(level, middle..count);
    let constant = part.first().copied().unwrap_or_default();
    let compared = Comparison::ALL.map(|comparison| column.compare(level, comparison, constant));
    let Ok(values) = column.decode(level) else { return };
    // What decodes whole answers everything.
    assert_eq!(part_outcome, Ok(()));
    assert!(part == values[middle..]);
    assert!(by_rows.expect("rows") == rows.iter().map(|row| values[*row as usize]).collect::<Vec<_>>());
    assert!(by_bits.expect("bits") == kept.as_bits().ones().map(|row| values[row]).collect::<Vec<_>>());
    let narrow: Option<Vec<i64>> = values.iter().map(|value| i64::try_from(value.to_i128()).ok()).collect();
    match (by_bits_narrow.expect("narrow"), narrow) {
        (Some(found), Some(all)) => assert!(found == kept.as_bits().ones().map(|row| all[row]).collect::<Vec<_>>()),
        (None, Some(_)) => panic!("all have room"),
        _ => {}
    }
    let expected = part.iter().try_fold(0_i128, |sum, value| sum.checked_add(value.to_i128()));
    match sum {
        Ok(sum) => assert!(expected.is_none_or(|expected| expected == sum)),
        Err(error) => assert!(error == Error::SumOverflow && size_of::<T>() == 16),
    }
    for (comparison, found) in Comparison::ALL.into_iter().zip(compared) {
        assert_eq!(found, Ok(compare_constant(level, comparison, &values, constant)), "{comparison:?}");
    }
}
