//! Infers types from a sample of JSON records.
//!
//! A kind is the narrowest description of all values seen at one place. Whole numbers and numbers meet in
//! numbers, dates and timestamps in timestamps. Values of other kinds meet in text: texts as they are, other
//! values as JSON. So nothing is lost, and SQL can still take the JSON apart.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::cut::{Chunk, first_syntax_error};
use super::moments::Moment;
use super::narrow::records;
use crate::error::Result;
use crate::sources::files::failure::damaged;
use crate::statements::output::{INFINITY, MINUS_INFINITY, NAN};

/// An object with more keys than this uses them as data, not as names, and is kept as text.
const KEYS_MAX: usize = 1000;

/// The kind of the values at one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Kind {
    /// Only nulls, or no value at all.
    #[default]
    Unknown,
    Boolean,
    /// An integer that fits 64 bits, signed.
    Whole,
    /// An integer that does not.
    Big,
    Number,
    /// The text of a number that JSON lacks: NaN or an infinity.
    NotFinite,
    Date,
    /// A date with a time of day, without an offset from UTC.
    Timestamp,
    /// A date with a time of day and an offset from UTC.
    ZonedTimestamp,
    Text,
    List(Box<Kind>),
    Object(Vec<(String, Kind)>),
}

impl Kind {
    /// Widens itself to include the values of `other`.
    fn meet(&mut self, other: Kind) {
        use Kind::{Big, Date, NotFinite, Number, Timestamp, Unknown, Whole};
        match (&mut *self, other) {
            (_, Unknown) => {}
            (this @ Unknown, other) => *this = other,
            (this, other) if *this == other => {}
            (this @ (Whole | Big), Whole | Big) => *this = Big,
            (this @ (Whole | Big | Number | NotFinite), Whole | Big | Number | NotFinite) => *this = Number,
            (this @ (Date | Timestamp), Date | Timestamp) => *this = Timestamp,
            (this, _) => *this = Kind::Text,
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            // Without numbers beside them, words such as NaN are words.
            Self::Unknown | Self::Text | Self::NotFinite => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Whole => DataType::Int64,
            // 20 digits hold all unsigned 64-bit integers.
            Self::Big => DataType::Decimal128(20, 0),
            Self::Number => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::ZonedTimestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            Self::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Self::Object(fields) if fields.is_empty() || fields.len() > KEYS_MAX => DataType::Utf8,
            Self::Object(fields) => DataType::Struct(to_fields(fields)),
        }
    }

    /// The columns, if the values are objects with at least one key.
    pub(super) fn schema(&self) -> Option<Schema> {
        match self {
            Self::Object(fields) if !fields.is_empty() => Some(Schema::new(to_fields(fields))),
            _ => None,
        }
    }

    /// Widens the kind by at most `limit` records of `chunk`; returns how many it read.
    pub(super) fn observe(&mut self, chunk: &Chunk, limit: usize, name: &str) -> Result<usize> {
        // Record by record: the error that there are more of them counts the lines before it.
        let whole = || std::iter::once(0..chunk.bytes.len()).collect();
        let records = records(&chunk.bytes).unwrap_or_else(whole);
        let mut count = 0;
        for record in records {
            let mut records = serde_json::Deserializer::from_slice(&chunk.bytes[record]);
            while count < limit && records.end().is_err() {
                Seed(self).deserialize(&mut records).map_err(|error| {
                    first_syntax_error(name, chunk).unwrap_or_else(|| damaged(name, "JSON", error))
                })?;
                count += 1;
            }
        }
        Ok(count)
    }
}

fn to_fields(fields: &[(String, Kind)]) -> Fields {
    fields.iter().map(|(name, kind)| Field::new(name, kind.data_type(), true)).collect()
}

/// Deserializes one value and widens the kind by it.
struct Seed<'k>(&'k mut Kind);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.0.meet(Kind::Boolean);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.0.meet(Kind::Whole);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.meet(if i64::try_from(value).is_ok() { Kind::Whole } else { Kind::Big });
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.0.meet(Kind::Number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if *self.0 != Kind::Text {
            self.0.meet(match Moment::parse(text) {
                None if [NAN, INFINITY, MINUS_INFINITY].contains(&text) => Kind::NotFinite,
                None => Kind::Text,
                Some(moment) if moment.has_zone => Kind::ZonedTimestamp,
                Some(moment) if moment.has_time => Kind::Timestamp,
                Some(_) => Kind::Date,
            });
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if *self.0 == Kind::Unknown {
            *self.0 = Kind::List(Box::default());
        }
        let mut ignored = Kind::Unknown;
        let is_list = matches!(self.0, Kind::List(_));
        let item = match &mut *self.0 {
            Kind::List(item) => item,
            _ => &mut ignored,
        };
        while items.next_element_seed(Seed(item))?.is_some() {}
        if !is_list {
            *self.0 = Kind::Text;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if *self.0 == Kind::Unknown {
            *self.0 = Kind::Object(Vec::new());
        }
        let is_object = matches!(self.0, Kind::Object(_));
        let mut ignored = Kind::Unknown;
        // Records of one file mostly have their keys in the same order, so the key after the last one is
        // tried first.
        let mut next = 0;
        while let Some(key) = entries.next_key::<String>()? {
            let kind = match &mut *self.0 {
                Kind::Object(fields) => {
                    let found = match fields.get(next) {
                        Some((name, _)) if *name == key => Some(next),
                        _ => fields.iter().position(|(name, _)| *name == key),
                    };
                    match found {
                        Some(index) => {
                            next = index + 1;
                            &mut fields[index].1
                        }
                        None if fields.len() <= KEYS_MAX => {
                            fields.push((key, Kind::Unknown));
                            next = fields.len();
                            &mut fields.last_mut().expect("pushed above").1
                        }
                        None => &mut ignored,
                    }
                }
                _ => &mut ignored,
            };
            entries.next_value_seed(Seed(kind))?;
        }
        if !is_object {
            *self.0 = Kind::Text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        let chunk = Chunk { bytes: text.as_bytes().into(), first_line: 1, byte_offset: 0, by_line: true };
        let mut kind = Kind::default();
        kind.observe(&chunk, usize::MAX, "x").unwrap();
        kind
    }

    #[test]
    fn values_widen_to_what_holds_them_all() {
        let moment = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        let check = |values: &str, expected: DataType| {
            let records: String = values.split(' ').map(|value| format!("{{\"a\": {value}}}\n")).collect();
            assert_eq!(kind(&records).schema().unwrap().field(0).data_type(), &expected, "{values}");
        };
        check("1 -2 null", DataType::Int64);
        check("1 2.5", DataType::Float64);
        check("1 18446744073709551615", DataType::Decimal128(20, 0));
        check("true null", DataType::Boolean);
        check("true 1", DataType::Utf8);
        check("1 \"x\"", DataType::Utf8);
        check("\"2024-02-29\" null", DataType::Date32);
        check("\"2024-02-29\" \"2024-02-29T12:00:00\"", moment(None));
        check("\"2024-02-29T12:00:00Z\"", moment(Some("+00:00")));
        check("\"2024-02-29T12:00:00Z\" \"2024-02-29\"", DataType::Utf8);
        check("\"2024-02-29\" \"2024-02-30\"", DataType::Utf8);
        check("\"2024-02-29\" 5", DataType::Utf8);
        check("{\"b\":1} 1", DataType::Utf8);
        check("[1] {\"b\":1}", DataType::Utf8);
        check("null", DataType::Utf8);
        check("{}", DataType::Utf8);
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        check("[] [1,null] [2.5]", list(DataType::Float64));
        check("[1,\"x\"]", list(DataType::Utf8));
        check("{\"b\":1} {\"c\":[true]}", {
            let fields =
                vec![Field::new("b", DataType::Int64, true), Field::new("c", list(DataType::Boolean), true)];
            DataType::Struct(fields.into())
        });
    }

    #[test]
    fn columns_come_in_the_order_of_first_appearance() {
        let schema = kind("{\"z\":1,\"a\":2}\n{\"a\":1,\"m\":2,\"z\":3}").schema().unwrap();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["z", "a", "m"]);
    }

    #[test]
    fn objects_that_use_keys_as_data_are_text() {
        let keys: String = (0..=KEYS_MAX).map(|key| format!("\"k{key}\":1,")).collect();
        let record = format!("{{\"a\":{{{}}}}}", keys.trim_end_matches(','));
        assert_eq!(kind(&record).schema().unwrap().field(0).data_type(), &DataType::Utf8);
    }

    #[test]
    fn syntax_errors_say_line_and_column() {
        let chunk = Chunk {
            bytes: b"{\"a\":1}\n{\"a\":}\n"[..].into(),
            first_line: 10,
            byte_offset: 0,
            by_line: true,
        };
        let error = Kind::default().observe(&chunk, 10, "x.json").unwrap_err();
        assert_eq!(error.message(), "cannot read file 'x.json' as JSON: line 11, column 6: expected value");
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        let chunk = Chunk {
            bytes: "[".repeat(1 << 20).as_bytes().into(),
            first_line: 1,
            byte_offset: 0,
            by_line: true,
        };
        assert!(Kind::default().observe(&chunk, 10, "x").is_err());
    }
}
