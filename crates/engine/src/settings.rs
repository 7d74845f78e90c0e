//! Settings: their names, meaning and values.
//!
//! Every setting has a name under `keirin.`, a default that is right for most users, and a description; all
//! of it is visible in `system.settings`. The names also work without the prefix. DataFusion's settings can
//! be changed under `datafusion.`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionState;
use keirin_codecs::blocks::racing_kernels;
use keirin_race::Choice;
use keirin_storage::part::Verify;
use parking_lot::RwLock;

use crate::compile::fast_path::{self, FAST_PATH_OPTION, FastPath, PLAN_CACHE_OPTION};
use crate::compile::rules::collation_named;
use crate::database::{Shared, default_block_cache_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::memory;
use crate::sources::files::ParquetDecoder;
use crate::sources::remote::{Cache, CacheOptions};
use crate::sql::text::nearest;
use crate::sql::types::SessionZone;

/// The prefix of all our settings.
const PREFIX: &str = "keirin.";
/// How races choose: `keirin.kernel.lz4_decode`.
const KERNEL_PREFIX: &str = "kernel.";
const KERNEL_DESCRIPTION: &str = "How the loop is chosen: 'race', 'frozen' as what was learnt says, or the name of one; see system.kernels";
const RACE: &str = "race";
const FROZEN: &str = "frozen";
/// Settings of the planner and its operators, under their own names.
const DATAFUSION_PREFIX: &str = "datafusion.";

/// Access to the settings, some of which belong to the database, some to the session.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) shared: Arc<Shared>,
    /// Weak: the session's catalogue, which its state owns, holds a `Settings` too.
    pub(crate) state: Weak<RwLock<SessionState>>,
}

/// The scope of settings that are fixed when the database is opened.
const READ_ONLY: &str = "read only";
/// The scope of settings that all sessions share.
const DATABASE: &str = "database";
/// The scope of settings that a database directory keeps.
const DIRECTORY: &str = "directory";

struct Setting {
    name: &'static str,
    scope: &'static str,
    description: &'static str,
    get: fn(&Settings) -> String,
    default: fn(&Settings) -> String,
    /// Sets the value from its text; `None` sets the default.
    set: fn(&Settings, Option<&str>) -> std::result::Result<(), String>,
}

const BATCH_ROWS: usize = 8192;
const TIME_ZONE: &str = "+00:00";
/// The name of the zone in data types.
const UTC: &str = "UTC";
const TIME_ZONE_OPTION: &str = "datafusion.execution.time_zone";

fn decoder_name(decoder: ParquetDecoder) -> String {
    let named = ParquetDecoder::ALL.iter().find(|(_, known)| *known == decoder);
    named.map_or_else(String::new, |(name, _)| (*name).to_owned())
}

fn of_session(options: &ConfigOptions) -> &FastPath {
    options.extensions.get::<FastPath>().expect("each session has it")
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "batch_rows",
        scope: "session",
        description: "Rows that operators hand to each other at once",
        get: |settings| settings.options(|options| options.execution.batch_size.to_string()),
        default: |_| BATCH_ROWS.to_string(),
        set: |settings, value| {
            let rows = value.map_or(Ok(BATCH_ROWS), |text| parse_count(text, 1 << 20))?;
            settings.set_option("datafusion.execution.batch_size", &rows.to_string())
        },
    },
    Setting {
        name: "cache_directory",
        scope: DATABASE,
        description: "Where what was read of databases and files behind URLs is kept; processes may share it",
        get: |settings| settings.cache().options().shown_directory(),
        default: |_| CacheOptions::default().shown_directory(),
        set: |settings, value| {
            let given =
                value.map(|value| Some(value.trim()).filter(|value| !value.is_empty()).map(Into::into));
            let directory = given.unwrap_or(CacheOptions::default().directory);
            settings.cache().change(|cache| cache.directory = directory);
            Ok(())
        },
    },
    Setting {
        name: "cache_limit",
        scope: DATABASE,
        description: "Bytes of remote databases and files that are kept in keirin.cache_directory at most, as '4GB'; '0' keeps nothing",
        get: |settings| format_bytes(settings.cache().options().limit_bytes),
        default: |_| format_bytes(CacheOptions::default().limit_bytes),
        set: |settings, value| {
            let bytes = match value.map(str::trim) {
                None => CacheOptions::default().limit_bytes,
                Some("0") => 0,
                Some(value) => memory::parse_bytes(value)? as u64,
            };
            settings.cache().change(|cache| cache.limit_bytes = bytes);
            Ok(())
        },
    },
    Setting {
        name: "collation",
        scope: "session",
        description: "The collation of texts for which none is declared or written: utf8mb4_0900_bin compares bytes; SHOW COLLATION lists all",
        get: |settings| settings.options(|options| of_session(options).collation.clone()),
        default: |_| fast_path::PLAIN.to_owned(),
        set: |settings, value| {
            let name = value.unwrap_or(fast_path::PLAIN);
            let collation = collation_named(name).map_err(|error| error.to_string())?;
            settings.set_option(fast_path::COLLATION_OPTION, collation.name())
        },
    },
    Setting {
        name: "collation_pad_order",
        scope: "session",
        description: "How spaces at the end of texts count, where a collation ignores them: 'tidb' as if they were not there, 'mysql' as if texts ended in any number",
        get: |settings| settings.options(|options| of_session(options).collation_pad_order.clone()),
        default: |_| fast_path::TIDB.to_owned(),
        set: |settings, value| {
            let order = value.unwrap_or(fast_path::TIDB).to_ascii_lowercase();
            if order != fast_path::TIDB && order != fast_path::MYSQL {
                return Err(format!("expected 'tidb' or 'mysql', found '{order}'"));
            }
            settings.set_option(fast_path::PAD_ORDER_OPTION, &order)
        },
    },
    Setting {
        name: "block_cache_limit",
        scope: "database",
        description: "Memory for decoded blocks of tables, as '1GB' or '0' for none; part of memory_limit, and given back to queries that need it",
        get: |settings| memory::format_bytes(settings.shared.store.block_cache.usage().limit_bytes),
        default: |settings| memory::format_bytes(block_cache_bytes(settings)),
        set: |settings, value| {
            let bytes = match value {
                None => block_cache_bytes(settings),
                Some(text) if text.trim() == "0" => 0,
                Some(text) => memory::parse_bytes(text)?,
            };
            settings.shared.store.block_cache.set_limit_bytes(bytes);
            Ok(())
        },
    },
    Setting {
        name: "decimal_literals",
        scope: "session",
        description: "Whether numbers with a point, such as 0.1, are DECIMALs; otherwise they are DOUBLEs",
        get: |settings| settings.options(|options| options.sql_parser.parse_float_as_decimal.to_string()),
        default: |_| true.to_string(),
        set: |settings, value| {
            settings.set_option("datafusion.sql_parser.parse_float_as_decimal", value.unwrap_or("true"))
        },
    },
    Setting {
        name: "fast_path",
        scope: "session",
        description: "Whether Keirin's own operators take over parts of a query; otherwise DataFusion's give the same answer",
        get: |settings| if settings.options(fast_path::is_on) { "on" } else { "off" }.to_owned(),
        default: |_| "on".to_owned(),
        set: |settings, value| settings.set_option(FAST_PATH_OPTION, &parse_switch(value)?.to_string()),
    },
    Setting {
        name: "memory_limit",
        scope: DATABASE,
        description: "Memory that all queries together may use, as '4GB' or '50%' of the machine; beyond it they spill",
        get: |settings| memory::format_bytes(settings.shared.pool.limit_bytes()),
        default: |settings| memory::format_bytes(settings.shared.memory_limit_bytes),
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
            decoder_name(decoder.map_or_else(Default::default, |decoder| *decoder))
        },
        default: |_| decoder_name(ParquetDecoder::default()),
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
        name: "plan_cache",
        scope: "session",
        description: "Whether the plan of a query over tables is kept for when the same text comes again",
        get: |settings| if settings.options(fast_path::keeps_plans) { "on" } else { "off" }.to_owned(),
        default: |_| "on".to_owned(),
        set: |settings, value| settings.set_option(PLAN_CACHE_OPTION, &parse_switch(value)?.to_string()),
    },
    Setting {
        name: "retention",
        scope: DIRECTORY,
        description: "How long AS OF reads older versions of the database, as '1 hour' or '7 days'; their files go when it is over",
        get: |settings| in_words(settings.shared.store.database.snapshot().retention()),
        default: |settings| in_words(settings.shared.store.default_retention()),
        set: |settings, value| {
            let store = &settings.shared.store;
            let retention = value.map_or(Ok(store.default_retention()), parse_duration)?;
            let set = store.alter(|transaction| Ok(transaction.set_retention(retention)?));
            set.map_err(|error| error.message().to_owned())
        },
    },
    Setting {
        name: "temp_directory",
        scope: READ_ONLY,
        description: "Where queries spill to; chosen when the database is opened",
        get: |settings| settings.shared.spill_files.directory().display().to_string(),
        default: |settings| settings.shared.spill_files.directory().display().to_string(),
        set: |_, _| Err("it is chosen when the database is opened (--temp-directory)".to_owned()),
    },
    Setting {
        name: "threads",
        scope: "session",
        description: "Parts that a query is cut into to run at the same time",
        get: |settings| settings.options(|options| options.execution.target_partitions.to_string()),
        default: |settings| settings.shared.threads.to_string(),
        set: |settings, value| {
            let threads = value.map_or(Ok(settings.shared.threads), |text| parse_count(text, 4096))?;
            settings.set_option("datafusion.execution.target_partitions", &threads.to_string())
        },
    },
    Setting {
        name: "time_zone",
        scope: "session",
        description: "Time zone of timestamps WITH TIME ZONE: '+02:00', 'Europe/Berlin'",
        get: |settings| {
            settings.options(|options| {
                options.execution.time_zone.clone().unwrap_or_else(|| TIME_ZONE.to_owned())
            })
        },
        default: |_| TIME_ZONE.to_owned(),
        set: |settings, value| settings.set_option(TIME_ZONE_OPTION, value.unwrap_or(TIME_ZONE)),
    },
    Setting {
        name: "verify_checksums",
        scope: "database",
        description: "When blocks of tables are held against their checksums: 'always', 'once' since the database was opened, or 'never'; CHECK TABLE always does",
        get: |settings| verify_name(settings.shared.store.database.verify()),
        default: |settings| verify_name(settings.shared.store.default_verify()),
        set: |settings, value| {
            let store = &settings.shared.store;
            let verify = value.map_or(Ok(store.default_verify()), |value| {
                let found = VERIFY.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(value.trim()));
                found.map(|(_, verify)| verify).ok_or("it is always, once or never")
            })?;
            store.set_verify(verify);
            Ok(())
        },
    },
];

const VERIFY: [(&str, Verify); 3] =
    [("always", Verify::Always), ("once", Verify::Once), ("never", Verify::Never)];

fn verify_name(verify: Verify) -> String {
    let found = VERIFY.into_iter().find(|(_, known)| *known == verify);
    found.map_or_else(String::new, |(name, _)| name.to_owned())
}

fn block_cache_bytes(settings: &Settings) -> usize {
    default_block_cache_bytes(settings.shared.memory_limit_bytes)
}

impl Settings {
    /// Sets `name`, with or without prefix; `None` restores the default.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown name, [`ErrorKind::Invalid`] for an invalid value.
    pub(crate) fn set(&self, name: &str, value: Option<&str>) -> Result<()> {
        if name.starts_with(DATAFUSION_PREFIX) {
            return self.set_datafusion(name, value);
        }
        let (full_name, outcome) = match find_kernel(name)? {
            Some((kernel, arms)) => {
                (format!("{KERNEL_PREFIX}{kernel}"), self.set_kernel(&kernel, &arms, value))
            }
            None => {
                let setting = find(name)?;
                (setting.name.to_owned(), (setting.set)(self, value))
            }
        };
        outcome.map_err(|reason| {
            let what = value.map_or_else(|| "reset".to_owned(), |value| format!("set to '{value}'"));
            Error::new(ErrorKind::Invalid, format!("{PREFIX}{full_name} cannot be {what}: {reason}"))
        })
    }

    fn set_kernel(
        &self,
        kernel: &str,
        arms: &[&str],
        value: Option<&str>,
    ) -> std::result::Result<(), String> {
        let value = value.unwrap_or(RACE).trim();
        let arm = arms.iter().find(|arm| arm.eq_ignore_ascii_case(value));
        let choice = match (value.to_ascii_lowercase().as_str(), arm) {
            (RACE, _) => Choice::Race,
            (FROZEN, _) => Choice::Frozen,
            (_, Some(arm)) => Choice::Forced((*arm).to_owned()),
            (_, None) => return Err(format!("it is {RACE}, {FROZEN}, {}", arms.join(", "))),
        };
        self.shared.races.set_choice(kernel, choice);
        Ok(())
    }

    fn kernel(&self, kernel: &str) -> String {
        match self.shared.races.choice(kernel) {
            Choice::Race => RACE.to_owned(),
            Choice::Frozen => FROZEN.to_owned(),
            Choice::Forced(arm) => arm,
        }
    }

    /// Restores the defaults of all settings, except those that are read-only or kept in the directory.
    pub(crate) fn reset_all(&self) -> Result<()> {
        let is_kept = |setting: &&Setting| [READ_ONLY, DIRECTORY].contains(&setting.scope);
        let is_absent = |setting: &&Setting| (setting.default)(self).is_empty();
        let mut settings = SETTINGS.iter().filter(|setting| !is_kept(setting) && !is_absent(setting));
        settings.try_for_each(|setting| self.set(setting.name, None))?;
        racing_kernels().iter().for_each(|(kernel, _)| self.shared.races.set_choice(kernel, Choice::Race));
        Ok(())
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
        Ok(match find_kernel(name)? {
            Some((kernel, _)) => self.kernel(&kernel),
            None => (find(name)?.get)(self),
        })
    }

    /// All settings, as `system.settings` shows them.
    pub(crate) fn batch(&self) -> RecordBatch {
        let owned = |setting: &Setting| {
            let [name, value, default] =
                [setting.name.to_owned(), (setting.get)(self), (setting.default)(self)];
            [format!("{PREFIX}{name}"), value, default, setting.scope.into(), setting.description.into()]
        };
        let of_kernel = |(kernel, _): &(String, _)| {
            let name = format!("{PREFIX}{KERNEL_PREFIX}{kernel}");
            [name, self.kernel(kernel), RACE.into(), DATABASE.into(), KERNEL_DESCRIPTION.into()]
        };
        let mut rows: Vec<[String; 5]> =
            SETTINGS.iter().map(owned).chain(racing_kernels().iter().map(of_kernel)).collect();
        rows.sort();
        let names = ["name", "value", "default", "scope", "description"];
        let column = |place: usize| {
            Arc::new(rows.iter().map(|row| Some(&row[place])).collect::<StringArray>()) as ArrayRef
        };
        let columns = names.iter().enumerate().map(|(place, name)| (*name, column(place), false));
        RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
    }

    fn cache(&self) -> &Cache {
        self.shared.remote_files.chunks().cache()
    }

    fn options<T>(&self, read: impl FnOnce(&ConfigOptions) -> T) -> T {
        match self.state.upgrade() {
            Some(state) => read(state.read().config_options()),
            None => read(&ConfigOptions::new()),
        }
    }

    fn set_option(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        let state = self.state.upgrade().ok_or("the session is closed")?;
        let value = if name == TIME_ZONE_OPTION && value.is_empty() { TIME_ZONE } else { value };
        if name == TIME_ZONE_OPTION && value.parse::<Tz>().is_err() {
            return Err(format!("'{value}' is no time zone; '+02:00' and 'Europe/Berlin' are"));
        }
        let mut state = state.write();
        state.config_mut().options_mut().set(name, value).map_err(|error| error.to_string())?;
        if name == TIME_ZONE_OPTION
            && let Some(zone) = state.config().get_extension::<SessionZone>()
        {
            zone.set(if value == TIME_ZONE { UTC } else { value });
        }
        Ok(())
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

fn format_bytes(bytes: u64) -> String {
    memory::format_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn find(name: &str) -> Result<&'static Setting> {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(bare)).ok_or_else(|| unknown(name))
}

/// The kernel that a setting is about, and its arms.
fn find_kernel(name: &str) -> Result<Option<(String, Vec<&'static str>)>> {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_lowercase();
    let Some(kernel) = bare.strip_prefix(KERNEL_PREFIX) else { return Ok(None) };
    let known = racing_kernels();
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let missing = || {
        let message = format!("setting '{name}' does not exist");
        Error::new(ErrorKind::NotFound, message).with_hint(format!("what races is {}", names.join(", ")))
    };
    let place = names.iter().position(|known| *known == kernel).ok_or_else(missing)?;
    Ok(known.into_iter().nth(place))
}

fn unknown(name: &str) -> Error {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    let error = Error::new(ErrorKind::NotFound, format!("setting '{name}' does not exist"));
    match nearest(bare, SETTINGS.iter().map(|setting| setting.name)) {
        Some(meant) => error.with_hint(format!("did you mean `{PREFIX}{meant}`?")),
        None => error.with_hint("SHOW SETTINGS lists them all"),
    }
}

/// Units of time, greatest first, and their seconds.
const UNITS: [(&str, u64); 5] =
    [("week", 7 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)];
/// About 100 years.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let divides = |unit: &&(&str, u64)| seconds.is_multiple_of(unit.1) && seconds > 0;
    let (name, unit) = UNITS.iter().find(divides).copied().unwrap_or(("second", 1));
    let count = seconds / unit;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, name) = text.split_at(digits);
    let name = name.trim();
    let unit = UNITS.iter().find(|(unit, _)| name == *unit || name.strip_suffix('s') == Some(unit));
    let seconds = unit.and_then(|(_, unit)| count.parse::<u64>().ok()?.checked_mul(*unit));
    let seconds = seconds.filter(|seconds| *seconds <= SECONDS_MAX);
    seconds.map(Duration::from_secs).ok_or_else(|| "it is a time such as '1 hour' or '7 days'".to_owned())
}

fn parse_switch(text: Option<&str>) -> std::result::Result<bool, String> {
    match text.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        None | Some("on" | "true" | "1") => Ok(true),
        Some("off" | "false" | "0") => Ok(false),
        Some(_) => Err("it is on or off".to_owned()),
    }
}

fn parse_count(text: &str, max: usize) -> std::result::Result<usize, String> {
    match text.trim().parse() {
        Ok(count) if (1..=max).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to {max}")),
    }
}
