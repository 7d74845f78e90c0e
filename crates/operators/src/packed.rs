//! Several key columns as one number for each row.
//!
//! A column takes its width, and a byte more if there may be rows without a value (then its value is zero there, so that
//! all of them are equal). Texts are numbers of [`Texts`](crate::texts::Texts), which have one for no value. Keys have 4,
//! 8, 16 or 32 bytes; those of 32 have two halves, and no column in both.

use keirin_kernels::group_table::{self, DenseTable, Fold, fold_keys, pack_keys};
use keirin_kernels::hash::{Key, WideKey};
use keirin_kernels::{BitBuffer, Level};

use crate::groups::{KeyColumn, KeyType, KeyValues, OwnedKeys, OwnedValues};
use crate::texts::NULL_TEXT;

/// The bytes of half of a wide key.
const HALF_BYTES: usize = size_of::<u128>();
const TEXT_BYTES: usize = size_of::<u32>();

/// Where the columns of a key are.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    pieces: Vec<Piece>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    width: usize,
    is_text: bool,
    /// Whether a byte follows that is one where there is no value.
    is_nullable: bool,
    half: usize,
    shift: u32,
}

impl Piece {
    fn bytes(&self) -> usize {
        self.width + usize::from(self.is_nullable)
    }
}

impl KeyLayout {
    /// The layout of keys of these types; `None` if they have more than 32 bytes, or a column more than 8.
    #[must_use]
    pub fn new(keys: &[KeyType]) -> Option<Self> {
        let mut used = [0, 0];
        let mut pieces = Vec::with_capacity(keys.len());
        let bytes_of = |key: &KeyType| match key.width {
            None => TEXT_BYTES,
            Some(width) => width + usize::from(key.is_nullable),
        };
        let is_one = keys.iter().map(bytes_of).sum::<usize>() <= HALF_BYTES;
        for key in keys {
            let bytes = bytes_of(key);
            let half = usize::from(!is_one && used[0] + bytes > HALF_BYTES);
            if key.width.is_some_and(|width| width > size_of::<u64>()) || used[half] + bytes > HALF_BYTES {
                return None;
            }
            pieces.push(Piece {
                width: key.width.unwrap_or(TEXT_BYTES),
                is_text: key.width.is_none(),
                is_nullable: key.width.is_some() && key.is_nullable,
                half,
                shift: 8 * u32::try_from(used[half]).expect("few bytes"),
            });
            used[half] += bytes;
        }
        let bytes = if used[1] > 0 { 2 * HALF_BYTES } else { used[0] };
        (!pieces.is_empty()).then_some(Self { pieces, bytes })
    }

    /// The bytes of a key that are used.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether keys are a text and nothing else.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(self.pieces[..], [Piece { is_text: true, .. }])
    }

    /// Whether keys are a column of four bytes as it is.
    #[must_use]
    pub fn is_four_bytes(&self) -> bool {
        matches!(self.pieces[..], [Piece { width: 4, is_nullable: false, .. }])
    }

    /// How keys of up to eight bytes and few columns become numbers of 16 bits.
    pub(crate) fn fold(&self) -> Option<Fold> {
        const PIECES_MAX: usize = Fold::FIELDS / 2;
        let is_one = self.pieces.iter().all(|piece| piece.half == 0);
        if self.bytes > size_of::<u64>() || !is_one || self.pieces.len() > PIECES_MAX {
            return None;
        }
        let count = |count: usize| u32::try_from(count).expect("few bytes");
        let bits = |bytes| 8 * count(bytes);
        let flag_count = self.pieces.iter().filter(|piece| piece.is_nullable).count();
        let value_bits = (u16::BITS - count(flag_count)) / count(self.pieces.len());
        let fields = self.pieces.iter().flat_map(|piece| {
            let value = (piece.shift, bits(piece.width).min(value_bits));
            let flag = piece.is_nullable.then_some((piece.shift + bits(piece.width), 1));
            [Some(value), flag]
        });
        Some(Fold::new(fields.flatten()))
    }

    /// The columns of these keys, a row each; of texts their numbers.
    #[must_use]
    pub fn unpack<K: PackedKey>(&self, keys: &[K]) -> Vec<OwnedKeys> {
        let unpacked = self.pieces.iter().map(|piece| {
            let words = keys.iter().map(|key| key.word(piece.half, piece.shift));
            let values = match piece.width {
                1 => OwnedValues::Bytes1(words.map(low).collect()),
                2 => OwnedValues::Bytes2(words.map(low).collect()),
                4 => OwnedValues::Bytes4(words.map(low).collect()),
                _ => OwnedValues::Bytes8(words.collect()),
            };
            let validity: Option<BitBuffer> = match &values {
                OwnedValues::Bytes4(numbers) if piece.is_text => {
                    let has_null = numbers.contains(&NULL_TEXT);
                    has_null.then(|| numbers.iter().map(|number| *number != NULL_TEXT).collect())
                }
                _ if piece.is_nullable => {
                    let shift = piece.shift + 8 * u32::try_from(piece.width).expect("few bytes");
                    let flags = keys.iter().map(|key| key.word(piece.half, shift));
                    Some(flags.map(|flag| low::<u8>(flag) == 0).collect())
                }
                _ => None,
            };
            OwnedKeys { values, validity }
        });
        unpacked.collect()
    }

    /// The value of a column of a key, if it has one there: its bits, and zeros above them; of a text its number.
    #[must_use]
    pub fn value<K: PackedKey>(&self, key: K, column: usize) -> Option<u64> {
        let piece = &self.pieces[column];
        let width = 8 * u32::try_from(piece.width).expect("few bytes");
        let is_null = if piece.is_nullable {
            low::<u8>(key.word(piece.half, piece.shift + width)) != 0
        } else {
            piece.is_text && key.word(piece.half, piece.shift) & u64::from(u32::MAX) == u64::from(NULL_TEXT)
        };
        (!is_null).then(|| key.word(piece.half, piece.shift) & (u64::MAX >> (u64::BITS - width)))
    }

    fn kernel_columns<'a>(&self, columns: &[KeyColumn<'a>], half: usize) -> Vec<group_table::KeyColumn<'a>> {
        use group_table::KeyValues as Kernels;
        let pieces = self.pieces.iter().zip(columns).filter(|(piece, _)| piece.half == half);
        let columns = pieces.map(|(piece, column)| {
            let values = match column.values {
                KeyValues::Bytes1(values) => Kernels::Bytes1(values),
                KeyValues::Bytes2(values) => Kernels::Bytes2(values),
                KeyValues::Bytes4(values) => Kernels::Bytes4(values),
                KeyValues::Bytes8(values) => Kernels::Bytes8(values),
                KeyValues::Bytes16(_) | KeyValues::Text(_) => panic!("a column that is not packed"),
            };
            let column =
                group_table::KeyColumn { values, validity: column.validity, is_nullable: piece.is_nullable };
            assert_eq!(group_table::packed_bytes(&[column]), piece.bytes(), "a column of its width");
            column
        });
        columns.collect()
    }
}

/// The low bits of a word.
fn low<T: TryFrom<u64>>(word: u64) -> T {
    let bits = 8 * size_of::<T>();
    T::try_from(word & (u64::MAX >> (64 - bits))).unwrap_or_else(|_| unreachable!("the bits of the type"))
}

/// A key of a layout.
pub trait PackedKey: Key {
    /// Appends the keys of the rows of these columns, which have so many; of texts their numbers.
    ///
    /// # Panics
    /// When columns are not those of the layout, or do not fit in such keys.
    fn pack(
        layout: &KeyLayout,
        level: Level,
        columns: &[KeyColumn<'_>],
        row_count: usize,
        keys: &mut Vec<Self>,
    );

    /// The column that is the keys as it is, if these columns are one.
    fn borrowed<'a>(_: &[KeyColumn<'a>]) -> Option<&'a [Self]> {
        None
    }

    /// The bits from `shift` on of one of the halves, or as many as there are.
    fn word(self, half: usize, shift: u32) -> u64;

    /// Sets `groups` to the groups of keys of one or two bytes; `false`, and nothing changes, if some are not.
    fn number_small(_: Level, _: &mut DenseTable, _: &[Self], _: &mut [u32]) -> bool {
        false
    }

    /// Sets `folded` to keys of up to eight bytes as numbers of 16 bits; `false`, with any content, if some are not
    /// small.
    fn fold(_: Level, _: &Fold, _: &[Self], _folded: &mut Vec<u16>) -> bool {
        false
    }

    /// The key whose low bits are these, and the others zero.
    fn of_word(word: u64) -> Self;

    /// The key as the number of a text.
    fn text(self) -> u32 {
        low(self.word(0, 0))
    }
}

impl PackedKey for u32 {
    fn pack(layout: &KeyLayout, _: Level, columns: &[KeyColumn<'_>], row_count: usize, keys: &mut Vec<Self>) {
        let [KeyColumn { values: KeyValues::Bytes4(values), validity: None }] = columns else {
            panic!("one column of four bytes");
        };
        assert!(layout.is_four_bytes() && values.len() == row_count, "one column of four bytes");
        keys.extend_from_slice(values);
    }

    fn borrowed<'a>(columns: &[KeyColumn<'a>]) -> Option<&'a [Self]> {
        match columns {
            [KeyColumn { values: KeyValues::Bytes4(values), validity: None }] => Some(values),
            _ => None,
        }
    }

    fn word(self, _: usize, shift: u32) -> u64 {
        u64::from(self) >> shift
    }

    fn of_word(word: u64) -> Self {
        low(word)
    }

    fn number_small(level: Level, table: &mut DenseTable, keys: &[Self], groups: &mut [u32]) -> bool {
        table.find_or_insert(level, keys, groups)
    }
}

impl PackedKey for u64 {
    fn pack(
        layout: &KeyLayout,
        level: Level,
        columns: &[KeyColumn<'_>],
        row_count: usize,
        keys: &mut Vec<Self>,
    ) {
        if let ([Piece { is_nullable: false, .. }], Some(values)) =
            (&layout.pieces[..], Self::borrowed(columns))
        {
            assert_eq!(values.len(), row_count, "a value a row");
            keys.extend_from_slice(values);
            return;
        }
        let first = keys.len();
        keys.resize(first + row_count, 0);
        pack_keys(level, &layout.kernel_columns(columns, 0), &mut keys[first..]);
    }

    fn borrowed<'a>(columns: &[KeyColumn<'a>]) -> Option<&'a [Self]> {
        match columns {
            [KeyColumn { values: KeyValues::Bytes8(values), validity: None }] => Some(values),
            _ => None,
        }
    }

    fn word(self, _: usize, shift: u32) -> u64 {
        self.checked_shr(shift).unwrap_or(0)
    }

    fn of_word(word: u64) -> Self {
        word
    }

    fn number_small(level: Level, table: &mut DenseTable, keys: &[Self], groups: &mut [u32]) -> bool {
        table.find_or_insert(level, keys, groups)
    }

    fn fold(level: Level, fold: &Fold, keys: &[Self], folded: &mut Vec<u16>) -> bool {
        folded.resize(keys.len(), 0);
        fold_keys(level, fold, keys, folded)
    }
}

impl PackedKey for u128 {
    fn pack(
        layout: &KeyLayout,
        level: Level,
        columns: &[KeyColumn<'_>],
        row_count: usize,
        keys: &mut Vec<Self>,
    ) {
        let first = keys.len();
        keys.resize(first + row_count, 0);
        pack_keys(level, &layout.kernel_columns(columns, 0), &mut keys[first..]);
    }

    fn word(self, _: usize, shift: u32) -> u64 {
        low_word(self.checked_shr(shift).unwrap_or(0))
    }

    fn of_word(word: u64) -> Self {
        word.into()
    }
}

impl PackedKey for WideKey {
    fn pack(
        layout: &KeyLayout,
        level: Level,
        columns: &[KeyColumn<'_>],
        row_count: usize,
        keys: &mut Vec<Self>,
    ) {
        let halves = [0, 1].map(|half| {
            let mut packed = vec![0_u128; row_count];
            pack_keys(level, &layout.kernel_columns(columns, half), &mut packed);
            packed
        });
        keys.extend(halves[0].iter().zip(&halves[1]).map(|(low, high)| Self([*low, *high])));
    }

    fn word(self, half: usize, shift: u32) -> u64 {
        self.0[half].word(0, shift)
    }

    fn of_word(word: u64) -> Self {
        Self([word.into(), 0])
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_word(key: u128) -> u64 {
    key as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<K: PackedKey>(types: &[KeyType], columns: &[KeyColumn<'_>], rows: usize) {
        let layout = KeyLayout::new(types).unwrap();
        let mut keys: Vec<K> = Vec::new();
        K::pack(&layout, Level::best(), columns, rows, &mut keys);
        for (column, found) in columns.iter().zip(layout.unpack(&keys)) {
            for row in 0..rows {
                let is_valid = column.validity.is_none_or(|validity| validity.get(row));
                let found_valid = found.validity.as_ref().is_none_or(|validity| validity.as_bits().get(row));
                assert_eq!(found_valid, is_valid);
                let (value, found) = match (column.values, &found.values) {
                    (KeyValues::Bytes1(values), OwnedValues::Bytes1(found)) => {
                        (u64::from(values[row]), u64::from(found[row]))
                    }
                    (KeyValues::Bytes2(values), OwnedValues::Bytes2(found)) => {
                        (u64::from(values[row]), u64::from(found[row]))
                    }
                    (KeyValues::Bytes4(values), OwnedValues::Bytes4(found)) => {
                        (u64::from(values[row]), u64::from(found[row]))
                    }
                    (KeyValues::Bytes8(values), OwnedValues::Bytes8(found)) => (values[row], found[row]),
                    _ => panic!("another width"),
                };
                assert_eq!(found, if is_valid { value } else { 0 });
            }
        }
    }

    #[test]
    fn columns_come_back() {
        let rows = 100_usize;
        let ones: Vec<u8> = (0..100).collect();
        let twos: Vec<u16> = (0..100).map(|row| row * 601).collect();
        let fours: Vec<u32> = (0..100).map(|row| row * 40_000_001).collect();
        let eights: Vec<u64> = (0..100).map(|row| row * 180_000_000_000_000_001).collect();
        let validity: BitBuffer = (0..rows).map(|row| row % 7 != 2).collect();
        let valid = Some(validity.as_bits());
        let key = |width, is_nullable| KeyType { width: Some(width), is_nullable };
        let column = |values, validity| KeyColumn { values, validity };
        check::<u32>(&[key(4, false)], &[column(KeyValues::Bytes4(&fours), None)], rows);
        check::<u64>(&[key(4, true)], &[column(KeyValues::Bytes4(&fours), valid)], rows);
        check::<u64>(&[key(8, false)], &[column(KeyValues::Bytes8(&eights), None)], rows);
        check::<u128>(&[key(8, true)], &[column(KeyValues::Bytes8(&eights), valid)], rows);
        let types = [key(8, false), key(1, true), key(2, false)];
        let columns = [
            column(KeyValues::Bytes8(&eights), None),
            column(KeyValues::Bytes1(&ones), valid),
            column(KeyValues::Bytes2(&twos), None),
        ];
        check::<u128>(&types, &columns, rows);
        let types = [key(8, true), key(4, true), key(8, true), key(2, false)];
        let columns = [
            column(KeyValues::Bytes8(&eights), valid),
            column(KeyValues::Bytes4(&fours), None),
            column(KeyValues::Bytes8(&eights), None),
            column(KeyValues::Bytes2(&twos), None),
        ];
        check::<WideKey>(&types, &columns, rows);
    }

    #[test]
    fn no_text_is_null() {
        let layout = KeyLayout::new(&[KeyType { width: None, is_nullable: true }]).unwrap();
        assert!(layout.is_text() && layout.is_four_bytes() && layout.bytes() == 4);
        let keys = layout.unpack(&[7_u32, NULL_TEXT]);
        let validity = keys[0].validity.as_ref().unwrap().as_bits();
        assert!(validity.get(0) && !validity.get(1));
    }

    #[test]
    fn wider_keys_have_no_layout() {
        let eight = KeyType { width: Some(8), is_nullable: false };
        assert_eq!(KeyLayout::new(&[eight; 4]).map(|layout| layout.bytes()), Some(32));
        assert!(KeyLayout::new(&[eight; 5]).is_none());
        assert!(KeyLayout::new(&[KeyType { width: Some(16), is_nullable: false }]).is_none());
        assert!(KeyLayout::new(&[KeyType { is_nullable: true, ..eight }; 3]).is_none());
        assert!(KeyLayout::new(&[]).is_none());
    }
}
