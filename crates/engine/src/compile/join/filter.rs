//! What the probe side learns of the keys of the build side, before it is read.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion_functions_aggregate_common::min_max::{max_batch, min_batch};
use keirin_kernels::join_table::KeySet;
use keirin_kernels::{BitBuffer, Level};
use keirin_operators::packed::PackedKey;

use super::JoinExec;
use super::keys::{JoinKeys, comparable};
use crate::sources::stored::StoredScan;

/// Whether some node of `plan` has this filter.
pub(super) fn is_used(plan: &Arc<dyn ExecutionPlan>, filter: &DynamicFilterPhysicalExpr) -> Result<bool> {
    let id = filter.expression_id();
    let mut is_used = false;
    plan.apply(|node| {
        node.apply_expressions(&mut |expression| {
            is_used |= expression.exists(|part| Ok(id.is_some() && part.expression_id() == id))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if is_used { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_used)
}

/// The filters by which joins and sorts of a plan narrow scans, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Filters(HashMap<u64, Arc<DynamicFilterPhysicalExpr>>);

impl Filters {
    /// Those of `plan`, as they are.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        let mut filters = HashMap::new();
        plan.apply(|node| {
            let join = node.downcast_ref::<JoinExec>();
            let of_node = join.iter().flat_map(|join| join.filters()).cloned().chain(of_sort(node));
            filters.extend(of_node.filter_map(|filter| Some((filter.expression_id()?, filter))));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self(filters))
    }

    /// Whether nobody else narrows an expression.
    pub(crate) fn are_all_of(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
        let is_other = expression.exists(|part| {
            let is_ours = part.expression_id().is_some_and(|id| self.0.contains_key(&id));
            Ok(part.is::<DynamicFilterPhysicalExpr>() && !is_ours)
        })?;
        Ok(!is_other)
    }

    /// The same filters, about which nothing is known yet.
    fn anew(&self) -> Self {
        let anew = self.0.iter().map(|(id, filter)| {
            let keys = filter.children().into_iter().cloned().collect();
            (*id, Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true))))
        });
        Self(anew.collect())
    }

    /// An expression with these in the place of those of the same numbers.
    fn put_into(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let replaced = expression.clone().transform_up(|part| {
            let filter = part.expression_id().and_then(|id| self.0.get(&id));
            Ok(match filter.filter(|_| part.is::<DynamicFilterPhysicalExpr>()) {
                Some(filter) => {
                    let keys = part.children().into_iter().cloned().collect();
                    Transformed::yes(filter.clone().with_new_children(keys)?)
                }
                None => Transformed::no(part),
            })
        });
        replaced.data()
    }
}

/// The filter by which a sort with a LIMIT narrows scans.
fn of_sort(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    let filter = node.downcast_ref::<SortExec>()?.dynamic_expressions_produced().into_iter().next()?;
    Arc::downcast(filter).ok()
}

/// `plan` as if it had never run, with filters of its own in the joins, the sorts and the scans: what another run of it
/// finds is not for this one.
pub(crate) fn with_own_state(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let filters = Filters::of(&plan)?.anew();
    let own = |filter: &Arc<DynamicFilterPhysicalExpr>| filters.0.get(&filter.expression_id()?).cloned();
    let changed = plan.transform_up(|node| {
        let of_sort = of_sort(&node).and_then(|filter| own(&filter));
        let node = node.reset_state()?;
        if let (Some(sort), Some(filter)) = (node.downcast_ref::<SortExec>(), of_sort) {
            let sort = sort.clone().with_dynamic_filter_expr(filter)?;
            return Ok(Transformed::yes(Arc::new(sort) as Arc<dyn ExecutionPlan>));
        }
        if let Some(join) = node.downcast_ref::<JoinExec>() {
            let join = join.with_filters(|filter| own(filter).unwrap_or_else(|| filter.clone()));
            return Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>));
        }
        if let Some(scan) = node.downcast_ref::<StoredScan>().filter(|_| !filters.0.is_empty()) {
            let scan = scan.with_filters(|filter| filters.put_into(filter))?;
            return Ok(Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>));
        }
        Ok(Transformed::yes(node))
    });
    changed.data()
}

/// The least and the greatest values of each key that a thread has seen.
#[derive(Debug, Default)]
pub(super) struct Bounds(Vec<Option<(ScalarValue, ScalarValue)>>);

impl Bounds {
    pub(super) fn add(&mut self, keys: &[ArrayRef]) -> Result<()> {
        self.0.resize(keys.len(), None);
        for (bounds, key) in self.0.iter_mut().zip(keys) {
            // What is the least of floats is a matter of taste where there are NaNs.
            let is_ordered = key.data_type().is_integer()
                || key.data_type().is_temporal()
                || key.data_type().is_decimal()
                || key.data_type().is_string();
            if is_ordered && key.null_count() < key.len() {
                widen(bounds, (min_batch(key)?, max_batch(key)?));
            }
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.0.resize(self.0.len().max(other.0.len()), None);
        for (bounds, other) in self.0.iter_mut().zip(other.0) {
            other.into_iter().for_each(|other| widen(bounds, other));
        }
    }

    /// Those of one key.
    pub(super) fn of(&self, key: usize) -> Self {
        Self(vec![self.0.get(key).cloned().flatten()])
    }

    /// Whether keys are within them.
    fn contain(&self, keys: &[Arc<dyn PhysicalExpr>]) -> Arc<dyn PhysicalExpr> {
        let each = self.0.iter().zip(keys).filter_map(|(bounds, key)| {
            let (least, most) = bounds.as_ref()?;
            let compare = |operator, value: &ScalarValue| {
                Arc::new(BinaryExpr::new(key.clone(), operator, lit(value.clone()))) as Arc<dyn PhysicalExpr>
            };
            Some(if least == most {
                compare(Operator::Eq, least)
            } else {
                and(compare(Operator::GtEq, least), compare(Operator::LtEq, most))
            })
        });
        each.reduce(and).unwrap_or_else(|| lit(true))
    }
}

fn widen(bounds: &mut Option<(ScalarValue, ScalarValue)>, (least, most): (ScalarValue, ScalarValue)) {
    let Some((before_least, before_most)) = bounds else {
        *bounds = Some((least, most));
        return;
    };
    if least < *before_least {
        *before_least = least;
    }
    if most > *before_most {
        *before_most = most;
    }
}

fn and(left: Arc<dyn PhysicalExpr>, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, Operator::And, right))
}

/// What is true of all probe rows that may have a pair. Whoever has statistics asks [`with_bounds`].
pub(super) fn condition<K: PackedKey>(
    keys: &[Arc<dyn PhysicalExpr>],
    form: &JoinKeys,
    bounds: Bounds,
    set: KeySet<K>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(MayMatch {
        keys: keys.to_vec(),
        form: form.clone(),
        bounds: Arc::new(bounds),
        set: Set(Arc::new(set)),
    })
}

/// The same by one of several keys, of which the build side has these.
pub(super) fn key_condition(
    key: &Arc<dyn PhysicalExpr>,
    form: &JoinKeys,
    bounds: Bounds,
    keys: &ArrayRef,
) -> Arc<dyn PhysicalExpr> {
    fn of<K: PackedKey>(
        key: &Arc<dyn PhysicalExpr>,
        form: &JoinKeys,
        bounds: Bounds,
        keys: &ArrayRef,
    ) -> Arc<dyn PhysicalExpr> {
        let set = form.with_numbers::<K, _>(std::slice::from_ref(keys), keys.len(), |numbers, validity| {
            KeySet::of_keys(Level::best(), &numbers, validity.as_ref().map(BitBuffer::as_bits))
        });
        condition(std::slice::from_ref(key), form, bounds, set)
    }
    match form.bytes() {
        4 => of::<u32>(key, form, bounds, keys),
        // Of one key, the number has eight bytes at most: longer ones are hashed.
        _ => of::<u64>(key, form, bounds, keys),
    }
}

/// A condition that is true wherever `filter` is, in words that statistics understand: of keys their bounds.
pub(crate) fn with_bounds(filter: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let snapshot = snapshot_physical_expr(filter.clone())?;
    let bounded = snapshot.transform_up(|part| {
        Ok(match part.downcast_ref::<MayMatch>() {
            Some(may_match) => Transformed::yes(may_match.bounds.contain(&may_match.keys)),
            None => Transformed::no(part),
        })
    });
    bounded.data()
}

/// Whether a key may be one of the build side; not if it has no value.
#[derive(Clone, Debug)]
struct MayMatch {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    form: JoinKeys,
    bounds: Arc<Bounds>,
    set: Set,
}

/// The keys of the build side, whatever their width.
#[derive(Clone, Debug)]
struct Set(Arc<dyn Contains>);

trait Contains: fmt::Debug + Send + Sync {
    fn may_contain(&self, form: &JoinKeys, columns: &[ArrayRef], row_count: usize) -> BitBuffer;
}

impl<K: PackedKey> Contains for KeySet<K> {
    fn may_contain(&self, form: &JoinKeys, columns: &[ArrayRef], row_count: usize) -> BitBuffer {
        let level = Level::best();
        form.with_numbers::<K, _>(columns, row_count, |numbers, validity| {
            let found = Self::may_contain(self, level, &numbers);
            match validity {
                Some(validity) => keirin_kernels::bitmaps::and(level, found.as_bits(), validity.as_bits()),
                None => found,
            }
        })
    }
}

impl MayMatch {
    fn address(&self) -> *const () {
        Arc::as_ptr(&self.set.0).cast()
    }
}

impl PartialEq for MayMatch {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address() && self.keys == other.keys
    }
}

impl Eq for MayMatch {}

impl Hash for MayMatch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
        self.keys.hash(state);
    }
}

impl fmt::Display for MayMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "may_match({})", keys.join(", "))
    }
}

impl PhysicalExpr for MayMatch {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let row_count = batch.num_rows();
        let keys = self.keys.iter().map(|key| Ok(comparable(key.evaluate(batch)?.into_array(row_count)?)));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        let found = self.set.0.may_contain(&self.form, &keys, row_count);
        let found = BooleanBuffer::new(Buffer::from_vec(found.into_words()), 0, row_count);
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(found, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { keys: children, ..self.as_ref().clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
