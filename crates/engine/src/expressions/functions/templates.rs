//! PostgreSQL's templates of times, such as `YYYY-MM-DD HH24:MI:SS`, converted to the letters of `to_char`.

use crate::error::{Error, ErrorKind, Result};

/// Templates and their letters, in such an order that no template is a prefix of a later one.
const PATTERNS: &[(&str, Option<&str>)] = &[
    ("YYYY", Some("%Y")),
    ("YYY", None),
    ("YY", Some("%y")),
    ("IYYY", Some("%G")),
    ("IW", Some("%V")),
    ("IDDD", None),
    ("ID", Some("%u")),
    ("Month", Some("%B")),
    ("MONTH", None),
    ("month", None),
    ("Mon", Some("%b")),
    ("MON", None),
    ("mon", None),
    ("MM", Some("%m")),
    ("MI", Some("%M")),
    ("MS", Some("%3f")),
    ("US", Some("%6f")),
    ("DDD", Some("%j")),
    ("DD", Some("%d")),
    ("Day", Some("%A")),
    ("DAY", None),
    ("day", None),
    ("Dy", Some("%a")),
    ("DY", None),
    ("dy", None),
    ("HH24", Some("%H")),
    ("HH12", Some("%I")),
    ("HH", Some("%I")),
    ("SSSS", None),
    ("SS", Some("%S")),
    ("AM", Some("%p")),
    ("PM", Some("%p")),
    ("am", Some("%P")),
    ("pm", Some("%P")),
    ("TZH", None),
    ("TZ", Some("%Z")),
    ("OF", Some("%:z")),
    ("FM", None),
    ("WW", None),
    ("CC", None),
    ("Q", None),
    ("J", None),
];

/// The pattern for a template; `None` if the text is no template, such as a pattern with `%`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for templates without corresponding letters.
pub(super) fn pattern_of(template: &str) -> Result<Option<String>> {
    if template.contains('%') {
        return Ok(None);
    }
    let mut pattern = String::with_capacity(template.len());
    let mut is_template = false;
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        if let Some((text, after)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            pattern.push_str(text);
            rest = after;
        } else if let Some((name, letters)) = PATTERNS.iter().find(|(name, _)| rest.starts_with(name)) {
            let Some(letters) = letters else {
                let message = format!("to_char has no '{name}'");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("a pattern such as '%d.%m.%Y' has more letters than PostgreSQL's templates"));
            };
            pattern.push_str(letters);
            rest = &rest[name.len()..];
            is_template = true;
        } else {
            pattern.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(is_template.then_some(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_patterns() {
        let check = |template: &str, expected: Option<&str>| {
            assert_eq!(pattern_of(template).unwrap().as_deref(), expected, "{template}");
        };
        check("YYYY-MM-DD HH24:MI:SS.US", Some("%Y-%m-%d %H:%M:%S.%6f"));
        check("Day, DD Mon YYYY", Some("%A, %d %b %Y"));
        check("YYYY-MM-DD\"T\"HH24", Some("%Y-%m-%dT%H"));
        check("%Y-%m", None);
        check("999", None);
        assert!(pattern_of("FMMonth").is_err());
    }
}
