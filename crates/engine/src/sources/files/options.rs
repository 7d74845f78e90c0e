//! Options of readers and writers in SQL: `read_csv('x', delim = ';')`, `COPY ... (HEADER false)`.
//!
//! A reader takes each option that it knows by name, with the spellings of other systems as aliases. An
//! option that nothing has taken is an error that suggests the nearest name. Names are case-insensitive.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::sql::text::nearest;

/// A constant given for an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OptionValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<OptionValue>),
    Struct(Vec<(String, OptionValue)>),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "'{}'", value.replace('\'', "''")),
            Self::List(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Struct(fields) => {
                f.write_str("{")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// A text in a list or struct; in a struct with the name of its field.
pub(crate) type NamedText = (Option<String>, String);

/// The options of one call, taken one by one.
pub(crate) struct Options<'a> {
    /// The function or statement that takes the options, for messages: `read_csv`, `COPY TO csv`.
    owner: &'a str,
    given: Vec<(String, &'a OptionValue)>,
    known: Vec<&'static str>,
}

impl<'a> Options<'a> {
    pub(crate) fn new(owner: &'a str, options: &'a [(String, OptionValue)]) -> Result<Self> {
        let mut given: Vec<(String, &OptionValue)> = Vec::with_capacity(options.len());
        for (name, value) in options {
            let name = name.to_lowercase();
            if given.iter().any(|(earlier, _)| *earlier == name) {
                return Err(invalid(format!("option '{name}' of {owner} is given twice")));
            }
            given.push((name, value));
        }
        Ok(Self { owner, given, known: Vec::new() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Takes the value given under one of `names`; messages use the first name.
    fn take(&mut self, names: &[&'static str]) -> Result<Option<&'a OptionValue>> {
        self.known.extend(names);
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.given).into_iter().partition(|(name, _)| names.contains(&name.as_str()));
        self.given = left;
        match taken.as_slice() {
            [] => Ok(None),
            [(_, value)] => Ok(Some(*value)),
            [(first, _), (second, _), ..] => {
                Err(invalid(format!("options '{first}' and '{second}' of {} mean the same", self.owner)))
            }
        }
    }

    fn wrong(&self, name: &str, value: &OptionValue, expected: &str) -> Error {
        invalid(format!("option '{name}' of {} takes {expected}, not {value}", self.owner))
    }

    /// True or false, in any spelling that SQL systems accept.
    pub(crate) fn boolean(&mut self, names: &[&'static str]) -> Result<Option<bool>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        match value {
            OptionValue::Boolean(value) => Ok(Some(*value)),
            OptionValue::Integer(0) => Ok(Some(false)),
            OptionValue::Integer(1) => Ok(Some(true)),
            OptionValue::Text(text) => match text.to_lowercase().as_str() {
                "true" | "on" | "yes" => Ok(Some(true)),
                "false" | "off" | "no" => Ok(Some(false)),
                _ => Err(self.wrong(names[0], value, "true or false")),
            },
            _ => Err(self.wrong(names[0], value, "true or false")),
        }
    }

    /// A whole number of at least `least`.
    pub(crate) fn count(&mut self, names: &[&'static str], least: usize) -> Result<Option<usize>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        match value {
            OptionValue::Integer(number) => usize::try_from(*number).ok().filter(|number| *number >= least),
            _ => None,
        }
        .map(Some)
        .ok_or_else(|| self.wrong(names[0], value, &format!("a whole number from {least} up")))
    }

    /// A whole number, negative ones included.
    pub(crate) fn integer(&mut self, names: &[&'static str]) -> Result<Option<i64>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        match value {
            OptionValue::Integer(number) => Ok(Some(*number)),
            _ => Err(self.wrong(names[0], value, "a whole number")),
        }
    }

    pub(crate) fn text(&mut self, names: &[&'static str]) -> Result<Option<&'a str>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        match value {
            OptionValue::Text(text) => Ok(Some(text)),
            _ => Err(self.wrong(names[0], value, "a text")),
        }
    }

    /// One ASCII character; the inner `None` stands for an empty text: "there is no such character".
    pub(crate) fn character(&mut self, names: &[&'static str]) -> Result<Option<Option<u8>>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        match value {
            OptionValue::Text(text) if text == "\\t" => return Ok(Some(Some(b'\t'))),
            OptionValue::Text(text) => match text.as_bytes() {
                [] => return Ok(Some(None)),
                [byte] if byte.is_ascii() && !b"\r\n".contains(byte) => return Ok(Some(Some(*byte))),
                _ => {}
            },
            _ => {}
        }
        Err(self.wrong(names[0], value, "one ASCII character"))
    }

    /// A list of texts; one text stands for a list of one.
    pub(crate) fn texts(&mut self, names: &[&'static str]) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        let list = match value {
            OptionValue::List(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        list.iter()
            .map(|item| match item {
                OptionValue::Text(text) => Ok(text.clone()),
                _ => Err(self.wrong(names[0], value, "a text or a list of texts")),
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Texts by name: `{a: 'INTEGER', b: 'VARCHAR'}`; the texts of a plain list have no names.
    pub(crate) fn named_texts(&mut self, names: &[&'static str]) -> Result<Option<Vec<NamedText>>> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        let text = |item: &OptionValue| match item {
            OptionValue::Text(text) => Ok(text.clone()),
            _ => Err(self.wrong(names[0], value, "texts such as {name: 'TYPE'}")),
        };
        match value {
            OptionValue::Struct(fields) => {
                fields.iter().map(|(name, item)| Ok((Some(name.clone()), text(item)?))).collect()
            }
            OptionValue::List(values) => values.iter().map(|item| Ok((None, text(item)?))).collect(),
            value => Err(self.wrong(names[0], value, "names with types such as {name: 'TYPE'}")),
        }
        .map(Some)
    }

    /// Fails if an option is left that was not taken.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        let error = invalid(format!("{} has no option '{name}'", self.owner));
        Err(match nearest(name, self.known.iter().copied()) {
            Some(nearest) => error.with_hint(format!("did you mean '{nearest}'?")),
            None => error.with_hint(format!("its options are {}", self.known.join(", "))),
        })
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &[(&str, OptionValue)]) -> Vec<(String, OptionValue)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let given = options(&[("delimitr", OptionValue::Text(";".into()))]);
        let mut taken = Options::new("read_csv", &given).unwrap();
        assert_eq!(taken.character(&["delim", "delimiter", "sep"]).unwrap(), None);
        let error = taken.finish().unwrap_err();
        assert_eq!(error.message(), "read_csv has no option 'delimitr'");
        assert_eq!(error.hint(), Some("did you mean 'delimiter'?"));
    }

    #[test]
    fn values_are_checked() {
        let check = |value: OptionValue, expected: &str| {
            let given = options(&[("Header", value)]);
            let error = Options::new("read_csv", &given).unwrap().boolean(&["header"]).unwrap_err();
            assert_eq!(error.message(), expected);
        };
        check(
            OptionValue::Text("maybe".into()),
            "option 'header' of read_csv takes true or false, not 'maybe'",
        );
        check(
            OptionValue::List(vec![OptionValue::Integer(1), OptionValue::Null]),
            "option 'header' of read_csv takes true or false, not [1, NULL]",
        );
        let given = options(&[("skip", OptionValue::Integer(-1))]);
        assert!(Options::new("read_csv", &given).unwrap().count(&["skip"], 0).is_err());
    }

    #[test]
    fn an_option_is_given_once_under_one_name() {
        let twice = options(&[("sep", OptionValue::Null), ("SEP", OptionValue::Null)]);
        assert!(Options::new("read_csv", &twice).is_err());
        let synonyms = options(&[("sep", OptionValue::Null), ("delim", OptionValue::Null)]);
        let mut taken = Options::new("read_csv", &synonyms).unwrap();
        assert!(taken.character(&["delim", "sep"]).is_err());
    }
}
