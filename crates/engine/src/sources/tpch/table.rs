//! `tpch('lineitem', 0.01)`: TPC-H tables, generated while they are read.
//!
//! Each partition generates its own range of rows, one batch at a time, so memory does not grow with the
//! scale. All columns of a row come from one sequence of random numbers, so columns that are not requested
//! are generated too and dropped. The first table that is read builds the 300 MB of text from which comments
//! are cut; the process keeps it.

use std::fmt;
use std::iter;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue, Statistics, assert_or_internal_err, plan_err, project_schema};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
    StatisticsArgs,
};
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RecordBatchIterator,
    RegionArrow, SupplierArrow,
};

use super::TABLES;

use crate::sources::leaf::leaf_methods;

/// Fewer rows than this are not worth another partition.
const PARTITION_ROWS_MIN: usize = 10_000;
/// The largest scale of the specification.
const SCALE_MAX: f64 = 100_000.0;
/// Mean of the specification's 1 to 7 lines an order; exactly 4 only in the limit.
const LINES_PER_ORDER: usize = 4;
/// Suppliers of a part: each part is listed with four.
const SUPPLIERS_PER_PART: usize = 4;

/// The table function `tpch(table [, scale])`.
#[derive(Debug)]
pub(crate) struct TpchFunction;

impl TableFunctionImpl for TpchFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (name, scale) = match args.exprs() {
            [name] => (name, 1.0),
            [name, scale] => (name, scale_argument(scale)?),
            other => {
                return plan_err!("tpch(table [, scale]) takes one or two arguments, got {}", other.len());
            }
        };
        let tables = TABLES.join(", ");
        let Some(name) = text_argument(name) else {
            return plan_err!("the first argument of tpch(table [, scale]) is the name of a table: {tables}");
        };
        let Some(table) = Table::from_name(name) else {
            return plan_err!("tpch has no table '{name}', it has {tables}");
        };
        Ok(Arc::new(TpchTable { table, scale }))
    }
}

fn text_argument(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn scale_argument(argument: &Expr) -> Result<f64> {
    let number = match argument {
        Expr::Literal(value, _) if value.data_type().is_numeric() => {
            value.cast_to(&arrow::datatypes::DataType::Float64).ok()
        }
        _ => None,
    };
    match number {
        Some(ScalarValue::Float64(Some(scale))) if scale > 0.0 && scale <= SCALE_MAX => Ok(scale),
        _ => plan_err!(
            "the scale of tpch(table [, scale]) is a number above 0, at most {SCALE_MAX}, got {argument}"
        ),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Customer,
    LineItem,
    Nation,
    Orders,
    Part,
    PartSupp,
    Region,
    Supplier,
}

type Batches = Box<dyn RecordBatchIterator>;

impl Table {
    /// In the order of [`TABLES`].
    const ALL: [Self; 8] = [
        Self::Customer,
        Self::LineItem,
        Self::Nation,
        Self::Orders,
        Self::Part,
        Self::PartSupp,
        Self::Region,
        Self::Supplier,
    ];

    fn from_name(name: &str) -> Option<Self> {
        let index = TABLES.iter().position(|table| table.eq_ignore_ascii_case(name))?;
        Some(Self::ALL[index])
    }

    fn name(self) -> &'static str {
        TABLES[self as usize]
    }

    fn schema(self) -> SchemaRef {
        // The schema does not need the real text, which takes long to build.
        static NO_TEXT: LazyLock<TextPool> =
            LazyLock::new(|| TextPool::new(1, Distributions::static_default()));
        self.batches_with_text(&NO_TEXT, 1.0, 1, 1, 1).schema().clone()
    }

    /// The rows at `scale`: exact except for `lineitem`, whose orders have a random number of lines.
    fn row_count(self, scale: f64) -> Precision<usize> {
        let parts = || PartGenerator::calculate_row_count(scale, 1, 1);
        let count = |rows: i64| usize::try_from(rows).unwrap_or_default();
        match self {
            Self::Customer => Precision::Exact(count(CustomerGenerator::calculate_row_count(scale, 1, 1))),
            Self::LineItem => {
                let orders = count(OrderGenerator::calculate_row_count(scale, 1, 1));
                Precision::Inexact(orders * LINES_PER_ORDER)
            }
            Self::Nation => Precision::Exact(Distributions::static_default().nations().size()),
            Self::Orders => Precision::Exact(count(OrderGenerator::calculate_row_count(scale, 1, 1))),
            Self::Part => Precision::Exact(count(parts())),
            Self::PartSupp => Precision::Exact(count(parts()) * SUPPLIERS_PER_PART),
            Self::Region => Precision::Exact(Distributions::static_default().regions().size()),
            Self::Supplier => Precision::Exact(count(SupplierGenerator::calculate_row_count(scale, 1, 1))),
        }
    }

    /// The batches of range `part` (from 1) of `parts` ranges.
    fn batches(self, scale: f64, part: i32, parts: i32, batch_size: usize) -> Batches {
        self.batches_with_text(TextPool::get_or_init_default(), scale, part, parts, batch_size)
    }

    fn batches_with_text(
        self,
        text: &'static TextPool,
        scale: f64,
        part: i32,
        parts: i32,
        batch_size: usize,
    ) -> Batches {
        let words = Distributions::static_default();
        macro_rules! batches {
            ($arrow:ident, $generator:ident($($argument:expr),*)) => {
                Box::new($arrow::new($generator::new_with_distributions_and_text_pool($($argument),*)).with_batch_size(batch_size))
            };
        }
        match self {
            Self::Customer => batches!(CustomerArrow, CustomerGenerator(scale, part, parts, words, text)),
            Self::LineItem => batches!(LineItemArrow, LineItemGenerator(scale, part, parts, words, text)),
            Self::Nation => batches!(NationArrow, NationGenerator(words, text)),
            Self::Orders => batches!(OrderArrow, OrderGenerator(scale, part, parts, words, text)),
            Self::Part => batches!(PartArrow, PartGenerator(scale, part, parts, words, text)),
            Self::PartSupp => {
                let generator = PartSuppGenerator::new_with_text_pool(scale, part, parts, text);
                Box::new(PartSuppArrow::new(generator).with_batch_size(batch_size))
            }
            Self::Region => batches!(RegionArrow, RegionGenerator(words, text)),
            Self::Supplier => batches!(SupplierArrow, SupplierGenerator(scale, part, parts, words, text)),
        }
    }
}

#[derive(Debug)]
struct TpchTable {
    table: Table,
    scale: f64,
}

#[async_trait]
impl TableProvider for TpchTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.table.row_count(self.scale);
        let worthwhile = rows.get_value().map_or(1, |rows| rows / PARTITION_ROWS_MIN);
        let partitions = state.config().target_partitions().min(worthwhile).max(1);
        let schema = project_schema(&self.table.schema(), projection)?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Arc::new(TpchExec {
            table: self.table,
            scale: self.scale,
            rows,
            projection: projection.cloned(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// Generates a table; each partition generates its range of the rows.
#[derive(Debug)]
struct TpchExec {
    table: Table,
    scale: f64,
    rows: Precision<usize>,
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for TpchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(
            f,
            "TpchExec: table={}, scale={}, columns=[{}]",
            self.table.name(),
            self.scale,
            columns.join(", ")
        )
    }
}

impl ExecutionPlan for TpchExec {
    fn name(&self) -> &str {
        "TpchExec"
    }

    leaf_methods!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties.partitioning.partition_count();
        assert_or_internal_err!(partition < partitions, "TpchExec has no partition {partition}");
        let part = i32::try_from(partition + 1).expect("partitions are as many as threads");
        let parts = i32::try_from(partitions).expect("partitions are as many as threads");
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (table, scale, projection) = (self.table, self.scale, self.projection.clone());
        let batch_size = context.session_config().batch_size();
        let mut batches: Option<Batches> = None;
        let next = move || -> Option<Result<RecordBatch>> {
            let _timer = metrics.elapsed_compute().timer();
            let batches = batches.get_or_insert_with(|| table.batches(scale, part, parts, batch_size));
            let batch = batches.next()?;
            metrics.record_output(batch.num_rows());
            Some(match &projection {
                Some(columns) => batch.project(columns).map_err(Into::into),
                None => Ok(batch),
            })
        };
        let stream = futures::stream::iter(iter::from_fn(next));
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), stream))))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let rows = match args.partition() {
            None => self.rows,
            // The last partition has a few more rows.
            Some(_) => match self.rows.get_value() {
                Some(rows) => Precision::Inexact(rows / self.properties.partitioning.partition_count()),
                None => Precision::Absent,
            },
        };
        Ok(Arc::new(Statistics::new_unknown(&self.schema()).with_num_rows(rows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_names_are_in_the_same_order() {
        for (name, table) in TABLES.iter().zip(Table::ALL) {
            assert_eq!(table.name(), *name);
            let prefix = table.schema().field(0).name().split('_').next().unwrap().to_owned();
            assert!(name.starts_with(&prefix[..1]), "{name} has columns {prefix}_");
        }
    }

    #[test]
    fn parts_together_are_the_whole() {
        let scale = 0.003;
        for table in Table::ALL {
            let rows = |parts: i32| -> usize {
                let batches = (1..=parts).flat_map(|part| table.batches(scale, part, parts, 1000));
                batches.map(|batch| batch.num_rows()).sum()
            };
            let whole = rows(1);
            match table.row_count(scale) {
                Precision::Exact(rows) => assert_eq!(rows, whole, "{}", table.name()),
                estimate => assert!(whole.abs_diff(*estimate.get_value().unwrap()) < whole / 20),
            }
            if !matches!(table, Table::Nation | Table::Region) {
                assert_eq!(rows(7), whole, "{}", table.name());
            }
        }
    }
}
