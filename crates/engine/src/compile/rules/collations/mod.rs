//! Compares texts by their collations.
//!
//! A collation is a map of texts to keys whose plain bytes compare as it does (see [`keirin_collation`]). So nothing that
//! works on texts knows of collations: this rule has keys compared, joined, grouped and sorted in place of texts, wherever the
//! collation that wins (MySQL's coercibility) is not that of bytes. Where texts themselves are asked for, as those of
//! groups, it is the smallest by bytes of all that the collation takes as the same.
//!
//! Keys of texts that do not end in spaces are the texts, under collations of bytes that pad with spaces. Of columns of
//! tables that is known from the footers of their parts: then there are no keys at all.

mod known;
mod nodes;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Between, Case, InList, InSubquery, ScalarFunction, Sort,
};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, Subquery, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use keirin_collation::{Collation, Keys, PadOrder};

use super::SUBQUERY_PREFIX;
use crate::compile::fast_path;
use crate::expressions::functions::collations::{
    COERCIBILITY, COLLATE, COLLATION, WEIGHT_STRING, folded, folded_pattern, key, pair, weights,
};
use crate::sources::stored;
use known::{Inputs, Known, Who, illegal_mix, is_text};
pub(crate) use known::{bare, named};

/// See the [module](self). The rule runs when types are known.
#[derive(Debug)]
pub(crate) struct Collations;

impl AnalyzerRule for Collations {
    fn name(&self) -> &'static str {
        "collations"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        if !may_collate(&plan, options)? {
            return Ok(plan);
        }
        let (default, order) = fast_path::collation(options);
        let rewriter =
            Rewriter { default, order, outer: RefCell::default(), of_subqueries: RefCell::default() };
        Ok(rewriter.plan(plan)?.plan)
    }
}

/// Whether any text of a plan may be compared by a collation.
pub(super) fn may_collate(plan: &LogicalPlan, options: &ConfigOptions) -> Result<bool> {
    Ok(fast_path::collation(options).0.is_some() || mentions_any(plan)?)
}

/// Whether a table has a column with a collation, or a collation is written or asked for.
fn mentions_any(plan: &LogicalPlan) -> Result<bool> {
    let asks = |expr: &Expr| {
        expr.exists(|expr| {
            Ok(matches!(expr, Expr::ScalarFunction(call)
                if matches!(call.func.name(), COLLATE | COLLATION | COERCIBILITY | WEIGHT_STRING)))
        })
    };
    let mut mentions = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let schema = scan.source.schema();
            mentions |= schema.fields().iter().any(|field| field.metadata().contains_key(stored::COLLATION));
        }
        node.apply_expressions(|expr| {
            mentions |= asks(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if mentions { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(mentions)
}

/// A plan that compares by collations, and what is known of its columns.
struct Collated {
    plan: LogicalPlan,
    known: Vec<Known>,
}

struct Rewriter {
    /// The collation of texts for which none is declared or written, if it is not that of bytes.
    default: Option<Collation>,
    order: PadOrder,
    /// The inputs of the nodes in whose expressions the plan stands, the nearest last.
    outer: RefCell<Vec<Inputs>>,
    /// The first column of each subquery that was rewritten, by the place of its plan, which is kept.
    of_subqueries: RefCell<HashMap<*const LogicalPlan, (Arc<LogicalPlan>, Known)>>,
}

impl Rewriter {
    /// What is known of an expression, of which comparisons may have been rewritten.
    fn known(&self, expr: &Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Known> {
        let known = |expr: &Expr| self.known(expr, inputs, schema);
        let known = match expr {
            Expr::Column(column) => match inputs.column(column) {
                Some(known) => known,
                None => Known::declared(&expr.to_field(schema)?.1),
            },
            Expr::OuterReferenceColumn(field, column) => {
                let outer = self.outer.borrow();
                let known = outer.iter().rev().find_map(|inputs| inputs.column(column));
                known.map_or_else(|| Known::declared(field), Known::untrimmed)
            }
            Expr::Alias(alias) => known(&alias.expr)?,
            Expr::Literal(value, _) if value.is_null() => Known::NULL,
            Expr::Literal(value, _) => scalar_text(value).map_or(Known::OTHER, Known::literal),
            Expr::ScalarFunction(call) if call.func.name() == COLLATE => {
                let name = match call.args.get(1) {
                    Some(Expr::Literal(name, _)) => scalar_text(name).unwrap_or_default(),
                    _ => "",
                };
                let collation = named(name)
                    .map_err(|error| datafusion::error::DataFusionError::Plan(error.to_string()))?;
                Known { who: Who::Written, collation: Some(collation), ..known(&call.args[0])? }
            }
            Expr::ScalarSubquery(Subquery { subquery, .. }) => {
                let rewritten =
                    self.of_subqueries.borrow().get(&Arc::as_ptr(subquery)).map(|(_, known)| *known);
                let known = match rewritten {
                    Some(known) => known,
                    None => self.subquery(subquery, inputs)?.known[0],
                };
                known.untrimmed()
            }
            _ if !is_text(&expr.get_type(schema)?) => Known::OTHER,
            Expr::Case(case) => {
                let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
                self.of_all(results.map(|expr| expr.as_ref()), inputs, schema)?
            }
            other => {
                let mut of_children = Vec::new();
                other.apply_children(|child| {
                    of_children.push(child.clone());
                    Ok(TreeNodeRecursion::Continue)
                })?;
                let of_all = self.of_all(of_children.iter(), inputs, schema)?.untrimmed();
                if of_all.who >= Who::Other { Known { who: Who::Default, ..Known::OTHER } } else { of_all }
            }
        };
        Ok(self.or_default(known))
    }

    fn or_default(&self, known: Known) -> Known {
        if known.who == Who::Default { Known { collation: self.default, ..known } } else { known }
    }

    /// By which collation all of these are compared.
    fn of_all<'a>(
        &self,
        exprs: impl Iterator<Item = &'a Expr>,
        inputs: &Inputs,
        schema: &DFSchemaRef,
    ) -> Result<Known> {
        exprs.map(|expr| self.known(expr, inputs, schema)).try_fold(Known::NULL, |all, one| all.with(one?))
    }

    /// The collation by which these are compared, if they are texts and not simply bytes, with what is known of each.
    fn collation(
        &self,
        exprs: &[&Expr],
        inputs: &Inputs,
        schema: &DFSchemaRef,
    ) -> Result<Option<(Collation, Vec<Known>)>> {
        for expr in exprs {
            let is_null = matches!(expr, Expr::Literal(value, _) if value.is_null());
            if !is_null && !is_text(&expr.get_type(schema)?) {
                return Ok(None);
            }
        }
        let known: Vec<Known> =
            exprs.iter().map(|expr| self.known(expr, inputs, schema)).collect::<Result<_>>()?;
        let all = known.iter().copied().try_fold(Known::NULL, Known::with)?;
        if all.who == Who::Mixed {
            let declared = || known.iter().filter(|known| known.who <= Who::Column);
            let first = declared().next().copied().unwrap_or(all);
            let other = declared().find(|known| known.collation != first.collation).copied().unwrap_or(all);
            return Err(illegal_mix(first, other));
        }
        Ok(self.counts(all).map(|collation| (collation, known)))
    }

    /// A collation by which not all texts are their own keys.
    fn counts(&self, known: Known) -> Option<Collation> {
        known.collation.filter(|collation| !Keys::new(*collation, self.order).identity(true))
    }

    fn key(&self, text: Expr, collation: Collation, known: Known) -> Expr {
        let is_own_key = known.is_trimmed && Keys::new(collation, self.order).identity(false);
        if is_own_key || known.who == Who::Null { text } else { key(text, collation, self.order) }
    }

    /// The plan of a subquery in an expression over these inputs.
    fn subquery(&self, plan: &Arc<LogicalPlan>, inputs: &Inputs) -> Result<Collated> {
        self.outer.borrow_mut().push(inputs.clone());
        let collated = self.plan(plan.as_ref().clone());
        self.outer.borrow_mut().pop();
        collated
    }

    /// The key of an expression, where it is compared by a collation with others of its column.
    fn key_of(&self, expr: &Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Option<Expr>> {
        if is_outer_value(expr) {
            return Ok(None);
        }
        let found = self.collation(&[expr], inputs, schema)?;
        let found = found.map(|(collation, known)| self.key(expr.clone(), collation, known[0]));
        Ok(found.filter(|key| key != expr))
    }

    fn sorts(&self, sorts: Vec<Sort>, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Vec<Sort>> {
        let sort = |sort: Sort| {
            let key = self.key_of(&sort.expr, inputs, schema)?;
            Ok(Sort { expr: key.unwrap_or(sort.expr), ..sort })
        };
        sorts.into_iter().map(sort).collect()
    }

    /// An expression of which all comparisons are by collations, and what is known of it; subqueries in it, too.
    fn expression(&self, expr: Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<(Expr, Known)> {
        let compared = self.compared(expr, inputs, schema)?;
        let known = self.known(&compared, inputs, schema)?.of_column();
        Ok((as_found(compared)?, known))
    }

    /// The key of an expression where it has one, else the expression, of which all comparisons are by collations.
    fn compared_as_key(&self, expr: Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Expr> {
        let compared = self.compared(expr, inputs, schema)?;
        as_found(self.key_of(&compared, inputs, schema)?.unwrap_or(compared))
    }

    /// An expression of which all comparisons are by collations, those still in it that are written.
    fn compared(&self, expr: Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Expr> {
        expr.transform_up(|expr| self.comparison(expr, inputs, schema)).data()
    }

    fn comparison(&self, expr: Expr, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
        let collation = |exprs: &[&Expr]| self.collation(exprs, inputs, schema);
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if compares(op)
                    && !(is_null_safe(op) && (is_outer_value(&left) || is_outer_value(&right))) =>
            {
                let Some((found, known)) = collation(&[&left, &right])? else {
                    return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
                };
                let left = Box::new(self.key(*left, found, known[0]));
                let right = Box::new(self.key(*right, found, known[1]));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let Some((found, known)) = collation(&[&expr, &low, &high])? else {
                    return Ok(Transformed::no(Expr::Between(Between { expr, negated, low, high })));
                };
                let [expr, low, high] = [(expr, known[0]), (low, known[1]), (high, known[2])]
                    .map(|(expr, known)| Box::new(self.key(*expr, found, known)));
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::InList(InList { expr, list, negated }) => {
                let all: Vec<&Expr> = std::iter::once(expr.as_ref()).chain(&list).collect();
                let Some((found, known)) = collation(&all)? else {
                    return Ok(Transformed::no(Expr::InList(InList { expr, list, negated })));
                };
                let expr = Box::new(self.key(*expr, found, known[0]));
                let list =
                    list.into_iter().zip(&known[1..]).map(|(item, known)| self.key(item, found, *known));
                Transformed::yes(Expr::InList(InList { expr, list: list.collect(), negated }))
            }
            Expr::Case(Case { expr: Some(base), when_then_expr, else_expr }) => {
                let all: Vec<&Expr> = std::iter::once(base.as_ref())
                    .chain(when_then_expr.iter().map(|(when, _)| when.as_ref()))
                    .collect();
                let Some((found, known)) = collation(&all)? else {
                    return Ok(Transformed::no(Expr::Case(Case {
                        expr: Some(base),
                        when_then_expr,
                        else_expr,
                    })));
                };
                let branches = when_then_expr.into_iter().zip(&known[1..]);
                let when_then_expr = branches
                    .map(|((when, then), known)| (Box::new(self.key(*when, found, *known)), then))
                    .collect();
                let expr = Some(Box::new(self.key(*base, found, known[0])));
                Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr }))
            }
            Expr::Like(Like { negated, expr, pattern, escape_char, case_insensitive }) => {
                let folding = collation(&[&expr, &pattern])?
                    .filter(|(found, _)| !Keys::new(*found, self.order).fold_is_identity());
                let Some((found, _)) = folding else {
                    let like = Like { negated, expr, pattern, escape_char, case_insensitive };
                    return Ok(Transformed::no(Expr::Like(like)));
                };
                let expr = Box::new(folded(*expr, found));
                let pattern = Box::new(folded_pattern(*pattern, escape_char.or(Some('\\')), found));
                Transformed::yes(Expr::Like(Like {
                    negated,
                    expr,
                    pattern,
                    escape_char: None,
                    case_insensitive,
                }))
            }
            Expr::ScalarFunction(call) => self.call(call, inputs, schema)?,
            Expr::AggregateFunction(call) => self.aggregate(call, inputs, schema)?,
            Expr::WindowFunction(mut call) => {
                let keys = call.params.partition_by.iter().map(|expr| self.key_of(expr, inputs, schema));
                let keys: Vec<Option<Expr>> = keys.collect::<Result<_>>()?;
                let partitions = std::mem::take(&mut call.params.partition_by).into_iter().zip(keys);
                call.params.partition_by = partitions.map(|(expr, key)| key.unwrap_or(expr)).collect();
                call.params.order_by =
                    self.sorts(std::mem::take(&mut call.params.order_by), inputs, schema)?;
                if call.params.distinct
                    && call.fun.name() == "count"
                    && let [text] = &call.params.args[..]
                    && let Some(key) = self.key_of(text, inputs, schema)?
                {
                    call.params.args = vec![key];
                }
                Transformed::yes(Expr::WindowFunction(call))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let Collated { plan, known } = self.subquery(&subquery.subquery, inputs)?;
                let of_expr = self.known(&expr, inputs, schema)?;
                let both = of_expr.with(known[0])?;
                if both.who == Who::Mixed {
                    return Err(illegal_mix(of_expr, known[0]));
                }
                let (plan, expr) = match self.counts(both) {
                    Some(found) if is_text(&expr.get_type(schema)?) => {
                        let plan = nodes::with_first(plan, |first| self.key(first, found, known[0]))?;
                        (plan, Box::new(self.key(*expr, found, of_expr)))
                    }
                    _ => (plan, expr),
                };
                let subquery = subquery.with_plan(Arc::new(plan));
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
            }
            Expr::ScalarSubquery(subquery) => {
                let Collated { plan, known } = self.subquery(&subquery.subquery, inputs)?;
                let plan = Arc::new(plan);
                let first = known.first().copied().unwrap_or(Known::OTHER);
                self.of_subqueries.borrow_mut().insert(Arc::as_ptr(&plan), (plan.clone(), first));
                Transformed::yes(Expr::ScalarSubquery(subquery.with_plan(plan)))
            }
            Expr::Exists(mut exists) => {
                let plan = self.subquery(&exists.subquery.subquery, inputs)?.plan;
                exists.subquery = exists.subquery.with_plan(Arc::new(plan));
                Transformed::yes(Expr::Exists(exists))
            }
            other => Transformed::no(other),
        })
    }

    /// Functions that compare, and those that ask.
    fn call(&self, call: ScalarFunction, inputs: &Inputs, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
        let args: Vec<&Expr> = call.args.iter().collect();
        let name = call.func.name().to_owned();
        match name.as_str() {
            COLLATION | COERCIBILITY | WEIGHT_STRING => {
                let known = self.known(args[0], inputs, schema)?;
                let collation = known.collation.unwrap_or_else(plain);
                let is_null = matches!(args[0], Expr::Literal(value, _) if value.is_null());
                let answer = match name.as_str() {
                    COLLATION => lit(ScalarValue::Utf8View(Some(match known.who {
                        Who::Other | Who::Null => "binary".to_owned(),
                        _ => collation.name().to_owned(),
                    }))),
                    COERCIBILITY => lit(if is_null { Who::Null as i64 } else { known.who as i64 }),
                    _ => weights(args[0].clone(), collation),
                };
                Ok(Transformed::yes(answer))
            }
            "strpos" | "contains" | "starts_with" | "ends_with" | "find_in_set" if args.len() == 2 => {
                let found = self.collation(&args, inputs, schema)?;
                let folding = found.filter(|(found, _)| !Keys::new(*found, self.order).fold_is_identity());
                let Some((found, _)) = folding else {
                    return Ok(Transformed::no(Expr::ScalarFunction(call)));
                };
                let ScalarFunction { func, args } = call;
                let args = args.into_iter().map(|arg| folded(arg, found)).collect();
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
            }
            "greatest" | "least" | "nullif" => {
                let Some((found, known)) = self.collation(&args, inputs, schema)? else {
                    return Ok(Transformed::no(Expr::ScalarFunction(call)));
                };
                let key = |index: usize| self.key(call.args[index].clone(), found, known[index]);
                if name == "nullif" {
                    let null = lit(ScalarValue::try_from(&call.args[0].get_type(schema)?)?);
                    let nullif = when(key(0).eq(key(1)), null).otherwise(call.args[0].clone())?;
                    return Ok(Transformed::yes(nullif));
                }
                // The text whose key wins, the first of several.
                let keys: Vec<Expr> = (0..call.args.len()).map(key).collect();
                let winner =
                    Expr::ScalarFunction(ScalarFunction { func: call.func.clone(), args: keys.clone() });
                let mut pairs = keys.into_iter().zip(call.args);
                let (first, text) = pairs.next().expect("it has arguments");
                let mut case = when(first.eq(winner.clone()), text);
                for (key, text) in pairs {
                    case = case.when(key.eq(winner.clone()), text);
                }
                Ok(Transformed::yes(case.end()?))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        }
    }

    /// Aggregates that compare their argument.
    fn aggregate(
        &self,
        call: AggregateFunction,
        inputs: &Inputs,
        schema: &DFSchemaRef,
    ) -> Result<Transformed<Expr>> {
        let AggregateFunction { func, params } = call;
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
        // What is gathered once is in an order of its own.
        let order_by = if distinct { order_by } else { self.sorts(order_by, inputs, schema)? };
        let key = match &args[..] {
            [text] => self.key_of(text, inputs, schema)?,
            _ => None,
        };
        let again = |func, args, filter, order_by| {
            let params = AggregateFunctionParams { args, distinct, filter, order_by, null_treatment };
            Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
        };
        Ok(match (func.name(), key) {
            ("count", Some(key)) if distinct => again(func, vec![key], filter, order_by),
            ("approx_distinct", Some(key)) => again(func, vec![key], filter, order_by),
            ("min" | "max", Some(_)) => {
                let found = self.collation(&[&args[0]], inputs, schema)?;
                let pairs = args.into_iter().map(|text| match found {
                    Some((collation, _)) => pair(text, collation, self.order),
                    None => text,
                });
                again(func, pairs.collect(), filter, order_by)
            }
            _ => again(func, args, filter, order_by),
        })
    }
}

fn scalar_text(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

/// An expression without the collations that are written in it, when they have had their say.
fn as_found(expr: Expr) -> Result<Expr> {
    let without = expr.transform_down(|expr| match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == COLLATE => {
            Ok(Transformed::yes(call.args.swap_remove(0)))
        }
        other => Ok(Transformed::no(other)),
    });
    without.data()
}

/// The collation of texts for which none was declared.
fn plain() -> Collation {
    Collation::find("utf8mb4_0900_bin").expect("it is a collation")
}

/// Whether a column holds the values of a query further out for which a subquery is computed: these are told apart by their
/// bytes.
fn is_outer_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name.starts_with(SUBQUERY_PREFIX))
}

fn is_null_safe(op: Operator) -> bool {
    matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}
