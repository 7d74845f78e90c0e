//! `system.machine`: the processor, and how fast it reads memory, which limits queries that do little else.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use keirin_kernels::Level;

use super::SystemTable;
use crate::runtime::machine::Machine;

/// Bytes of a gigabyte.
const GIGABYTE: f64 = 1e9;

/// A table of one row. Reading it measures the machine, once for each process, with a part in sixteen of this limit at most.
pub(crate) fn machine(memory_limit_bytes: usize) -> SystemTable {
    let fields = [
        ("cpu", DataType::Utf8),
        ("cpu_level", DataType::Utf8),
        ("threads", DataType::UInt64),
        ("gb_per_second", DataType::Float64),
        ("thread_gb_per_second", DataType::Float64),
    ];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
    let columns = Arc::new(Schema::new(fields.to_vec()));
    let schema = columns.clone();
    let rows = move || {
        let machine = Machine::this(memory_limit_bytes);
        let number = |number: f64| Arc::new(Float64Array::from(vec![number])) as ArrayRef;
        let values: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![machine.cpu])),
            Arc::new(StringArray::from(vec![Level::best().name()])),
            Arc::new(UInt64Array::from(vec![machine.threads as u64])),
            number(machine.bandwidth / GIGABYTE),
            number(machine.thread_bandwidth / GIGABYTE),
        ];
        Ok(RecordBatch::try_new(schema.clone(), values)?)
    };
    SystemTable { columns: Some(columns), ..SystemTable::new("machine", rows) }
}
