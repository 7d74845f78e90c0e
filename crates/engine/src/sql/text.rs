//! Positions in SQL text: the parser counts lines and columns in characters, users' tools count bytes.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::{Location, Span};

/// The bytes of `sql` that `span` covers; `None` for the empty span, which means "nowhere".
pub(crate) fn byte_range(sql: &str, span: Span) -> Option<Range<usize>> {
    if sql.is_empty() {
        return None;
    }
    let start = byte_offset(sql, span.start)?;
    let end = byte_offset(sql, span.end).unwrap_or(start);
    Some(start..end.max(start))
}

/// The byte at which the line and column (both from 1, in characters) of `location` begin.
pub(crate) fn byte_offset(sql: &str, location: Location) -> Option<usize> {
    let line_index = usize::try_from(location.line.checked_sub(1)?).ok()?;
    let column_index = usize::try_from(location.column.checked_sub(1)?).ok()?;
    let line_start = match line_index {
        0 => 0,
        _ => sql.match_indices('\n').nth(line_index - 1)?.0 + 1,
    };
    let line = &sql[line_start..];
    Some(line_start + line.char_indices().nth(column_index).map_or(line.len(), |(offset, _)| offset))
}

/// The name among `candidates` that `name` probably meant: at most a third of its characters differ.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| {
            *distance <= (candidate.chars().count().max(3) / 3) && !candidate.is_empty()
        })
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_count_characters_and_offsets_count_bytes() {
        let check = |sql: &str, line, column, expected| {
            assert_eq!(byte_offset(sql, Location { line, column }), expected, "{sql:?} {line}:{column}");
        };
        check("abc", 1, 1, Some(0));
        check("abc", 1, 4, Some(3));
        check("é b\nü d", 2, 3, Some(8));
        check("abc", 0, 0, None);
        check("abc", 2, 1, None);
    }

    #[test]
    fn the_nearest_name_is_near() {
        let check = |name: &str, candidates: &[&str], expected: Option<&str>| {
            assert_eq!(nearest(name, candidates.iter().copied()), expected, "{name}");
        };
        check("pasenger_count", &["vendor_id", "passenger_count"], Some("passenger_count"));
        check("Trip", &["trips", "drops"], Some("trips"));
        check("xyz", &["passenger_count"], None);
        check("a", &[], None);
    }
}
