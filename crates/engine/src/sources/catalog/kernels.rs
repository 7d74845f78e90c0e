//! `system.kernels`: which loops race, on what data, and what was learnt of each; `system.kernel_faults`: which were wrong.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::{
    ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use keirin_kernels::Level;
use keirin_race::{Choice, Fault, Races, Standing};

const PICOSECONDS_IN_MILLISECOND: f64 = 1e9;
const PICOSECONDS_IN_NANOSECOND: f64 = 1e3;

/// `system.kernel_faults`: a row for each arm that was wrong.
pub(crate) fn kernel_faults(races: &Races) -> RecordBatch {
    let faults = races.faults();
    let text = |text: fn(&Fault) -> &str| -> ArrayRef {
        Arc::new(faults.iter().map(text).map(Some).collect::<StringArray>())
    };
    let time = |fault: &Fault| {
        let since = fault.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).ok()
    };
    let times: TimestampMicrosecondArray = faults.iter().map(time).collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("time", Arc::new(times.with_timezone("UTC"))),
        ("kernel", text(|fault| &fault.kernel)),
        ("stream", text(|fault| &fault.stream)),
        ("arm", text(|fault| fault.arm)),
        ("detail", text(|fault| &fault.detail)),
    ];
    let columns = columns.map(|(name, values)| (name, values, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

/// A row for each arm of each race, by kernel, class and stream.
#[expect(clippy::cast_precision_loss, reason = "times and shares that people read")]
pub(crate) fn kernels(races: &Races) -> RecordBatch {
    struct Row {
        kernel: String,
        class: String,
        stream: String,
        standing: Standing,
        /// Of the time of all arms.
        share: Option<f64>,
        state: String,
    }
    let mut rows = Vec::new();
    for (kernel, class, stream, race) in races.all() {
        let standings = race.standings();
        let total: u64 = standings.iter().map(|standing| standing.picoseconds).sum();
        let state = match races.choice(&kernel) {
            Choice::Race => "racing".to_owned(),
            Choice::Frozen => "frozen".to_owned(),
            Choice::Forced(arm) => format!("forced: {arm}"),
        };
        rows.extend(standings.into_iter().map(|standing| Row {
            kernel: kernel.clone(),
            class: class.clone(),
            stream: stream.clone(),
            share: (total > 0).then(|| standing.picoseconds as f64 / total as f64),
            state: if standing.is_quarantined { "quarantined".to_owned() } else { state.clone() },
            standing,
        }));
    }
    let text = |text: fn(&Row) -> &str| Arc::new(rows.iter().map(text).map(Some).collect::<StringArray>());
    let count = |count: fn(&Row) -> u64| Arc::new(rows.iter().map(count).map(Some).collect::<UInt64Array>());
    let real = |real: fn(&Row) -> Option<f64>| Arc::new(rows.iter().map(real).collect::<Float64Array>());
    let level = Level::best().name();
    let columns: [(&str, ArrayRef); 11] = [
        ("kernel", text(|row| &row.kernel)),
        ("class", text(|row| &row.class)),
        ("stream", text(|row| &row.stream)),
        ("arm", text(|row| row.standing.arm)),
        ("calls", count(|row| row.standing.calls)),
        ("bytes", count(|row| row.standing.units)),
        ("milliseconds", real(|row| Some(row.standing.picoseconds as f64 / PICOSECONDS_IN_MILLISECOND))),
        (
            "nanoseconds_per_byte",
            real(|row| Some(row.standing.mean_picoseconds_per_unit? / PICOSECONDS_IN_NANOSECOND)),
        ),
        ("share", real(|row| row.share)),
        ("state", text(|row| &row.state)),
        ("cpu_level", Arc::new(StringArray::from(vec![level; rows.len()]))),
    ];
    let columns = columns.map(|(name, values)| (name, values, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}
