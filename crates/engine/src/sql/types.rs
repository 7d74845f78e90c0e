//! SQL types that DataFusion's planner does not know: JSON, UUID, MAP, and MySQL's and ClickHouse's names of
//! other types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use parking_lot::RwLock;

use crate::bind::relations::normalized;
use crate::expressions::uuids::as_uuid;
use crate::types::{EXTENSION, JSON};

/// The time zone of a session, for TIMESTAMP WITH TIME ZONE. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SessionZone(Arc<RwLock<Arc<str>>>);

impl Default for SessionZone {
    fn default() -> Self {
        Self(Arc::new(RwLock::new("UTC".into())))
    }
}

impl SessionZone {
    pub(crate) fn get(&self) -> Arc<str> {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, zone: &str) {
        *self.0.write() = zone.into();
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SqlTypes {
    pub(crate) zone: SessionZone,
}

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        field(sql_type, &self.zone)
    }
}

/// The field of a type that is ours; `None` for the planner's types.
fn field(sql_type: &SqlType, zone: &SessionZone) -> Result<Option<FieldRef>> {
    let plain = |data_type| Ok(Some(Arc::new(Field::new("", data_type, true))));
    match sql_type {
        SqlType::JSON | SqlType::JSONB => {
            let metadata = HashMap::from([(EXTENSION.to_owned(), JSON.to_owned())]);
            Ok(Some(Arc::new(Field::new("", DataType::Utf8View, true).with_metadata(metadata))))
        }
        SqlType::Binary(_)
        | SqlType::Varbinary(_)
        | SqlType::Blob(_)
        | SqlType::Bytes(_)
        | SqlType::TinyBlob
        | SqlType::MediumBlob
        | SqlType::LongBlob => plain(DataType::BinaryView),
        SqlType::Uuid => Ok(Some(Arc::new(as_uuid(Field::new("", DataType::Utf8View, true))))),
        SqlType::TinyText
        | SqlType::MediumText
        | SqlType::LongText
        | SqlType::Nvarchar(_)
        | SqlType::Character(_)
        | SqlType::CharacterVarying(_)
        | SqlType::CharVarying(_)
        | SqlType::Clob(_)
        | SqlType::FixedString(_) => plain(DataType::Utf8View),
        SqlType::Int16 => plain(DataType::Int16),
        SqlType::Int32 | SqlType::MediumInt(_) => plain(DataType::Int32),
        SqlType::Int64 => plain(DataType::Int64),
        SqlType::UInt8 | SqlType::UTinyInt => plain(DataType::UInt8),
        SqlType::UInt16 | SqlType::USmallInt => plain(DataType::UInt16),
        SqlType::UInt32 | SqlType::MediumIntUnsigned(_) => plain(DataType::UInt32),
        SqlType::UInt64 | SqlType::UBigInt => plain(DataType::UInt64),
        SqlType::Float32 => plain(DataType::Float32),
        SqlType::Float64 => plain(DataType::Float64),
        SqlType::Date32 => plain(DataType::Date32),
        SqlType::HugeInt | SqlType::UHugeInt => plain(HUGE),
        SqlType::Dec(info) => plain(decimal(info)?),
        SqlType::Datetime(precision) => {
            plain(DataType::Timestamp(unit(precision.unwrap_or(MICROSECONDS))?, None))
        }
        SqlType::Timestamp(precision, info) => {
            let is_zoned = matches!(info, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
            let zone = is_zoned.then(|| zone.get());
            plain(DataType::Timestamp(unit(precision.unwrap_or(MICROSECONDS))?, zone))
        }
        SqlType::TimestampNtz(precision) => {
            plain(DataType::Timestamp(unit(precision.unwrap_or(MICROSECONDS))?, None))
        }
        SqlType::Datetime64(precision, zone) => {
            plain(DataType::Timestamp(unit(*precision)?, zone.as_deref().map(Arc::from)))
        }
        SqlType::Time(Some(precision), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            plain(match unit(*precision)? {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit => DataType::Time64(unit),
            })
        }
        SqlType::Interval { .. } => plain(DataType::Interval(IntervalUnit::MonthDayNano)),
        SqlType::Map(key, value) => {
            let key = known(key, zone)?.as_ref().clone().with_name("key").with_nullable(false);
            let value = known(value, zone)?.as_ref().clone().with_name("value");
            let entries = DataType::Struct(vec![key, value].into());
            plain(DataType::Map(Arc::new(Field::new("entries", entries, false)), false))
        }
        // ClickHouse's wrappers change nothing: every column here may have NULLs, and text is
        // dictionary-encoded as needed.
        SqlType::Nullable(inner) | SqlType::LowCardinality(inner) => known(inner, zone).map(Some),
        SqlType::Custom(name, arguments) if arguments.is_empty() => {
            let name = name.to_string();
            let found = CUSTOM.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
            found.map_or(Ok(None), |(_, data_type)| plain(data_type.clone()))
        }
        _ => Ok(None),
    }
}

/// Names that the parser does not know.
const CUSTOM: &[(&str, DataType)] = &[
    ("timestamp_ms", DataType::Timestamp(TimeUnit::Millisecond, None)),
    ("timestamp_ns", DataType::Timestamp(TimeUnit::Nanosecond, None)),
    ("timestamp_s", DataType::Timestamp(TimeUnit::Second, None)),
    ("timestamp_us", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ("uinteger", DataType::UInt32),
];
/// The widest integer type: 38 digits, slightly less than DuckDB's 128 bits hold.
const HUGE: DataType = DataType::Decimal128(38, 0);
/// The default number of digits of the fraction of a second.
const MICROSECONDS: u64 = 6;

/// The type inside another one: ours, or one of the planner's that is allowed there.
fn known(sql_type: &SqlType, zone: &SessionZone) -> Result<FieldRef> {
    if let Some(field) = field(sql_type, zone)? {
        return Ok(field);
    }
    if let SqlType::Array(of) = sql_type
        && let Some(of) = element_type(of)
    {
        let item = known(of, zone)?.as_ref().clone().with_name("item");
        return Ok(Arc::new(Field::new("", DataType::List(Arc::new(item)), true)));
    }
    let data_type = match sql_type {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::TinyIntUnsigned(_) => DataType::UInt8,
        SqlType::SmallIntUnsigned(_) => DataType::UInt16,
        SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) => DataType::UInt32,
        SqlType::BigIntUnsigned(_) => DataType::UInt64,
        SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Text | SqlType::String(_) => DataType::Utf8View,
        SqlType::Real | SqlType::Float(_) | SqlType::Float4 => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float8 => DataType::Float64,
        SqlType::Date => DataType::Date32,
        SqlType::Numeric(info) | SqlType::Decimal(info) => decimal(info)?,
        SqlType::Time(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Nanosecond)
        }
        SqlType::Struct(fields, _) => {
            let fields = fields.iter().enumerate().map(|(index, field)| {
                let name = field.field_name.as_ref().map_or_else(|| format!("c{index}"), normalized);
                Ok(known(&field.field_type, zone)?.as_ref().clone().with_name(name))
            });
            DataType::Struct(fields.collect::<Result<Vec<_>>>()?.into())
        }
        SqlType::Bytea => DataType::BinaryView,
        other => {
            let text = format!("type {other} is not supported inside another type");
            return Err(DataFusionError::NotImplemented(text));
        }
    };
    Ok(Arc::new(Field::new("", data_type, true)))
}

fn element_type(of: &ast::ArrayElemTypeDef) -> Option<&SqlType> {
    match of {
        ast::ArrayElemTypeDef::AngleBracket(of)
        | ast::ArrayElemTypeDef::SquareBracket(of, _)
        | ast::ArrayElemTypeDef::Parenthesis(of) => Some(of),
        ast::ArrayElemTypeDef::None => None,
    }
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (38, 10),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let valid = u8::try_from(precision).ok().zip(i8::try_from(scale).ok());
    let valid =
        valid.filter(|(precision, scale)| (1..=38).contains(precision) && scale.unsigned_abs() <= *precision);
    valid
        .map(|(precision, scale)| DataType::Decimal128(precision, scale))
        .ok_or_else(|| DataFusionError::Plan(format!("DECIMAL({precision}, {scale}) has not 1 to 38 digits")))
}

fn unit(digits: u64) -> Result<TimeUnit> {
    match digits {
        0 => Ok(TimeUnit::Second),
        1..=3 => Ok(TimeUnit::Millisecond),
        4..=6 => Ok(TimeUnit::Microsecond),
        7..=9 => Ok(TimeUnit::Nanosecond),
        _ => Err(DataFusionError::Plan(format!("times have 0 to 9 digits behind the second, not {digits}"))),
    }
}
