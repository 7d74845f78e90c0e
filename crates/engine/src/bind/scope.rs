//! The columns that a name may mean at one place of a query.

use datafusion::sql::sqlparser::ast::{Expr, Ident};

use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::functions::call;

/// One relation of a FROM.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    /// The qualifiers of its columns: its alias, or the catalogue, schema and name of a table, of which any
    /// suffix may be written. Empty for a subquery without a name.
    pub(super) paths: Vec<Vec<String>>,
    /// The qualifier of its columns in the statement that the planner gets.
    pub(super) planned: String,
    /// Whether `planned` is a generated alias that the user cannot write.
    pub(super) is_renamed: bool,
    /// The names of its columns; `None` where only the planner knows them.
    pub(super) columns: Option<Vec<String>>,
}

impl Relation {
    /// The expression by which the planner finds a column of this relation.
    pub(super) fn column(&self, name: &str) -> Expr {
        let name = quoted(name);
        if self.paths.is_empty() {
            Expr::Identifier(name)
        } else {
            Expr::CompoundIdentifier(vec![quoted(&self.planned), name])
        }
    }

    /// The relation's path as the user may write it, without the catalogue.
    fn shortest_path(&self) -> String {
        let path = self.paths.last().map_or(&[][..], Vec::as_slice);
        path[path.len().saturating_sub(2)..].join(".")
    }

    /// Whether `qualifier` names this relation.
    fn is_named(&self, qualifier: &[String]) -> bool {
        !qualifier.is_empty() && self.paths.iter().any(|path| path.ends_with(qualifier))
    }
}

/// A column of a FROM that can be named without a qualifier.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) expr: Expr,
    /// Whether USING or NATURAL merged two columns into this one.
    pub(super) is_merged: bool,
}

/// The relations and columns of a FROM, or of a part of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) relations: Vec<Relation>,
    /// The columns in the order of `SELECT *`; `None` where only the planner knows them.
    pub(super) outputs: Option<Vec<Output>>,
    /// Whether there are merged columns, which the planner does not know as such any more.
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

    /// These tables with those of `right` to their right.
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

/// What names mean at one place: the tables of the SELECT, then those of the enclosing queries.
pub(super) struct Scope<'a> {
    pub(super) tables: &'a Tables,
    pub(super) outer: Outer<'a>,
}

/// The surroundings of a query.
#[derive(Clone, Copy)]
pub(super) enum Outer<'a> {
    Nothing,
    Query(&'a Scope<'a>),
}

/// What a name means.
pub(super) enum Meaning {
    /// The name stays as written: the planner resolves it correctly, or only the planner can.
    AsWritten,
    /// This expression replaces the name.
    Instead(Box<Expr>),
    /// No relation in scope has such a column.
    Nothing,
}

impl Scope<'_> {
    /// What the name of a column means; parts behind the column are fields of a struct.
    pub(super) fn meaning(&self, parts: &[Ident]) -> Result<Meaning> {
        let names: Vec<String> = parts.iter().map(normalized).collect();
        let mut scope = self;
        // Qualifiers of inner relations, which would capture a name that means an outer one.
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
                Outer::Query(outer) => scope = outer,
            }
        }
    }

    /// The relation that a `qualifier.*` means.
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
    /// Only the planner knows.
    Unknown,
}

impl Tables {
    fn meaning(&self, parts: &[Ident], names: &[String]) -> Result<Found> {
        // The longest qualifier first: a column of a table takes precedence over a field of a column.
        for length in (1..names.len().min(4)).rev() {
            let (qualifier, rest) = names.split_at(length);
            let Some(relation) = self.named(qualifier)? else { continue };
            let Some(columns) = &relation.columns else { return Ok(Found::Unknown) };
            if columns.contains(&rest[0]) {
                // The planner considers only the last of several qualifiers.
                let must_change = relation.is_renamed || names.len() > 2;
                let expr = Box::new(with_fields(relation.column(&rest[0]), &parts[length + 1..]));
                return Ok(Found::Column { expr, must_change, relation: Some(relation.planned.clone()) });
            }
        }
        let Some(outputs) = &self.outputs else { return Ok(Found::Unknown) };
        let mut found = outputs.iter().filter(|output| output.name == names[0]);
        let Some(first) = found.next() else { return Ok(Found::Nothing) };
        if let Some(second) = found.next() {
            // For columns of different tables the planner reports the ambiguity itself.
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

/// `expr` followed by accesses to the fields of its struct.
fn with_fields(expr: Expr, fields: &[Ident]) -> Expr {
    fields.iter().fold(expr, |expr, field| {
        let name = Expr::value(datafusion::sql::sqlparser::ast::Value::SingleQuotedString(normalized(field)));
        call("get_field", vec![expr, name])
    })
}

pub(super) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}
