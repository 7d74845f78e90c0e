//! The columns that a name may mean at one place of a query.

use datafusion::sql::sqlparser::ast::{Expr, Ident};

use crate::error::{Error, ErrorKind, Result};
use crate::functions::call;
use crate::relations::normalized;

/// One relation of a FROM.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    /// What may stand before its columns: its alias, or the catalogue, the schema and the name of a table; the end of
    /// it will do. None for a subquery without a name.
    pub(super) paths: Vec<Vec<String>>,
    /// What stands before its columns in the tree that is planned.
    pub(super) planned: String,
    /// Whether that is something else than what the user can write.
    pub(super) is_renamed: bool,
    /// `None` where only the planner knows.
    pub(super) columns: Option<Vec<String>>,
}

impl Relation {
    /// A column of this relation as the planner finds it.
    pub(super) fn column(&self, name: &str) -> Expr {
        let name = quoted(name);
        if self.paths.is_empty() {
            Expr::Identifier(name)
        } else {
            Expr::CompoundIdentifier(vec![quoted(&self.planned), name])
        }
    }

    /// Its name as the user may write it, without the catalogue.
    fn shortest_path(&self) -> String {
        let path = self.paths.last().map_or(&[][..], Vec::as_slice);
        path[path.len().saturating_sub(2)..].join(".")
    }

    /// Whether `qualifier` names this relation.
    fn is_named(&self, qualifier: &[String]) -> bool {
        !qualifier.is_empty() && self.paths.iter().any(|path| path.ends_with(qualifier))
    }
}

/// A column that a FROM gives, under a name without qualifier.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) expr: Expr,
    /// Whether USING or NATURAL made one column of two.
    pub(super) is_merged: bool,
}

/// What a FROM, or a part of it, gives.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) relations: Vec<Relation>,
    /// The columns in the order of `SELECT *`; `None` where only the planner knows them.
    pub(super) outputs: Option<Vec<Output>>,
    /// Whether there are merged columns, which the planner no longer knows of.
    pub(super) has_merged: bool,
}

impl Tables {
    /// No tables: a SELECT without FROM.
    pub(super) fn none() -> Self {
        Self { outputs: Some(Vec::new()), ..Self::default() }
    }

    pub(super) fn of(relation: Relation) -> Self {
        let outputs = relation.columns.as_ref().map(|columns| {
            let output =
                |name: &String| Output { name: name.clone(), expr: relation.column(name), is_merged: false };
            columns.iter().map(output).collect()
        });
        Self { relations: vec![relation], outputs, has_merged: false }
    }

    /// These tables and, to their right, `right`.
    pub(super) fn and(mut self, right: Self) -> Self {
        self.relations.extend(right.relations);
        self.outputs = self.outputs.zip(right.outputs).map(|(mut left, right)| {
            left.extend(right);
            left
        });
        self.has_merged |= right.has_merged;
        self
    }
}

/// What names mean at one place: the tables of a SELECT, then those of the queries around it.
pub(super) struct Scope<'a> {
    pub(super) tables: &'a Tables,
    pub(super) outer: Outer<'a>,
}

/// What is around a query.
#[derive(Clone, Copy)]
pub(super) enum Outer<'a> {
    Nothing,
    /// A statement whose tables are not known here, such as UPDATE.
    Unknown,
    Query(&'a Scope<'a>),
}

/// What a name means.
pub(super) enum Meaning {
    /// As it stands, to the planner too; or only the planner knows.
    AsWritten,
    /// This instead.
    Instead(Box<Expr>),
    /// No column of the tables here.
    Nothing,
}

impl Scope<'_> {
    /// What a column's name means, with the fields of a struct behind it.
    pub(super) fn meaning(&self, parts: &[Ident]) -> Result<Meaning> {
        let names: Vec<String> = parts.iter().map(normalized).collect();
        let mut scope = self;
        // The relations nearer by, which would catch a name that is written for one further out.
        let mut nearer: Vec<&str> = Vec::new();
        loop {
            match scope.tables.meaning(parts, &names)? {
                Found::Column { expr, must_change, relation } => {
                    if !must_change {
                        return Ok(Meaning::AsWritten);
                    }
                    if let Some(relation) = relation.filter(|relation| nearer.contains(&relation.as_str())) {
                        let message = format!("'{relation}' names two tables in queries inside each other");
                        return Err(Error::new(ErrorKind::Unsupported, message)
                            .with_hint("give one of them another name with AS"));
                    }
                    return Ok(Meaning::Instead(expr));
                }
                Found::Unknown => return Ok(Meaning::AsWritten),
                Found::Nothing => {}
            }
            nearer.extend(scope.tables.relations.iter().map(|relation| relation.planned.as_str()));
            match scope.outer {
                Outer::Nothing => return Ok(Meaning::Nothing),
                Outer::Unknown => return Ok(Meaning::AsWritten),
                Outer::Query(outer) => scope = outer,
            }
        }
    }

    /// The relation that stands before a `.*`.
    pub(super) fn relation(&self, qualifier: &[Ident]) -> Result<Option<&Relation>> {
        let names: Vec<String> = qualifier.iter().map(normalized).collect();
        self.tables.named(&names)
    }
}

/// What a name means among the tables of one SELECT.
enum Found {
    Column {
        expr: Box<Expr>,
        must_change: bool,
        relation: Option<String>,
    },
    Nothing,
    /// The planner knows.
    Unknown,
}

impl Tables {
    fn meaning(&self, parts: &[Ident], names: &[String]) -> Result<Found> {
        // The longest qualifier first: a table's column before a column's field.
        for length in (1..names.len().min(4)).rev() {
            let (qualifier, rest) = names.split_at(length);
            let Some(relation) = self.named(qualifier)? else { continue };
            let Some(columns) = &relation.columns else { return Ok(Found::Unknown) };
            if columns.contains(&rest[0]) {
                // The planner takes the last of many qualifiers for a relation of that name.
                let must_change = relation.is_renamed || names.len() > 2;
                let expr = Box::new(with_fields(relation.column(&rest[0]), &parts[length + 1..]));
                return Ok(Found::Column { expr, must_change, relation: Some(relation.planned.clone()) });
            }
        }
        let Some(outputs) = &self.outputs else { return Ok(Found::Unknown) };
        let mut found = outputs.iter().filter(|output| output.name == names[0]);
        let Some(first) = found.next() else { return Ok(Found::Nothing) };
        if let Some(second) = found.next() {
            // The planner says so of columns of different tables.
            if !first.is_merged && !second.is_merged && first.expr != second.expr {
                return Ok(Found::Unknown);
            }
            let error =
                Error::new(ErrorKind::Invalid, format!("column '{}' is in more than one table", names[0]));
            return Err(error.with_hint(format!("say which: table.{}", names[0])));
        }
        let must_change = first.is_merged || names.len() > 2;
        let relation = match &first.expr {
            Expr::CompoundIdentifier(parts) => parts.first().map(|relation| relation.value.clone()),
            _ => None,
        };
        let expr = Box::new(with_fields(first.expr.clone(), &parts[1..]));
        Ok(Found::Column { expr, must_change, relation })
    }

    /// The relation that `qualifier` means.
    fn named(&self, qualifier: &[String]) -> Result<Option<&Relation>> {
        let named: Vec<&Relation> =
            self.relations.iter().filter(|relation| relation.is_named(qualifier)).collect();
        match named.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            several => {
                let message = format!("'{}' may be more than one table here", qualifier.join("."));
                let paths = several.iter().map(|relation| relation.shortest_path());
                let hint = format!("say which: {}", paths.collect::<Vec<_>>().join(" or "));
                Err(Error::new(ErrorKind::Invalid, message).with_hint(hint))
            }
        }
    }
}

/// `expr` and the fields of the struct that it is.
fn with_fields(expr: Expr, fields: &[Ident]) -> Expr {
    fields.iter().fold(expr, |expr, field| {
        let name = Expr::value(datafusion::sql::sqlparser::ast::Value::SingleQuotedString(normalized(field)));
        call("get_field", vec![expr, name])
    })
}

pub(super) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}
