//! From the keys of rows, in any number of columns, to dense group numbers.
//!
//! A table is chosen once for the types of the keys. One column has the table of its width: an array where keys have
//! 8 or 16 bits. Several columns of fixed width are packed into one key of up to 16 bytes. A column of text is numbered
//! by a table of its own first, and its numbers are packed like a column of 4 bytes; so are columns that do not fit into
//! 16 bytes together. So any keys are a tree of tables in which each row costs a lookup a table, and a tree of one table
//! is the usual case:
//!
//! ```text
//! GROUP BY UserID, SearchPhrase, Minute          packed (16 bytes)
//!                                                ├─ UserID        8
//!                                                ├─ Minute        4
//!                                                └─ SearchPhrase  4  ← numbers of the table of its text
//! ```

use std::ops::Range;

use keirin_kernels::group_table::{self, DenseTable, GroupTable, StringGroupTable, pack_keys};
use keirin_kernels::hash::{Seed, Strings};
use keirin_kernels::{BitBuffer, Bits, Level, bitmaps};

pub use keirin_kernels::group_table::NO_GROUP;

/// The bytes of the number of a group.
const NUMBER_BYTES: usize = size_of::<u32>();
/// The bytes of the widest packed key.
const PACKED_BYTES_MAX: usize = size_of::<u128>();

/// What the values of a key column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyType {
    /// The bytes of a value, 1, 2, 4, 8 or 16; text has none.
    pub width: Option<usize>,
    /// Whether there may be rows without value. All of them are equal.
    pub is_nullable: bool,
}

/// A key column of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn<'a> {
    /// The values, of the width of their type.
    pub values: KeyValues<'a>,
    /// Which rows have a value; without, all have.
    pub validity: Option<Bits<'a>>,
}

impl<'a> KeyColumn<'a> {
    /// A range of rows.
    ///
    /// # Panics
    /// When there are fewer rows.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let validity = self.validity.map(|validity| validity.slice(rows.start, rows.len()));
        let values = match self.values {
            KeyValues::Bytes1(values) => KeyValues::Bytes1(&values[rows]),
            KeyValues::Bytes2(values) => KeyValues::Bytes2(&values[rows]),
            KeyValues::Bytes4(values) => KeyValues::Bytes4(&values[rows]),
            KeyValues::Bytes8(values) => KeyValues::Bytes8(&values[rows]),
            KeyValues::Bytes16(values) => KeyValues::Bytes16(&values[rows]),
            KeyValues::Text(texts) => KeyValues::Text(texts.slice(rows)),
        };
        Self { values, validity }
    }
}

/// Values as their bits: equal values have equal bits.
#[derive(Clone, Copy, Debug)]
pub enum KeyValues<'a> {
    /// One byte.
    Bytes1(&'a [u8]),
    /// Two bytes.
    Bytes2(&'a [u16]),
    /// Four bytes.
    Bytes4(&'a [u32]),
    /// Eight bytes.
    Bytes8(&'a [u64]),
    /// Sixteen bytes.
    Bytes16(&'a [u128]),
    /// Text or bytes.
    Text(Strings<'a>),
}

/// A key column with a row for each group.
#[derive(Debug)]
pub struct OwnedKeys {
    /// The values; zero or empty for null.
    pub values: OwnedValues,
    /// Which groups have a value; without, all have.
    pub validity: Option<BitBuffer>,
}

/// Values that an [`OwnedKeys`] has, of the width of their type.
#[derive(Debug, PartialEq, Eq)]
pub enum OwnedValues {
    /// One byte.
    Bytes1(Vec<u8>),
    /// Two bytes.
    Bytes2(Vec<u16>),
    /// Four bytes.
    Bytes4(Vec<u32>),
    /// Eight bytes.
    Bytes8(Vec<u64>),
    /// Sixteen bytes.
    Bytes16(Vec<u128>),
    /// Views into parts: see [`StringGroupTable::take_views`].
    Text(Vec<u128>, Vec<Vec<u8>>),
}

/// Numbers rows by their keys: `0, 1, 2 ...` in the order in which keys were met first.
#[derive(Debug)]
pub struct Groups {
    table: Table,
    key_count: usize,
}

/// Numbers rows by some of their columns.
#[derive(Debug)]
enum Table {
    /// A column of 8 or 16 bits; null is the number behind the largest key.
    Small {
        column: usize,
        key_type: KeyType,
        table: DenseTable,
    },
    /// A column of 4, 8 or 16 bytes.
    Four(usize, GroupTable<u32>),
    Eight(usize, GroupTable<u64>),
    Sixteen(usize, GroupTable<u128>),
    Text(usize, StringGroupTable),
    /// Several columns.
    PackedEight(Vec<Packed>, GroupTable<u64>),
    PackedSixteen(Vec<Packed>, GroupTable<u128>),
}

/// A piece of a packed key.
#[derive(Debug)]
enum Packed {
    Column {
        column: usize,
        width: usize,
        is_nullable: bool,
    },
    /// The numbers that another table gives.
    Numbers(Box<Table>),
}

impl Packed {
    fn bytes(&self) -> usize {
        match self {
            Self::Column { width, is_nullable, .. } => width + usize::from(*is_nullable),
            Self::Numbers(_) => NUMBER_BYTES,
        }
    }
}

impl Groups {
    /// No groups, of keys of these types.
    ///
    /// # Panics
    /// When there is no key, or a width that there is not.
    #[must_use]
    pub fn new(keys: &[KeyType]) -> Self {
        assert!(!keys.is_empty(), "there is a key");
        let table = match keys {
            [key] => Table::of_column(0, *key),
            _ => {
                let pieces = keys.iter().enumerate().map(|(column, key)| Packed::of_column(column, *key));
                Table::of_pieces(pieces.collect())
            }
        };
        Self { table, key_count: keys.len() }
    }

    /// Count of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Sets `numbers` to the group of each of the rows; keys that are new begin groups.
    ///
    /// # Panics
    /// When columns are not of the types that the groups are for, or do not have so many rows.
    pub fn find_or_insert(
        &mut self,
        level: Level,
        keys: &[KeyColumn<'_>],
        row_count: usize,
        numbers: &mut Vec<u32>,
    ) {
        assert_eq!(keys.len(), self.key_count, "a column a key");
        numbers.resize(row_count, 0);
        self.table.number(level, keys, true, numbers);
    }

    /// Sets `numbers` to the group of each of the rows, [`NO_GROUP`] for keys that have none.
    ///
    /// # Panics
    /// As [`Self::find_or_insert`].
    pub fn find(&mut self, level: Level, keys: &[KeyColumn<'_>], row_count: usize, numbers: &mut Vec<u32>) {
        assert_eq!(keys.len(), self.key_count, "a column a key");
        numbers.resize(row_count, 0);
        self.table.number(level, keys, false, numbers);
    }

    /// Takes the keys, a row for each of the groups with these numbers or, if it does not say, for each group in the order
    /// of their numbers, column by column. There are no groups then, and memory for new ones.
    ///
    /// # Panics
    /// When there is no group of a number.
    #[must_use]
    pub fn take_keys(&mut self, numbers: Option<&[u32]>) -> Vec<OwnedKeys> {
        let mut columns: Vec<Option<OwnedKeys>> = (0..self.key_count).map(|_| None).collect();
        self.table.take_keys(numbers, &mut columns);
        columns.into_iter().map(|column| column.expect("each column is in one table")).collect()
    }
}

impl Packed {
    fn of_column(column: usize, key: KeyType) -> Self {
        match key.width {
            Some(width) if width < PACKED_BYTES_MAX => {
                Self::Column { column, width, is_nullable: key.is_nullable }
            }
            _ => Self::Numbers(Box::new(Table::of_column(column, key))),
        }
    }
}

impl Table {
    fn of_column(column: usize, key: KeyType) -> Self {
        let seed = Seed::random();
        match key.width {
            Some(1) => Self::small(column, key, 1 << 8),
            Some(2) => Self::small(column, key, 1 << 16),
            Some(4) => Self::Four(column, GroupTable::new(seed)),
            Some(8) => Self::Eight(column, GroupTable::new(seed)),
            Some(16) => Self::Sixteen(column, GroupTable::new(seed)),
            None => Self::Text(column, StringGroupTable::new(seed)),
            Some(width) => panic!("keys of {width} bytes"),
        }
    }

    fn small(column: usize, key_type: KeyType, key_count: u64) -> Self {
        let table = DenseTable::new(0, key_count, usize::MAX).expect("small keys fit into an array");
        Self::Small { column, key_type, table }
    }

    fn of_pieces(mut pieces: Vec<Packed>) -> Self {
        let bytes = |pieces: &[Packed]| pieces.iter().map(Packed::bytes).sum::<usize>();
        while bytes(&pieces) > PACKED_BYTES_MAX {
            // As many as fit together become one of four bytes.
            let (mut taken, mut left, mut taken_bytes) = (Vec::new(), Vec::new(), 0);
            for piece in pieces {
                if taken_bytes + piece.bytes() <= PACKED_BYTES_MAX {
                    taken_bytes += piece.bytes();
                    taken.push(piece);
                } else {
                    left.push(piece);
                }
            }
            left.push(Packed::Numbers(Box::new(Self::of_pieces(taken))));
            pieces = left;
        }
        if bytes(&pieces) <= size_of::<u64>() {
            Self::PackedEight(pieces, GroupTable::new(Seed::random()))
        } else {
            Self::PackedSixteen(pieces, GroupTable::new(Seed::random()))
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Small { table, .. } => table.keys().len(),
            Self::Four(_, table) => table.len(),
            Self::Eight(_, table) | Self::PackedEight(_, table) => table.len(),
            Self::Sixteen(_, table) | Self::PackedSixteen(_, table) => table.len(),
            Self::Text(_, table) => table.len(),
        }
    }

    fn bytes(&self) -> usize {
        let inside = |pieces: &[Packed]| {
            let tables = pieces.iter().map(|piece| match piece {
                Packed::Numbers(table) => table.bytes(),
                Packed::Column { .. } => 0,
            });
            tables.sum::<usize>()
        };
        match self {
            Self::Small { table, .. } => table.bytes(),
            Self::Four(_, table) => table.bytes(),
            Self::Eight(_, table) => table.bytes(),
            Self::Sixteen(_, table) => table.bytes(),
            Self::Text(_, table) => table.bytes(),
            Self::PackedEight(pieces, table) => inside(pieces) + table.bytes(),
            Self::PackedSixteen(pieces, table) => inside(pieces) + table.bytes(),
        }
    }

    /// Writes the number of each row; new keys get one if the table `grows`.
    fn number(&mut self, level: Level, keys: &[KeyColumn<'_>], grows: bool, numbers: &mut [u32]) {
        const WRONG: &str = "a column of another type than the groups are for";
        match self {
            Self::Small { column, key_type, table } => {
                let KeyColumn { values, validity } = keys[*column];
                assert!(key_type.is_nullable || validity.is_none(), "{WRONG}");
                let is_inside = match values {
                    KeyValues::Bytes1(values) => number_small(level, table, values, validity, grows, numbers),
                    KeyValues::Bytes2(values) => number_small(level, table, values, validity, grows, numbers),
                    _ => panic!("{WRONG}"),
                };
                assert!(is_inside, "{WRONG}");
            }
            Self::Four(column, table) => {
                let KeyColumn { values: KeyValues::Bytes4(values), validity } = keys[*column] else {
                    panic!("{WRONG}")
                };
                if grows {
                    table.find_or_insert(level, values, validity, numbers);
                } else {
                    table.find(level, values, validity, numbers);
                }
            }
            Self::Eight(column, table) => {
                let KeyColumn { values: KeyValues::Bytes8(values), validity } = keys[*column] else {
                    panic!("{WRONG}")
                };
                if grows {
                    table.find_or_insert(level, values, validity, numbers);
                } else {
                    table.find(level, values, validity, numbers);
                }
            }
            Self::Sixteen(column, table) => {
                let KeyColumn { values: KeyValues::Bytes16(values), validity } = keys[*column] else {
                    panic!("{WRONG}")
                };
                if grows {
                    table.find_or_insert(level, values, validity, numbers);
                } else {
                    table.find(level, values, validity, numbers);
                }
            }
            Self::Text(column, table) => {
                let KeyColumn { values: KeyValues::Text(strings), validity } = keys[*column] else {
                    panic!("{WRONG}")
                };
                if grows {
                    table.find_or_insert(level, strings, validity, numbers);
                } else {
                    table.find(level, strings, validity, numbers);
                }
            }
            Self::PackedEight(pieces, table) => {
                let mut packed = vec![0_u64; numbers.len()];
                with_pieces(level, pieces, keys, grows, numbers.len(), |columns| {
                    pack_keys(level, columns, &mut packed);
                });
                if grows {
                    table.find_or_insert(level, &packed, None, numbers);
                } else {
                    table.find(level, &packed, None, numbers);
                }
            }
            Self::PackedSixteen(pieces, table) => {
                let mut packed = vec![0_u128; numbers.len()];
                with_pieces(level, pieces, keys, grows, numbers.len(), |columns| {
                    pack_keys(level, columns, &mut packed);
                });
                if grows {
                    table.find_or_insert(level, &packed, None, numbers);
                } else {
                    table.find(level, &packed, None, numbers);
                }
            }
        }
    }

    /// Sets the columns that this table numbers to their values for groups of these numbers, all if it does not say.
    fn take_keys(&mut self, numbers: Option<&[u32]>, columns: &mut [Option<OwnedKeys>]) {
        fn some<T: Copy>(all: Vec<T>, numbers: Option<&[u32]>) -> Vec<T> {
            match numbers {
                None => all,
                Some(numbers) => numbers.iter().map(|number| all[*number as usize]).collect(),
            }
        }
        let count = numbers.map_or_else(|| self.len(), <[u32]>::len);
        let validity = |null_group: Option<u32>| {
            let null_group = null_group?;
            Some(match numbers {
                None => (0..count).map(|group| group != null_group as usize).collect(),
                Some(numbers) => numbers.iter().map(|number| *number != null_group).collect(),
            })
        };
        match self {
            Self::Small { column, key_type, table } => {
                let null = if key_type.width == Some(1) { 1 << 8 } else { 1 << 16 };
                let keys = some(table.take_keys(), numbers);
                let validity = keys.contains(&null).then(|| keys.iter().map(|key| *key != null).collect());
                let values = match key_type.width {
                    Some(1) => OwnedValues::Bytes1(keys.iter().map(|key| low_byte(*key)).collect()),
                    _ => OwnedValues::Bytes2(keys.iter().map(|key| low_bytes(*key)).collect()),
                };
                columns[*column] = Some(OwnedKeys { values, validity });
            }
            Self::Four(column, table) => {
                let validity = validity(table.null_group());
                let values = OwnedValues::Bytes4(some(table.take_keys(), numbers));
                columns[*column] = Some(OwnedKeys { values, validity });
            }
            Self::Eight(column, table) => {
                let validity = validity(table.null_group());
                let values = OwnedValues::Bytes8(some(table.take_keys(), numbers));
                columns[*column] = Some(OwnedKeys { values, validity });
            }
            Self::Sixteen(column, table) => {
                let validity = validity(table.null_group());
                let values = OwnedValues::Bytes16(some(table.take_keys(), numbers));
                columns[*column] = Some(OwnedKeys { values, validity });
            }
            Self::Text(column, table) => {
                let validity = validity(table.null_group());
                let (views, parts) = table.take_views();
                columns[*column] =
                    Some(OwnedKeys { values: OwnedValues::Text(some(views, numbers), parts), validity });
            }
            Self::PackedEight(pieces, table) => {
                let keys = some(table.take_keys(), numbers);
                unpack(pieces, &keys, columns, |key, shift| key >> shift);
            }
            Self::PackedSixteen(pieces, table) => {
                let keys = some(table.take_keys(), numbers);
                unpack(pieces, &keys, columns, |key, shift| low_word(key >> shift));
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_byte(key: u64) -> u8 {
    key as u8
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_bytes(key: u64) -> u16 {
    key as u16
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_half(key: u64) -> u32 {
    key as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_word(key: u128) -> u64 {
    key as u64
}

fn number_small<K: Copy + Into<u64>>(
    level: Level,
    table: &mut DenseTable,
    values: &[K],
    validity: Option<Bits<'_>>,
    grows: bool,
    numbers: &mut [u32],
) -> bool {
    let Some(validity) = validity else {
        if grows {
            return table.find_or_insert(level, values, numbers);
        }
        table.find(values, numbers);
        return true;
    };
    let null = 1_u32 << (8 * size_of::<K>());
    let mut keys = vec![null; values.len()];
    for row in bitmaps::positions(level, validity) {
        keys[row as usize] = low_half(values[row as usize].into());
    }
    number_small(level, table, &keys, None, grows, numbers)
}

/// Gives `pack` the pieces of keys as columns.
fn with_pieces(
    level: Level,
    pieces: &mut [Packed],
    keys: &[KeyColumn<'_>],
    grows: bool,
    row_count: usize,
    pack: impl FnOnce(&[group_table::KeyColumn<'_>]),
) {
    use group_table::KeyValues as Kernels;
    let numbers: Vec<Vec<u32>> = pieces
        .iter_mut()
        .map(|piece| match piece {
            Packed::Column { .. } => Vec::new(),
            Packed::Numbers(table) => {
                let mut numbers = vec![0; row_count];
                table.number(level, keys, grows, &mut numbers);
                numbers
            }
        })
        .collect();
    let columns: Vec<group_table::KeyColumn<'_>> = pieces
        .iter()
        .zip(&numbers)
        .map(|(piece, numbers)| match piece {
            Packed::Numbers(_) => group_table::KeyColumn {
                values: Kernels::Bytes4(numbers),
                validity: None,
                is_nullable: false,
            },
            Packed::Column { column, is_nullable, .. } => {
                let KeyColumn { values, validity } = keys[*column];
                let values = match values {
                    KeyValues::Bytes1(values) => Kernels::Bytes1(values),
                    KeyValues::Bytes2(values) => Kernels::Bytes2(values),
                    KeyValues::Bytes4(values) => Kernels::Bytes4(values),
                    KeyValues::Bytes8(values) => Kernels::Bytes8(values),
                    KeyValues::Bytes16(_) | KeyValues::Text(_) => panic!("a column of another type"),
                };
                group_table::KeyColumn { values, validity, is_nullable: *is_nullable }
            }
        })
        .collect();
    pack(&columns);
}

/// Sets the columns of the pieces of packed keys; `shifted` gives 64 bits of a key from a bit on.
fn unpack<K: Copy>(
    pieces: &mut [Packed],
    keys: &[K],
    columns: &mut [Option<OwnedKeys>],
    shifted: impl Fn(K, u32) -> u64,
) {
    let mut shift = 0;
    for piece in pieces {
        let next = shift + 8 * u32::try_from(piece.bytes()).expect("few bytes");
        match piece {
            Packed::Numbers(table) => {
                let numbers: Vec<u32> = keys.iter().map(|key| low_half(shifted(*key, shift))).collect();
                table.take_keys(Some(&numbers), columns);
            }
            Packed::Column { column, width, is_nullable } => {
                let each = |shift: u32| {
                    keys.iter().map(move |key| (*key, shift)).map(|(key, shift)| shifted(key, shift))
                };
                let values = match width {
                    1 => OwnedValues::Bytes1(each(shift).map(low_byte).collect()),
                    2 => OwnedValues::Bytes2(each(shift).map(low_bytes).collect()),
                    4 => OwnedValues::Bytes4(each(shift).map(low_half).collect()),
                    _ => OwnedValues::Bytes8(each(shift).collect()),
                };
                let null_shift = next - 8;
                let validity = is_nullable.then(|| each(null_shift).map(|key| low_byte(key) == 0).collect());
                columns[*column] = Some(OwnedKeys { values, validity });
            }
        }
        shift = next;
    }
}
