//! Constants that the planner reads differently: numbers with an exponent, numbers of many digits, intervals;
//! and `AT TIME ZONE`.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Interval, UnaryOperator, Value, Values, WindowFrameBound,
    WindowSpec,
};

use super::macros::{call, text};
use crate::error::{Error, ErrorKind, Result};

/// The most digits of a DECIMAL.
const DIGITS_MAX: usize = 38;

/// The expression that replaces a constant.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a number of more digits than any type has.
pub(super) fn meaning(expr: &Expr) -> Result<Option<Expr>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => meaning_of_number(number),
            _ => Ok(None),
        },
        Expr::Interval(interval) => Ok(meaning_of_interval(interval)),
        Expr::AtTimeZone { timestamp, time_zone } => {
            let arguments = vec![timestamp.as_ref().clone(), time_zone.as_ref().clone()];
            Ok(Some(call("keirin_at_time_zone", arguments)))
        }
        _ => Ok(None),
    }
}

fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(value), data_type, array: false, format: None }
}

/// A number with an exponent is a DOUBLE; an integer that no integer type holds is a DECIMAL.
fn meaning_of_number(number: &str) -> Result<Option<Expr>> {
    let number = number.replace('_', "");
    if number.contains(['e', 'E']) {
        return Ok(Some(cast(text(&number), DataType::Double(ExactNumberInfo::None))));
    }
    if number.parse::<u64>().is_ok() {
        return Ok(None);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.trim_start_matches('0').len() + fraction.len() > DIGITS_MAX {
        let message = format!("number {number} has more than {DIGITS_MAX} digits");
        let hint = "with an exponent, as in 1e40, it is a DOUBLE, which rounds";
        return Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
    }
    if number.contains('.') {
        return Ok(None);
    }
    Ok(Some(cast(text(&number), DataType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 0)))))
}

/// `INTERVAL '1 day'` or `INTERVAL -5 MINUTE` as a cast of text, which reads intervals as PostgreSQL does.
fn meaning_of_interval(interval: &Interval) -> Option<Expr> {
    let Interval { value, leading_field, leading_precision, last_field, fractional_seconds_precision } =
        interval;
    if leading_precision.is_some() || last_field.is_some() || fractional_seconds_precision.is_some() {
        return None;
    }
    let mut written = constant(value)?;
    if let Some(unit) = leading_field {
        written = format!("{written} {unit}");
    }
    Some(cast(text(&written), DataType::Interval { fields: None, precision: None }))
}

fn constant(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let text = constant(expr)?;
            (!text.starts_with('-')).then(|| format!("-{text}"))
        }
        _ => None,
    }
}

/// Restores plain constants in the bounds of a window's frame, where the planner takes nothing else.
pub(super) fn restore_frame(window: &mut WindowSpec) {
    let Some(frame) = &mut window.window_frame else { return };
    for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()].into_iter().flatten() {
        let (WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset))) = bound
        else {
            continue;
        };
        let Expr::Cast { expr, data_type, .. } = offset.as_ref() else { continue };
        let Some(written) = constant(expr) else { continue };
        **offset = match data_type {
            DataType::Interval { .. } => Expr::Interval(Interval {
                value: Box::new(text(&written)),
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            }),
            _ => Expr::value(Value::Number(written, false)),
        };
    }
}

/// If one number of a column of VALUES is a DOUBLE, makes all numbers with a decimal point DOUBLEs: the
/// planner would make DECIMALs of them.
pub(super) fn meet(values: &mut Values) {
    let is_double = |expr: &Expr| {
        let double = DataType::Double(ExactNumberInfo::None);
        let operand = if let Expr::UnaryOp { expr, .. } = expr { expr } else { expr };
        matches!(operand, Expr::Cast { data_type, .. } if *data_type == double)
    };
    let width = values.rows.iter().map(|row| row.content.len()).max().unwrap_or(0);
    for column in 0..width {
        if !values.rows.iter().any(|row| row.content.get(column).is_some_and(is_double)) {
            continue;
        }
        let cells = values.rows.iter_mut().filter_map(|row| row.content.get_mut(column));
        for cell in cells.filter(|cell| constant(cell).is_some_and(|text| text.contains('.'))) {
            let is_number = !matches!(cell, Expr::Value(value) if !matches!(value.value, Value::Number(..)));
            if is_number {
                let value = std::mem::replace(cell, Expr::value(Value::Null));
                *cell = cast(value, DataType::Double(ExactNumberInfo::None));
            }
        }
    }
}
