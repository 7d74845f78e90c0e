//! Files as tables: `FROM 'x.parquet'`, `read_csv('x.csv', delim = ';')`.
//!
//! Before a statement is planned, its relations are visited. Files are replaced in the tree by named tables;
//! names that are neither file nor table fail here, where their position in the SQL and similar names are at
//! hand.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, TableProvider};
use datafusion::logical_expr::TableType;
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectFlavor,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use futures::FutureExt;

use crate::bind::column_names::name_as_table;
use crate::error::{Error, ErrorKind, Result};
use crate::expressions::functions;
use crate::sources::catalog::{CATALOG, FILES_SCHEMA, OpenFile, SYSTEM_SCHEMA, SessionCatalog, View};
use crate::sources::files::{self, FileFormat, FileTable, OptionValue};
use crate::sources::stored::StoredCatalog;
use crate::sql::parser::parse_view;
use crate::sql::refused::refuse_unread_in;
use crate::sql::text::{byte_range, nearest};
use crate::sql::tokens::{TIMESTAMP_MARK, VERSION_MARK};
use crate::sql::walk::walk;

/// Table functions that read files, with the format that they imply. DuckDB's names work too.
const FILE_FUNCTIONS: &[(&str, Option<FileFormat>)] = &[
    ("read_arrow", Some(FileFormat::Arrow)),
    ("read_csv", Some(FileFormat::Csv)),
    ("read_csv_auto", Some(FileFormat::Csv)),
    ("read_json", Some(FileFormat::Json)),
    ("read_json_auto", Some(FileFormat::Json)),
    ("read_ndjson", Some(FileFormat::Json)),
    ("read_parquet", Some(FileFormat::Parquet)),
    ("read_tsv", Some(FileFormat::Tsv)),
    ("parquet_scan", Some(FileFormat::Parquet)),
];

/// The most views nested in each other.
const VIEWS_DEEP_MAX: usize = 100;
/// The most views that one statement may read, counting each use.
const VIEWS_MAX: usize = 5_000;

/// A file that a statement reads, and the table name that replaces it in the statement.
pub(crate) struct FileReference {
    pub(crate) name: String,
    pub(crate) table: FileTable,
    pub(crate) span: Option<Range<usize>>,
}

/// The tables of a statement that are in no permanent schema.
pub(crate) struct Taken {
    pub(crate) files: Vec<FileReference>,
    /// Older versions of tables, and tables of the session's program, which exist as long as this value.
    pub(crate) versions: Vec<OpenFile>,
}

/// Replaces the files, and the older versions of tables, in `statement`, which was parsed from `sql`.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a name that is no table, [`ErrorKind::Invalid`] for arguments of a file
/// function that are not constants.
pub(crate) fn take_files(
    statement: &mut impl VisitMut,
    sql: &str,
    catalog: &Arc<SessionCatalog>,
    function_names: &HashSet<String>,
) -> Result<Taken> {
    let mut finder = Finder {
        sql,
        catalog,
        function_names,
        queries: Vec::new(),
        default_schema: catalog.default_schema.clone(),
        taken: Taken { files: Vec::new(), versions: Vec::new() },
        views: Vec::new(),
        view_count: 0,
    };
    match walk(statement, &mut finder) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(finder.taken),
    }
}

/// The version of a table to read.
enum Version {
    Number(u64),
    Time(String),
}

impl Version {
    /// The version that the last part of a name denotes, if it does.
    fn of(last: &Ident) -> Option<Self> {
        let number = last.value.strip_prefix(VERSION_MARK);
        let number = number.map(|number| Self::Number(number.parse().unwrap_or(u64::MAX)));
        number.or_else(|| last.value.strip_prefix(TIMESTAMP_MARK).map(|time| Self::Time(time.to_owned())))
    }
}

/// An enclosing query, with the names of its WITH.
struct Around {
    names: Vec<String>,
    is_recursive: bool,
    /// How many of the queries of its WITH were visited.
    begun: usize,
    /// Whether it is itself in the WITH of the enclosing query.
    is_named: bool,
}

struct Finder<'a> {
    sql: &'a str,
    catalog: &'a Arc<SessionCatalog>,
    function_names: &'a HashSet<String>,
    /// The enclosing queries, outermost first.
    queries: Vec<Around>,
    /// The schema in which names without a schema are looked up.
    default_schema: String,
    taken: Taken,
    /// The views that are being expanded, outermost first.
    views: Vec<String>,
    /// How many views were expanded so far.
    view_count: usize,
}

impl VisitorMut for Finder<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let with = query.with.as_ref();
        let names = with.into_iter().flat_map(|with| &with.cte_tables);
        let names = names.map(|cte| normalized(&cte.alias.name)).collect();
        // The queries of WITH are visited first, in order.
        let is_named = self.queries.last_mut().is_some_and(|around| {
            let is_named = around.begun < around.names.len();
            around.begun += usize::from(is_named);
            is_named
        });
        let is_recursive = with.is_some_and(|with| with.recursive);
        self.queries.push(Around { names, is_recursive, begun: 0, is_named });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.queries.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        // FROM without SELECT means all columns.
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.resolve(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Finder<'_> {
    fn resolve(&mut self, factor: &mut TableFactor) -> Result<()> {
        let TableFactor::Table { name, alias, args, .. } = factor else { return Ok(()) };
        let Some(parts) = identifiers(name) else { return Ok(()) };
        let Some(last) = parts.last().copied() else { return Ok(()) };
        if parts.len() == 3 && parts[1].value == FILES_SCHEMA {
            return Ok(());
        }
        // Positions in the text of a view are not positions in the statement.
        let span = byte_range(self.sql, parts[0].span.union(&last.span)).filter(|_| self.views.is_empty());
        if let Some(arguments) = args {
            let function = normalized(last);
            return match FILE_FUNCTIONS.iter().find(|(known, _)| *known == function) {
                Some((_, format)) => {
                    let table = file_function(&arguments.args, *format)
                        .map_err(|error| spanned(error, span.clone()))?;
                    let label = table.paths.first().map_or(function.clone(), |path| stem(path));
                    *args = None;
                    *name = self.take(table, span);
                    alias.get_or_insert_with(|| table_alias(&label));
                    Ok(())
                }
                None if self.function_names.contains(&function) => Ok(()),
                None => {
                    let known = FILE_FUNCTIONS.iter().map(|(name, _)| *name);
                    let error =
                        Error::new(ErrorKind::NotFound, format!("table function '{function}' not found"));
                    let names = known.chain(self.function_names.iter().map(String::as_str));
                    Err(spanned(suggest(error, nearest(&function, names)), span))
                }
            };
        }
        if parts.len() == 1 && last.quote_style == Some('\'') {
            return self.take_named(&last.value.clone(), name, alias, span);
        }
        if let Some(given) = self.given(&parts) {
            let table = self.catalog.files.fresh_name();
            let in_files = [CATALOG, FILES_SCHEMA, &table].map(|part| Ident::with_quote('"', part));
            self.taken.versions.push(self.catalog.files.add(table, given));
            alias.get_or_insert_with(|| table_alias(&normalized(last)));
            *name = ObjectName::from(in_files.to_vec());
            return Ok(());
        }
        if let Some(version) = Version::of(last) {
            let table = parts[..parts.len() - 1].to_vec();
            let label = table.last().map(|table| (*table).clone());
            let (open, name_in_files) =
                self.at_version(&table, &version).map_err(|error| spanned(error, span))?;
            self.taken.versions.push(open);
            *name = name_in_files;
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: label.unwrap_or_else(|| Ident::new("t")),
                columns: Vec::new(),
                at: None,
            });
            return Ok(());
        }
        if let Some(view) = self.view(&parts) {
            let (subquery, columns) = self.expand(&last.value, &view)?;
            let name = (*last).clone();
            let mut alias =
                alias.take().unwrap_or(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
            if alias.columns.is_empty() {
                alias.columns = columns;
            }
            *factor = match whole_table(&subquery) {
                Some(name) => named_table(name.clone(), alias),
                None => TableFactor::Derived {
                    lateral: false,
                    subquery: Box::new(subquery),
                    alias: Some(alias),
                    sample: None,
                },
            };
            return Ok(());
        }
        if self.is_table(&parts) {
            // Inside a view a name has the meaning it had there, whatever the WITH of the outer query
            // defines.
            if let ([table], false) = (parts.as_slice(), self.views.is_empty())
                && !self.is_local(&normalized(table))
            {
                let table = (*table).clone();
                let schema = [CATALOG, &self.default_schema].map(|part| Ident::with_quote('"', part));
                *name = ObjectName::from(schema.into_iter().chain([table]).collect::<Vec<_>>());
            }
            return Ok(());
        }
        if parts.len() == 1 && last.quote_style.is_some() && files::looks_like_file(&last.value) {
            return self.take_named(&last.value.clone(), name, alias, span);
        }
        Err(spanned(self.not_found(&parts), span))
    }

    fn take_named(
        &mut self,
        path: &str,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
        span: Option<Range<usize>>,
    ) -> Result<()> {
        let table = FileTable { paths: vec![path.to_owned()], ..FileTable::default() };
        *name = self.take(table, span);
        alias.get_or_insert_with(|| table_alias(&stem(path)));
        Ok(())
    }

    fn take(&mut self, table: FileTable, span: Option<Range<usize>>) -> ObjectName {
        let name = self.catalog.files.fresh_name();
        let parts = [CATALOG, FILES_SCHEMA, &name].map(|part| Ident::with_quote('"', part));
        self.taken.files.push(FileReference { name, table, span });
        ObjectName::from(parts.to_vec())
    }

    /// The names of WITH that are visible here: those of earlier queries in the same WITH, and the query's
    /// own name if the WITH is recursive.
    fn local_names(&self) -> impl Iterator<Item = &str> {
        self.queries.iter().enumerate().flat_map(|(depth, around)| {
            let is_inside = self.queries.get(depth + 1).is_some_and(|query| query.is_named);
            let visible = match is_inside {
                true => around.begun - usize::from(!around.is_recursive),
                false => around.names.len(),
            };
            around.names[..visible].iter().map(String::as_str)
        })
    }

    fn is_local(&self, name: &str) -> bool {
        self.local_names().any(|local| local == name)
    }

    fn is_table(&self, parts: &[&Ident]) -> bool {
        let is_local = parts.len() == 1 && self.is_local(&normalized(parts[0]));
        is_local
            || self.schema_and_table(parts).is_some_and(|(schema, table)| {
                self.catalog.schema(&schema).is_some_and(|schema| schema.table_exist(&table))
            })
    }

    /// The table of the session's program that `parts` name, if there is one. Views know only those of the database.
    fn given(&self, parts: &[&Ident]) -> Option<Arc<dyn TableProvider>> {
        let name = normalized(parts.first().filter(|_| parts.len() == 1 && self.views.is_empty())?);
        self.catalog.given.get(&name).filter(|_| !self.is_local(&name))
    }

    /// A table in an older version, under a generated name.
    fn at_version(&self, parts: &[&Ident], version: &Version) -> Result<(OpenFile, ObjectName)> {
        let (schema, table) = self.schema_and_table(parts).ok_or_else(|| self.not_found(parts))?;
        let stored = (self.catalog.database.as_ref() as &dyn std::any::Any).downcast_ref::<StoredCatalog>();
        let Some(stored) = stored else {
            return Err(Error::new(ErrorKind::Internal, "a statement sees no version of the database"));
        };
        let then = match version {
            Version::Number(number) => stored.at_version(*number)?,
            Version::Time(time) => stored.at_time(time)?,
        };
        let found = then.schema(&schema).and_then(|schema| schema.table(&table).now_or_never()?.ok()?);
        let found = found.ok_or_else(|| {
            let version = then.snapshot.version();
            Error::new(ErrorKind::NotFound, format!("there was no table '{table}' in version {version}"))
        })?;
        if found.table_type() == TableType::View {
            let message = format!("'{table}' is a view: its tables can be read AS OF a version");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let name = self.catalog.files.fresh_name();
        let parts = [CATALOG, FILES_SCHEMA, &name].map(|part| Ident::with_quote('"', part));
        Ok((self.catalog.files.add(name, found), ObjectName::from(parts.to_vec())))
    }

    /// The view that `parts` name, if there is one.
    fn view(&self, parts: &[&Ident]) -> Option<View> {
        if parts.len() == 1 && self.is_local(&normalized(parts[0])) {
            return None;
        }
        let (schema, table) = self.schema_and_table(parts)?;
        let table = self.catalog.schema(&schema)?.table(&table).now_or_never()?.ok()??;
        (table.as_ref() as &dyn std::any::Any).downcast_ref::<View>().cloned()
    }

    /// The query of a view, ready to run over the files and tables that exist now.
    fn expand(&mut self, name: &str, view: &View) -> Result<(Query, Vec<TableAliasColumnDef>)> {
        if self.views.iter().any(|view| view == name) {
            return Err(Error::new(ErrorKind::Invalid, format!("view '{name}' reads itself"))
                .with_detail(self.views.join(" reads ")));
        }
        self.view_count += 1;
        if self.views.len() >= VIEWS_DEEP_MAX || self.view_count > VIEWS_MAX {
            let message = format!("view '{name}' reads too many views, or is read by them");
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_detail(format!("at most {VIEWS_MAX}, {VIEWS_DEEP_MAX} over each other"))
                .with_hint("CREATE TABLE ... AS SELECT keeps the rows of a view"));
        }
        let mut parsed = parse_view(&view.definition)?;
        name_as_table(&mut parsed.query);
        functions::expand(parsed.query.as_mut())?;
        refuse_unread_in(&mut parsed.query)?;
        let mut finder = Finder {
            sql: "",
            catalog: self.catalog,
            function_names: self.function_names,
            queries: Vec::new(),
            default_schema: view.default_schema.clone(),
            taken: Taken { files: Vec::new(), versions: Vec::new() },
            views: self.views.iter().map(String::as_str).chain([name]).map(str::to_owned).collect(),
            view_count: self.view_count,
        };
        if let ControlFlow::Break(error) = walk(parsed.query.as_mut(), &mut finder) {
            let detail = format!("view '{name}' reads it");
            return Err(if error.detail().is_none() { error.with_detail(detail) } else { error });
        }
        self.view_count = finder.view_count;
        let Taken { files, versions } = finder.taken;
        self.taken.files.extend(files);
        self.taken.versions.extend(versions);
        let columns = parsed
            .columns
            .iter()
            .map(|column| TableAliasColumnDef { name: column.name.clone(), data_type: None });
        Ok((*parsed.query, columns.collect()))
    }

    /// The schema and table that a name denotes in our catalogue.
    fn schema_and_table(&self, parts: &[&Ident]) -> Option<(String, String)> {
        let names: Vec<String> = parts.iter().map(|part| normalized(part)).collect();
        match names.as_slice() {
            [table] => Some((self.default_schema.clone(), table.clone())),
            [schema, table] => Some((schema.clone(), table.clone())),
            [catalog, schema, table] if catalog == CATALOG => Some((schema.clone(), table.clone())),
            _ => None,
        }
    }

    fn not_found(&self, parts: &[&Ident]) -> Error {
        let written = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
        let error = Error::new(ErrorKind::NotFound, format!("table '{written}' not found"));
        if files::looks_like_file(&written) {
            return error.with_hint(format!("a file is written in quotes: FROM '{written}'"));
        }
        let schemas = [self.default_schema.as_str(), SYSTEM_SCHEMA];
        let names: Vec<String> = schemas
            .iter()
            .filter_map(|schema| Some((*schema, self.catalog.schema(schema)?)))
            .flat_map(|(name, schema)| {
                let prefix = if name == self.default_schema { String::new() } else { format!("{name}.") };
                schema.table_names().into_iter().map(move |table| format!("{prefix}{table}"))
            })
            .chain(self.catalog.given.names())
            .chain(self.local_names().map(str::to_owned))
            .collect();
        suggest(error, nearest(&written, names.iter().map(String::as_str)))
    }
}

/// The table of which a query is all rows and columns as they are: `SELECT * FROM t`, and nothing else. The planner would
/// carry all of its columns through each of its steps.
fn whole_table(query: &Query) -> Option<&ObjectName> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [TableWithJoins { relation, joins }] = &select.from[..] else { return None };
    let TableFactor::Table { name, alias, args: None, version: None, sample: None, .. } = relation else {
        return None;
    };
    let has_columns = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    let is_whole = || query.to_string() == format!("SELECT * FROM {relation}");
    (joins.is_empty() && !has_columns && is_whole()).then_some(name)
}

fn named_table(name: ObjectName, alias: TableAlias) -> TableFactor {
    TableFactor::Table {
        name,
        alias: Some(alias),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

fn suggest(error: Error, meant: Option<&str>) -> Error {
    match meant {
        Some(meant) => error.with_hint(format!("did you mean `{meant}`?")),
        None => error,
    }
}

fn spanned(error: Error, span: Option<Range<usize>>) -> Error {
    match span {
        Some(span) => error.with_span(span),
        None => error,
    }
}

fn identifiers(name: &ObjectName) -> Option<Vec<&Ident>> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Some(ident),
            ObjectNamePart::Function(_) => None,
        })
        .collect()
}

/// The name as the catalogue knows it: lower case unless quoted.
pub(crate) fn normalized(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

fn table_alias(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None }
}

/// `trips` for `/data/trips.csv.gz`: the name under which a file's columns can be qualified.
fn stem(path: &str) -> String {
    let file = path.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(path);
    let stem = file.split('.').find(|part| !part.is_empty()).unwrap_or(file);
    if stem.is_empty() || stem.contains(['*', '?', '[']) { "file".to_owned() } else { stem.to_owned() }
}

/// The arguments of `read_csv` and its like: paths first, then named options.
fn file_function(arguments: &[FunctionArg], format: Option<FileFormat>) -> Result<FileTable> {
    let mut table = FileTable { format, ..FileTable::default() };
    for argument in arguments {
        match argument {
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                table.options.push((name.value.to_lowercase(), constant(value)?));
            }
            FunctionArg::ExprNamed {
                name: Expr::Identifier(name),
                arg: FunctionArgExpr::Expr(value),
                ..
            } => {
                table.options.push((name.value.to_lowercase(), constant(value)?));
            }
            // The parser reads `delim = ';'` as a comparison.
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                left,
                op: ast::BinaryOperator::Eq,
                right,
            })) => {
                let Expr::Identifier(name) = left.as_ref() else {
                    return Err(Error::new(
                        ErrorKind::Invalid,
                        format!("expected an option's name, found {left}"),
                    ));
                };
                table.options.push((name.value.to_lowercase(), constant(right)?));
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => match constant(value)? {
                OptionValue::Text(path) => table.paths.push(path),
                OptionValue::List(paths) => {
                    for path in paths {
                        let OptionValue::Text(path) = path else { return Err(not_a_path(value)) };
                        table.paths.push(path);
                    }
                }
                _ => return Err(not_a_path(value)),
            },
            other => return Err(Error::new(ErrorKind::Invalid, format!("unexpected argument {other}"))),
        }
    }
    if table.paths.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "no file is named")
            .with_hint("read_csv('trips/*.csv', header = true)"));
    }
    Ok(table)
}

fn not_a_path(value: &Expr) -> Error {
    Error::new(ErrorKind::Invalid, format!("expected a path in quotes or a list of them, found {value}"))
}

/// The value of an option, which must be a constant.
pub(crate) fn constant(expr: &Expr) -> Result<OptionValue> {
    let unknown = || Error::new(ErrorKind::Invalid, format!("expected a constant, found {expr}"));
    Ok(match expr {
        Expr::Value(value) => match &value.value {
            ast::Value::Null => OptionValue::Null,
            ast::Value::Boolean(value) => OptionValue::Boolean(*value),
            ast::Value::Number(text, _) => match text.parse() {
                Ok(number) => OptionValue::Integer(number),
                Err(_) => OptionValue::Float(text.parse().map_err(|_| unknown())?),
            },
            value => OptionValue::Text(value.clone().into_string().ok_or_else(unknown)?),
        },
        Expr::Identifier(name) => OptionValue::Text(name.value.clone()),
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match constant(expr)? {
            OptionValue::Integer(number) => OptionValue::Integer(-number),
            OptionValue::Float(number) => OptionValue::Float(-number),
            _ => return Err(unknown()),
        },
        Expr::Nested(expr) => constant(expr)?,
        Expr::Cast { expr, .. } => constant(expr)?,
        Expr::Array(array) => OptionValue::List(array.elem.iter().map(constant).collect::<Result<_>>()?),
        Expr::Tuple(elements) => OptionValue::List(elements.iter().map(constant).collect::<Result<_>>()?),
        Expr::Dictionary(fields) => OptionValue::Struct(
            fields
                .iter()
                .map(|field| Ok((field.key.value.clone(), constant(&field.value)?)))
                .collect::<Result<_>>()?,
        ),
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_called_by_its_stem() {
        let check = |path: &str, expected: &str| assert_eq!(stem(path), expected, "{path}");
        check("/data/trips.csv.gz", "trips");
        check("trips", "trips");
        check("data/", "data");
        check("*.parquet", "file");
        check(".hidden.csv", "hidden");
        check("C:\\data\\x.csv", "x");
    }
}
