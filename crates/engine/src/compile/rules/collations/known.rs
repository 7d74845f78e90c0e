//! By which collation an expression's text is compared, and what takes precedence where two differ.

use std::cmp::Ordering;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchemaRef};
use datafusion::error::{DataFusionError, Result};
use keirin_collation::{Collation, UnknownCollation};

use crate::compile::fast_path::PLAIN;
use crate::error::{Error, ErrorKind};
use crate::sources::stored::COLLATION;
use crate::types::EXTENSION;

/// Who says by which collation a text is compared; the lower wins. The numbers are those of MySQL's `COERCIBILITY`, but
/// that columns without a collation of their own, which MySQL has not, have none of [`Who::Column`]'s weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// COLLATE.
    Written = 0,
    /// Texts of which none wins.
    Mixed = 1,
    Column = 2,
    /// Literals, and columns for which no collation was declared.
    Default = 4,
    /// Numbers and the like.
    Other = 5,
    Null = 6,
}

/// What is known of the texts of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) who: Who,
    /// `None`: by bytes.
    pub(super) collation: Option<Collation>,
    /// None of them ends in a space.
    pub(super) is_trimmed: bool,
}

impl Known {
    pub(super) const OTHER: Self = Self { who: Who::Other, collation: None, is_trimmed: false };
    pub(super) const NULL: Self = Self { who: Who::Null, collation: None, is_trimmed: true };

    pub(super) fn literal(text: &str) -> Self {
        Self { who: Who::Default, collation: None, is_trimmed: !text.ends_with(' ') }
    }

    /// What a table says of its column.
    pub(super) fn declared(field: &Field) -> Self {
        // JSON and UUIDs are no texts to who compares them.
        if !is_text(field.data_type()) || field.metadata().contains_key(EXTENSION) {
            return Self::OTHER;
        }
        let collation = field.metadata().get(COLLATION).and_then(|name| named(name).ok());
        let who = if collation.is_some() { Who::Column } else { Who::Default };
        Self { who, collation, is_trimmed: false }
    }

    /// Of the column that an expression becomes.
    pub(super) fn of_column(self) -> Self {
        if self.who == Who::Written { Self { who: Who::Column, ..self } } else { self }
    }

    pub(super) fn untrimmed(self) -> Self {
        Self { is_trimmed: false, ..self }
    }

    /// By which collation texts of two are compared.
    ///
    /// # Errors
    /// When two are written that differ.
    pub(super) fn with(self, other: Self) -> Result<Self> {
        let is_trimmed = self.is_trimmed && other.is_trimmed;
        if self.who != other.who || self.collation == other.collation {
            let winner = if other.who < self.who { other } else { self };
            return Ok(Self { is_trimmed, ..winner });
        }
        if self.who == Who::Written {
            return Err(illegal_mix(self, other));
        }
        let (Some(left), Some(right)) = (self.collation, other.collation) else {
            return Ok(Self { who: Who::Mixed, is_trimmed, ..self });
        };
        // Characters that one cannot have must not be compared by it.
        let charset = |collation: Collation| match collation.charset() {
            "binary" => 0,
            "utf8mb4" => 1,
            "utf8mb3" => 2,
            "latin1" => 3,
            _ => 4,
        };
        let is_bin = |collation: Collation| collation.name().ends_with("_bin");
        let winner = match (charset(left).cmp(&charset(right)), is_bin(left), is_bin(right)) {
            (Ordering::Less, ..) | (Ordering::Equal, true, _) => left,
            (Ordering::Greater, ..) | (Ordering::Equal, false, true) => right,
            (Ordering::Equal, false, false) => return Ok(Self { who: Who::Mixed, is_trimmed, ..self }),
        };
        Ok(Self { who: self.who, collation: Some(winner), is_trimmed })
    }
}

/// Names of the order of bytes in PostgreSQL.
const PLAIN_COLLATIONS: [&str; 3] = ["c", "posix", "ucs_basic"];

/// The collation of a name, which may have quotes.
pub(crate) fn named(name: &str) -> std::result::Result<Collation, UnknownCollation> {
    let is_plain = PLAIN_COLLATIONS.iter().any(|plain| plain.eq_ignore_ascii_case(bare(name)));
    Collation::find(if is_plain { PLAIN } else { bare(name) })
}

/// The name of a collation without quotes.
pub(crate) fn bare(name: &str) -> &str {
    name.trim_matches(['"', '`', '\''])
}

/// MySQL's error 1267.
pub(super) fn illegal_mix(left: Known, right: Known) -> DataFusionError {
    let name = |known: Known| known.collation.map_or("binary", Collation::name);
    let error = Error::new(
        ErrorKind::Invalid,
        format!("illegal mix of collations {} and {} in a comparison", name(left), name(right)),
    );
    DataFusionError::External(Box::new(error.with_hint("write COLLATE behind one side")))
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The inputs of a node, and what is known of their columns.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) schemas: Vec<DFSchemaRef>,
    pub(super) known: Vec<Vec<Known>>,
}

impl Inputs {
    pub(super) fn column(&self, column: &Column) -> Option<Known> {
        let mut inputs = self.schemas.iter().zip(&self.known);
        inputs.find_map(|(schema, known)| known.get(schema.maybe_index_of_column(column)?).copied())
    }
}
