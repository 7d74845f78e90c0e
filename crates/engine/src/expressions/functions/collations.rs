//! Texts by their collations: the functions that compare them by plain bytes once these are made to keys, and those that
//! ask about collations.
//!
//! `COLLATE` is a call of [`COLLATE`], until [`Collations`](crate::compile::rules::Collations) has found out by which collation
//! each comparison is made.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{BinaryViewType, DataType, StringViewType};
use datafusion::common::{ScalarValue, exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use keirin_collation::{Collation, Keys, PadOrder};
use keirin_kernels::arrow::text_views;
use keirin_kernels::text::{Strings, Text, facts, trimmed};
use keirin_kernels::{BitBuffer, Level};

/// `text COLLATE name`, the name as a literal.
pub(crate) const COLLATE: &str = "keirin_collate";
/// `collation(text)`, the name of its collation.
pub(crate) const COLLATION: &str = "collation";
/// `coercibility(text)`, a number from 0, where a collation is written, to 6, where there is none.
pub(crate) const COERCIBILITY: &str = "coercibility";
/// `weight_string(text)`, the weights of its characters.
pub(crate) const WEIGHT_STRING: &str = "weight_string";

/// What is made of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    /// What compares by bytes as the text does by its collation.
    Key,
    /// One character for all that LIKE takes as the same.
    Folded,
    /// The key, and behind it the text: of such, the least has the least key, and of several the text that is the least.
    Pair,
    /// The text of a pair.
    Second,
    /// A pattern of LIKE for folded text. Its second argument, if there is one, is the character that escapes others.
    Pattern,
    Weights,
}

/// Makes something of texts by a collation.
#[derive(Debug)]
struct Collated {
    made: Made,
    keys: Keys,
    order: PadOrder,
    name: String,
    signature: Signature,
}

impl Collated {
    fn function(made: Made, collation: Collation, order: PadOrder) -> Arc<ScalarUDF> {
        let what = match made {
            Made::Key => "collation_key",
            Made::Folded => "folded",
            Made::Pair => "key_and_text",
            Made::Second => "text_of_key",
            Made::Pattern => "folded_pattern",
            Made::Weights => WEIGHT_STRING,
        };
        Arc::new(ScalarUDF::new_from_impl(Self {
            made,
            keys: Keys::new(collation, order),
            order,
            name: format!("{what}_{}", collation.name()),
            signature: Signature::variadic_any(Volatility::Immutable),
        }))
    }

    fn of(&self) -> (Made, Collation, PadOrder) {
        (self.made, self.keys.collation(), self.order)
    }

    /// Appends what is made of a text, if that is a text.
    fn append(&self, text: &str, escape: Option<char>, bytes: &mut Vec<u8>) {
        match self.made {
            Made::Key => self.keys.append_key(text, bytes),
            Made::Folded => self.keys.append_fold(text, bytes),
            Made::Pair => append_pair(&self.keys, text, bytes),
            Made::Second => bytes.extend_from_slice(second(text).as_bytes()),
            Made::Pattern => append_pattern(&self.keys, text, escape, bytes),
            Made::Weights => bytes.extend(self.keys.weights(text)),
        }
    }

    fn texts(&self, texts: &StringViewArray, escape: Option<char>) -> Result<ArrayRef> {
        let is_trimming = self.made == Made::Key && self.keys.identity(false);
        if is_trimming && !texts.iter().any(|text| text.is_some_and(|text| text.ends_with(' '))) {
            return Ok(Arc::new(texts.clone()));
        }
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        let mut entries = Entries::default();
        let codes = (0..texts.len()).map(|row| {
            if texts.is_null(row) {
                return NO_ENTRY;
            }
            entries.code(texts.views()[row], || {
                self.append(texts.value(row), escape, &mut bytes);
                ends.push(bytes.len());
            })
        });
        let mut codes: Vec<u32> = codes.collect();
        if texts.null_count() > 0 {
            // NULLs have the text of some entry, or of one that is there for them.
            if ends.len() == 1 {
                ends.push(0);
            }
            codes.iter_mut().filter(|code| **code == NO_ENTRY).for_each(|code| *code = 0);
        }
        let Ok(ends) = ends.into_iter().map(i32::try_from).collect::<std::result::Result<Vec<_>, _>>() else {
            return exec_err!("texts of a batch have keys of more than 2 GiB");
        };
        let (level, bytes, nulls) = (Level::best(), Buffer::from_vec(bytes), texts.nulls().cloned());
        if self.made == Made::Weights {
            let weights = text_views::<BinaryViewType>(level, &ends, bytes, Some(&codes), nulls);
            let weights = weights.map_err(|error| exec_datafusion_err!("{error}"))?;
            return Ok(arrow::compute::cast(&weights, &DataType::Binary)?);
        }
        let made = text_views::<StringViewType>(level, &ends, bytes, Some(&codes), nulls);
        Ok(Arc::new(made.map_err(|error| exec_datafusion_err!("{error}"))?))
    }

    /// What is made of the rows of a block, in order: offsets and bytes.
    fn rows(&self, level: Level, rows: Strings<'_, i32>) -> (Vec<i64>, Vec<u8>) {
        let offsets = || rows.offsets().iter().map(|offset| i64::from(*offset));
        let (first, last) = (rows.offsets()[0], rows.offsets()[rows.row_count()]);
        let [start, end] =
            [first, last].map(|offset| usize::try_from(offset).expect("offsets ascend from zero"));
        let texts = &rows.bytes()[start..end];
        let facts = facts(level, rows);
        let mut bytes = Vec::with_capacity(texts.len());
        if self.made == Made::Key
            && facts.is_ascii
            && facts.has_trailing_spaces
            && self.keys.collation().pads()
        {
            let (ends, texts) = without_spaces(rows);
            if self.keys.append_ascii_keys(&texts, &mut bytes) {
                return (ends, bytes);
            }
        }
        let is_bulk = facts.is_ascii
            && match self.made {
                Made::Key => !facts.has_trailing_spaces && self.keys.append_ascii_keys(texts, &mut bytes),
                _ => self.keys.append_ascii_fold(texts, &mut bytes),
            };
        if is_bulk {
            return (offsets().map(|offset| offset - i64::from(first)).collect(), bytes);
        }
        let mut ends = Vec::with_capacity(rows.row_count() + 1);
        ends.push(0);
        for row in 0..rows.row_count() {
            match std::str::from_utf8(rows.row(row)) {
                Ok(text) => self.append(text, None, &mut bytes),
                // A damaged file; who decodes it says so.
                Err(_) => bytes.extend_from_slice(rows.row(row)),
            }
            ends.push(i64::try_from(bytes.len()).expect("memory has fewer bytes"));
        }
        (ends, bytes)
    }
}

/// The code of a NULL.
const NO_ENTRY: u32 = u32::MAX;

/// Numbers views that come again, as those of a dictionary's entries do.
struct Entries {
    slots: Vec<(u128, u32)>,
    count: u32,
    rows: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self { slots: vec![(0, NO_ENTRY); 1 << Self::SLOT_BITS], count: 0, rows: 0 }
    }
}

impl Entries {
    const SLOT_BITS: u32 = 10;
    /// After so many rows it is judged whether views come again: half of them.
    const TRIED: u32 = 1 << 11;

    /// The number of a view, of whose text `add` makes a new entry if it has none.
    #[inline]
    fn code(&mut self, view: u128, add: impl FnOnce()) -> u32 {
        self.rows += 1;
        let is_worthwhile = self.rows < Self::TRIED || 2 * u64::from(self.count) < u64::from(self.rows);
        #[expect(clippy::cast_possible_truncation, reason = "halves of a view")]
        let hash = (view as u64 ^ (view >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let slot = &mut self.slots[(hash >> (u64::BITS - Self::SLOT_BITS)) as usize];
        if is_worthwhile && slot.0 == view && slot.1 != NO_ENTRY {
            return slot.1;
        }
        add();
        *slot = (view, self.count);
        self.count += 1;
        self.count - 1
    }
}

/// A column that is compared as something else that is made of its texts.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    /// The column's place.
    pub(crate) column: usize,
    function: Arc<ScalarUDF>,
}

impl Mapped {
    /// `None` for another expression.
    pub(crate) fn of(expression: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
        let [text] = call.args() else { return None };
        let column = text.downcast_ref::<Column>()?.index();
        let function = Arc::new(call.fun().clone());
        let mapped = Self { column, function };
        matches!(mapped.collated()?.made, Made::Key | Made::Folded).then_some(mapped)
    }

    fn collated(&self) -> Option<&Collated> {
        self.function.inner().downcast_ref()
    }

    /// Whether texts are their own keys, but for spaces at the end.
    pub(crate) fn is_trimming(&self) -> bool {
        self.collated().is_some_and(|collated| collated.made == Made::Key && collated.keys.identity(false))
    }

    /// What `ask` says of what is made of the rows of a block.
    pub(crate) fn ask(
        &self,
        level: Level,
        rows: Strings<'_, i32>,
        ask: impl FnOnce(Strings<'_, i64>) -> BitBuffer,
    ) -> BitBuffer {
        let collated = self.collated().expect("that is how it was made");
        let (offsets, bytes) = collated.rows(level, rows);
        ask(Strings::new(level, &offsets, &bytes).expect("offsets ascend"))
    }
}

/// Where a key ends that has a text behind it.
const KEY_END: &str = "\0\0";
/// A NUL in such a key.
const NUL: &[u8] = b"\0\x01";

fn append_pair(keys: &Keys, text: &str, bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    keys.append_key(text, bytes);
    if bytes[begin..].contains(&0) {
        let key = bytes.split_off(begin);
        key.iter().for_each(|byte| if *byte == 0 { bytes.extend_from_slice(NUL) } else { bytes.push(*byte) });
    }
    bytes.extend_from_slice(KEY_END.as_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn second(pair: &str) -> &str {
    // NULs of the key have something else behind them.
    pair.split_once(KEY_END).map_or("", |(_, text)| text)
}

/// Texts without the spaces at their ends, one behind the other: where each ends, and their bytes.
fn without_spaces(rows: Strings<'_, i32>) -> (Vec<i64>, Vec<u8>) {
    let place = |row: usize| usize::try_from(rows.offsets()[row]).expect("offsets ascend from zero");
    let mut bytes = Vec::with_capacity(place(rows.row_count()) - place(0));
    let mut ends = Vec::with_capacity(rows.row_count() + 1);
    ends.push(0);
    // What was not copied yet.
    let mut from = place(0);
    for row in 0..rows.row_count() {
        let end = place(row + 1);
        let text = rows.row(row);
        if text.last() == Some(&b' ') {
            bytes.extend_from_slice(&rows.bytes()[from..end - (text.len() - trimmed(text).len())]);
            from = end;
        }
        ends.push(i64::try_from(bytes.len() + end - from).expect("memory has fewer bytes"));
    }
    bytes.extend_from_slice(&rows.bytes()[from..place(rows.row_count())]);
    (ends, bytes)
}

/// Appends a pattern for folded text, in which a backslash escapes.
fn append_pattern(keys: &Keys, pattern: &str, escape: Option<char>, folded: &mut Vec<u8>) {
    let literal = |char: char, folded: &mut Vec<u8>| {
        let begin = folded.len();
        keys.append_fold(char.encode_utf8(&mut [0; 4]), folded);
        if matches!(folded[begin..], [b'%' | b'_' | b'\\']) {
            folded.insert(begin, b'\\');
        }
    };
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if Some(char) == escape => literal(chars.next().unwrap_or(char), folded),
            '%' | '_' => folded.push(if char == '%' { b'%' } else { b'_' }),
            _ => literal(char, folded),
        }
    }
}

impl PartialEq for Collated {
    fn eq(&self, other: &Self) -> bool {
        self.of() == other.of()
    }
}

impl Eq for Collated {}

impl Hash for Collated {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of().hash(state);
    }
}

impl ScalarUDFImpl for Collated {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.made == Made::Weights { DataType::Binary } else { arguments[0].clone() })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let escape = match arguments.args.get(1) {
            Some(ColumnarValue::Scalar(escape)) => {
                escape.try_as_str().flatten().and_then(|text| text.chars().next())
            }
            _ => Some('\\'),
        };
        let of_texts = |texts: &ArrayRef| {
            let data_type = texts.data_type();
            let made =
                self.texts(arrow::compute::cast(texts, &DataType::Utf8View)?.as_string_view(), escape)?;
            if self.made == Made::Weights { Ok(made) } else { arrow::compute::cast(&made, data_type) }
        };
        match &arguments.args[0] {
            ColumnarValue::Array(texts) => Ok(ColumnarValue::Array(of_texts(texts)?)),
            ColumnarValue::Scalar(text) => {
                let one = of_texts(&text.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
        }
    }
}

fn call(made: Made, collation: Collation, order: PadOrder, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Collated::function(made, collation, order), args))
}

/// What compares by bytes as a text does by its collation.
pub(crate) fn key(text: Expr, collation: Collation, order: PadOrder) -> Expr {
    call(Made::Key, collation, order, vec![text])
}

/// What compares by bytes as a text does by its collation, and has the text behind it.
pub(crate) fn pair(text: Expr, collation: Collation, order: PadOrder) -> Expr {
    call(Made::Pair, collation, order, vec![text])
}

/// The text of a [`pair`].
pub(crate) fn second_of_pair(pair: Expr) -> Expr {
    call(Made::Second, Collation::find("binary").expect("it is a collation"), PadOrder::Tidb, vec![pair])
}

/// Whether an expression is a [`pair`].
pub(crate) fn is_pair(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    call.func.inner().downcast_ref::<Collated>().is_some_and(|collated| collated.made == Made::Pair)
}

/// A text with one character for all that LIKE takes as the same.
pub(crate) fn folded(text: Expr, collation: Collation) -> Expr {
    call(Made::Folded, collation, PadOrder::Tidb, vec![text])
}

/// A pattern for [folded](folded) text, of one in which this character escapes others.
pub(crate) fn folded_pattern(pattern: Expr, escape: Option<char>, collation: Collation) -> Expr {
    let escape = Expr::Literal(ScalarValue::from(escape.map(String::from).unwrap_or_default()), None);
    call(Made::Pattern, collation, PadOrder::Tidb, vec![pattern, escape])
}

/// The weights of a text's characters.
pub(crate) fn weights(text: Expr, collation: Collation) -> Expr {
    call(Made::Weights, collation, PadOrder::Tidb, vec![text])
}

/// What asks for a collation, or gives one, until it is known which.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Asked {
    name: &'static str,
    signature: Signature,
}

pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |(name, arguments)| {
        ScalarUDF::new_from_impl(Asked { name, signature: Signature::any(arguments, Volatility::Immutable) })
    };
    [(COLLATE, 2), (COLLATION, 1), (COERCIBILITY, 1), (WEIGHT_STRING, 1)].map(function).into()
}

impl ScalarUDFImpl for Asked {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match self.name {
            COLLATE => arguments[0].clone(),
            COERCIBILITY => DataType::Int64,
            WEIGHT_STRING => DataType::Binary,
            _ => DataType::Utf8View,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // None is left once a plan is analyzed; defaults of columns are not.
        datafusion::common::plan_err!("{} is not known here: {:?}", self.name, arguments.args.len())
    }
}
