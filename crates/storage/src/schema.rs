//! The definition of a table, and its bytes: `docs/format/log.md`.

use std::collections::{BTreeMap, BTreeSet};

use keirin_codecs::frame::Kind;

use crate::error::{Error, Result};
use crate::wire::{Reader, Wire, Write};

/// The most fields of a table, all children included.
pub const FIELDS_MAX: usize = 4096;
/// How deep fields may be nested.
const DEPTH_MAX: usize = 16;
/// The most bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 64 << 10;

/// Keys and values that only the layers above interpret: comments, collations, defaults, codecs.
pub type Properties = BTreeMap<String, String>;

/// The property of a column with the value of rows in parts older than the column; without it they have nulls. Only
/// the layers above can parse the value, so they supply it for reading and for merging such parts.
pub const INITIAL: &str = "initial";

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say all")]
pub enum TimeUnit {
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl TimeUnit {
    const ALL: [Self; 4] = [Self::Second, Self::Millisecond, Self::Microsecond, Self::Nanosecond];
}

/// The type of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of types; what their values are in memory, `values` says")]
pub enum DataType {
    Boolean,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Decimal { precision: u8, scale: i8 },
    Date,
    Time(TimeUnit),
    Timestamp(TimeUnit, Option<String>),
    Duration(TimeUnit),
    Interval,
    Text,
    Binary,
    Json,
    Uuid,
    List(Box<Field>),
    Struct(Vec<Field>),
    Map(Box<[Field; 2]>),
}

impl DataType {
    /// The kind of the values in memory and in blocks: for a list the count of its elements; a struct has no values
    /// of its own.
    #[must_use]
    pub fn values(&self) -> Option<Kind> {
        Some(match self {
            Self::Boolean => Kind::Flags,
            Self::I8 => Kind::I8,
            Self::I16 => Kind::I16,
            Self::I32 | Self::Date => Kind::I32,
            Self::I64 | Self::Time(_) | Self::Timestamp(..) | Self::Duration(_) => Kind::I64,
            Self::U8 => Kind::U8,
            Self::U16 => Kind::U16,
            Self::U32 | Self::List(_) | Self::Map(_) => Kind::U32,
            Self::U64 => Kind::U64,
            Self::F32 => Kind::F32,
            Self::F64 => Kind::F64,
            Self::Decimal { .. } | Self::Interval | Self::Uuid => Kind::I128,
            Self::Text | Self::Binary | Self::Json => Kind::Text,
            Self::Struct(_) => return None,
        })
    }

    /// Whether values of this type are UTF-8.
    #[must_use]
    pub fn is_utf8(&self) -> bool {
        matches!(self, Self::Text | Self::Json)
    }

    /// Whether rows can be sorted by values of this type.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !matches!(self, Self::Interval | Self::List(_) | Self::Struct(_) | Self::Map(_))
    }

    /// The child fields of a nested type.
    #[must_use]
    pub fn children(&self) -> &[Field] {
        match self {
            Self::List(element) => std::slice::from_ref(&**element),
            Self::Struct(fields) => fields,
            Self::Map(fields) => &fields[..],
            _ => &[],
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let number = match self {
            Self::Boolean => 0,
            Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 => 3,
            Self::I64 => 4,
            Self::U8 => 5,
            Self::U16 => 6,
            Self::U32 => 7,
            Self::U64 => 8,
            Self::F32 => 9,
            Self::F64 => 10,
            Self::Decimal { .. } => 11,
            Self::Date => 12,
            Self::Time(_) => 13,
            Self::Timestamp(..) => 14,
            Self::Duration(_) => 15,
            Self::Interval => 16,
            Self::Text => 17,
            Self::Binary => 18,
            Self::Json => 19,
            Self::Uuid => 20,
            Self::List(_) => 21,
            Self::Struct(_) => 22,
            Self::Map(_) => 23,
        };
        bytes.push(number);
        match self {
            Self::Decimal { precision, scale } => {
                bytes.push(*precision);
                bytes.extend(scale.to_le_bytes());
            }
            Self::Time(unit) | Self::Duration(unit) => bytes.push(*unit as u8),
            Self::Timestamp(unit, zone) => {
                bytes.push(*unit as u8);
                bytes.put_text(zone.as_deref().unwrap_or_default());
            }
            Self::Struct(fields) => bytes.put_count(fields.len()),
            _ => {}
        }
        self.children().iter().for_each(|child| child.write(bytes));
    }

    fn read(reader: &mut Reader<'_>, depth: usize) -> Wire<Self> {
        let unit = |reader: &mut Reader<'_>| {
            let number = reader.u8()?;
            match TimeUnit::ALL.get(usize::from(number)) {
                Some(unit) => Ok(*unit),
                None => reader.malformed(format!("no unit of time {number}")),
            }
        };
        if depth == DEPTH_MAX {
            return reader.malformed(format!("types are nested more than {DEPTH_MAX} deep"));
        }
        Ok(match reader.u8()? {
            0 => Self::Boolean,
            1 => Self::I8,
            2 => Self::I16,
            3 => Self::I32,
            4 => Self::I64,
            5 => Self::U8,
            6 => Self::U16,
            7 => Self::U32,
            8 => Self::U64,
            9 => Self::F32,
            10 => Self::F64,
            11 => {
                let precision = reader.u8()?;
                if !(1..=38).contains(&precision) {
                    return reader.malformed(format!("a decimal of {precision} digits"));
                }
                let scale = reader.u8()?.cast_signed();
                if scale > precision.cast_signed() {
                    return reader.malformed(format!(
                        "a decimal of {precision} digits, {scale} of them behind the point"
                    ));
                }
                Self::Decimal { precision, scale }
            }
            12 => Self::Date,
            13 => Self::Time(unit(reader)?),
            14 => Self::Timestamp(unit(reader)?, Some(reader.text()?).filter(|zone| !zone.is_empty())),
            15 => Self::Duration(unit(reader)?),
            16 => Self::Interval,
            17 => Self::Text,
            18 => Self::Binary,
            19 => Self::Json,
            20 => Self::Uuid,
            21 => Self::List(Box::new(Field::read(reader, depth + 1)?)),
            22 => Self::Struct(read_fields(reader, depth + 1)?),
            23 => Self::Map(Box::new([Field::read(reader, depth + 1)?, Field::read(reader, depth + 1)?])),
            other => return reader.malformed(format!("no type {other}")),
        })
    }
}

/// A column, or a child of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its number: unique in the table, and kept when the field is renamed.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
    /// Whether there may be nulls.
    pub is_nullable: bool,
    /// Further properties.
    pub properties: Properties,
}

impl Field {
    /// A field that may have nulls, without properties.
    #[must_use]
    pub fn new(id: u32, name: &str, data_type: DataType) -> Self {
        Self { id, name: name.to_owned(), data_type, is_nullable: true, properties: Properties::new() }
    }

    /// This field and all its descendants, in preorder.
    pub fn nodes(&self) -> impl Iterator<Item = &Self> {
        let mut waiting = vec![self];
        std::iter::from_fn(move || {
            let field = waiting.pop()?;
            waiting.extend(field.data_type.children().iter().rev());
            Some(field)
        })
    }

    /// Levels of nested fields, itself included.
    fn depth(&self) -> usize {
        1 + self.data_type.children().iter().map(Self::depth).max().unwrap_or(0)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.put_u32(self.id);
        bytes.put_text(&self.name);
        bytes.push(u8::from(self.is_nullable));
        self.data_type.write(bytes);
        write_properties(bytes, &self.properties);
    }

    fn read(reader: &mut Reader<'_>, depth: usize) -> Wire<Self> {
        let (id, name) = (reader.u32()?, reader.text()?);
        let is_nullable = read_bool(reader)?;
        let data_type = DataType::read(reader, depth)?;
        Ok(Self { id, name, data_type, is_nullable, properties: read_properties(reader)? })
    }
}

pub(crate) fn read_bool(reader: &mut Reader<'_>) -> Wire<bool> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => reader.malformed(format!("{other} is neither yes nor no")),
    }
}

pub(crate) fn write_fields(bytes: &mut Vec<u8>, fields: &[Field]) {
    bytes.put_count(fields.len());
    fields.iter().for_each(|field| field.write(bytes));
}

pub(crate) fn read_fields(reader: &mut Reader<'_>, depth: usize) -> Wire<Vec<Field>> {
    /// The fixed part of a field: number, length of the name, flags, type, count of properties.
    const BYTES_MIN: usize = 14;
    let count = reader.count(BYTES_MIN, FIELDS_MAX)?;
    (0..count).map(|_| Field::read(reader, depth)).collect()
}

pub(crate) fn write_properties(bytes: &mut Vec<u8>, properties: &Properties) {
    bytes.put_count(properties.len());
    for (key, value) in properties {
        bytes.put_text(key);
        bytes.put_text(value);
    }
}

pub(crate) fn read_properties(reader: &mut Reader<'_>) -> Wire<Properties> {
    let count = reader.count(8, usize::MAX)?;
    let mut properties = Properties::new();
    for _ in 0..count {
        let (key, value) = (reader.text()?, reader.text()?);
        if properties.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return reader.malformed("properties that do not ascend");
        }
        properties.insert(key, value);
    }
    Ok(properties)
}

/// A column that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column.
    pub field: u32,
    /// Greatest first.
    pub is_descending: bool,
    /// Nulls in front of all values.
    pub nulls_first: bool,
}

pub(crate) fn write_keys(bytes: &mut Vec<u8>, keys: &[SortKey]) {
    bytes.put_count(keys.len());
    for key in keys {
        bytes.put_u32(key.field);
        bytes.push(u8::from(key.is_descending) | u8::from(key.nulls_first) << 1);
    }
}

pub(crate) fn read_keys(reader: &mut Reader<'_>) -> Wire<Vec<SortKey>> {
    let count = reader.count(5, FIELDS_MAX)?;
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        let (field, flags) = (reader.u32()?, reader.u8()?);
        if flags > 3 {
            return reader.malformed(format!("no flags {flags} of a sort key"));
        }
        keys.push(SortKey { field, is_descending: flags & 1 != 0, nulls_first: flags & 2 != 0 });
    }
    Ok(keys)
}

/// The definition of a table: everything but its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The database in which SQL sees it.
    pub schema: String,
    /// Its name there.
    pub name: String,
    /// Its columns.
    pub fields: Vec<Field>,
    /// The lowest number that no field ever had.
    pub next_field: u32,
    /// The keys that the rows of a part are sorted by.
    pub keys: Vec<SortKey>,
    /// Further properties.
    pub properties: Properties,
}

impl Definition {
    /// A table with these columns; numbers them and their children.
    #[must_use]
    pub fn new(schema: &str, name: &str, columns: Vec<(&str, DataType)>) -> Self {
        let mut next_field = 0;
        let mut fields: Vec<Field> =
            columns.into_iter().map(|(name, data_type)| Field::new(0, name, data_type)).collect();
        number(&mut fields, &mut next_field);
        let (schema, name) = (schema.to_owned(), name.to_owned());
        Self { schema, name, fields, next_field, keys: Vec::new(), properties: Properties::new() }
    }

    /// The index of the column with this field number.
    #[must_use]
    pub fn index_of(&self, field: u32) -> Option<usize> {
        self.fields.iter().position(|other| other.id == field)
    }

    /// Fails if the definition is not valid.
    ///
    /// # Errors
    /// `Invalid`, saying why.
    pub fn check(&self) -> Result<()> {
        self.problem().map_or(Ok(()), |problem| {
            Err(Error::Invalid(format!("table '{}' cannot be stored: {problem}", self.name)))
        })
    }

    fn problem(&self) -> Option<String> {
        let nodes: Vec<&Field> = self.fields.iter().flat_map(Field::nodes).collect();
        if nodes.is_empty() || nodes.len() > FIELDS_MAX {
            return Some(format!("it has {} columns, 1 to {FIELDS_MAX} are possible", nodes.len()));
        }
        let names = nodes.iter().map(|node| &node.name).chain([&self.schema, &self.name]);
        if let Some(name) = names.into_iter().find(|name| name.len() > NAME_BYTES_MAX) {
            return Some(format!("a name has {} bytes", name.len()));
        }
        if self.fields.iter().any(|field| field.depth() > DEPTH_MAX) {
            return Some(format!("its types are nested more than {DEPTH_MAX} deep"));
        }
        let ids: BTreeSet<u32> = nodes.iter().map(|node| node.id).collect();
        if ids.len() < nodes.len() || ids.last().is_some_and(|last| *last >= self.next_field) {
            return Some("two fields have one number".to_owned());
        }
        let columns: BTreeSet<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        if columns.len() < self.fields.len() {
            return Some("two columns have one name".to_owned());
        }
        let column = |key: &SortKey| self.fields.iter().find(|field| field.id == key.field);
        if let Some(missing) = self.keys.iter().find(|key| column(key).is_none()) {
            return Some(format!("it is sorted by a field {} that is no column", missing.field));
        }
        let unordered = self.keys.iter().filter_map(column).find(|field| !field.data_type.is_ordered());
        unordered.map(|field| format!("column '{}' has no order to sort by", field.name))
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.put_text(&self.schema);
        bytes.put_text(&self.name);
        bytes.put_u32(self.next_field);
        write_fields(bytes, &self.fields);
        write_keys(bytes, &self.keys);
        write_properties(bytes, &self.properties);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Wire<Self> {
        let (schema, name, next_field) = (reader.text()?, reader.text()?, reader.u32()?);
        let (fields, keys) = (read_fields(reader, 0)?, read_keys(reader)?);
        let definition =
            Self { schema, name, fields, next_field, keys, properties: read_properties(reader)? };
        match definition.problem() {
            Some(problem) => reader.malformed(problem),
            None => Ok(definition),
        }
    }
}

fn number(fields: &mut [Field], next: &mut u32) {
    for field in fields {
        field.id = *next;
        *next += 1;
        match &mut field.data_type {
            DataType::List(element) => number(std::slice::from_mut(element), next),
            DataType::Struct(fields) => number(fields, next),
            DataType::Map(fields) => number(&mut fields[..], next),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A column of each type.
    pub(crate) fn every_type() -> Definition {
        let field = |name: &str, data_type| Field::new(0, name, data_type);
        let point = vec![field("x", DataType::F64), field("tags", list(DataType::Text))];
        let types = vec![
            ("boolean", DataType::Boolean),
            ("i8", DataType::I8),
            ("i16", DataType::I16),
            ("i32", DataType::I32),
            ("i64", DataType::I64),
            ("u8", DataType::U8),
            ("u16", DataType::U16),
            ("u32", DataType::U32),
            ("u64", DataType::U64),
            ("f32", DataType::F32),
            ("f64", DataType::F64),
            ("decimal", DataType::Decimal { precision: 38, scale: -2 }),
            ("date", DataType::Date),
            ("time", DataType::Time(TimeUnit::Second)),
            ("timestamp", DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()))),
            ("local", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("duration", DataType::Duration(TimeUnit::Millisecond)),
            ("interval", DataType::Interval),
            ("text", DataType::Text),
            ("binary", DataType::Binary),
            ("json", DataType::Json),
            ("uuid", DataType::Uuid),
            ("list", list(list(DataType::I64))),
            ("struct", DataType::Struct(point)),
            ("map", DataType::Map(Box::new([field("k", DataType::Text), field("v", DataType::I32)]))),
        ];
        Definition::new("main", "every_type", types)
    }

    fn list(element: DataType) -> DataType {
        DataType::List(Box::new(Field::new(0, "element", element)))
    }

    #[test]
    fn definitions_come_back_and_no_prefix_is_one() {
        let mut definition = every_type();
        definition.keys = vec![SortKey { field: 3, is_descending: true, nulls_first: false }];
        definition.properties.insert("comment".into(), "all there is".into());
        definition.check().unwrap();
        let mut bytes = Vec::new();
        definition.write(&mut bytes);
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            Definition::read(&mut reader).and_then(|definition| reader.end().map(|()| definition))
        };
        assert_eq!(read(&bytes), Ok(definition));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn what_cannot_be_a_table_is_refused() {
        let check = |definition: Definition, expected: &str| {
            let error = definition.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let twice = vec![("a", DataType::I8), ("a", DataType::I8)];
        check(Definition::new("main", "t", twice), "two columns have one name");
        check(Definition::new("main", "t", vec![]), "0 columns");
        let deep = (0..DEPTH_MAX).fold(DataType::I8, |inside, _| list(inside));
        check(Definition::new("main", "t", vec![("a", deep)]), "deep");
        let mut definition = Definition::new("main", "t", vec![("a", DataType::I8)]);
        definition.keys = vec![SortKey { field: 1, is_descending: false, nulls_first: false }];
        check(definition, "no column");
        let mut definition = Definition::new("main", "t", vec![("a", list(DataType::I8))]);
        definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: false }];
        check(definition, "no order");
    }

    #[test]
    fn decimals_that_cannot_be_are_malformed() {
        let check = |precision, scale, expected: &str| {
            let mut bytes = Vec::new();
            DataType::Decimal { precision, scale }.write(&mut bytes);
            let error = DataType::read(&mut Reader::new(&bytes), 0).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(0, 0, "a decimal of 0 digits");
        check(39, 2, "a decimal of 39 digits");
        check(5, 6, "a decimal of 5 digits, 6 of them behind the point");
        check(38, 127, "a decimal of 38 digits, 127 of them behind the point");
    }
}
