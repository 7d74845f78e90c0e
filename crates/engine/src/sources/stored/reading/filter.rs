//! Conditions of a scan, each with what was learnt of it from stripe to stripe.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking, Literal};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use parking_lot::Mutex;

use super::encoded::Condition;
use crate::sources::experience::Experience;

/// What other operators want says nothing before it has been tried.
const UNTRIED: f64 = 0.9;
/// An optional filter through which this share of rows passes is only tried again now and then.
const USELESS: f64 = 0.98;
const TRIED_EVERY: usize = 16;

/// What rows must fulfil: one of the conditions that are joined by AND.
#[derive(Debug)]
pub(super) struct Filter {
    /// In terms of the columns below.
    pub(super) expression: Arc<dyn PhysicalExpr>,
    pub(super) schema: SchemaRef,
    /// The columns' places in the schema of the table.
    pub(super) columns: Vec<usize>,
    /// What storage can say of it, if it can.
    pub(super) condition: Option<Condition>,
    /// The same of a filter that other operators narrow.
    pub(super) narrowed: Option<Narrowed>,
    /// Whether its columns are wanted anyway.
    pub(super) is_read_anyway: bool,
    /// Whether rows may come through that do not fulfil it.
    pub(super) is_optional: bool,
    /// Whether it can fail for rows that other filters drop.
    pub(super) can_fail: bool,
    experience: Mutex<Experience>,
}

/// A filter that other operators narrow while it is used, and what it was when it was last looked at.
#[derive(Debug)]
pub(super) struct Narrowed {
    /// In terms of the table's schema.
    filter: Arc<dyn PhysicalExpr>,
    current: Mutex<Current>,
}

#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) generation: u64,
    /// Nothing narrowed it yet.
    pub(super) passes_all: bool,
    pub(super) condition: Option<Arc<Condition>>,
    /// Whether rows that fulfil the condition need not fulfil the filter.
    pub(super) is_weaker: bool,
}

impl Narrowed {
    fn new(filter: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        filter.downcast_ref::<DynamicFilterPhysicalExpr>()?;
        let current = Current { generation: 0, passes_all: false, condition: None, is_weaker: false };
        Some(Self { filter: filter.clone(), current: Mutex::new(current) })
    }

    /// What the filter is now, and whether that is news.
    pub(super) fn look(&self, schema: &SchemaRef) -> Result<(Current, bool)> {
        let mut current = self.current.lock();
        let generation = self.filter.snapshot_generation();
        let is_new = generation != current.generation;
        if is_new && let Some(filter) = self.filter.downcast_ref::<DynamicFilterPhysicalExpr>() {
            let filter = filter.current()?;
            let literal = filter.downcast_ref::<Literal>().map(Literal::value);
            let exact = Condition::of(&filter, schema);
            *current = Current {
                generation,
                passes_all: literal == Some(&ScalarValue::Boolean(Some(true))),
                is_weaker: exact.is_none(),
                condition: exact.or_else(|| Condition::implied_by(&filter, schema)).map(Arc::new),
            };
        }
        Ok((current.clone(), is_new))
    }
}

impl Filter {
    /// A condition in terms of `schema`, of which the columns of these places are wanted.
    pub(super) fn new(
        expression: &Arc<dyn PhysicalExpr>,
        schema: &SchemaRef,
        wanted: &[usize],
    ) -> Result<Self> {
        let (condition, narrowed) = (Condition::of(expression, schema), Narrowed::new(expression));
        let mut columns: Vec<usize> =
            collect_columns(expression).iter().map(|column| column.index()).collect();
        columns.sort_unstable();
        let schema = Arc::new(schema.project(&columns)?);
        let is_wide = |data_type: &DataType| !data_type.is_primitive() && *data_type != DataType::Boolean;
        let width: usize =
            schema.fields().iter().map(|field| if is_wide(field.data_type()) { 8 } else { 1 }).sum();
        // Comparisons of numbers first.
        let is_optional = is_dynamic(expression);
        #[expect(clippy::cast_precision_loss, reason = "a guess")]
        let cost = (1 + width) as f64;
        let experience = Experience::guess(cost, if is_optional { UNTRIED } else { 0.5 });
        Ok(Self {
            expression: reassign_expr_columns(expression.clone(), &schema)?,
            schema,
            is_read_anyway: columns.iter().all(|column| wanted.contains(column)),
            columns,
            condition,
            narrowed,
            is_optional,
            can_fail: false,
            experience: Mutex::new(experience),
        })
    }

    /// Says that it is to be asked after the others.
    pub(super) fn can_fail(&mut self) {
        self.can_fail = true;
    }

    /// The columns' places in the schema of the table.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Compares decoded values where the column is decoded for others, too.
    pub(super) fn ask_storage_unless(&mut self, is_decoded: impl Fn(usize) -> bool) {
        let asks = |condition: &Condition| condition.is_about_nulls() || !is_decoded(condition.column);
        self.condition = self.condition.take().filter(asks);
    }

    /// The cost of dropping a row, as far as is known; `None` if the filter is not worth trying now.
    pub(super) fn rank(&self, schema: &SchemaRef) -> Option<f64> {
        let mut experience = self.experience.lock();
        if let Some(Ok((current, is_new))) = self.narrowed.as_ref().map(|narrowed| narrowed.look(schema)) {
            if current.passes_all {
                return None;
            }
            // What it was like says little of what it is like now.
            if is_new {
                experience.narrowed(UNTRIED);
            }
        }
        experience.is_due().then(|| experience.rank())
    }

    /// The share of rows that pass, as far as is known.
    pub(super) fn passing(&self) -> f64 {
        self.experience.lock().passing()
    }

    /// Takes note of rows that were tried.
    pub(super) fn learn(&self, nanoseconds: u128, rows: usize, passed: usize) {
        let mut experience = self.experience.lock();
        experience.add(nanoseconds, rows, passed);
        if self.is_optional && experience.passing() > USELESS {
            experience.rest(TRIED_EVERY - 1);
        }
    }
}

/// Whether other operators narrow the filter while it is used.
pub(crate) fn is_dynamic(expression: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(expression).contains_dynamic_filter()
}
