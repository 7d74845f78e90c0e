//! The clauses of queries.

use datafusion::sql::sqlparser::ast::{
    Cte, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, LimitClause, OrderBy, OrderByExpr,
    OrderByKind, PipeOperator, Query, Select, SelectItem, SetExpr, SetOperator, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, WildcardAdditionalOptions, With,
};

use super::{NOBODY, refuse, unsupported};
use crate::bind::left_out;
use crate::bind::relations::normalized;
use crate::error::{Error, ErrorKind, Result};

/// Words of other databases behind a table, which the parser takes for its alias.
const NO_ALIASES: &[&str] = &["FINAL", "POSITIONAL", "ASOF", "SEMI", "ANTI"];

/// Words of other databases in front of JOIN, which the parser takes for the alias of the table before them.
const KINDS_OF_JOINS: &[&str] =
    &["POSITIONAL", "ASOF", "ALL", "ANY", "BROADCAST", "HASH", "LOCAL", "LOOP", "MERGE", "PASTE", "SHUFFLE"];

pub(super) fn query(query: &Query) -> Result<()> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    refuse(&[
        (fetch.is_some(), "FETCH beside LIMIT", "one of them says it"),
        (!locks.is_empty(), "FOR UPDATE or FOR SHARE", "a statement reads one version, no rows are locked"),
        (
            for_clause.is_some(),
            "FOR JSON, FOR XML or FOR BROWSE",
            "COPY (SELECT ...) TO 'x.json' writes JSON",
        ),
        (settings.is_some(), "SETTINGS of a query", "SET name = value before it"),
        (format_clause.is_some(), "FORMAT of a query", "COPY (SELECT ...) TO 'x.csv' writes a file"),
    ])?;
    if let Some(LimitClause::LimitOffset { limit: _, offset: _, limit_by }) = limit_clause {
        refuse(&[(!limit_by.is_empty(), "LIMIT BY", "QUALIFY row_number() OVER (PARTITION BY a) <= n")])?;
    }
    if let Some(with) = with {
        queries_of_with(with)?;
    }
    bodies(body)?;
    pipe_operators.iter().try_for_each(pipe_operator)?;
    match order_by {
        Some(OrderBy { kind: OrderByKind::Expressions(keys), interpolate }) => {
            refuse(&[(interpolate.is_some(), "INTERPOLATE", "")])?;
            order_keys(keys)
        }
        Some(OrderBy { kind: OrderByKind::All(_), interpolate: _ }) => Err(unsupported("ORDER BY ALL")),
        None => Ok(()),
    }
}

pub(super) fn order_keys(keys: &[OrderByExpr]) -> Result<()> {
    keys.iter().try_for_each(|key| {
        let OrderByExpr { expr: _, options: _, with_fill } = key;
        refuse(&[(with_fill.is_some(), "WITH FILL", "")])
    })
}

fn queries_of_with(with: &With) -> Result<()> {
    let With { with_token: _, recursive, cte_tables } = with;
    cte_tables.iter().try_for_each(|cte| {
        let Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
        refuse(&[(from.is_some(), "FROM behind a query of WITH", "")])?;
        table_alias(alias)?;
        // The planner takes only the two sides of the UNION.
        let is_cut = query.with.is_some() || query.order_by.is_some() || query.limit_clause.is_some();
        let is_union = matches!(*query.body, SetExpr::SetOperation { op: SetOperator::Union, .. });
        refuse(&[(
            *recursive && is_union && is_cut,
            "WITH, ORDER BY or LIMIT inside WITH RECURSIVE",
            "write it in the query that reads the recursive one",
        )])
    })
}

/// Refuses what stands for a query and is none.
fn bodies(body: &SetExpr) -> Result<()> {
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                bodies.extend([right.as_ref(), left.as_ref()]);
            }
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => {
                let text = statement.to_string();
                let verb = text.split_whitespace().next().unwrap_or_default();
                return Err(unsupported(format!("{verb} as a query")));
            }
            SetExpr::Table(table) => {
                return Err(unsupported(format!("{table} as a query")).with_hint("SELECT * FROM it"));
            }
            SetExpr::Values(values) if values.value_keyword => {
                return Err(unsupported("VALUE").with_hint("did you mean VALUES?"));
            }
            SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => {}
        }
    }
    Ok(())
}

fn pipe_operator(operator: &PipeOperator) -> Result<()> {
    match operator {
        PipeOperator::Limit { .. }
        | PipeOperator::Where { .. }
        | PipeOperator::Select { .. }
        | PipeOperator::Extend { .. }
        | PipeOperator::As { .. }
        | PipeOperator::Union { .. }
        | PipeOperator::Intersect { .. }
        | PipeOperator::Except { .. } => Ok(()),
        PipeOperator::OrderBy { exprs } => order_keys(exprs),
        PipeOperator::Aggregate { full_table_exprs, group_by_expr } => {
            let is_sorted = full_table_exprs
                .iter()
                .chain(group_by_expr)
                .any(|one| one.order_by.asc.is_some() || one.order_by.nulls_first.is_some());
            refuse(&[(is_sorted, "an order in |> AGGREGATE", "|> ORDER BY behind it")])
        }
        PipeOperator::Join(one) => join(one),
        PipeOperator::Set { .. }
        | PipeOperator::Drop { .. }
        | PipeOperator::TableSample { .. }
        | PipeOperator::Rename { .. }
        | PipeOperator::Call { .. }
        | PipeOperator::Pivot { .. }
        | PipeOperator::Unpivot { .. } => Err(unsupported(format!("|> {operator}"))),
    }
}

pub(super) fn select(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        // Comments.
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    let is_with_modifiers = select_modifiers.as_ref().is_some_and(|modifiers| modifiers.is_any_set());
    refuse(&[
        (is_with_modifiers, "HIGH_PRIORITY, STRAIGHT_JOIN or a word that begins with SQL_", ""),
        (top.is_some(), "this form of TOP", "LIMIT n"),
        (exclude.is_some(), "EXCLUDE behind the SELECT list", "SELECT * EXCLUDE (column)"),
        (into.is_some(), "SELECT ... INTO", "CREATE TABLE t AS SELECT ..."),
        (!lateral_views.is_empty(), "LATERAL VIEW", "CROSS JOIN LATERAL (SELECT unnest(list) AS x)"),
        (prewhere.is_some(), "PREWHERE", "WHERE: conditions are ordered by what they cost"),
        (!connect_by.is_empty(), "CONNECT BY", "WITH RECURSIVE"),
        (!cluster_by.is_empty(), "CLUSTER BY", "ORDER BY"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY", ""),
        (!sort_by.is_empty(), "SORT BY", "ORDER BY"),
        (value_table_mode.is_some(), "SELECT AS STRUCT or AS VALUE", ""),
    ])?;
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    if let Some(modifier) = modifiers.first() {
        let error = unsupported(format!("GROUP BY ... {modifier}"));
        return Err(error.with_hint("GROUP BY ROLLUP (...), CUBE (...) or GROUPING SETS (...)"));
    }
    projection.iter().try_for_each(select_item)?;
    from.iter().try_for_each(joins)
}

fn select_item(item: &SelectItem) -> Result<()> {
    match item {
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } => Ok(()),
        SelectItem::ExprWithAliases { expr: _, aliases: _ } => {
            Err(unsupported("more than one name for a column"))
        }
        SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options) => wildcard(options),
    }
}

pub(super) fn wildcard(options: &WildcardAdditionalOptions) -> Result<()> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude: _,
        opt_except: _,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let replaced: Vec<String> = match opt_replace {
        Some(list) => list.items.iter().map(|item| normalized(&item.column_name)).collect(),
        None => Vec::new(),
    };
    for (place, name) in replaced.iter().enumerate().filter(|(_, name)| *name != NOBODY) {
        let problem = if replaced[..place].contains(name) {
            "REPLACE names it twice"
        } else if left_out(options).any(|left_out| left_out == *name) {
            "EXCLUDE leaves it out and REPLACE names it"
        } else {
            continue;
        };
        return Err(Error::new(ErrorKind::Invalid, format!("column '{name}' behind *: {problem}")));
    }
    refuse(&[
        (opt_ilike.is_some(), "* ILIKE", "name the columns, or leave some out with * EXCLUDE (...)"),
        (opt_rename.is_some(), "* RENAME", "* EXCLUDE (old), old AS new"),
        (opt_alias.is_some(), "a name for *", ""),
    ])
}

pub(super) fn joins(table: &TableWithJoins) -> Result<()> {
    let TableWithJoins { relation, joins } = table;
    // In `a POSITIONAL JOIN b` the word would become the alias of `a`.
    let mut before = relation;
    joins.iter().try_for_each(|one| {
        if let Some(name) = alias_of(before).and_then(|alias| no_alias(alias, KINDS_OF_JOINS)) {
            return Err(unsupported(format!("{name} JOIN")).with_hint(format!("if it is a name: AS {name}")));
        }
        before = &one.relation;
        join(one)
    })
}

fn join(join: &Join) -> Result<()> {
    let Join { relation: _, global, join_operator } = join;
    refuse(&[(*global, "GLOBAL JOIN", "")])?;
    let needs_condition = |constraint: &JoinConstraint, name: &str| match constraint {
        JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural => Ok(()),
        JoinConstraint::None => {
            Err(Error::new(ErrorKind::Syntax, format!("syntax error: {name} needs ON, USING or NATURAL")))
        }
    };
    match join_operator {
        JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(JoinConstraint::None) => {
            Ok(())
        }
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            needs_condition_unless_lateral(join, constraint, needs_condition, "LEFT JOIN")
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            needs_condition(constraint, "RIGHT JOIN")
        }
        JoinOperator::FullOuter(constraint) => needs_condition(constraint, "FULL JOIN"),
        JoinOperator::Semi(constraint) | JoinOperator::LeftSemi(constraint) => {
            needs_condition(constraint, "SEMI JOIN")
        }
        JoinOperator::RightSemi(constraint) => needs_condition(constraint, "RIGHT SEMI JOIN"),
        JoinOperator::Anti(constraint) | JoinOperator::LeftAnti(constraint) => {
            needs_condition(constraint, "ANTI JOIN")
        }
        JoinOperator::RightAnti(constraint) => needs_condition(constraint, "RIGHT ANTI JOIN"),
        JoinOperator::CrossJoin(_) => Err(unsupported("a condition of CROSS JOIN").with_hint("JOIN ... ON")),
        JoinOperator::CrossApply => Err(unsupported("CROSS APPLY").with_hint("CROSS JOIN LATERAL")),
        JoinOperator::OuterApply => {
            Err(unsupported("OUTER APPLY").with_hint("LEFT JOIN LATERAL ... ON true"))
        }
        JoinOperator::AsOf { .. } => Err(unsupported("ASOF JOIN")),
        JoinOperator::StraightJoin(_) => Err(unsupported("STRAIGHT_JOIN").with_hint("JOIN")),
        JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
            Err(unsupported("ARRAY JOIN").with_hint("CROSS JOIN unnest(list) AS t(x)"))
        }
    }
}

/// A join with a lateral subquery or list, which mentions the row, needs no condition.
fn needs_condition_unless_lateral(
    join: &Join,
    constraint: &JoinConstraint,
    needs_condition: impl Fn(&JoinConstraint, &str) -> Result<()>,
    name: &str,
) -> Result<()> {
    match &join.relation {
        TableFactor::UNNEST { .. }
        | TableFactor::Derived { lateral: true, .. }
        | TableFactor::Function { lateral: true, .. } => Ok(()),
        _ => needs_condition(constraint, name),
    }
}

pub(super) fn table_factor(factor: &TableFactor) -> Result<()> {
    if let Some(alias) = alias_of(factor) {
        table_alias(alias)?;
    }
    match factor {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            if let Some(TableFunctionArgs { args: _, settings }) = args {
                refuse(&[(settings.is_some(), "SETTINGS of a table function", "")])?;
            }
            refuse(&[
                (!with_hints.is_empty(), "a hint behind a table", "leave it out"),
                (version.is_some(), "this way to name a version", "t AS OF VERSION 3"),
                (*with_ordinality, "WITH ORDINALITY", "row_number() OVER ()"),
                (!partitions.is_empty(), "PARTITION behind a table", "WHERE: other partitions are left out"),
                (json_path.is_some(), "a path into a table", ""),
                (sample.is_some(), "this form of TABLESAMPLE", "TABLESAMPLE BERNOULLI (10)"),
                (!index_hints.is_empty(), "an index hint", "leave it out"),
            ])?;
            match alias.as_ref().and_then(|alias| no_alias(alias, NO_ALIASES)) {
                Some(name) => Err(unsupported(format!("{name} behind a table"))
                    .with_hint(format!("if it is a name: AS {name}"))),
                None => Ok(()),
            }
        }
        TableFactor::Derived { lateral: _, subquery: _, alias: _, sample } => {
            refuse(&[(sample.is_some(), "this form of TABLESAMPLE", "TABLESAMPLE BERNOULLI (10)")])
        }
        TableFactor::TableFunction { expr, alias: _ } => {
            Err(unsupported("TABLE(...)").with_hint(format!("FROM {expr}")))
        }
        TableFactor::Function { lateral: _, name: _, args: _, with_ordinality, alias: _ } => {
            refuse(&[(*with_ordinality, "WITH ORDINALITY", "row_number() OVER ()")])
        }
        TableFactor::UNNEST { alias: _, array_exprs: _, with_offset, with_offset_alias, with_ordinality } => {
            refuse(&[
                (*with_offset || with_offset_alias.is_some(), "WITH OFFSET", "row_number() OVER ()"),
                (*with_ordinality, "WITH ORDINALITY", "row_number() OVER ()"),
            ])
        }
        TableFactor::NestedJoin { table_with_joins, alias: _ } => joins(table_with_joins),
        TableFactor::JsonTable { .. } => Err(unsupported("JSON_TABLE")),
        TableFactor::OpenJsonTable { .. } => Err(unsupported("OPENJSON")),
        TableFactor::Pivot { .. } => {
            Err(unsupported("PIVOT").with_hint("sum(x) FILTER (WHERE kind = 'a') AS a, ..."))
        }
        TableFactor::Unpivot { .. } => {
            Err(unsupported("UNPIVOT").with_hint("UNION ALL of a SELECT for each"))
        }
        TableFactor::MatchRecognize { .. } => Err(unsupported("MATCH_RECOGNIZE")),
        TableFactor::XmlTable { .. } => Err(unsupported("XMLTABLE")),
        TableFactor::SemanticView { .. } => Err(unsupported("SEMANTIC_VIEW")),
    }
}

fn table_alias(alias: &TableAlias) -> Result<()> {
    let TableAlias { explicit: _, name: _, columns, at } = alias;
    refuse(&[(at.is_some(), "AT behind a table's name", "")])?;
    columns.iter().try_for_each(|column| {
        let TableAliasColumnDef { name: _, data_type } = column;
        refuse(&[(data_type.is_some(), "a type for a column of FROM", "CAST the column where it is used")])
    })
}

/// The alias of a relation.
fn alias_of(factor: &TableFactor) -> Option<&TableAlias> {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::JsonTable { alias, .. }
        | TableFactor::OpenJsonTable { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
        | TableFactor::Pivot { alias, .. }
        | TableFactor::Unpivot { alias, .. }
        | TableFactor::MatchRecognize { alias, .. }
        | TableFactor::XmlTable { alias, .. }
        | TableFactor::SemanticView { alias, .. } => alias.as_ref(),
    }
}

/// The alias, if it is one of `words`, without AS and without quotes.
fn no_alias(alias: &TableAlias, words: &[&str]) -> Option<String> {
    let Ident { value, quote_style, span: _ } = &alias.name;
    let is_word = !alias.explicit && quote_style.is_none() && alias.columns.is_empty();
    let word = value.to_ascii_uppercase();
    (is_word && words.contains(&word.as_str())).then_some(word)
}
