//! `regexp_replace` where it takes a part of a text: `regexp_replace(url, '^https?://([^/]+)/.*$', '\1')`.
//!
//! Patterns that are chains ([`keirin_operators::pattern`]) are matched without an automaton, and the answer is made of
//! views into the texts.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ByteView, StringViewArray, StringViewBuilder};
use arrow::buffer::Buffer;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF};
use keirin_kernels::hash::Strings;
use keirin_operators::pattern::{Chain, Match};
use regex::Regex;

use super::wrapped::Wrapped;

/// Puts ours in the place of the planner's `regexp_replace`.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    let inner = state.udf("regexp_replace")?;
    let extracting = Wrapped::new(inner, |inner, mut arguments| {
        if let Some((extraction, texts)) = Extraction::of(&arguments.args) {
            return Ok(ColumnarValue::Array(Arc::new(extraction.of_texts(texts)?)));
        }
        without_shortcut(&mut arguments.args)?;
        inner.invoke_with_args(arguments)
    });
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(extracting)))?;
    Ok(())
}

/// Changes a pattern, but not its meaning, for which the planner's function leaves out `.*$` at the end as if it ended
/// all of the pattern, and not only its last alternative.
fn without_shortcut(arguments: &mut [ColumnarValue]) -> Result<()> {
    if let Some(ColumnarValue::Scalar(pattern)) = arguments.get_mut(1)
        && let Some(Some(text)) = pattern.try_as_str()
        && text.ends_with(".*$")
        && text.contains('|')
    {
        *pattern = ScalarValue::from(format!("{text}(?:)")).cast_to(&pattern.data_type())?;
    }
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
        /// Texts are fetched from memory so many rows ahead.
        const AHEAD_ROWS: usize = 16;
        /// After so many texts that the chain gives up, it is not tried any more.
        const FAILURES_MAX: usize = 8;
        let mut failures = 0;
        let external = |error| DataFusionError::External(Box::new(error));
        let mut regex: Option<Regex> = None;
        let mut found = Match::default();
        let mut answer = StringViewBuilder::with_capacity(texts.len());
        for buffer in texts.data_buffers() {
            answer.append_block(buffer.clone());
        }
        let buffers: Vec<&[u8]> = texts.data_buffers().iter().map(Buffer::as_slice).collect();
        let ahead = Strings::Views(texts.views(), &buffers);
        for row in 0..texts.len() {
            ahead.prefetch(row + AHEAD_ROWS);
            if texts.is_null(row) {
                answer.append_null();
                continue;
            }
            let text = texts.value(row);
            let is_tried = failures < FAILURES_MAX;
            let part = match is_tried.then(|| self.chain.find(text, &mut found)).flatten() {
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
                    failures += 1;
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
        // Texts are not kept alive by small parts of them.
        let answer = answer.finish();
        let held: usize = answer.data_buffers().iter().map(Buffer::capacity).sum();
        Ok(if held > 2 * answer.total_buffer_bytes_used() { answer.gc() } else { answer })
    }
}
