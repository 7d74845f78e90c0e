//! The clauses of statements.

use datafusion::sql::sqlparser::ast::{
    AlterTableOperation, ColumnDef, ColumnOption, ContextModifier, CreateTable, CreateTableLike,
    CreateTableLikeKind, CreateTableOptions, CreateView, Delete, ExprWithAlias, FromTable,
    HiveDistributionStyle, HiveFormat, Insert, ObjectType, Set, SetAssignment, ShowStatementIn,
    ShowStatementOptions, Statement, TableConstraint, TableObject, Truncate, TruncateTableTarget, Update,
    ViewColumnDef,
};

use super::queries::{joins, order_keys};
use super::{refuse, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::sql::table_clauses::{check_collation, codec_of_option};

pub(super) fn statement(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Query(_)
        | Statement::ShowVariable { .. }
        | Statement::ShowCreate { .. }
        | Statement::ShowFunctions { .. }
        | Statement::RenameTable(_)
        | Statement::Reset(_)
        | Statement::Vacuum(_)
        // CREATE INDEX makes no index of any kind; a notice says so.
        | Statement::CreateIndex(_)
        | Statement::Use(_)
        // These are refused where they are executed.
        | Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Savepoint { .. }
        // The inner statement is checked when it is executed.
        | Statement::Prepare { .. }
        | Statement::Deallocate { .. } => Ok(()),
        Statement::Explain {
            describe_alias: _,
            analyze: _,
            verbose: _,
            query_plan,
            estimate,
            statement: _,
            // Known where it is carried out.
            format: _,
            options: _,
        } => refuse(&[
            (*query_plan, "EXPLAIN QUERY PLAN", "EXPLAIN"),
            (*estimate, "EXPLAIN ESTIMATE", "EXPLAIN VERBOSE"),
        ]),
        Statement::ExplainTable { describe_alias: _, hive_format, has_table_keyword: _, table_name: _ } => {
            refuse(&[(hive_format.is_some(), "DESCRIBE EXTENDED or FORMATTED", "SHOW CREATE TABLE t")])
        }
        Statement::Insert(one) => insert(one),
        Statement::Update(one) => update(one),
        Statement::Delete(one) => delete(one),
        Statement::Truncate(one) => truncate(one),
        Statement::CreateTable(one) => create_table(one),
        Statement::CreateView(one) => create_view(one),
        Statement::CreateSchema {
            schema_name: _,
            if_not_exists: _,
            with,
            options,
            default_collate_spec,
            clone,
        } => refuse(&[
            (with.is_some() || options.is_some(), "an option of CREATE SCHEMA", ""),
            (default_collate_spec.is_some(), "the collation of a schema", "COLLATE behind a column"),
            (clone.is_some(), "CLONE", ""),
        ]),
        Statement::CreateDatabase { .. } => create_database(statement),
        Statement::Drop {
            object_type,
            if_exists: _,
            names: _,
            cascade,
            restrict,
            purge,
            temporary,
            table: _,
        } => {
            let is_relation = matches!(object_type, ObjectType::Table | ObjectType::View);
            let drop = format!("DROP {object_type}");
            refuse(&[
                (
                    *cascade && is_relation,
                    &format!("{drop} ... CASCADE"),
                    "views that read it stay; drop them by their names",
                ),
                (
                    *restrict && is_relation,
                    &format!("{drop} ... RESTRICT"),
                    "views that read it are not looked for",
                ),
                (*purge, &format!("{drop} ... PURGE"), "leave it out: files go when no version needs them"),
                (*temporary, "DROP TEMPORARY", ""),
            ])
        }
        Statement::Comment { object_type: _, object_name: _, comment: _, if_exists } => {
            refuse(&[(*if_exists, "COMMENT IF EXISTS", "")])
        }
        Statement::OptimizeTable {
            name: _,
            has_table_keyword: _,
            on_cluster,
            partition,
            include_final: _,
            deduplicate,
            predicate,
            zorder,
        } => refuse(&[
            (on_cluster.is_some(), "ON CLUSTER", ""),
            (partition.is_some(), "PARTITION of OPTIMIZE", "OPTIMIZE TABLE t"),
            (deduplicate.is_some(), "DEDUPLICATE", "CREATE TABLE t2 AS SELECT DISTINCT * FROM t"),
            (predicate.is_some(), "WHERE of OPTIMIZE", ""),
            (zorder.is_some(), "ZORDER", "ALTER TABLE t ORDER BY (a, b)"),
        ]),
        Statement::Set(one) => set(one),
        Statement::ShowTables { terse, history, extended, full, external, show_options } => {
            refuse(&[
                (*terse, "SHOW TERSE", ""),
                (*history, "HISTORY", ""),
                (*extended || *full || *external, "SHOW FULL, EXTENDED or EXTERNAL TABLES", "SHOW TABLES"),
            ])?;
            show(show_options)
        }
        Statement::ShowColumns { extended, full, show_options } => {
            let ShowStatementOptions { filter_position, .. } = show_options;
            refuse(&[
                (*extended || *full, "SHOW FULL or EXTENDED COLUMNS", "SHOW COLUMNS FROM t"),
                (filter_position.is_some(), "LIKE or WHERE of SHOW COLUMNS", "SHOW COLUMNS FROM t"),
            ])?;
            show(show_options)
        }
        Statement::ShowCollation { filter: _ } => Ok(()),
        Statement::ShowDatabases { terse, history, show_options }
        | Statement::ShowSchemas { terse, history, show_options } => {
            refuse(&[(*terse, "SHOW TERSE", ""), (*history, "HISTORY", "")])?;
            show(show_options)
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').take(2).collect();
            Err(unsupported(words.join(" ").trim()))
        }
    }
}

/// Checks the clauses of EXECUTE and PREPARE besides names and values, before only the inner statement is
/// left.
pub(crate) fn check_prepared(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Execute {
            name: _,
            parameters: _,
            has_parentheses: _,
            immediate,
            into,
            using,
            output,
            default,
        } => {
            let has_names = using.iter().any(|ExprWithAlias { expr: _, alias }| alias.is_some());
            refuse(&[
                (*immediate, "EXECUTE IMMEDIATE", "PREPARE and EXECUTE"),
                (!into.is_empty(), "EXECUTE ... INTO", ""),
                (has_names, "a name behind a value of EXECUTE", ""),
                (*output || *default, "OUTPUT or DEFAULT of EXECUTE", ""),
            ])
        }
        _ => Ok(()),
    }
}

fn show(options: &ShowStatementOptions) -> Result<()> {
    let ShowStatementOptions { show_in, starts_with, limit, limit_from, filter_position: _ } = options;
    if let Some(ShowStatementIn { clause: _, parent_type: _, parent_name: _ }) = show_in {}
    refuse(&[
        (starts_with.is_some(), "STARTS WITH", "LIKE 'beginning%'"),
        (limit.is_some() || limit_from.is_some(), "LIMIT of SHOW", "information_schema.tables"),
    ])
}

fn set(set: &Set) -> Result<()> {
    let scope = |scope: &Option<ContextModifier>| match scope {
        None | Some(ContextModifier::Session) => Ok(()),
        Some(ContextModifier::Local) => {
            Err(unsupported("SET LOCAL").with_hint("SET holds for the session, RESET takes it back"))
        }
        Some(ContextModifier::Global) => {
            Err(unsupported("SET GLOBAL").with_hint("SET holds for the session"))
        }
    };
    match set {
        Set::SingleAssignment { scope: of, hivevar, variable: _, values: _ } => {
            refuse(&[(*hivevar, "SET HIVEVAR", "")])?;
            scope(of)
        }
        Set::MultipleAssignments { assignments } => {
            assignments.iter().try_for_each(|SetAssignment { scope: of, name: _, value: _ }| scope(of))
        }
        Set::SetTimeZone { local, value: _ } => refuse(&[(*local, "SET LOCAL TIME ZONE", "SET TIME ZONE")]),
        // The others are refused where they are executed.
        Set::ParenthesizedAssignments { .. }
        | Set::SetSessionAuthorization(_)
        | Set::SetSessionParam(_)
        | Set::SetRole { .. }
        | Set::SetNames { .. }
        | Set::SetNamesDefault {}
        | Set::SetTransaction { .. } => Ok(()),
    }
}

fn insert(insert: &Insert) -> Result<()> {
    let Insert {
        insert_token: _,
        optimizer_hints: _,
        or,
        ignore,
        into: _,
        table,
        table_alias,
        columns: _,
        overwrite: _,
        source,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword: _,
        on,
        returning,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    let is_multiple = multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some();
    refuse(&[
        (!matches!(table, TableObject::TableName(_)), "INSERT into what is no table", ""),
        (or.is_some(), "INSERT OR", "keys are not enforced"),
        (*ignore, "INSERT IGNORE", "keys are not enforced"),
        (*replace_into, "REPLACE INTO", "DELETE the old rows first"),
        (
            on.is_some(),
            "ON CONFLICT or ON DUPLICATE KEY",
            "keys are not enforced; UPDATE or DELETE the old rows",
        ),
        (table_alias.is_some() || insert_alias.is_some(), "an alias of the table of INSERT", ""),
        (
            partitioned.is_some() || !after_columns.is_empty(),
            "PARTITION of INSERT",
            "rows go to partitions by their values",
        ),
        (!assignments.is_empty(), "INSERT ... SET", "INSERT INTO t (column) VALUES (value)"),
        (
            source.is_none() && assignments.is_empty() && !is_multiple,
            "INSERT ... DEFAULT VALUES",
            "INSERT INTO t (column) VALUES (value)",
        ),
        (returning.is_some(), "RETURNING", "SELECT the rows afterwards"),
        (output.is_some(), "OUTPUT", "SELECT the rows afterwards"),
        (priority.is_some(), "LOW_PRIORITY, DELAYED or HIGH_PRIORITY", ""),
        (settings.is_some(), "SETTINGS of INSERT", "SET name = value before it"),
        (format_clause.is_some(), "FORMAT of INSERT", "COPY t FROM 'file'"),
        (is_multiple, "INSERT into several tables", "one INSERT for each"),
    ])
}

fn update(update: &Update) -> Result<()> {
    let Update {
        update_token: _,
        optimizer_hints: _,
        table,
        assignments: _,
        from,
        selection: _,
        returning,
        output,
        or,
        order_by,
        limit,
    } = update;
    refuse(&[
        (
            from.is_some() || !table.joins.is_empty(),
            "UPDATE over more than one table",
            "SET column = (SELECT ...) WHERE key IN (SELECT ...)",
        ),
        (returning.is_some(), "RETURNING", "SELECT the rows afterwards"),
        (output.is_some(), "OUTPUT", "SELECT the rows afterwards"),
        (or.is_some(), "UPDATE OR", ""),
        (!order_by.is_empty() || limit.is_some(), "ORDER BY or LIMIT of UPDATE", "WHERE key IN (SELECT ...)"),
    ])
}

fn delete(delete: &Delete) -> Result<()> {
    let Delete {
        delete_token: _,
        optimizer_hints: _,
        tables,
        from,
        using,
        selection: _,
        returning,
        output,
        order_by,
        limit,
    } = delete;
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = from;
    let is_single = matches!(from.as_slice(), [only] if only.joins.is_empty());
    refuse(&[
        (
            !tables.is_empty() || using.is_some() || !is_single,
            "DELETE over more than one table",
            "DELETE FROM t WHERE key IN (SELECT ...)",
        ),
        (returning.is_some(), "RETURNING", "SELECT the rows first"),
        (output.is_some(), "OUTPUT", "SELECT the rows first"),
        (!order_by.is_empty() || limit.is_some(), "ORDER BY or LIMIT of DELETE", "WHERE key IN (SELECT ...)"),
    ])?;
    order_keys(order_by)?;
    from.iter().try_for_each(joins)
}

fn truncate(truncate: &Truncate) -> Result<()> {
    let Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } = truncate;
    let is_inherited =
        table_names.iter().any(|TruncateTableTarget { name: _, only: _, has_asterisk }| *has_asterisk);
    refuse(&[
        (table_names.len() != 1, "TRUNCATE of several tables", "one TRUNCATE for each"),
        (partitions.is_some(), "PARTITION of TRUNCATE", "DELETE FROM t WHERE ..."),
        (*if_exists, "TRUNCATE ... IF EXISTS", ""),
        (identity.is_some(), "RESTART or CONTINUE IDENTITY", "there are no sequences"),
        (cascade.is_some(), "CASCADE or RESTRICT of TRUNCATE", "there are no foreign keys"),
        (on_cluster.is_some(), "ON CLUSTER", ""),
        (is_inherited, "* behind a table", ""),
    ])
}

fn create_table(table: &CreateTable) -> Result<()> {
    let CreateTable {
        or_replace: _,
        temporary,
        external,
        dynamic,
        global,
        if_not_exists: _,
        transient,
        volatile,
        iceberg,
        snapshot,
        name: _,
        columns,
        constraints,
        hive_distribution,
        hive_formats,
        table_options,
        file_format,
        location,
        query: _,
        without_rowid,
        like,
        clone,
        version,
        comment,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
    } = table;
    let has_hive_formats = match hive_formats {
        Some(HiveFormat { row_format, serde_properties, storage, location }) => {
            row_format.is_some() || serde_properties.is_some() || storage.is_some() || location.is_some()
        }
        None => false,
    };
    let is_of_snowflake = *transient
        || *iceberg
        || *snapshot
        || *dynamic
        || *copy_grants
        || enable_schema_evolution.is_some()
        || change_tracking.is_some()
        || data_retention_time_in_days.is_some()
        || max_data_extension_time_in_days.is_some()
        || default_ddl_collation.is_some()
        || with_aggregation_policy.is_some()
        || with_row_access_policy.is_some()
        || with_storage_lifecycle_policy.is_some()
        || with_tags.is_some()
        || external_volume.is_some()
        || base_location.is_some()
        || catalog.is_some()
        || catalog_sync.is_some()
        || storage_serialization_policy.is_some()
        || target_lag.is_some()
        || warehouse.is_some()
        || refresh_mode.is_some()
        || initialize.is_some()
        || *require_user;
    let is_of_redshift = diststyle.is_some() || distkey.is_some() || sortkey.is_some() || backup.is_some();
    refuse(&[
        (
            *temporary || global.is_some() || *volatile || on_commit.is_some(),
            "CREATE TEMPORARY TABLE",
            "CREATE TABLE, and DROP TABLE at the end",
        ),
        (
            *external || file_format.is_some() || location.is_some(),
            "CREATE EXTERNAL TABLE",
            "CREATE VIEW v AS SELECT * FROM 'file'",
        ),
        (
            *hive_distribution != HiveDistributionStyle::NONE,
            "PARTITIONED BY or SKEWED BY",
            "PARTITION BY expression",
        ),
        (has_hive_formats, "ROW FORMAT, SERDE or STORED AS", ""),
        (
            !matches!(table_options, CreateTableOptions::None),
            "this option of CREATE TABLE",
            "ORDER BY, PARTITION BY and COMMENT are read",
        ),
        (*without_rowid || *strict, "WITHOUT ROWID or STRICT", "leave it out"),
        (clone.is_some(), "CLONE", "CREATE TABLE t LIKE other"),
        (
            version.is_some(),
            "a version of a table to copy",
            "CREATE TABLE t AS SELECT * FROM other AS OF VERSION 3",
        ),
        (
            comment.is_some() || primary_key.is_some() || order_by.is_some() || partition_by.is_some(),
            "this order of the clauses of CREATE TABLE",
            "behind the columns, in front of AS",
        ),
        (on_cluster.is_some(), "ON CLUSTER", ""),
        (cluster_by.is_some() || clustered_by.is_some(), "CLUSTER BY or CLUSTERED BY", "ORDER BY (a, b)"),
        (
            inherits.is_some() || partition_of.is_some() || for_values.is_some(),
            "INHERITS or PARTITION OF",
            "PARTITION BY expression",
        ),
        (is_of_snowflake, "an option of Snowflake's tables", "leave it out"),
        (is_of_redshift, "DISTSTYLE, DISTKEY, SORTKEY or BACKUP", "ORDER BY (a, b)"),
    ])?;
    if let Some(CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)) = like {
        let CreateTableLike { name: _, defaults } = like;
        refuse(&[(defaults.is_some(), "INCLUDING or EXCLUDING of LIKE", "LIKE takes all but the rows")])?;
    }
    constraints.iter().try_for_each(constraint)?;
    columns.iter().try_for_each(|ColumnDef { name: _, data_type: _, options }| {
        check_column_options(options.iter().map(|option| &option.option))
    })
}

/// Keys are accepted, with a notice that nothing enforces them.
fn constraint(constraint: &TableConstraint) -> Result<()> {
    match constraint {
        TableConstraint::PrimaryKey(_) | TableConstraint::Unique(_) => Ok(()),
        TableConstraint::ForeignKey(_) => Err(foreign_key()),
        TableConstraint::Check(_) => Err(check()),
        TableConstraint::Index(_)
        | TableConstraint::FulltextOrSpatial(_)
        | TableConstraint::PrimaryKeyUsingIndex(_)
        | TableConstraint::UniqueUsingIndex(_) => Err(unsupported("an index")
            .with_hint("ORDER BY (a, b) keeps rows together that are looked for together")),
    }
}

fn foreign_key() -> Error {
    unsupported("FOREIGN KEY").with_hint("leave it out: nothing would look whether the other row is there")
}

fn check() -> Error {
    unsupported("CHECK").with_hint("leave it out: nothing would look at the rows; NOT NULL is enforced")
}

/// Refuses options of a column that have no effect.
pub(crate) fn check_column_options<'a>(options: impl IntoIterator<Item = &'a ColumnOption>) -> Result<()> {
    options.into_iter().try_for_each(|option| match option {
        ColumnOption::Null
        | ColumnOption::NotNull
        | ColumnOption::Default(_)
        | ColumnOption::Comment(_)
        | ColumnOption::PrimaryKey(_)
        | ColumnOption::Unique(_)
        // All text is UTF-8.
        | ColumnOption::CharacterSet(_) => Ok(()),
        ColumnOption::Collation(name) => check_collation(&name.to_string()),
        ColumnOption::Options(_) if codec_of_option(option).is_some() => Ok(()),
        ColumnOption::Generated { generation_expr: Some(_), .. }
        | ColumnOption::Materialized(_)
        | ColumnOption::Ephemeral(_)
        | ColumnOption::Alias(_) => Err(unsupported("a generated column")
            .with_hint("a view computes it: CREATE VIEW v AS SELECT *, a + 1 AS b FROM t")),
        ColumnOption::Generated { .. } | ColumnOption::Identity(_) => Err(automatic("IDENTITY")),
        ColumnOption::DialectSpecific(tokens) => {
            let words: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            let words = words.join(" ").to_uppercase();
            Err(if words.starts_with("AUTO") { automatic(&words) } else { unsupported(format!("{words} behind a column")) })
        }
        ColumnOption::ForeignKey(_) => Err(foreign_key()),
        ColumnOption::Check(_) => Err(check()),
        ColumnOption::OnUpdate(_) => Err(unsupported("ON UPDATE").with_hint("UPDATE t SET changed = now(), ...")),
        ColumnOption::OnConflict(_) => Err(unsupported("ON CONFLICT").with_hint("keys are not enforced")),
        ColumnOption::Options(_) => Err(unsupported("OPTIONS of a column").with_hint("CODEC(...), COMMENT 'text'")),
        ColumnOption::Policy(_) | ColumnOption::Tags(_) => Err(unsupported("a policy or tag of a column")),
        ColumnOption::Srid(_) => Err(unsupported("SRID")),
        ColumnOption::Invisible => Err(unsupported("INVISIBLE").with_hint("SELECT * EXCLUDE (column)")),
    })
}

fn automatic(words: &str) -> Error {
    unsupported(words).with_hint("INSERT ... SELECT row_number() OVER (), ... or uuid() give rows a number")
}

pub(super) fn alteration(operation: &AlterTableOperation) -> Result<()> {
    let no_keys = |options: &[&ColumnOption]| {
        let is_key =
            |option: &&ColumnOption| matches!(option, ColumnOption::PrimaryKey(_) | ColumnOption::Unique(_));
        refuse(&[(
            options.iter().any(is_key),
            "a key of a new column",
            "leave it out: nothing would enforce it",
        )])?;
        check_column_options(options.iter().copied())
    };
    match operation {
        AlterTableOperation::AddColumn {
            column_keyword: _,
            if_not_exists: _,
            column_def,
            column_position: _,
        } => no_keys(&column_def.options.iter().map(|option| &option.option).collect::<Vec<_>>()),
        AlterTableOperation::ModifyColumn { col_name: _, data_type: _, options, column_position } => {
            refuse(&[(column_position.is_some(), "another place for a column", "")])?;
            no_keys(&options.iter().collect::<Vec<_>>())
        }
        AlterTableOperation::ChangeColumn {
            old_name: _,
            new_name: _,
            data_type: _,
            options,
            column_position,
        } => {
            refuse(&[(column_position.is_some(), "another place for a column", "")])?;
            no_keys(&options.iter().collect::<Vec<_>>())
        }
        AlterTableOperation::DropColumn {
            has_column_keyword: _,
            column_names: _,
            if_exists: _,
            drop_behavior,
        } => refuse(&[(
            drop_behavior.is_some(),
            "CASCADE or RESTRICT of DROP COLUMN",
            "views that read it stay",
        )]),
        // The others are refused where they are executed, or consist only of names.
        _ => Ok(()),
    }
}

fn create_view(view: &CreateView) -> Result<()> {
    let CreateView {
        or_alter,
        or_replace: _,
        materialized,
        secure,
        name: _,
        name_before_not_exists: _,
        columns,
        query: _,
        options,
        cluster_by,
        comment,
        with_no_schema_binding,
        if_not_exists: _,
        temporary,
        copy_grants,
        to,
        params,
    } = view;
    refuse(&[
        (*or_alter, "CREATE OR ALTER VIEW", "CREATE OR REPLACE VIEW"),
        (
            *materialized || to.is_some(),
            "a materialized view",
            "CREATE TABLE t AS SELECT ... keeps the rows that there are now",
        ),
        (*secure, "CREATE SECURE VIEW", "CREATE VIEW"),
        (*temporary, "a temporary view", "CREATE VIEW, or WITH in the query"),
        (!matches!(options, CreateTableOptions::None) || params.is_some(), "an option of CREATE VIEW", ""),
        (!cluster_by.is_empty(), "CLUSTER BY of a view", ""),
        (comment.is_some(), "COMMENT of a view", ""),
        (*with_no_schema_binding || *copy_grants, "WITH NO SCHEMA BINDING or COPY GRANTS", "leave it out"),
    ])?;
    columns.iter().try_for_each(|ViewColumnDef { name: _, data_type, options }| {
        refuse(&[
            (data_type.is_some(), "a type for a column of a view", "CAST it in the query"),
            (options.is_some(), "an option for a column of a view", ""),
        ])
    })
}

fn create_database(statement: &Statement) -> Result<()> {
    let Statement::CreateDatabase {
        db_name: _,
        if_not_exists: _,
        location,
        managed_location,
        or_replace,
        transient,
        clone,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        external_volume,
        catalog,
        replace_invalid_characters,
        default_ddl_collation,
        storage_serialization_policy,
        comment,
        // All text is UTF-8.
        default_charset: _,
        default_collation,
        catalog_sync,
        catalog_sync_namespace_mode,
        catalog_sync_namespace_flatten_delimiter,
        with_tags,
        with_contacts,
    } = statement
    else {
        return Err(Error::new(ErrorKind::Internal, "this creates no database"));
    };
    let is_of_snowflake = *transient
        || data_retention_time_in_days.is_some()
        || max_data_extension_time_in_days.is_some()
        || external_volume.is_some()
        || catalog.is_some()
        || replace_invalid_characters.is_some()
        || default_ddl_collation.is_some()
        || storage_serialization_policy.is_some()
        || catalog_sync.is_some()
        || catalog_sync_namespace_mode.is_some()
        || catalog_sync_namespace_flatten_delimiter.is_some()
        || with_tags.is_some()
        || with_contacts.is_some();
    refuse(&[
        (location.is_some() || managed_location.is_some(), "LOCATION of a database", ""),
        (*or_replace, "CREATE OR REPLACE DATABASE", "DROP DATABASE ... CASCADE first"),
        (clone.is_some(), "CLONE", ""),
        (comment.is_some(), "COMMENT of a database", ""),
        (default_collation.is_some(), "the collation of a database", "COLLATE behind a column"),
        (is_of_snowflake, "an option of Snowflake's databases", "leave it out"),
    ])
}
