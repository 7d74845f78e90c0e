//! Checks of pages for the parquet crate's readers, which trust levels, the width of codes and the lengths of suffixes: damaged
//! ones made them panic.
//!
//! Of runs only the headers are looked at. (parquet-format: Encodings.md, "RLE/Bit-Packing Hybrid".)

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::runs::Hybrid;
use super::suffixes::Suffixes;

/// Codes of a dictionary have no more bits.
const CODE_BITS_MAX: u8 = 32;
const CUT_OFF: &str = "its levels are cut off";

/// The highest repetition and definition levels of a column.
pub(super) type LevelsMax = [i16; 2];

/// Whether a page has as many levels as values, codes of a possible width, and suffixes of possible lengths.
pub(super) fn check(page: &Page, levels_max: LevelsMax) -> Result<(), &'static str> {
    let mut rest = page.buffer().clone();
    match page {
        Page::DataPage { num_values, def_level_encoding, rep_level_encoding, .. } => {
            let encodings = [*rep_level_encoding, *def_level_encoding];
            for (max, encoding) in levels_max.into_iter().zip(encodings) {
                check_first(&mut rest, bits(max), encoding, *num_values)?;
            }
        }
        Page::DataPageV2 { num_values, rep_levels_byte_len, def_levels_byte_len, .. } => {
            let lengths = [*rep_levels_byte_len, *def_levels_byte_len];
            for (max, length) in levels_max.into_iter().zip(lengths) {
                check_runs(taken(&mut rest, length as usize)?, bits(max), *num_values)?;
            }
        }
        Page::DictionaryPage { .. } => return Ok(()),
    }
    match (page.encoding(), rest.first()) {
        (Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, Some(bits)) if *bits > CODE_BITS_MAX => {
            Err("its codes have too many bits")
        }
        (Encoding::DELTA_BYTE_ARRAY, Some(_)) => {
            let mut texts = Suffixes::new(rest)?;
            texts.each(texts.left().min(page.num_values() as usize), |_| Ok(()))
        }
        _ => Ok(()),
    }
}

/// Bits of a level.
fn bits(max: i16) -> u32 {
    16 - max.max(0).leading_zeros()
}

/// Takes the levels at the beginning of a page of version 1 away.
fn check_first(rest: &mut Bytes, bits: u32, encoding: Encoding, count: u32) -> Result<(), &'static str> {
    if bits == 0 {
        return Ok(());
    }
    if encoding != Encoding::RLE {
        // Packed without runs, by old writers.
        taken(rest, (count as usize).saturating_mul(bits as usize).div_ceil(8))?;
        return Ok(());
    }
    let length = taken(rest, 4)?;
    let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
    check_runs(taken(rest, length as usize)?, bits, count)
}

fn check_runs(levels: Bytes, bits: u32, count: u32) -> Result<(), &'static str> {
    if bits == 0 { Ok(()) } else { Hybrid::new(levels, bits).skip(count as usize) }
}

/// Takes the first bytes away.
fn taken(bytes: &mut Bytes, count: usize) -> Result<Bytes, &'static str> {
    if count > bytes.len() { Err(CUT_OFF) } else { Ok(bytes.split_to(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_version(bytes: &[u8], values: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: Bytes::copy_from_slice(bytes),
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn second_version(bytes: &[u8], levels: u32, values: u32, encoding: Encoding) -> Page {
        Page::DataPageV2 {
            buf: Bytes::copy_from_slice(bytes),
            num_values: values,
            encoding,
            num_nulls: 0,
            num_rows: values,
            def_levels_byte_len: levels,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        }
    }

    #[test]
    fn levels_and_codes_that_readers_would_trust_are_checked() {
        use Encoding::{PLAIN, RLE_DICTIONARY as CODES};

        let cut_off = Err("the codes or levels of a page are cut off");
        // A run of 20 ones is [40, 1]; eight packed levels are [3, bits].
        for (page, levels_max, expected) in [
            (first_version(&[2, 0, 0, 0, 40, 1, 32, 9], 20, CODES), [0, 1], Ok(())),
            (
                first_version(&[2, 0, 0, 0, 40, 1, 33, 9], 20, CODES),
                [0, 1],
                Err("its codes have too many bits"),
            ),
            (first_version(&[2, 0, 0, 0, 40, 1, 33, 9], 20, PLAIN), [0, 1], Ok(())),
            (first_version(&[2, 0, 0, 0, 40, 1], 21, PLAIN), [0, 1], cut_off),
            (first_version(&[2, 0, 0, 0, 3, 255], 8, PLAIN), [0, 1], Ok(())),
            (first_version(&[1, 0, 0, 0, 3, 255], 8, PLAIN), [0, 1], cut_off),
            (first_version(&[9, 0, 0, 0, 40, 1], 20, PLAIN), [0, 1], Err(CUT_OFF)),
            (first_version(&[33, 9], 20, PLAIN), [0, 0], Ok(())),
            (second_version(&[40, 1, 5], 2, 20, CODES), [0, 1], Ok(())),
            (second_version(&[40, 1, 5], 2, 30, CODES), [0, 1], cut_off),
            (second_version(&[40, 1, 99], 2, 20, CODES), [0, 1], Err("its codes have too many bits")),
            (second_version(&[40, 1], 3, 20, CODES), [0, 1], Err(CUT_OFF)),
            (second_version(&[], 0, 0, CODES), [0, 1], Ok(())),
        ] {
            assert_eq!(check(&page, levels_max), expected, "{page:?}");
        }
    }
}
