//! Tests: the same queries over a table on disk and over the same rows in memory.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Schema, SchemaRef, TimeUnit, UInt64Type};
use arrow::util::pretty::pretty_format_batches;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::AggregateUDF;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use keirin_kernels::aggregate::ExactSum;
use keirin_kernels::{BitBuffer, Level};
use keirin_storage::DeletionVector;
use keirin_storage::schema::SortKey;

use super::ROW_NUMBER;
use super::open::{Columns, OpenTable};
use super::reading::aggregate::AggregateStored;
use super::reading::grouped::GroupStored;
use super::reading::scan::StoredScan;
use super::testing::{Random, TestDatabase};
use super::types::{arrow_schema, stored_field};
use crate::compile::grouping::GroupRows;
use crate::expressions::arithmetic::{CheckedSum, ExactAverage, Extreme};

/// A table on disk whose scan is the one that is tested.
#[derive(Debug)]
struct Provider {
    table: Arc<OpenTable>,
    /// Whether filters come with the call, rather than from the physical optimizer.
    takes_filters: bool,
}

#[async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let answer = match self.takes_filters {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(vec![answer; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = DFSchema::try_from(self.schema())?;
        let filters = filters.iter().map(|filter| state.create_physical_expr(filter.clone(), &schema));
        let (filters, partitions) =
            (filters.collect::<Result<Vec<_>>>()?, state.config().target_partitions());
        Ok(Arc::new(StoredScan::new(self.table.clone(), projection, &filters, limit, partitions)?))
    }
}

fn provider(database: &TestDatabase, table: u64, has_row_numbers: bool, takes_filters: bool) -> Provider {
    let snapshot = database.database.snapshot();
    let table = snapshot.table(table).unwrap();
    let mut schema = arrow_schema(&table.definition);
    if has_row_numbers {
        let number = Arc::new(Field::new(ROW_NUMBER, DataType::UInt64, false));
        let fields = std::iter::once(number).chain(schema.fields().iter().cloned());
        schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    }
    let columns = Columns {
        schema,
        has_row_numbers,
        lengths: &[],
        initial: &HashMap::new(),
        kept: &vec![true; table.parts().len()],
    };
    let table = OpenTable::open(&database.database, None, &snapshot, table, &columns);
    Provider { table: Arc::new(table), takes_filters }
}

fn context(partitions: usize, table: Provider, rows: &[RecordBatch]) -> SessionContext {
    let state = SessionStateBuilder::new_with_default_features()
        .with_physical_optimizer_rule(Arc::new(AggregateStored))
        .with_physical_optimizer_rule(Arc::new(GroupStored))
        .with_physical_optimizer_rule(Arc::new(GroupRows));
    context_of(state, partitions, table, rows)
}

/// With DataFusion's operators alone.
fn reference(partitions: usize, table: Provider, rows: &[RecordBatch]) -> SessionContext {
    context_of(SessionStateBuilder::new_with_default_features(), partitions, table, rows)
}

fn context_of(
    state: SessionStateBuilder,
    partitions: usize,
    table: Provider,
    rows: &[RecordBatch],
) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(8192);
    let context = SessionContext::new_with_state(state.with_config(config).build());
    context.register_udaf(AggregateUDF::new_from_impl(CheckedSum::default()));
    context.register_udaf(AggregateUDF::new_from_impl(ExactAverage::default()));
    context.register_udaf(AggregateUDF::new_from_impl(Extreme::<Min>::default()));
    context.register_udaf(AggregateUDF::new_from_impl(Extreme::<Max>::default()));
    let schema = rows[0].schema();
    context.register_table("disk", Arc::new(table)).unwrap();
    context
        .register_table("memory", Arc::new(MemTable::try_new(schema, vec![rows.to_vec()]).unwrap()))
        .unwrap();
    let small =
        "CREATE TABLE small AS SELECT * FROM (VALUES (3, 'x'), (7, 'y'), (7, 'z'), (-5, 'n')) AS v(k, name)";
    futures::executor::block_on(async { context.sql(small).await.unwrap().collect().await.unwrap() });
    context
}

/// The answer as text, rows sorted unless the query says how.
async fn answer(context: &SessionContext, sql: &str) -> Vec<String> {
    let frame = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches = frame.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut lines: Vec<String> =
        text.lines().skip(3).filter(|line| !line.starts_with('+')).map(str::to_owned).collect();
    if !sql.contains("ORDER BY") {
        lines.sort();
    }
    lines
}

fn fields() -> Fields {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    vec![
        Field::new("id", DataType::Int64, false),
        field("a", DataType::Int32),
        field("b", DataType::Int8),
        field("s", DataType::Utf8View),
        field("f", DataType::Float64),
        field("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
        field("d", DataType::Decimal128(12, 2)),
        field("l", DataType::new_list(DataType::Int16, true)),
        Field::new("k", DataType::UInt8, false),
        Field::new("m", DataType::Int16, false),
    ]
    .into()
}

/// Rows whose `id` counts from `first` and whose other columns are random; `a` grows with it, about.
fn rows(random: &mut Random, first: usize, count: usize) -> RecordBatch {
    let schema = Arc::new(Schema::new(fields()));
    let columns = schema.fields().iter().map(|field| -> arrow::array::ArrayRef {
        match field.name().as_str() {
            "id" => {
                Arc::new((first..first + count).map(|id| i64::try_from(id).unwrap()).collect::<Int64Array>())
            }
            "a" => {
                let mut value = |id: usize| {
                    let value = id / 10 + random.below(50);
                    (!id.is_multiple_of(13)).then(|| i32::try_from(value).unwrap())
                };
                Arc::new((first..first + count).map(&mut value).collect::<arrow::array::Int32Array>())
            }
            _ => {
                // Ten thousand random values, again and again, are random enough and made faster.
                let some = random.array(field.data_type(), count.min(10_000), field.is_nullable());
                let places: UInt64Array =
                    (0..count).map(|_| random.below(some.len().max(1)) as u64).collect();
                arrow::compute::take(&some, &places, None).unwrap()
            }
        }
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
}

/// A table of some parts with deleted rows, and the rows that are left, in order.
fn random_table(random: &mut Random, database: &TestDatabase, part_rows: &[usize]) -> (u64, RecordBatch) {
    let number = database.create("t", &fields());
    let (mut first, mut left) = (0, Vec::new());
    for count in part_rows {
        let batch = rows(random, first, *count);
        first += count;
        database.add_part(number, std::slice::from_ref(&batch));
        let rate = [0, 2, 10, 1000][random.below(4)];
        let kept: Vec<bool> = (0..*count).map(|_| rate == 0 || !random.one_in(rate)).collect();
        delete(database, number, &kept);
        left.push(filter_record_batch(&batch, &kept.into()).unwrap());
    }
    let left = concat_batches(&left[0].schema(), &left).unwrap();
    (number, left)
}

/// Deletes rows of the last part.
fn delete(database: &TestDatabase, table: u64, kept: &[bool]) {
    let snapshot = database.database.snapshot();
    let parts = snapshot.table(table).unwrap().parts().into_iter().cloned().collect::<Vec<_>>();
    let part = parts.last().unwrap();
    let reader = snapshot.open_part(snapshot.table(table).unwrap(), part).unwrap();
    let mut vector = DeletionVector::default();
    for stripe in 0..reader.stripe_count() {
        let rows = reader.stripe(stripe);
        let range = usize::try_from(rows.start).unwrap()..usize::try_from(rows.end).unwrap();
        let deleted: BitBuffer = kept[range].iter().map(|kept| !kept).collect();
        vector.delete(Level::best(), u32::try_from(stripe).unwrap(), deleted.as_bits());
    }
    let mut transaction = database.database.begin().unwrap();
    transaction.delete_rows(table, part.number, &vector).unwrap();
    transaction.commit().unwrap();
}

fn random_condition(random: &mut Random, row_count: usize) -> String {
    let id = random.below(row_count.max(1));
    let number = random.below(40) as i64 - 20;
    match random.below(23) {
        0 => format!("id < {id}"),
        1 => format!("id BETWEEN {id} AND {}", id + 3000),
        2 => format!("a > {}", id / 10),
        3 => format!("b = {number}"),
        4 => format!("b IN ({number}, {}, 7)", number + 3),
        5 => "s LIKE 'a%'".to_owned(),
        6 => "s >= 'b' AND s < 'bß'".to_owned(),
        7 => format!("f > {number}"),
        8 => "f IS NULL".to_owned(),
        9 => format!("t < to_timestamp({number})"),
        10 => format!("d <= {number}.5"),
        11 => format!("(a % 7 = 3 OR b < {number})"),
        12 => "cardinality(l) > 1".to_owned(),
        13 => "s <> ''".to_owned(),
        14 => "s LIKE '%b%'".to_owned(),
        15 => "s NOT LIKE '_a%'".to_owned(),
        16 => "b IS NOT NULL".to_owned(),
        17 => format!("b <> {number}"),
        18 => format!("{number} < d"),
        19 => format!("(b = {number} OR b IS NULL OR b > {})", number + 10),
        20 => format!("m IN ({number})"),
        21 => "(s = 'a' OR s LIKE '%b' OR 'c' <= s)".to_owned(),
        _ => format!("id = {id}"),
    }
}

fn random_query(random: &mut Random, row_count: usize) -> String {
    let conditions: Vec<String> = (0..random.below(4)).map(|_| random_condition(random, row_count)).collect();
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", conditions.join(" AND ")),
    };
    match random.below(21) {
        0 => format!("SELECT * FROM t {condition}"),
        1 => format!("SELECT s, id FROM t {condition}"),
        2 => format!("SELECT count(*) FROM t {condition}"),
        3 => format!("SELECT count(*), count(a), min(a), max(s), sum(b), max(d) FROM t {condition}"),
        4 => format!("SELECT b, count(*), min(s), max(t), min(f), max(f) FROM t {condition} GROUP BY b"),
        5 => format!("SELECT id, l, t FROM t {condition} ORDER BY a DESC NULLS LAST, id LIMIT 20"),
        6 => format!("SELECT t.id, name FROM t JOIN small ON t.b = small.k {condition}"),
        7 => format!("SELECT 1 FROM t {condition}"),
        8 => format!("SELECT avg(id), sum(a), avg(b), sum(d), count(DISTINCT b) FROM t {condition}"),
        9 => {
            let filters = [(); 3].map(|()| random_condition(random, row_count));
            let functions = ["count(*)", "sum(id)", "min(f)"].iter().zip(filters);
            let filtered = functions.map(|(function, filter)| format!("{function} FILTER (WHERE {filter})"));
            format!("SELECT sum(a), {} FROM t {condition}", filtered.collect::<Vec<_>>().join(", "))
        }
        10 => format!("SELECT k, count(*), sum(a), avg(a), count(b), sum(id) FROM t {condition} GROUP BY k"),
        11 => format!("SELECT m, avg(b), sum(b), count(*) FROM t {condition} GROUP BY m"),
        12 => format!("SELECT b, count(a), sum(m), avg(k) FROM t {condition} GROUP BY b"),
        13 => format!("SELECT s, b, t, count(*), sum(d), max(s) FROM t {condition} GROUP BY s, b, t"),
        14 => format!("SELECT DISTINCT d, f FROM t {condition}"),
        15 => {
            format!("SELECT a, f, d, k, m, id, s, count(*) FROM t {condition} GROUP BY a, f, d, k, m, id, s")
        }
        17 => format!("SELECT id, s FROM t {condition} ORDER BY s, id LIMIT 15"),
        18 => format!("SELECT * FROM t {condition} ORDER BY b DESC, s NULLS FIRST, id LIMIT 9"),
        19 => format!("SELECT id, t FROM t {condition} ORDER BY t DESC NULLS LAST, id LIMIT 30"),
        16 => format!("SELECT count(DISTINCT s), count(DISTINCT a % 100) FROM t {condition}"),
        _ => format!("SELECT count(*) FROM (SELECT id FROM t {condition} LIMIT {})", random.below(70_000)),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(future)
}

#[test]
fn queries_answer_as_over_the_same_rows_in_memory() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let database = TestDatabase::new();
        let counts = [vec![70_000, 5], vec![131_073], vec![1, 40_000, 2000], vec![9, 66_000]];
        let counts: Vec<usize> = counts[usize::try_from(seed).unwrap() % 4].clone();
        let (table, left) = random_table(&mut random, &database, &counts);
        block_on(async {
            for _ in 0..2 {
                let table = |random: &mut Random| provider(&database, table, false, random.one_in(2));
                let (partitions, left) = (1 + random.below(4), std::slice::from_ref(&left));
                let context = context(partitions, table(&mut random), left);
                let reference = reference(partitions, table(&mut random), left);
                for _ in 0..12 {
                    let query = random_query(&mut random, counts.iter().sum());
                    let over = |table: &str| query.replace("FROM t ", &format!("FROM {table} AS t "));
                    let (found, expected) =
                        (answer(&context, &over("disk")).await, answer(&reference, &over("memory")).await);
                    let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
                    let counts = (found.len(), expected.len());
                    assert!(found == expected, "{query}: {counts:?} rows, first other {differs:?}");
                }
            }
        });
    }
}

#[test]
fn sums_of_floats_are_exact_whoever_adds_up_which_rows() {
    let database = TestDatabase::new();
    let field = |(name, data_type)| Field::new(name, data_type, name != "x");
    let fields = [("x", DataType::Float64), ("y", DataType::Float64), ("n", DataType::Int64)].map(field);
    let table = database.create("t", &fields.to_vec().into());
    let x = |row: usize| (row * 7919 % 1_000_003) as f64 / 3.0 * [1.0, -1e10, 1e-9][row % 3];
    let y = |row: usize| (!row.is_multiple_of(5)).then(|| x(row + 1));
    // Whole numbers that no float is; in the second part, all have a value.
    let n = |row: usize| {
        (row > 200_000 || !row.is_multiple_of(3)).then(|| 9_007_199_254_740_993 - 5 * row as i64)
    };
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let parts = [0..200_000, 200_000..200_009, 200_009..270_000].map(|rows| {
        let (x, y) =
            (rows.clone().map(x).collect::<Float64Array>(), rows.clone().map(y).collect::<Float64Array>());
        let n = rows.map(n).collect::<Int64Array>();
        let batch =
            RecordBatch::try_new(schema.clone(), vec![Arc::new(x), Arc::new(y), Arc::new(n)]).unwrap();
        database.add_part(table, std::slice::from_ref(&batch));
        batch
    });
    let exact_sum = |values: &mut dyn Iterator<Item = f64>| {
        let mut sum = ExactSum::default();
        values.for_each(|value| sum.push(value));
        sum
    };
    let exact = |values: &mut dyn Iterator<Item = f64>| exact_sum(values).value();
    let mean = |values: Vec<f64>| exact_sum(&mut values.iter().copied()).mean(values.len() as u64).unwrap();
    let all = || 0..270_000;
    // The whole part of it is a float.
    let average = |sum: i128, count: i128| (sum / count) as f64 + (sum % count) as f64 / count as f64;
    let sums = [
        exact(&mut all().map(x)),
        exact(&mut all().filter_map(y)),
        exact(&mut all().map(x).filter(|x| *x > 0.0)),
        exact(&mut all().map(|row| x(row) * 2.0 + 1.0)),
        mean(all().map(x).collect()),
        mean(all().filter_map(y).collect()),
        average(all().filter_map(n).map(i128::from).sum::<i128>(), all().filter_map(n).count() as i128),
    ];
    let sum_of_cast = exact(&mut all().filter_map(n).map(|n| n as f64));
    let sql = "SELECT sum(x), sum(y), sum(x) FILTER (WHERE x > 0), sum(x * 2 + 1), avg(x), avg(y), avg(n) \
               FROM disk";
    block_on(async {
        for partitions in [1, 2, 3, 5, 2, 3] {
            let context = context(partitions, provider(&database, table, false, false), &parts);
            let (batches, ..) = run(&context, sql).await;
            let found = batches[0].columns().iter();
            let found: Vec<f64> = found.map(|sum| sum.as_primitive::<Float64Type>().value(0)).collect();
            assert_eq!(found.as_slice(), sums, "{partitions} partitions");
            let cast = run(&context, "SELECT sum(CAST(n AS DOUBLE)) FROM disk").await.0;
            assert_eq!(cast[0].column(0).as_primitive::<Float64Type>().value(0), sum_of_cast);
            let none = run(&context, "SELECT sum(x), avg(y) FROM disk WHERE x > 1e300").await.0;
            assert!(none[0].columns().iter().all(|sum| sum.is_null(0)));
        }
    });
}

/// The metrics of the scan of a query, by name.
async fn run(context: &SessionContext, sql: &str) -> (Vec<RecordBatch>, HashMap<String, usize>, String) {
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let batches = collect(plan.clone(), context.task_ctx()).await.unwrap();
    let mut metrics = HashMap::new();
    let mut waiting = vec![plan.clone()];
    while let Some(node) = waiting.pop() {
        if node.is::<StoredScan>() {
            for metric in node.metrics().unwrap().iter() {
                if let MetricValue::Count { name, count } = metric.value() {
                    *metrics.entry(name.to_string()).or_default() += count.value();
                }
            }
        }
        waiting.extend(node.children().into_iter().cloned());
    }
    (batches, metrics, displayable(plan.as_ref()).indent(false).to_string())
}

#[test]
fn only_what_is_needed_is_read() {
    let (mut random, database) = (Random(5), TestDatabase::new());
    let number = database.create("t", &fields());
    let batch = rows(&mut random, 0, 200_000);
    database.add_part(number, std::slice::from_ref(&batch));
    block_on(async {
        let check = async |sql: &str, stripes: usize, pruned: usize| {
            for takes_filters in [false, true] {
                let table = provider(&database, number, false, takes_filters);
                let context = context(1, table, std::slice::from_ref(&batch));
                let (_, metrics, plan) = run(&context, sql).await;
                let count = |name: &str| metrics.get(name).copied().unwrap_or(0);
                assert_eq!(
                    (count("stripes_read"), count("stripes_pruned")),
                    (stripes, pruned),
                    "{sql}\n{plan}"
                );
                assert!(!plan.contains("FilterExec"), "{plan}");
            }
        };
        check("SELECT s FROM disk", 4, 0).await;
        check("SELECT count(*) FROM disk", 0, 0).await;
        check("SELECT min(id), max(id) FROM disk", 0, 0).await;
        check("SELECT s FROM disk WHERE id = 70000", 1, 3).await;
        check("SELECT s FROM disk WHERE id < 65537 AND a IS NOT NULL", 2, 2).await;
        check("SELECT s FROM disk WHERE id > 1000000", 0, 4).await;
        check("SELECT s FROM disk LIMIT 5", 1, 0).await;
        // The filter of the top-N excludes what comes behind the first stripe.
        check("SELECT id, s FROM disk ORDER BY id LIMIT 3", 1, 3).await;
        // It begins with the last, where its rows are.
        check("SELECT id, s FROM disk ORDER BY id DESC LIMIT 3", 1, 3).await;
        // That of the join, what is in no other table.
        check("SELECT s FROM disk JOIN small ON disk.id = small.k", 1, 3).await;
    });
}

/// Rows of which some columns have filters or zones: `near` follows `id`, the others are random; each fifth row repeats
/// the one before.
fn rows_with_details(random: &mut Random, first: usize, count: usize) -> RecordBatch {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        field("near", DataType::Int32),
        field("r", DataType::Int64),
        field("d", DataType::Decimal128(38, 2)),
        field("s", DataType::Utf8View),
        field("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ]);
    let mut wide = 0;
    let mut numbers: Vec<Option<i64>> = Vec::new();
    for row in 0..count {
        if row % 5 > 0 {
            wide = random.next().cast_signed() >> 1;
        }
        numbers.push((!random.one_in(10)).then_some(wide));
    }
    let near = |row: usize| i32::try_from(first + row + random.below(300)).unwrap();
    let near: Vec<Option<i32>> = (0..count).map(near).map(Some).collect();
    let decimals = numbers.iter().map(|number| number.map(|number| i128::from(number) << 40));
    let decimals: arrow::array::Decimal128Array = decimals.collect();
    let texts = numbers.iter().map(|number| number.map(|number| format!("text {number:x} ä")));
    let texts: arrow::array::StringViewArray = texts.collect();
    // Within some decades.
    let times = numbers.iter().map(|number| number.map(|number| number >> 12));
    let times: arrow::array::TimestampMicrosecondArray = times.collect();
    let ids: Int64Array = (first..first + count).map(|id| i64::try_from(id).unwrap()).collect();
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(ids),
        Arc::new(arrow::array::Int32Array::from(near)),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()),
        Arc::new(texts),
        Arc::new(times),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

#[test]
fn filters_and_zones_leave_out_rows_that_cannot_pass() {
    let (mut random, database) = (Random(11), TestDatabase::new());
    let mut batches = Vec::new();
    for (first, count) in [(0, 140_000), (140_000, 70_000), (210_000, 3000)] {
        batches.push(rows_with_details(&mut random, first, count));
    }
    let number = database.create("t", batches[0].schema().fields());
    for batch in &batches {
        database.add_part(number, std::slice::from_ref(batch));
    }
    let schema = batches[0].schema();
    let all = concat_batches(&schema, &batches).unwrap();
    // A row in each of the stripes that have one, and what it has.
    let numbers = all.column(2).as_primitive::<arrow::datatypes::Int64Type>().clone();
    let found =
        |row: usize| (row..).find(|row| numbers.is_valid(*row)).map(|row| numbers.value(row)).unwrap();
    let [a, b, c] = [70_000, 200_000, 212_000].map(found);
    block_on(async {
        // Stripes that are read, at most; a few pass a filter by chance.
        let check = async |condition: &str, stripes_max: usize, rows_max: usize| {
            for takes_filters in [false, true] {
                let table = provider(&database, number, false, takes_filters);
                let context = context(2, table, std::slice::from_ref(&all));
                let sql = |table: &str| {
                    let columns = "count(*) AS n, count(r) AS c, min(id) AS a, max(id) AS z, max(s) AS s";
                    format!("SELECT {columns} FROM {table} WHERE {condition}")
                };
                let expected = answer(&context, &sql("memory")).await;
                assert_eq!(answer(&context, &sql("disk")).await, expected, "{condition}");
                let (_, metrics, plan) =
                    run(&context, &format!("SELECT id FROM disk WHERE {condition}")).await;
                let count = |name: &str| metrics.get(name).copied().unwrap_or(0);
                let (read, pruned) = (count("stripes_read"), count("stripes_pruned"));
                assert_eq!(read + pruned, 6, "{condition}\n{plan}");
                assert!(read <= stripes_max, "{condition}: {read} stripes\n{plan}");
                let dropped = count("pushdown_rows_pruned");
                assert!(213_000 - dropped <= rows_max, "{condition}: {dropped} rows dropped");
            }
        };
        // The last part has no details.
        check(&format!("r = {a}"), 3, 10).await;
        check(&format!("r = {b}"), 3, 10).await;
        check(&format!("r = {c}"), 2, 10).await;
        check("r = 12345", 2, 0).await;
        check(&format!("r IN ({a}, {b}, {c}, 5, NULL)"), 4, 20).await;
        check(&format!("r = {a} OR r = {b}"), 4, 20).await;
        check(&format!("r = {a} AND s = 'text {b:x} ä'"), 2, 0).await;
        check(&format!("s = 'text {a:x} ä'"), 3, 10).await;
        check(&format!("s IN ('text {a:x} ä', 'text', '')"), 3, 10).await;
        let (decimal, sign) = ((i128::from(a) << 40).unsigned_abs(), if a < 0 { "-" } else { "" });
        let decimal = format!("'{sign}{}.{:02}'", decimal / 100, decimal % 100);
        check(&format!("d = CAST({decimal} AS DECIMAL(38, 2))"), 3, 10).await;
        check(&format!("t = arrow_cast({}, 'Timestamp(Microsecond, None)')", a >> 12), 3, 10).await;
        // Nothing is left out by these.
        check(&format!("r = {a} OR r IS NULL"), 6, 213_000).await;
        check(&format!("r = {a} OR id = 3"), 6, 213_000).await;
        check(&format!("r <> {a}"), 6, 213_000).await;
        check(&format!("r + 1 = {}", a + 1), 6, 213_000).await;
        check(&format!("CAST(r AS VARCHAR) = '{a}'"), 6, 213_000).await;
        // Bounds leave out stripes, zones rows.
        check("near = 100000", 1, 300).await;
        check("near BETWEEN 100000 AND 100010", 1, 400).await;
        check(&format!("near > 212900 AND r <> {a}"), 1, 500).await;
        check("near < 0", 0, 0).await;
    });
}

#[test]
fn rows_are_numbered_and_found_again_by_their_numbers() {
    let (mut random, database) = (Random(6), TestDatabase::new());
    let (number, left) = random_table(&mut random, &database, &[66_000, 3000]);
    block_on(async {
        let table = provider(&database, number, true, true);
        let context = context(2, table, std::slice::from_ref(&left));
        let sql = "SELECT \"keirin row number\", id FROM disk WHERE b < 5 ORDER BY id";
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let mut count = 0;
        for batch in &batches {
            let numbers = batch.column(0).as_primitive::<UInt64Type>().values();
            let ids = batch.column(1).as_primitive::<arrow::datatypes::Int64Type>().values();
            for (number, id) in numbers.iter().zip(ids) {
                let first = if number >> 32 == 0 { 0 } else { 66_000 };
                assert_eq!(i64::try_from((number & 0xffff_ffff) + first).unwrap(), *id);
            }
            count += batch.num_rows();
        }
        let expected = answer(&context, "SELECT id FROM memory WHERE b < 5").await;
        assert_eq!(count, expected.len());
        assert!(count > 0);
    });
}

#[test]
fn parts_older_than_a_column_have_its_default_and_older_types_are_cast() {
    let database = TestDatabase::new();
    let number = database.create("t", &vec![Field::new("a", DataType::Int32, true)].into());
    let ints = |values: &[Option<i32>]| {
        let array = Arc::new(arrow::array::Int32Array::from(values.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("a", array as _, true)]).unwrap()
    };
    database.add_part(number, &[ints(&[Some(1), None])]);
    let mut transaction = database.database.begin().unwrap();
    let mut definition = (*transaction.state().table(number).unwrap().definition).clone();
    definition.fields[0].data_type =
        stored_field(&Field::new("a", DataType::Utf8View, true)).unwrap().data_type;
    for (name, data_type) in [("b", DataType::Int64), ("c", DataType::Utf8View)] {
        let mut field = stored_field(&Field::new(name, data_type, true)).unwrap();
        field.id = definition.next_field;
        definition.next_field += 1;
        definition.fields.push(field);
    }
    transaction.alter_table(number, definition).unwrap();
    transaction.commit().unwrap();
    let snapshot = database.database.snapshot();
    let table = snapshot.table(number).unwrap();
    let defaults = HashMap::from([(1, ScalarValue::Int64(Some(7)))]);
    let schema = arrow_schema(&table.definition);
    let columns = Columns {
        schema,
        has_row_numbers: false,
        lengths: &[],
        initial: &defaults,
        kept: &vec![true; table.parts().len()],
    };
    let table = OpenTable::open(&database.database, None, &snapshot, table, &columns);
    let table = Provider { table: Arc::new(table), takes_filters: true };
    block_on(async {
        let context = context(1, table, &[ints(&[])]);
        let check = async |condition: &str, expected: &[&str]| {
            let found =
                answer(&context, &format!("SELECT a || '!' AS a, b, c FROM disk WHERE {condition}")).await;
            assert_eq!(found, expected, "{condition}");
        };
        check("b = 7 AND a = '1'", &["| 1! | 7 |   |"]).await;
        check("c IS NULL AND a IS NULL", &["|   | 7 |   |"]).await;
        check("b > 7", &[]).await;
        check("c = 'x'", &[]).await;
    });
}

#[test]
fn a_sorted_part_needs_no_sort() {
    let (mut random, database) = (Random(7), TestDatabase::new());
    let number = database.create("t", &fields());
    let mut transaction = database.database.begin().unwrap();
    let mut definition = (*transaction.state().table(number).unwrap().definition).clone();
    definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: true }];
    transaction.alter_table(number, definition).unwrap();
    transaction.commit().unwrap();
    let batch = rows(&mut random, 0, 140_000);
    database.add_sorted_part(number, std::slice::from_ref(&batch));
    block_on(async {
        let table = provider(&database, number, false, true);
        let context = context(3, table, std::slice::from_ref(&batch));
        let sql = "SELECT id, b FROM disk WHERE b > 0 ORDER BY id NULLS FIRST";
        let (_, _, plan) = run(&context, sql).await;
        assert!(plan.contains("SortPreservingMerge") && !plan.contains("SortExec"), "{plan}");
        let expected = answer(&context, &sql.replace("disk", "memory")).await;
        assert!(answer(&context, sql).await == expected);
    });
}

#[test]
fn sorted_parts_are_merged() {
    let (mut random, database) = (Random(9), TestDatabase::new());
    let number = database.create("t", &fields());
    let mut transaction = database.database.begin().unwrap();
    let mut definition = (*transaction.state().table(number).unwrap().definition).clone();
    definition.keys = vec![SortKey { field: 0, is_descending: false, nulls_first: true }];
    transaction.alter_table(number, definition).unwrap();
    transaction.commit().unwrap();
    // Their ranges overlap, and one of them has several stripes.
    let batches = [(0, 70_000), (40_000, 1000), (60_000, 30_000)];
    let batches = batches.map(|(first, count)| rows(&mut random, first, count));
    for batch in &batches {
        database.add_sorted_part(number, std::slice::from_ref(batch));
    }
    let queries = [
        "SELECT id FROM disk ORDER BY id NULLS FIRST",
        "SELECT id FROM disk ORDER BY id NULLS FIRST LIMIT 10 OFFSET 40010",
        "SELECT -id AS n, id FROM disk WHERE id % 3 = 0 AND b > 0 ORDER BY id NULLS FIRST",
        "SELECT id, row_number() OVER (ORDER BY id NULLS FIRST) AS n FROM disk ORDER BY n",
    ];
    for partitions in [1, 3] {
        block_on(async {
            let table = provider(&database, number, false, true);
            let context = context(partitions, table, &batches);
            for sql in queries {
                let (_, _, plan) = run(&context, sql).await;
                assert!(plan.contains("SortPreservingMerge") && !plan.contains("SortExec"), "{sql}\n{plan}");
                let expected = answer(&context, &sql.replace("disk", "memory")).await;
                assert!(answer(&context, sql).await == expected, "{sql}");
            }
            let twice = "SELECT id FROM disk UNION ALL SELECT id FROM disk ORDER BY id NULLS FIRST LIMIT 5";
            let expected = answer(&context, &twice.replace("disk", "memory")).await;
            assert!(answer(&context, twice).await == expected, "{twice}");
            let (_, _, plan) = run(&context, "SELECT id FROM disk ORDER BY id DESC").await;
            assert!(plan.contains("SortExec"), "{plan}");
        });
    }
    database.add_part(number, &batches);
    block_on(async {
        let context = context(3, provider(&database, number, false, true), &batches);
        let (_, _, plan) = run(&context, queries[0]).await;
        assert!(plan.contains("SortExec"), "a part is not sorted\n{plan}");
    });
}

#[test]
fn a_damaged_block_is_an_error_that_says_where_and_is_remembered() {
    let (mut random, database) = (Random(8), TestDatabase::new());
    let number = database.create("t", &fields());
    let batch = rows(&mut random, 0, 1000);
    database.add_part(number, std::slice::from_ref(&batch));
    let part = database.directory.path().join("tables").join(number.to_string());
    let mut part = std::fs::read_dir(part).unwrap().map(|entry| entry.unwrap().path());
    let part = part.find(|path| path.extension().is_some_and(|end| end == "kpart")).unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[64 + 40] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    block_on(async {
        let table = provider(&database, number, false, true);
        let context = context(1, table, std::slice::from_ref(&batch));
        let error = context.sql("SELECT id FROM disk").await.unwrap().collect().await.unwrap_err();
        let error = crate::error::Error::from(error);
        for word in ["table 't'", "part", "column 'id'", "block 0"] {
            assert!(error.message().contains(word), "{error}");
        }
        assert_eq!(database.database.damage().len(), 1);
        answer(&context, "SELECT count(*), sum(b) FROM disk").await;
    });
}
