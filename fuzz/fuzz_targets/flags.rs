//! Any bytes as flags: an error, or as many as were asked for, and every answer that of the decoded flags.

#![no_main]

use keirin_codecs::flags::Column;
use keirin_kernels::{BitBuffer, Level, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high, place], bytes)) = input.split_first_chunk::<3>() else { return };
    // Of their own, so that the sanitizer sees their end.
    let (bytes, count) = (bytes.to_vec(), usize::from(low) | usize::from(high & 0x3F) << 8);
    for level in [Level::portable(), Level::best()] {
        let Ok(column) = Column::open(level, &bytes, count) else { return };
        let flags = column.decode();
        assert_eq!(flags.len(), count);
        let flags = flags.as_bits();
        assert_eq!(column.count_ones(level), flags.ones().count());
        let middle = count * usize::from(place) / 256;
        let part: BitBuffer = (middle..count).map(|row| flags.get(row)).collect();
        assert_eq!(column.decode_range(middle, count - middle), part);
        let rows: Vec<u32> = (0_u32..).take(count).step_by(1 + usize::from(place % 32)).collect();
        let by_rows: BitBuffer = rows.iter().map(|row| flags.get(*row as usize)).collect();
        assert_eq!(column.select(level, Selection::Rows(&rows)), by_rows);
        let kept: BitBuffer = (0..count).map(|row| row * usize::from(place) % 7 < 3).collect();
        let by_bits: BitBuffer = kept.as_bits().ones().map(|row| flags.get(row)).collect();
        assert_eq!(column.select(level, Selection::Bits(kept.as_bits())), by_bits);
    }
});
