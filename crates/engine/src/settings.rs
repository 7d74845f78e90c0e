//! Settings: what can be set, what it means, what it is.
//!
//! Every setting has a name under `keirin.`, a default that is right for most, and a description; all of
//! it is visible in `system.settings`. The names work without the prefix too. What DataFusion can be
//! told stays reachable under `datafusion.`.

use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionState;
use parking_lot::RwLock;

use crate::database::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::files::ParquetDecoder;
use crate::memory;
use crate::text::nearest;

/// The prefix of all our settings.
const PREFIX: &str = "keirin.";
/// Settings of the planner and its operators, under their own names.
const DATAFUSION_PREFIX: &str = "datafusion.";

/// Where settings live: some are the database's, some the session's.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) shared: Arc<Shared>,
    /// Weak: the session's catalogue, which its state owns, holds settings too.
    pub(crate) state: Weak<RwLock<SessionState>>,
}

/// The scope of settings that are fixed when the database is opened.
const READ_ONLY: &str = "read only";

struct Setting {
    name: &'static str,
    scope: &'static str,
    description: &'static str,
    get: fn(&Settings) -> String,
    /// The value's text; `None` means the default.
    set: fn(&Settings, Option<&str>) -> std::result::Result<(), String>,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "batch_rows",
        scope: "session",
        description: "Rows that operators hand to each other at once",
        get: |settings| settings.options(|options| options.execution.batch_size.to_string()),
        set: |settings, value| {
            let rows = value.map_or(Ok(8192), |text| parse_count(text, 1 << 20))?;
            settings.set_option("datafusion.execution.batch_size", &rows.to_string())
        },
    },
    Setting {
        name: "memory_limit",
        scope: "database",
        description: "Memory that all queries together may use, as '4GB' or '50%' of the machine; beyond it they spill",
        get: |settings| memory::format_bytes(settings.shared.pool.limit_bytes()),
        set: |settings, value| {
            let bytes = value.map_or(Ok(settings.shared.memory_limit_bytes), memory::parse_bytes)?;
            settings.shared.pool.set_limit_bytes(bytes);
            Ok(())
        },
    },
    Setting {
        name: "parquet_decoder",
        scope: "session",
        description: "Who decompresses the pages of Parquet files: 'keirin', by loops that race, or the library 'parquet'",
        get: |settings| {
            let decoder = settings.state.upgrade().and_then(|state| state.read().config().get_extension());
            let decoder: ParquetDecoder = decoder.map_or_else(Default::default, |decoder| *decoder);
            let named = ParquetDecoder::ALL.iter().find(|(_, known)| *known == decoder);
            named.map_or_else(String::new, |(name, _)| (*name).to_owned())
        },
        set: |settings, value| {
            let decoder = value.map_or(Ok(ParquetDecoder::default()), |value| {
                let found = ParquetDecoder::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
                found.map(|(_, decoder)| *decoder).ok_or("it is keirin or parquet")
            })?;
            let state = settings.state.upgrade().ok_or("the session is closed")?;
            state.write().config_mut().set_extension(Arc::new(decoder));
            Ok(())
        },
    },
    Setting {
        name: "temp_directory",
        scope: READ_ONLY,
        description: "Where queries spill to; chosen when the database is opened",
        get: |settings| settings.shared.spill_directory().display().to_string(),
        set: |_, _| Err("it is chosen when the database is opened (--temp-directory)".to_owned()),
    },
    Setting {
        name: "threads",
        scope: "session",
        description: "Parts that a query is cut into to run at the same time",
        get: |settings| settings.options(|options| options.execution.target_partitions.to_string()),
        set: |settings, value| {
            let threads = value.map_or(Ok(settings.shared.threads), |text| parse_count(text, 4096))?;
            settings.set_option("datafusion.execution.target_partitions", &threads.to_string())
        },
    },
    Setting {
        name: "time_zone",
        scope: "session",
        description: "Time zone of now() and of timestamps WITH TIME ZONE: '+02:00', 'Europe/Berlin'",
        get: |settings| settings.options(|options| options.execution.time_zone.clone().unwrap_or_default()),
        set: |settings, value| {
            settings.set_option("datafusion.execution.time_zone", value.unwrap_or("+00:00"))
        },
    },
];

impl Settings {
    /// Sets `name`, with or without prefix; `None` gives back the default.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown name, [`ErrorKind::Invalid`] for a value that is no good.
    pub(crate) fn set(&self, name: &str, value: Option<&str>) -> Result<()> {
        if name.starts_with(DATAFUSION_PREFIX) {
            return self.set_datafusion(name, value);
        }
        let setting = find(name)?;
        (setting.set)(self, value).map_err(|reason| {
            let what = value.map_or_else(|| "reset".to_owned(), |value| format!("set to '{value}'"));
            Error::new(ErrorKind::Invalid, format!("{PREFIX}{} cannot be {what}: {reason}", setting.name))
        })
    }

    /// Gives every setting that can be set its default.
    pub(crate) fn reset_all(&self) -> Result<()> {
        SETTINGS.iter().filter(|setting| setting.scope != READ_ONLY).try_for_each(|s| self.set(s.name, None))
    }

    /// The value of `name`, with or without prefix.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown name.
    pub(crate) fn get(&self, name: &str) -> Result<String> {
        if name.starts_with(DATAFUSION_PREFIX) {
            let entry = self.options(|options| options.entries().into_iter().find(|entry| entry.key == name));
            return entry.map(|entry| entry.value.unwrap_or_default()).ok_or_else(|| unknown(name));
        }
        Ok((find(name)?.get)(self))
    }

    /// All settings, as `system.settings` shows them.
    pub(crate) fn batch(&self) -> RecordBatch {
        let column = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
        let text = |part: fn(&Setting) -> &str| column(SETTINGS.iter().map(|s| part(s).to_owned()).collect());
        let columns = [
            ("name", column(SETTINGS.iter().map(|setting| format!("{PREFIX}{}", setting.name)).collect())),
            ("value", column(SETTINGS.iter().map(|setting| (setting.get)(self)).collect())),
            ("scope", text(|setting| setting.scope)),
            ("description", text(|setting| setting.description)),
        ];
        RecordBatch::try_from_iter(columns).expect("columns of one length")
    }

    fn options<T>(&self, read: impl FnOnce(&ConfigOptions) -> T) -> T {
        match self.state.upgrade() {
            Some(state) => read(state.read().config_options()),
            None => read(&ConfigOptions::new()),
        }
    }

    fn set_option(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        let state = self.state.upgrade().ok_or("the session is closed")?;
        state.write().config_mut().options_mut().set(name, value).map_err(|error| error.to_string())
    }

    fn set_datafusion(&self, name: &str, value: Option<&str>) -> Result<()> {
        let Some(value) = value else {
            let default = ConfigOptions::new().entries().into_iter().find(|entry| entry.key == name);
            let default = default.ok_or_else(|| unknown(name))?.value.unwrap_or_default();
            return self.set_datafusion(name, Some(&default));
        };
        self.set_option(name, value).map_err(|reason| Error::new(ErrorKind::Invalid, reason))
    }
}

fn find(name: &str) -> Result<&'static Setting> {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(bare)).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    let error = Error::new(ErrorKind::NotFound, format!("setting '{name}' does not exist"));
    match nearest(bare, SETTINGS.iter().map(|setting| setting.name)) {
        Some(meant) => error.with_hint(format!("did you mean `{PREFIX}{meant}`?")),
        None => error.with_hint("SHOW SETTINGS lists them all"),
    }
}

fn parse_count(text: &str, max: usize) -> std::result::Result<usize, String> {
    match text.trim().parse() {
        Ok(count) if (1..=max).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to {max}")),
    }
}
