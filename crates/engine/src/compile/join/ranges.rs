//! Joins by ranges: conditions such as `a.at BETWEEN b.begin AND b.end`, which nested loops would ask of all pairs.
//!
//! One expression of the build side is compared with bounds of the probe side, and a second one perhaps with one bound.
//! Both become numbers of 64 bits that compare as the values do. The rows of the build side that are reached are found by
//! them ([`keirin_operators::ordered`]). All other conditions are asked of the pairs that are left.
//!
//! What can fail may do so only for pairs for which all else is true. So it is never an expression of the build side. A row
//! of the probe side whose bounds cannot be computed reaches everything, and all conditions are asked again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, Schema, UInt64Type};
use datafusion::common::{JoinSide, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::utils::JoinFilter;
use keirin_kernels::{Bits, Level};
use keirin_operators::ordered::{OrderedRows, Reach, Wanted};

use crate::compile::conditions::{conjuncts, has_volatile};
use crate::compile::rules::moved;
use crate::compile::sorting::as_numbers;

/// Digits of DECIMALs that all have numbers of 64 bits.
const NARROW_PRECISION: u8 = 18;

/// Where a bound is in the keys of the probe side, behind those that must be equal.
#[derive(Clone, Copy, Debug)]
struct Bound {
    place: usize,
    /// Whether a number that equals it is out of reach.
    is_strict: bool,
}

/// How build rows are reached.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    least: Option<Bound>,
    most: Option<Bound>,
    /// The bound of the second number, and whether it is the least one.
    second: Option<(Bound, bool)>,
    /// Whether bounds can fail.
    pub(super) is_fallible: bool,
    pub(super) wanted: Wanted,
}

/// A join by ranges.
pub(super) struct ByRanges {
    pub(super) ranges: Ranges,
    /// One expression of the build side, or two.
    pub(super) build_keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Expressions of the probe side.
    pub(super) bounds: Vec<Arc<dyn PhysicalExpr>>,
    /// What else is true of pairs.
    pub(super) filter: Option<JoinFilter>,
}

/// A condition `build op probe`.
struct Comparison {
    build: Arc<dyn PhysicalExpr>,
    op: Operator,
    probe: Arc<dyn PhysicalExpr>,
    /// Whether the numbers say all about it.
    is_exact: bool,
}

impl ByRanges {
    /// What of the conditions of a join bounds rows of one of its sides; `None` if nothing does.
    pub(super) fn of(filter: &JoinFilter, build: JoinSide, schemas: [&Schema; 2]) -> Result<Option<Self>> {
        let (mut comparisons, mut others) = (Vec::new(), Vec::new());
        for condition in conjuncts(filter.expression()) {
            match comparison(condition, filter, build, schemas)? {
                Some(comparison) => comparisons.push((comparison, condition.clone())),
                None => others.push(condition.clone()),
            }
        }
        let is_least = |op: Operator| matches!(op, Operator::Gt | Operator::GtEq);
        // An expression with bounds on both sides makes the shortest ranges.
        let has_both = |key: &Arc<dyn PhysicalExpr>| {
            [true, false].iter().all(|least| {
                comparisons.iter().any(|(other, _)| other.build.eq(key) && is_least(other.op) == *least)
            })
        };
        let best = comparisons.iter().find(|(one, _)| has_both(&one.build)).or(comparisons.first());
        let Some(key) = best.map(|(one, _)| one.build.clone()) else { return Ok(None) };
        let is_fallible = is_volatile(filter.expression());
        let mut ranges = Ranges { least: None, most: None, second: None, is_fallible, wanted: Wanted::All };
        let (mut build_keys, mut bounds) = (vec![key.clone()], Vec::new());
        for (comparison, condition) in comparisons {
            let bound = Bound {
                place: bounds.len(),
                is_strict: comparison.is_exact && matches!(comparison.op, Operator::Lt | Operator::Gt),
            };
            let is_least = is_least(comparison.op);
            let of_key = if is_least { &mut ranges.least } else { &mut ranges.most };
            let is_key = comparison.build.eq(&key);
            if is_key && of_key.is_none() {
                *of_key = Some(bound);
            } else if !is_key && ranges.second.is_none() {
                ranges.second = Some((bound, is_least));
                build_keys.push(comparison.build);
            } else {
                others.push(condition);
                continue;
            }
            bounds.push(comparison.probe);
            if !comparison.is_exact {
                others.push(condition);
            }
        }
        let filter = if is_fallible {
            Some(filter.clone())
        } else {
            (!others.is_empty()).then(|| {
                let (columns, schema) = (filter.column_indices().to_vec(), filter.schema().clone());
                JoinFilter::new(conjunction(others), columns, schema)
            })
        };
        Ok(Some(Self { ranges, build_keys, bounds, filter }))
    }
}

/// A condition as a comparison of an expression of the build side with one of the other, if it is one whose values have
/// numbers.
fn comparison(
    condition: &Arc<dyn PhysicalExpr>,
    filter: &JoinFilter,
    build_side: JoinSide,
    [build_schema, probe_schema]: [&Schema; 2],
) -> Result<Option<Comparison>> {
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Ok(None) };
    let (Some(left_side), Some(right_side)) =
        (side_of(binary.left(), filter), side_of(binary.right(), filter))
    else {
        return Ok(None);
    };
    let (build, op, probe) = match binary.op() {
        _ if left_side == right_side => return Ok(None),
        op if left_side == build_side => (binary.left(), Some(*op), binary.right()),
        op => (binary.right(), op.swap(), binary.left()),
    };
    let Some(op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)) = op else {
        return Ok(None);
    };
    if is_volatile(build) || has_volatile(probe) {
        return Ok(None);
    }
    let (build, probe) = (of_side(build, filter)?, of_side(probe, filter)?);
    let data_type = build.data_type(build_schema)?;
    let is_same = probe.data_type(probe_schema)? == data_type;
    let is_exact = has_numbers(&data_type).filter(|_| is_same);
    Ok(is_exact.map(|is_exact| Comparison { build, op, probe, is_exact }))
}

/// The only side whose columns an expression has.
fn side_of(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Option<JoinSide> {
    let columns = collect_columns(expression);
    let mut sides = columns.iter().map(|column| filter.column_indices()[column.index()].side);
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

/// The expression over the columns of its side.
fn of_side(expression: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Arc<dyn PhysicalExpr>> {
    moved(expression, |column| filter.column_indices()[column].index)
}

/// Whether values of this type have numbers that compare as they do, and, if they have, whether other values have other
/// numbers.
pub(super) fn has_numbers(data_type: &DataType) -> Option<bool> {
    match data_type {
        DataType::Decimal128(precision, _) => Some(*precision <= NARROW_PRECISION),
        DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => Some(false),
        DataType::Boolean | DataType::Float32 | DataType::Float64 => Some(true),
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => Some(true),
        data_type if data_type.is_integer() => Some(true),
        _ => None,
    }
}

const SIGN: u64 = 1 << (u64::BITS - 1);

#[expect(clippy::cast_sign_loss, reason = "the sign bit is flipped")]
fn of_signed(number: i64) -> u64 {
    number as u64 ^ SIGN
}

/// NaN, of which there is one, is the greatest; there is one zero, too.
fn of_float(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

#[expect(clippy::cast_possible_truncation, reason = "it is clamped")]
fn of_wide(number: i128) -> u64 {
    of_signed(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

/// Whether values that differ have different numbers.
fn differ(values: &ArrayRef) -> bool {
    let fits = |number: i128| i64::try_from(number).is_ok();
    match values.data_type() {
        DataType::Decimal128(NARROW_PRECISION.., _) => {
            values.as_primitive::<Decimal128Type>().iter().flatten().all(fits)
        }
        _ => true,
    }
}

fn of_text(text: &str) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    let len = text.len().min(bytes.len());
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    u64::from_be_bytes(bytes)
}

/// The numbers of values; any number where there is no value.
fn numbers(values: &ArrayRef) -> Result<Vec<u64>> {
    let values = as_numbers(values.clone())?;
    let texts = |texts: &mut dyn Iterator<Item = Option<&str>>| -> Vec<u64> {
        texts.map(|text| of_text(text.unwrap_or_default())).collect()
    };
    Ok(match values.data_type() {
        signed if signed.is_signed_integer() => {
            let values = cast(&values, &DataType::Int64)?;
            values.as_primitive::<Int64Type>().values().iter().copied().map(of_signed).collect()
        }
        unsigned if unsigned.is_unsigned_integer() => {
            cast(&values, &DataType::UInt64)?.as_primitive::<UInt64Type>().values().to_vec()
        }
        DataType::Float32 | DataType::Float64 => {
            let values = cast(&values, &DataType::Float64)?;
            values.as_primitive::<Float64Type>().values().iter().copied().map(of_float).collect()
        }
        DataType::Decimal128(..) => {
            values.as_primitive::<Decimal128Type>().values().iter().copied().map(of_wide).collect()
        }
        DataType::Boolean => values.as_boolean().values().iter().map(u64::from).collect(),
        DataType::Utf8View => texts(&mut values.as_string_view().iter()),
        DataType::Utf8 => texts(&mut values.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(&mut values.as_string::<i64>().iter()),
        data_type => return internal_err!("values of type {data_type} have no numbers"),
    })
}

impl Ranges {
    /// The nearest row of the build side, whose key the bound of the probe side has such a relation to.
    pub(super) fn nearest(op: Operator) -> Self {
        let bound = Some(Bound { place: 0, is_strict: matches!(op, Operator::Lt | Operator::Gt) });
        let none = Self { least: None, most: None, second: None, is_fallible: false, wanted: Wanted::All };
        match op {
            Operator::Gt | Operator::GtEq => Self { most: bound, wanted: Wanted::Last, ..none },
            _ => Self { least: bound, wanted: Wanted::First, ..none },
        }
    }

    fn numbers(&self, values: &ArrayRef) -> Result<Vec<u64>> {
        if self.wanted != Wanted::All && !differ(values) {
            return exec_err!(
                "ASOF JOIN compares numbers of up to {NARROW_PRECISION} digits, whole ones beside those of another type, too"
            );
        }
        numbers(values)
    }

    /// Count of keys of the build side that are put in order.
    pub(super) fn key_count(&self) -> usize {
        1 + usize::from(self.has_second())
    }

    pub(super) fn has_second(&self) -> bool {
        self.second.is_some()
    }

    /// The build side in order. Its keys are those that must be equal, in which `groups` are, and ours behind them.
    pub(super) fn order(
        &self,
        groups: &[u64],
        keys: &[ArrayRef],
        validity: Option<Bits<'_>>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<OrderedRows>> {
        let second_numbers = match (self.second, keys) {
            (Some((_, is_least)), [_, key]) => {
                let mut numbers = numbers(key)?;
                if !is_least {
                    numbers.iter_mut().for_each(|number| *number = !*number);
                }
                numbers
            }
            _ => Vec::new(),
        };
        let numbers = self.numbers(&keys[0])?;
        Ok(OrderedRows::new(Level::best(), groups, [&numbers, &second_numbers], validity, is_wanted))
    }

    /// What rows of the probe side with these bounds reach.
    pub(super) fn reaches(
        &self,
        groups: &[u64],
        keys: &[ArrayRef],
        validity: Option<Bits<'_>>,
        row_count: usize,
    ) -> Result<Vec<Reach>> {
        let of = |bound: Option<Bound>| bound.map(|bound| self.numbers(&keys[bound.place])).transpose();
        let (least, most) = (of(self.least)?, of(self.most)?);
        let second = of(self.second.map(|(bound, _)| bound))?;
        let is_strict = |bound: Option<Bound>| bound.is_some_and(|bound| bound.is_strict);
        // `None` if it is beyond all numbers.
        let at_least =
            |number: u64, is_strict: bool| if is_strict { number.checked_add(1) } else { Some(number) };
        let at_most =
            |number: u64, is_strict: bool| if is_strict { number.checked_sub(1) } else { Some(number) };
        let reach = |row: usize| {
            let least =
                least.as_ref().map_or(Some(0), |least| at_least(least[row], is_strict(self.least)))?;
            let most =
                most.as_ref().map_or(Some(u64::MAX), |most| at_most(most[row], is_strict(self.most)))?;
            let second_least = match (&second, self.second) {
                (Some(second), Some((bound, true))) => at_least(second[row], bound.is_strict)?,
                (Some(second), Some((bound, false))) => !at_most(second[row], bound.is_strict)?,
                _ => 0,
            };
            let group = groups.get(row).copied().unwrap_or_default();
            Some(Reach { group, least, most, second_least })
        };
        let is_valid = |row: usize| validity.is_none_or(|validity| validity.get(row));
        let reaches = (0..row_count).map(|row| if is_valid(row) { reach(row) } else { None });
        Ok(reaches.map(|reach| reach.unwrap_or(Reach::NOTHING)).collect())
    }
}
