//! ALTER TABLE of stored tables, and COMMENT ON.
//!
//! Names, comments, defaults, codecs, the order, and new columns without values only change the definition:
//! parts know columns by number. Changes that give old rows other values rewrite these rows. Either way one
//! statement is one commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    self, AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, ColumnOptionDef, Expr, Ident,
    MySQLColumnPosition, ObjectName, RenameTableNameKind, SelectItem,
};
use futures::TryStreamExt;
use keirin_storage::schema::{Definition, Field};
use keirin_storage::{Table, Transaction};

use super::names::{Name, object_name, stored_table};
use super::query::{self, Run};
use super::tables::{column_properties, default_text, quoted};
use super::{Answer, run_text};
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::progress::Progress;
use crate::session::Session;
use crate::sources::stored::{
    self, Partitions, PartsWriter, StoredTable, Threads, add_in_order, arrow_schema, arrow_type, blocking,
    check_unchanged, remove_all, sole, write_stream,
};
use crate::sql::alterations::Alteration;
use crate::sql::parser::{parse_standard, select_mut};

/// How often a change is tried when new rows arrive that it was not computed for.
const ATTEMPTS_MAX: usize = 5;

/// `ALTER TABLE t operation, ...`.
pub(super) async fn alter(
    session: &Session,
    name: &ObjectName,
    if_exists: bool,
    operations: &[Alteration],
) -> Result<Answer> {
    let name = object_name(session, name)?;
    let table = match stored_table(session, &name).await {
        Err(error) if error.kind() == ErrorKind::NotFound && if_exists => return Ok(Answer::done()),
        table => table?,
    };
    let _alone = table.store.change_alone(table.table.number).await;
    let mut attempts = 0;
    loop {
        attempts += 1;
        // The change depends on the rows of the table, so each attempt looks at the newest ones.
        let newest = table.at(&table.store.snapshot()?);
        let is_same = newest.table.definition == table.table.definition;
        let now = if is_same { &newest } else { &table };
        match try_alter(session, now, operations).await {
            Err(error) if error.kind() == ErrorKind::Conflict && is_same && attempts < ATTEMPTS_MAX => {}
            outcome => return outcome,
        }
    }
}

async fn try_alter(session: &Session, table: &StoredTable, operations: &[Alteration]) -> Result<Answer> {
    let definition = (*table.table.definition).clone();
    let mut change = Change { session, definition, table, values: BTreeMap::new() };
    for operation in operations {
        match operation {
            Alteration::Standard(operation) => change.apply(operation).await?,
            Alteration::OrderBy(keys) => {
                change.definition.keys = stored::sort_keys(&change.definition, keys)?;
            }
            Alteration::Comment(text) => {
                set(&mut change.definition.properties, stored::COMMENT, Some(text.as_str()));
            }
            Alteration::Column(column, options) => change.set_options(column, options)?,
        }
    }
    change.commit().await
}

/// `COMMENT ON TABLE t | COLUMN t.c IS 'text'`.
pub(super) async fn comment_on(
    session: &Session,
    kind: ast::CommentObject,
    name: &ObjectName,
    comment: Option<&str>,
) -> Result<Answer> {
    let mut parts = name.0.clone();
    let column = match kind {
        ast::CommentObject::Table => None,
        ast::CommentObject::Column if parts.len() > 1 => {
            parts.pop().and_then(|part| part.as_ident().cloned())
        }
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("COMMENT ON {kind} {name} is not supported"),
            )
            .with_hint("COMMENT ON TABLE t IS 'text', COMMENT ON COLUMN t.c IS 'text'"));
        }
    };
    let operation = match column {
        None => Alteration::Comment(comment.unwrap_or_default().to_owned()),
        Some(column) => {
            let option = ColumnOption::Comment(comment.unwrap_or_default().to_owned());
            Alteration::Column(column, vec![ColumnOptionDef { name: None, option }])
        }
    };
    alter(session, &ObjectName(parts), false, &[operation]).await
}

/// `RENAME TABLE t TO u, v TO t`: the renames take effect in this order, all or none.
pub(super) async fn rename(session: &Session, renames: &[ast::RenameTable]) -> Result<Answer> {
    let mut steps: Vec<(Name, Name)> = Vec::new();
    for rename in renames {
        let from = object_name(session, &rename.old_name)?;
        let mut to = object_name(session, &rename.new_name)?;
        if rename.new_name.0.len() == 1 {
            to.schema.clone_from(&from.schema);
        }
        // The name need not exist if an earlier step creates it.
        if !steps.iter().any(|(_, to)| *to == from) {
            stored_table(session, &from).await?;
        }
        steps.push((from, to));
    }
    let store = session.shared.store.clone();
    let rename_all = move |transaction: &mut Transaction| {
        for (from, to) in &steps {
            let table = transaction.state().table_named(&from.schema, &from.table).cloned();
            let table = table.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("table '{from}' not found"))
                    .with_detail(format!("when it was to become '{to}'"))
            })?;
            let mut definition = (*table.definition).clone();
            definition.schema.clone_from(&to.schema);
            definition.name.clone_from(&to.table);
            transaction.alter_table(table.number, definition)?;
        }
        Ok(())
    };
    blocking(move || store.alter(rename_all)).await?;
    Ok(Answer::done())
}

/// Fails if a table that was empty has rows now, or gets some before the transaction commits: no values were
/// computed for them.
fn check_empty(transaction: &mut Transaction, table: &Table) -> Result<()> {
    transaction.require_same_rows(table.number);
    if transaction.state().table(table.number).is_some_and(|now| now.row_count() > 0) {
        let message = format!("rows came into table '{}' while it was altered", table.definition.name);
        return Err(Error::new(ErrorKind::Conflict, message).with_hint("run the statement again"));
    }
    Ok(())
}

/// Sets a property, or removes it if the value is `None` or empty.
fn set(properties: &mut BTreeMap<String, String>, key: &str, value: Option<&str>) {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => properties.insert(key.to_owned(), value.to_owned()),
        None => properties.remove(key),
    };
}

/// A change of a table's definition.
struct Change<'a> {
    session: &'a Session,
    table: &'a StoredTable,
    definition: Definition,
    /// New values by column number; other columns keep theirs.
    values: BTreeMap<u32, Expr>,
}

impl Change<'_> {
    async fn apply(&mut self, operation: &AlterTableOperation) -> Result<()> {
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position, .. } => {
                let name = normalized(&column_def.name);
                let is_there = self.definition.fields.iter().any(|field| field.name == name);
                if is_there && *if_not_exists {
                    return Ok(());
                }
                if is_there {
                    let message = format!("table '{}' has a column '{name}' already", self.definition.name);
                    return Err(
                        Error::new(ErrorKind::AlreadyExists, message).with_hint("ADD COLUMN IF NOT EXISTS")
                    );
                }
                self.add(column_def, column_position.as_ref()).await
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                column_names.iter().try_for_each(|column| self.drop(&normalized(column), *if_exists))
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(old_column_name, new_column_name)
            }
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(name) | RenameTableNameKind::As(name),
            } => {
                let is_bare = name.0.len() == 1;
                let name = object_name(self.session, name)?;
                if !is_bare {
                    self.definition.schema = name.schema;
                }
                self.definition.name = name.table;
                Ok(())
            }
            AlterTableOperation::ModifyColumn { col_name, data_type, options, .. } => {
                self.retype(col_name, data_type, None, options).await
            }
            AlterTableOperation::ChangeColumn { old_name, new_name, data_type, options, .. } => {
                self.retype(old_name, data_type, None, options).await?;
                self.rename_column(old_name, new_name)
            }
            AlterTableOperation::AlterColumn { column_name, op } => self.alter_column(column_name, op).await,
            other => {
                let message = format!("ALTER TABLE ... {other} is not supported");
                Err(Error::new(ErrorKind::Unsupported, message).with_hint(
                    "ADD, DROP, RENAME, MODIFY and ALTER COLUMN, RENAME TO, ORDER BY and COMMENT are",
                ))
            }
        }
    }

    async fn alter_column(&mut self, column: &Ident, operation: &AlterColumnOperation) -> Result<()> {
        match operation {
            AlterColumnOperation::SetDataType { data_type, using, .. } => {
                self.retype(column, data_type, using.as_ref(), &[]).await
            }
            AlterColumnOperation::SetDefault { value } => {
                let text = default_text(value)?;
                set(&mut self.field_mut(column)?.properties, stored::DEFAULT, Some(&text));
                Ok(())
            }
            AlterColumnOperation::DropDefault => {
                set(&mut self.field_mut(column)?.properties, stored::DEFAULT, None);
                Ok(())
            }
            AlterColumnOperation::SetNotNull => {
                self.check_no_nulls(column).await?;
                self.field_mut(column)?.is_nullable = false;
                Ok(())
            }
            AlterColumnOperation::DropNotNull => {
                self.field_mut(column)?.is_nullable = true;
                Ok(())
            }
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!("ALTER COLUMN {column} {other} is not supported"),
            )),
        }
    }

    fn field_mut(&mut self, column: &Ident) -> Result<&mut Field> {
        let id = stored::field_named(&self.definition, &normalized(column))?.id;
        let index = self.definition.index_of(id).expect("it was found above");
        Ok(&mut self.definition.fields[index])
    }

    async fn add(&mut self, column: &ColumnDef, position: Option<&MySQLColumnPosition>) -> Result<()> {
        let field = self.planned(column).await?;
        let mut field = stored::number_next(&mut self.definition, field);
        let default = column.options.iter().find_map(|option| match &option.option {
            ColumnOption::Default(value) => Some(value.clone()),
            _ => None,
        });
        if default.is_none() && !field.is_nullable && self.table.table.row_count() > 0 {
            let message = format!(
                "new column '{}' is NOT NULL and would be NULL in the rows of table '{}'",
                field.name, self.definition.name
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_hint("give it a DEFAULT"));
        }
        if let Some(default) = default.filter(|_| self.table.table.row_count() > 0) {
            match self.initial(column, &field, &default).await? {
                Some(text) => set(&mut field.properties, stored::INITIAL, Some(&text)),
                None => _ = self.values.insert(field.id, default),
            }
        }
        let place = match position {
            None => self.definition.fields.len(),
            Some(MySQLColumnPosition::First) => 0,
            Some(MySQLColumnPosition::After(other)) => {
                let other = stored::field_named(&self.definition, &normalized(other))?.id;
                self.definition.index_of(other).map_or(0, |place| place + 1)
            }
        };
        self.definition.fields.insert(place, field);
        Ok(())
    }

    /// The value in a new column that all existing rows get, as a text that reads back as the same value.
    /// `None` if there is no such text, or if the rows will be rewritten anyway.
    async fn initial(&self, column: &ColumnDef, field: &Field, default: &Expr) -> Result<Option<String>> {
        let text = format!("SELECT CAST({default} AS {})", column.data_type);
        let plan = query::plan(self.session, parse_standard(&text)?, "").await?;
        // Each row gets its own value.
        if plan.expressions().iter().any(datafusion::logical_expr::Expr::is_volatile) {
            return Ok(None);
        }
        let batches: Vec<_> = query::read(self.session, plan).await?.batches.try_collect().await?;
        let value = batches.first().map(|batch| ScalarValue::try_from_array(batch.column(0), 0));
        let Some(value) = value.transpose()?.filter(|value| !value.is_null()) else { return Ok(None) };
        let data_type = arrow_type(&field.data_type);
        let value = value.cast_to(&data_type)?;
        let text = value.to_string();
        let is_same = ScalarValue::try_from_string(text.clone(), &data_type).is_ok_and(|read| read == value);
        Ok((is_same && !text.is_empty()).then_some(text))
    }

    fn drop(&mut self, column: &str, if_exists: bool) -> Result<()> {
        let id = match stored::field_named(&self.definition, column) {
            Err(_) if if_exists => return Ok(()),
            field => field?.id,
        };
        if self.definition.keys.iter().any(|key| key.field == id) {
            let message = format!("column '{column}' is in ORDER BY of table '{}'", self.definition.name);
            let hint = format!("ALTER TABLE {} ORDER BY () first", self.definition.name);
            return Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
        }
        self.check_not_partitioned_by(column)?;
        self.definition.fields.retain(|field| field.id != id);
        self.values.remove(&id);
        Ok(())
    }

    fn rename_column(&mut self, old: &Ident, new: &Ident) -> Result<()> {
        let (before, after) = (normalized(old), normalized(new));
        self.field_mut(old)?.name.clone_from(&after);
        let text = stored::with_renamed(&self.definition, &before, &after);
        set(&mut self.definition.properties, stored::PARTITION, text.as_deref());
        Ok(())
    }

    fn check_not_partitioned_by(&self, column: &str) -> Result<()> {
        if !stored::partition_columns(&self.definition).contains(column) {
            return Ok(());
        }
        let message = format!("column '{column}' is in PARTITION BY of table '{}'", self.definition.name);
        let hint = "make another table with another PARTITION BY, and INSERT INTO it SELECT from this one";
        Err(Error::new(ErrorKind::Invalid, message).with_hint(hint))
    }

    /// Changes a column's type and options; options that are not named stay.
    async fn retype(
        &mut self,
        column: &Ident,
        data_type: &ast::DataType,
        using: Option<&Expr>,
        options: &[ColumnOption],
    ) -> Result<()> {
        let options: Vec<ColumnOptionDef> =
            options.iter().map(|option| ColumnOptionDef { name: None, option: option.clone() }).collect();
        let planned =
            ColumnDef { name: column.clone(), data_type: data_type.clone(), options: options.clone() };
        let planned = self.planned(&planned).await?;
        let old = self.field_mut(column)?.clone();
        if old.data_type != planned.data_type {
            self.check_not_partitioned_by(&old.name)?;
            let cast = |expr: Expr| Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(expr),
                data_type: data_type.clone(),
                array: false,
                format: None,
            };
            let before = self.values.remove(&old.id);
            let name = self.name_before(old.id).unwrap_or_else(|| old.name.clone());
            let value =
                using.cloned().or(before).unwrap_or_else(|| Expr::Identifier(Ident::with_quote('"', name)));
            self.values.insert(old.id, cast(value));
            let mut alone = self.definition.clone();
            let numbered = stored::number_next(&mut alone, planned);
            self.definition.next_field = alone.next_field;
            self.field_mut(column)?.data_type = numbered.data_type;
        }
        self.set_options(column, &options)
    }

    fn set_options(&mut self, column: &Ident, options: &[ColumnOptionDef]) -> Result<()> {
        let field = self.field_mut(column)?;
        for option in options {
            match &option.option {
                ColumnOption::NotNull => field.is_nullable = false,
                ColumnOption::Null => field.is_nullable = true,
                _ => {}
            }
        }
        for (key, value) in column_properties(options.iter().map(|option| &option.option))? {
            set(&mut field.properties, &key, Some(&value));
        }
        if options
            .iter()
            .any(|option| matches!(&option.option, ColumnOption::Comment(text) if text.is_empty()))
        {
            field.properties.remove(stored::COMMENT);
        }
        stored::check_codec(field)
    }

    /// The field that a column definition makes.
    async fn planned(&self, column: &ColumnDef) -> Result<Field> {
        let mut statement = parse_standard("CREATE TABLE t (c INT)")?;
        if let ast::Statement::CreateTable(table) = &mut statement {
            table.columns = vec![column.clone()];
        }
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) =
            query::plan(self.session, statement, "").await?
        else {
            return Err(Error::new(ErrorKind::Internal, "CREATE TABLE is planned as something else"));
        };
        let properties = column_properties(column.options.iter().map(|option| &option.option))?;
        let schema = create.input.schema().as_arrow();
        let mut alone = stored::define("", &self.definition.name, schema, &[properties])?;
        Ok(alone.fields.remove(0))
    }

    /// The name that a column had before this statement.
    fn name_before(&self, id: u32) -> Option<String> {
        let before = &self.table.table.definition;
        before.index_of(id).map(|index| before.fields[index].name.clone())
    }

    async fn check_no_nulls(&self, column: &Ident) -> Result<()> {
        let field = stored::field_named(&self.definition, &normalized(column))?;
        let Some(name) = self.name_before(field.id) else { return Ok(()) };
        let table = Arc::new(self.table.clone());
        let open = self.session.catalog.files.add(self.session.catalog.files.fresh_name(), table);
        let text = format!("SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1", open.sql_name(), quoted(&name));
        let mut found = run_text(self.session, &text).await?.batches;
        while let Some(batch) = found.try_next().await? {
            if batch.num_rows() > 0 {
                let message = format!("column '{name}' of table '{}' has NULLs", self.definition.name);
                let hint =
                    format!("UPDATE {} SET {name} = ... WHERE {name} IS NULL first", self.definition.name);
                return Err(Error::new(ErrorKind::Data, message).with_hint(hint));
            }
        }
        Ok(())
    }

    async fn commit(self) -> Result<Answer> {
        self.definition.check()?;
        let (store, before) = (self.table.store.clone(), self.table.table.clone());
        let becomes_not_null = self.definition.fields.iter().any(|field| {
            let old = before.definition.fields.iter().find(|old| old.id == field.id);
            !field.is_nullable && old.is_some_and(|old| old.is_nullable)
        });
        if self.values.is_empty() && !becomes_not_null || before.row_count() == 0 {
            let definition = self.definition;
            let alter = move || {
                store.alter(|transaction| {
                    check_unchanged(transaction, &before)?;
                    if before.row_count() == 0 {
                        check_empty(transaction, &before)?;
                    }
                    Ok(transaction.alter_table(before.number, definition)?)
                })
            };
            blocking(alter).await?;
            return Ok(Answer::done());
        }
        self.write_again().await
    }

    /// Rewrites all rows with their new values, in the transaction that changes the definition.
    async fn write_again(mut self) -> Result<Answer> {
        self.definition.fields.iter_mut().for_each(|field| _ = field.properties.remove(stored::INITIAL));
        let (store, before) = (self.table.store.clone(), self.table.table.clone());
        let (definition, number) = (self.definition.clone(), before.number);
        let upkeep = store.clone();
        let transaction = blocking(move || {
            let mut transaction = store.begin_rewriting(number)?;
            check_unchanged(&transaction, &before)?;
            transaction.require_same_rows(number);
            transaction.alter_table(number, definition)?;
            Ok(transaction)
        })
        .await?;
        let partitions = Partitions::of(&self.session.state(), &self.definition)?;
        let plan = self.plan(&self.table.at(transaction.base()), &partitions).await?;
        let progress = Progress::default();
        let run = Run::new(self.session, plan, progress.clone());
        let rows = run.start().await?.map_err(|error| DataFusionError::External(Box::new(error)));
        let definition = Arc::new(self.definition);
        let rows = Box::pin(RecordBatchStreamAdapter::new(arrow_schema(&definition), rows));
        let pool = &self.session.shared.environment.memory_pool;
        let transaction = Arc::new(transaction);
        let threads = Arc::new(Threads::new(self.session.shared.threads));
        let writer = PartsWriter::new(&transaction, number, &definition, &partitions, pool, &threads);
        let parts = write_stream(rows, writer).await?;
        let mut transaction = sole(transaction)?;
        blocking(move || {
            remove_all(&mut transaction, number)?;
            add_in_order(&mut transaction, number, parts)?;
            transaction.commit()?;
            upkeep.wake_upkeep();
            Ok(())
        })
        .await?;
        Ok(Answer { progress, ..Answer::done() })
    }

    /// The query for all rows with their new values, in the order of the table.
    async fn plan(&self, table: &StoredTable, partitions: &Partitions) -> Result<LogicalPlan> {
        let session = self.session.at(table.snapshot.clone());
        let open = session.catalog.files.add(session.catalog.files.fresh_name(), Arc::new(table.clone()));
        let text = format!("SELECT 1 FROM {} AS t", open.sql_name());
        let mut statement = parse_standard(&text)?;
        let select = match &mut statement {
            ast::Statement::Query(query) => select_mut(query),
            _ => None,
        };
        let select =
            select.ok_or_else(|| Error::new(ErrorKind::Internal, format!("'{text}' is no SELECT")))?;
        select.projection = self
            .definition
            .fields
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let old =
                    || self.name_before(field.id).map(|name| Expr::Identifier(Ident::with_quote('"', name)));
                let value = self.values.get(&field.id).cloned().or_else(old);
                let expr = value.unwrap_or_else(|| Expr::value(ast::Value::Null));
                SelectItem::ExprWithAlias { expr, alias: Ident::new(format!("v{index}")) }
            })
            .collect();
        let plan = query::plan(&session, statement, "").await?;
        let keys = partitions.sort_keys(&self.definition)?;
        Ok(if keys.is_empty() { plan } else { LogicalPlanBuilder::from(plan).sort(keys)?.build()? })
    }
}
