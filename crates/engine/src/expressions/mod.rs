//! What expressions compute: functions, arithmetic, casts.

pub(crate) mod arithmetic;
pub(crate) mod casts;
pub(crate) mod functions;
pub(crate) mod uuids;
