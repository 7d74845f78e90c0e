//! Views: named queries, which share the names of tables. Only the layers above interpret their text.

use crate::error::{Error, Result};
use crate::schema::{NAME_BYTES_MAX, Properties, read_properties, write_properties};
use crate::wire::{Reader, Wire, Write};

/// A named query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The schema in which SQL sees it.
    pub schema: String,
    /// Its name there, which no table has.
    pub name: String,
    /// The query.
    pub text: String,
    /// Further properties.
    pub properties: Properties,
}

impl View {
    pub(crate) fn check(&self) -> Result<()> {
        check_name(&self.schema).and_then(|()| check_name(&self.name))
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        [&self.schema, &self.name, &self.text].into_iter().for_each(|text| bytes.put_text(text));
        write_properties(bytes, &self.properties);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Wire<Self> {
        let (schema, name, text) = (reader.text()?, reader.text()?, reader.text()?);
        Ok(Self { schema, name, text, properties: read_properties(reader)? })
    }
}

/// Fails when a name is too long.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        count => {
            Err(Error::Invalid(format!("a name has {count} bytes, at most {NAME_BYTES_MAX} are possible")))
        }
    }
}
