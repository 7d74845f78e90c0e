//! Any bytes as a column of floats: an error, or as many rows as were asked for, and every answer that of the
//! decoded rows.

#![no_main]

use keirin_codecs::floats::{Column, Float};
use keirin_kernels::compare::{Comparison, compare_constant};
use keirin_kernels::{BitBuffer, Level, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, low, high, place], bytes)) = input.split_first_chunk::<4>() else { return };
    // Of their own, so that the sanitizer sees their end.
    let (bytes, count) = (bytes.to_vec(), usize::from(low) | usize::from(high & 0x0F) << 8);
    for level in [Level::portable(), Level::best()] {
        match kind % 2 {
            0 => check::<f32>(level, &bytes, count, place),
            _ => check::<f64>(level, &bytes, count, place),
        }
    }
});

fn check<F: Float>(level: Level, bytes: &[u8], count: usize, place: u8) {
    let Ok(column) = Column::<F>::open(level, bytes, count) else { return };
    assert_eq!(column.len(), count);
    assert!(!column.explain().is_empty());
    let middle = count * usize::from(place) / 256;
    let mut part = vec![F::default(); count - middle];
    let part_outcome = column.decode_into(level, middle, &mut part);
    let rows: Vec<u32> = (0_u32..).take(count).step_by(1 + usize::from(place % 32)).collect();
    let kept: BitBuffer = (0..count).map(|row| row * usize::from(place) % 7 < 3).collect();
    let by_rows = column.select(level, Selection::Rows(&rows));
    let by_bits = column.select(level, Selection::Bits(kept.as_bits()));
    let constant = part.first().copied().unwrap_or_default();
    let compared = Comparison::ALL.map(|comparison| column.compare(level, comparison, constant));
    let Ok(values) = column.decode(level) else { return };
    // What decodes whole answers everything, to the bit.
    assert_eq!(part_outcome, Ok(()));
    assert_same(&part, values[middle..].iter());
    assert_same(&by_rows.expect("rows"), rows.iter().map(|row| &values[*row as usize]));
    assert_same(&by_bits.expect("bits"), kept.as_bits().ones().map(|row| &values[row]));
    for (comparison, found) in Comparison::ALL.into_iter().zip(compared) {
        assert_eq!(found, Ok(compare_constant(level, comparison, &values, constant)), "{comparison:?}");
    }
}

fn assert_same<'a, F: Float + 'a>(found: &[F], expected: impl Iterator<Item = &'a F>) {
    let expected: Vec<_> = expected.map(|value| value.bits()).collect();
    assert!(found.iter().map(|value| value.bits()).collect::<Vec<_>>() == expected);
}
