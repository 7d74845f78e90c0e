//! TPC-H tables by the crate `tpchgen`, whose bytes are those of the council's own generator.

use std::path::Path;

use parquet::basic::Compression;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RecordBatchIterator,
    RegionArrow, SupplierArrow,
};

use crate::definition::Case;

/// Gives each case its query: `q01` the first, and so on.
pub(crate) fn provide_queries(cases: &mut [Case]) {
    for (case, sql) in cases.iter_mut().zip(keirin::tpch::QUERIES) {
        case.provide(None, sql);
    }
}

pub(super) fn write(table: &str, scale: f64, path: &Path) -> Result<(), String> {
    let batches: Box<dyn RecordBatchIterator> = match table {
        "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        "lineitem" => Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        "nation" => Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1))),
        "orders" => Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        "part" => Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))),
        "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        "region" => Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
        "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
        _ => return Err(format!("no such table: {table}; --data DIR can bring {table}.parquet")),
    };
    super::write_parquet(path, batches.schema().clone(), Compression::SNAPPY, batches)
}

/// The primary key, for engines whose storage is sorted.
pub(super) fn sort(table: &str) -> &'static [&'static str] {
    match table {
        "customer" => &["c_custkey"],
        "lineitem" => &["l_orderkey", "l_linenumber"],
        "nation" => &["n_nationkey"],
        "orders" => &["o_orderkey"],
        "part" => &["p_partkey"],
        "partsupp" => &["ps_partkey", "ps_suppkey"],
        "region" => &["r_regionkey"],
        "supplier" => &["s_suppkey"],
        _ => &[],
    }
}
