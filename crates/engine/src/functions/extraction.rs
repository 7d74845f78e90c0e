//! `regexp_replace` where it takes a part of a text: `regexp_replace(url, '^https?://([^/]+)/.*$', '\1')`.
//!
//! Patterns that are chains ([`keirin_operators::pattern`]) are matched without an automaton, and the answer is made of
//! views into the texts.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ByteView, StringViewArray, StringViewBuilder};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF};
use keirin_operators::pattern::{Chain, Match};
use regex::Regex;

use super::wrapped::Wrapped;

/// Puts ours in the place of the planner's `regexp_replace`.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    let inner = state.udf("regexp_replace")?;
    let extracting = Wrapped::new(inner, |inner, arguments| match Extraction::of(&arguments.args) {
        Some((extraction, texts)) => Ok(ColumnarValue::Array(Arc::new(extraction.of_texts(texts)?))),
        None => inner.invoke_with_args(arguments),
    });
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(extracting)))?;
    Ok(())
}

/// A pattern whose match is replaced by one of its groups.
struct Extraction<'a> {
    pattern: &'a str,
    chain: Chain,
    group: usize,
}

impl<'a> Extraction<'a> {
    /// What a call with these arguments is, if it is one, and its texts.
    fn of(arguments: &'a [ColumnarValue]) -> Option<(Self, &'a StringViewArray)> {
        let [ColumnarValue::Array(texts), ColumnarValue::Scalar(pattern), ColumnarValue::Scalar(replacement)] =
            arguments
        else {
            return None;
        };
        // Offsets have 32 bits.
        let has_short_buffers = |texts: &&StringViewArray| {
            texts.data_buffers().iter().all(|buffer| buffer.len() < u32::MAX as usize)
        };
        let texts = texts.as_string_view_opt().filter(has_short_buffers)?;
        let pattern = pattern.try_as_str()??;
        // As the planner's function reads it, with one backslash or two.
        let group = replacement.try_as_str()??.strip_prefix('\\')?;
        let group = group.strip_prefix('\\').unwrap_or(group);
        if !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (group, chain) = (group.parse().ok()?, Chain::new(pattern)?);
        (group < chain.group_count()).then_some((Self { pattern, chain, group }, texts))
    }

    fn of_texts(&self, texts: &StringViewArray) -> Result<StringViewArray> {
        /// The bytes of a text within its view.
        const INLINE_BYTES: usize = 12;
        let external = |error| DataFusionError::External(Box::new(error));
        let mut regex: Option<Regex> = None;
        let mut found = Match::default();
        let mut answer = StringViewBuilder::with_capacity(texts.len());
        for buffer in texts.data_buffers() {
            answer.append_block(buffer.clone());
        }
        for row in 0..texts.len() {
            if texts.is_null(row) {
                answer.append_null();
                continue;
            }
            let text = texts.value(row);
            let part = match self.chain.find(text, &mut found) {
                Some(false) => 0..text.len(),
                Some(true) if found.group(0) == Some(0..text.len()) => {
                    found.group(self.group).unwrap_or(0..0)
                }
                Some(true) => {
                    let part = &text[found.group(self.group).unwrap_or(0..0)];
                    let behind = found.group(0).map_or("", |whole| &text[whole.end..]);
                    answer.append_value([part, behind].concat());
                    continue;
                }
                None => {
                    let regex = match &mut regex {
                        Some(regex) => regex,
                        none => none.insert(Regex::new(self.pattern).map_err(external)?),
                    };
                    answer.append_value(regex.replace(text, format!("${{{}}}", self.group)));
                    continue;
                }
            };
            if text.len() <= INLINE_BYTES || part.len() <= INLINE_BYTES {
                answer.append_value(&text[part]);
                continue;
            }
            let view = ByteView::from(texts.views()[row]);
            let [start, len] =
                [part.start, part.len()].map(|bytes| u32::try_from(bytes).expect("views have 32 bits"));
            answer.try_append_view(view.buffer_index, view.offset + start, len)?;
        }
        Ok(answer.finish())
    }
}
