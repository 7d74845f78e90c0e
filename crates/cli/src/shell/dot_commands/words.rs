//! The words of a dot command's line.

/// Words between spaces; quotes keep spaces, and a doubled quote is one.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    while let Some(first) = characters.peek().copied() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        let mut word = String::new();
        if first == '\'' || first == '"' {
            characters.next();
            loop {
                match characters.next() {
                    Some(c) if c == first => {
                        if characters.next_if_eq(&first).is_none() {
                            break;
                        }
                        word.push(first);
                    }
                    Some(c) => word.push(c),
                    None => return Err(format!("the quote {first} is not closed")),
                }
            }
        } else {
            while let Some(c) = characters.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_spaces_outside_quotes() {
        let check = |line: &str, expected: &[&str]| assert_eq!(split(line).unwrap(), expected, "{line}");
        check("mode csv", &["mode", "csv"]);
        check("  read  'my file.sql' ", &["read", "my file.sql"]);
        check("nullvalue ''", &["nullvalue", ""]);
        check("print 'it''s' \"a 'b'\"", &["print", "it's", "a 'b'"]);
        check("", &[]);
        assert!(split("read 'x").is_err());
    }
}
