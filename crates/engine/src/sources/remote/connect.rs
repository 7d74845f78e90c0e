//! URLs as object stores.
//!
//! | URL | what |
//! |---|---|
//! | `s3://bucket/path` | S3 and what speaks its protocol; `AWS_...` in the environment |
//! | `gs://bucket/path` | Google Cloud Storage; `GOOGLE_...` |
//! | `az://container/path`, `abfss://...` | Azure; `AZURE_...` |
//! | `https://host/path`, `http://...` | a web server that knows ranged requests |

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::error::{Error, ErrorKind, Result};

/// Where a database is.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    /// The URL, without passwords.
    pub(crate) shown: String,
    /// The URL, with all that it has.
    pub(crate) asked: String,
    pub(crate) can_list: bool,
}

/// A connection that takes longer fails.
const CONNECT_MAX: &str = "5 seconds";

/// How often one request is tried again when the server refuses; `Server` limits how long that may take.
fn retry() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(2),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(10) }
}

/// The place of a database, or of all files of a bucket.
pub(crate) fn place(text: &str) -> Result<Place> {
    if text.contains(['?', '#']) {
        return Err(invalid(text, "nothing may follow the path"));
    }
    // A database is a directory, with or without a slash behind its name.
    place_of_file(text.trim_end_matches('/'))
}

fn invalid(text: &str, reason: &str) -> Error {
    let message = format!("'{}' is no URL that can be read: {reason}", without_secrets(text));
    Error::new(ErrorKind::Invalid, message)
        .with_hint("s3://bucket/path, gs://bucket/path, az://container/path or https://host/path")
}

/// What says who asks an object store; `None` for a web server.
pub(crate) fn of_credentials(url: &str) -> Option<&'static str> {
    match url.split_once("://")?.0 {
        "s3" | "s3a" => Some(
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment say who asks; \
             AWS_SKIP_SIGNATURE=true reads a public bucket",
        ),
        "gs" => Some(
            "GOOGLE_APPLICATION_CREDENTIALS in the environment names the file of a key; \
             GOOGLE_SKIP_SIGNATURE=true reads a public bucket",
        ),
        "http" | "https" => None,
        _ => Some(
            "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY in the environment say who asks; \
             AZURE_SKIP_SIGNATURE=true reads a public container",
        ),
    }
}

/// As [`place`], of a single file on a web server, whose URL may end with a query.
pub(crate) fn place_of_file(text: &str) -> Result<Place> {
    let invalid = |reason: &str| invalid(text, reason);
    let mut url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
    let is_web = matches!(url.scheme(), "http" | "https");
    if is_web && (!url.username().is_empty() || url.password().is_some()) {
        return Err(invalid("users and passwords are not sent"));
    }
    url.set_fragment(None);
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("it names no host or bucket"));
    }
    let shown = without_secrets(url.as_str()).trim_end_matches('/').to_owned();
    let failed = |error: object_store::Error| {
        let message =
            format!("cannot read '{}': {}", without_secrets(text), super::server::innermost(&error));
        Error::new(ErrorKind::Invalid, message).with_hint(of_credentials(text).unwrap_or_default())
    };
    let prefix = || Path::from_url_path(url.path()).map_err(|error| invalid(&error.to_string()));
    // What the environment says comes after what we think.
    let ours = [(ClientConfigKey::ConnectTimeout, CONNECT_MAX), (ClientConfigKey::Timeout, "1 hour")];
    let environment = |prefix: &'static str| {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        variables
            .filter(move |(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
    };
    // The three builders have the same functions and no trait.
    macro_rules! built {
        ($builder:ty, $key:ident, $variables:literal) => {{
            let mut builder = <$builder>::new();
            for (key, value) in ours {
                builder = builder.with_config($key::Client(key), value);
            }
            for (key, value) in environment($variables) {
                if let Ok(key) = key.parse() {
                    builder = builder.with_config(key, value);
                }
            }
            Arc::new(builder.with_url(url.as_str()).with_retry(retry()).build().map_err(failed)?)
        }};
    }
    let (store, prefix, can_list): (Arc<dyn ObjectStore>, Path, bool) = match url.scheme() {
        "s3" | "s3a" => (built!(AmazonS3Builder, AmazonS3ConfigKey, "AWS_"), prefix()?, true),
        "gs" => (built!(GoogleCloudStorageBuilder, GoogleConfigKey, "GOOGLE_"), prefix()?, true),
        "az" | "azure" | "adl" | "abfs" | "abfss" => {
            (built!(MicrosoftAzureBuilder, AzureConfigKey, "AZURE_"), prefix()?, true)
        }
        "http" | "https" => {
            let mut options = ClientOptions::new().with_allow_http(url.scheme() == "http");
            for (key, value) in ours {
                options = options.with_config(key, value);
            }
            let builder = HttpBuilder::new().with_url(url.as_str()).with_client_options(options);
            (Arc::new(builder.with_retry(retry()).build().map_err(failed)?), Path::default(), false)
        }
        scheme => return Err(invalid(&format!("'{scheme}' is no scheme that is known"))),
    };
    Ok(Place { store, prefix, shown, asked: url.to_string(), can_list })
}

/// A URL without what is only for the server.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // Names in an object store may have these signs.
    let cut = if matches!(scheme, "http" | "https") { rest.split_once(['?', '#']) } else { None };
    let (rest, has_query) = cut.map_or((rest, false), |(rest, _)| (rest, true));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    // Of Azure's URLs, what stands in front of the host is the container.
    let host = match (scheme, authority.rsplit_once('@')) {
        ("http" | "https" | "s3" | "s3a" | "gs", Some((_, host))) => host,
        _ => authority,
    };
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}://{host}{path}{}", if has_query { "?..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_secrets() {
        let cases = [
            ("https://me:secret@host:8080/a/db", "https://host:8080/a/db"),
            ("https://host/db?sig=secret", "https://host/db?..."),
            ("s3://bucket/db", "s3://bucket/db"),
            (
                "abfss://container@account.dfs.core.windows.net/db",
                "abfss://container@account.dfs.core.windows.net/db",
            ),
            ("http://host", "http://host"),
        ];
        for (url, expected) in cases {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[test]
    fn what_is_no_url_of_a_database_is_refused() {
        let cases = [
            ("https://host/db?sig=secret", "nothing may follow the path"),
            ("https://me:secret@host/db", "users and passwords are not sent"),
            ("ftp://host/db", "'ftp' is no scheme that is known"),
            ("s3:///db", "it names no host or bucket"),
            ("https://host:port/db", "invalid port number"),
        ];
        for (url, expected) in cases {
            let error = place(url).err().expect(url).to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_has_a_prefix_in_its_store() {
        let place = place("http://host/a%20b/db/").expect("a URL");
        assert_eq!((place.prefix.as_ref(), place.shown.as_str()), ("", "http://host/a%20b/db"));
        assert!(!place.can_list);
    }
}
