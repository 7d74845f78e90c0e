//! A table of one version of a database directory, as DataFusion plans with it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue, Statistics, internal_datafusion_err};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use keirin_storage::schema::Field;
use keirin_storage::{Error as StorageError, Snapshot, Table};
use parking_lot::RwLock;

use super::arrow_schema;
use super::open::{Columns, OpenTable};
use super::reading::lengths::Length;
use super::reading::scan::StoredScan;
use super::store::{Store, initial};
use super::writing::definition::DEFAULT;
use super::writing::partitions::Partitions;
use super::writing::write::{Place, Target, WriteExec};
use crate::error::Result;
use crate::runtime::work::blocking;

/// The column that numbers the rows of a table with row numbers: the place of the part among the parts, then
/// 32 bits with the place of the row in the part.
pub(crate) const ROW_NUMBER: &str = "keirin row number";

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct StoredTable {
    pub(crate) store: Arc<Store>,
    pub(crate) snapshot: Snapshot,
    pub(crate) table: Arc<Table>,
    pub(super) schema: SchemaRef,
    defaults: HashMap<String, Expr>,
    /// By the number of the field, what rows of parts have that are older than it.
    pub(super) initial: HashMap<u32, ScalarValue>,
    /// Whether the first column is [`ROW_NUMBER`].
    pub(super) has_row_numbers: bool,
    /// The last columns of the schema.
    pub(super) lengths: Vec<Length>,
}

impl StoredTable {
    pub(crate) fn new(
        store: &Arc<Store>,
        snapshot: &Snapshot,
        table: &Arc<Table>,
        state: &Weak<RwLock<SessionState>>,
    ) -> Result<Self> {
        let mut defaults = HashMap::new();
        for field in &table.definition.fields {
            if let (Some(text), Some(state)) = (field.properties.get(DEFAULT), state.upgrade()) {
                let state = state.read().clone();
                defaults.insert(field.name.clone(), state.create_logical_expr(text, &DFSchema::empty())?);
            }
        }
        let initial = |field: &Field| Some(initial(field)?.map(|value| (field.id, value)));
        let initial = table.definition.fields.iter().filter_map(initial);
        let initial = initial.collect::<DataFusionResult<_>>()?;
        let schema = arrow_schema(&table.definition);
        let (store, snapshot, table) = (store.clone(), snapshot.clone(), table.clone());
        Ok(Self {
            store,
            snapshot,
            table,
            schema,
            defaults,
            initial,
            has_row_numbers: false,
            lengths: Vec::new(),
        })
    }

    /// The table as it is in another version that has it.
    pub(crate) fn at(&self, snapshot: &Snapshot) -> Self {
        let table = snapshot.table(self.table.number).unwrap_or(&self.table).clone();
        Self { snapshot: snapshot.clone(), table, ..self.clone() }
    }

    /// The same table with [`ROW_NUMBER`] in front.
    pub(crate) fn with_row_numbers(&self) -> Self {
        debug_assert!(self.lengths.is_empty(), "places of columns do not change");
        let number = Arc::new(ArrowField::new(ROW_NUMBER, DataType::UInt64, false));
        let fields = [number].into_iter().chain(self.schema.fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { schema, has_row_numbers: true, ..self.clone() }
    }
}

/// What a table takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    /// Bytes of its files.
    pub(crate) stored: u64,
    /// Bytes of the values in them as they are, deleted ones too.
    pub(crate) values: u64,
}

impl Sizes {
    /// How many times as many bytes the values have, to a tenth.
    pub(crate) fn ratio(self) -> Option<f64> {
        let ratio = self.values as f64 / self.stored as f64;
        (self.values > 0 && self.stored > 0).then(|| (ratio * 10.0).round() / 10.0)
    }
}

impl StoredTable {
    /// Those of the columns of these places in the schema of which the footers of all parts say that no text ends in a space.
    pub(crate) fn without_trailing_spaces(&self, columns: &[usize]) -> Vec<usize> {
        let field_of = |column: &usize| {
            let name = self.schema.field(*column).name();
            let field = self.table.definition.fields.iter().find(|field| field.name == *name)?;
            (!self.initial.contains_key(&field.id)).then_some((*column, field.id))
        };
        let mut left: Vec<(usize, u32)> = columns.iter().filter_map(field_of).collect();
        for part in self.table.parts() {
            if left.is_empty() {
                break;
            }
            let Ok(reader) = self.snapshot.open_part(&self.table, part) else { return Vec::new() };
            let is_trimmed = |column: usize, stripe| {
                let statistics = reader.statistics(column, stripe);
                statistics.flags.has_no_trailing_spaces() || statistics.nulls == statistics.rows
            };
            left.retain(|(_, field)| {
                // In parts that lack it the column is NULL.
                let column = reader.fields().iter().position(|one| one.id == *field);
                column
                    .is_none_or(|column| (0..reader.stripe_count()).all(|stripe| is_trimmed(column, stripe)))
            });
        }
        left.into_iter().map(|(column, _)| column).collect()
    }

    /// From the footers of the parts; one that is damaged or newer counts as nothing.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn sizes(&self) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        for part in self.table.parts() {
            sizes.stored += part.file_bytes + part.deletions.map_or(0, |deletions| deletions.file_bytes);
            let reader = match self.snapshot.open_part(&self.table, part) {
                Err(StorageError::Damaged(_) | StorageError::Newer { .. }) => continue,
                opened => opened?,
            };
            let columns = 0..reader.fields().len();
            let blocks =
                columns.flat_map(|column| (0..reader.stripe_count()).map(move |stripe| (column, stripe)));
            sizes.values += blocks.map(|(column, stripe)| reader.value_bytes(column, stripe)).sum::<u64>();
        }
        Ok(sizes)
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows =
            usize::try_from(self.table.row_count()).map_or(Precision::Absent, Precision::Exact);
        Some(statistics)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        // What a subquery gives is known to the planner alone.
        let is_subquery = |expression: &Expr| {
            matches!(expression, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_))
        };
        let answer = |filter: &&Expr| {
            Ok(match filter.exists(|expression| Ok(is_subquery(expression)))? {
                true => TableProviderFilterPushDown::Unsupported,
                false => TableProviderFilterPushDown::Exact,
            })
        };
        filters.iter().map(answer).collect()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let schema = DFSchema::try_from(self.schema.clone())?;
        let filters = filters.iter().map(|filter| state.create_physical_expr(filter.clone(), &schema));
        let filters = filters.collect::<DataFusionResult<Vec<_>>>()?;
        let parts = self.table.parts();
        let names: Vec<Arc<str>> = parts.iter().map(|part| part.partition.clone()).collect();
        let state_of = state.as_any().downcast_ref::<SessionState>();
        // That it cannot be planned any more is told to who writes.
        let partitions = state_of.and_then(|state| Partitions::of(state, &self.table.definition).ok());
        let kept = partitions.unwrap_or_default().kept(&names, &filters, &self.schema);
        let table = self.clone();
        let open = move || {
            let Self { store, snapshot, table, schema, initial, has_row_numbers, lengths, .. } = table;
            let columns =
                Columns { schema, has_row_numbers, lengths: &lengths, initial: &initial, kept: &kept };
            Ok(OpenTable::open(&store.database, store.blocks(), &snapshot, &table, &columns))
        };
        let open = blocking(open).await;
        let open = open.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let threads = state.config().target_partitions();
        Ok(Arc::new(StoredScan::new(Arc::new(open), projection, &filters, limit, threads)?))
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let definition = self.table.definition.clone();
        let is_overwritten = match operation {
            InsertOp::Append => false,
            InsertOp::Overwrite => true,
            InsertOp::Replace => {
                let text = format!(
                    "REPLACE INTO is not supported for table '{}', which has no unique key",
                    definition.name
                );
                return Err(DataFusionError::NotImplemented(text));
            }
        };
        let place = Place::Existing { table: self.table.clone(), is_overwritten };
        let state = state.as_any().downcast_ref::<SessionState>();
        let state = state.ok_or_else(|| internal_datafusion_err!("a session without a state"))?;
        let partitions = Partitions::of(state, &definition);
        let partitions = partitions.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let target = Target { store: self.store.clone(), definition, partitions, place };
        Ok(Arc::new(WriteExec::new(input, target)?))
    }
}
