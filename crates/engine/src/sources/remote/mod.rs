//! What lies behind URLs: in an object store (S3, GCS, Azure) or on a web server.
//!
//! Requests run on threads of their own; whoever reads waits for them with a plain lock, so it does not matter on which
//! thread that is. Files are fetched in chunks, ahead of who reads them where that is known, and kept in memory and in a
//! directory ([`cache`]).

mod cache;
mod chunks;
mod connect;
mod server;
#[cfg(test)]
pub(crate) mod web;

use std::path::Path;

pub(crate) use cache::{Cache, CacheOptions, random};
pub(crate) use chunks::{CHUNK_BYTES, Chunks, File, Load};
pub(crate) use connect::{Place, of_credentials, place, place_of_file, without_secrets};
pub(crate) use server::{Seen, Server, spawn, wait, wait_unless};

/// Whether `path` is a URL: `s3://bucket/db`, `https://host/db`.
pub(crate) fn is_url(path: &Path) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    path.to_str().and_then(|path| path.split_once("://")).is_some_and(|(scheme, _)| is_scheme(scheme))
}
