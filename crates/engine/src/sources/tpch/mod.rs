//! The TPC-H benchmark: its tables as a table function, its 22 queries, their official answers.
//!
//! `tpch('lineitem', 0.01)` generates a table while it is read, at any scale (1 is about 1 GB as text),
//! always the same rows: those of the TPC's own generator. [`QUERIES`] are the queries of the TPC-H
//! specification 3.0.1, section 2.4, with the validation parameters; they expect tables named as in
//! [`TABLES`]. [`check_answer`] compares an answer with the official one.
//!
//! Good for demonstrations, tests and benchmarks; the results are no TPC results.

mod answers;
mod table;

pub use answers::check_answer;
pub(crate) use table::TpchFunction;

/// The eight tables, in alphabetical order.
pub const TABLES: [&str; 8] =
    ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];

macro_rules! queries {
    ($($number:literal: $title:literal),* $(,)?) => {
        /// The 22 queries, in order; query 1 is at index 0.
        pub const QUERIES: [&str; 22] = [$(include_str!(concat!("queries/q", $number, ".sql"))),*];

        /// The specification's name of each query, in order.
        pub const TITLES: [&str; 22] = [$($title),*];
    };
}

queries! {
    "01": "Pricing Summary Report",
    "02": "Minimum Cost Supplier",
    "03": "Shipping Priority",
    "04": "Order Priority Checking",
    "05": "Local Supplier Volume",
    "06": "Forecasting Revenue Change",
    "07": "Volume Shipping",
    "08": "National Market Share",
    "09": "Product Type Profit Measure",
    "10": "Returned Item Reporting",
    "11": "Important Stock Identification",
    "12": "Shipping Modes and Order Priority",
    "13": "Customer Distribution",
    "14": "Promotion Effect",
    "15": "Top Supplier",
    "16": "Parts/Supplier Relationship",
    "17": "Small-Quantity-Order Revenue",
    "18": "Large Volume Customer",
    "19": "Discounted Revenue",
    "20": "Potential Part Promotion",
    "21": "Suppliers Who Kept Orders Waiting",
    "22": "Global Sales Opportunity",
}
