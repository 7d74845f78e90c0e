//! Which of several implementations of a loop is fastest, on this CPU and this data.

#![forbid(unsafe_code)]
