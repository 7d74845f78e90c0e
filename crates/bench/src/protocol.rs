//! What the runner and an engine say to each other: one JSON object a line.
//!
//! The runner asks on the engine's standard input and waits for one reply on its standard output;
//! `benchmarks/engines/driver.py` describes the same protocol from the other side.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A table as Parquet on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// The columns an engine with sorted storage should sort by; none means as it comes.
    pub(crate) sort: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Starts the engine; `directory` is empty and its own.
    Open {
        form: String,
        threads: usize,
        directory: PathBuf,
    },
    Load {
        table: Table,
    },
    Run {
        sql: String,
    },
    Drop {
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    Opened {
        version: String,
    },
    /// `bytes` is what the table takes on disk, if that is where it is.
    Loaded {
        ns: u64,
        bytes: Option<u64>,
    },
    /// `ns` runs from the SQL text to the whole result in the engine's memory.
    Answer {
        ns: u64,
        columns: Vec<String>,
        rows: Vec<Vec<Value>>,
    },
    Dropped,
    Error {
        message: String,
    },
}

/// The engine's side: answers every request with `handle` until `input` ends.
pub(crate) fn serve(
    input: impl BufRead,
    mut output: impl Write,
    mut handle: impl FnMut(Request) -> Result<Reply, String>,
) -> io::Result<()> {
    for line in input.lines() {
        let reply = serde_json::from_str(&line?)
            .map_err(|error| format!("not a request: {error}"))
            .and_then(&mut handle)
            .unwrap_or_else(|message| Reply::Error { message });
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str) {
        let mut output = Vec::new();
        serve(input.as_bytes(), &mut output, |request| match request {
            Request::Run { sql } if sql == "bad" => Err("no".into()),
            Request::Run { sql } => {
                Ok(Reply::Answer { ns: 7, columns: vec![sql], rows: vec![vec![Value::Null, 1.into()]] })
            }
            Request::Drop { .. } => Ok(Reply::Dropped),
            _ => Ok(Reply::Opened { version: "1".into() }),
        })
        .unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn every_request_gets_one_line() {
        check(
            "{\"do\":\"run\",\"sql\":\"x\"}\n{\"do\":\"drop\",\"name\":\"t\"}\n",
            "{\"reply\":\"answer\",\"ns\":7,\"columns\":[\"x\"],\"rows\":[[null,1]]}\n{\"reply\":\"dropped\"}\n",
        );
        check(
            "{\"do\":\"open\",\"form\":\"f\",\"threads\":1,\"directory\":\"/d\"}",
            "{\"reply\":\"opened\",\"version\":\"1\"}\n",
        );
    }

    #[test]
    fn a_failure_is_a_reply_and_not_the_end() {
        check(
            "{\"do\":\"run\",\"sql\":\"bad\"}\n{\"do\":\"drop\",\"name\":\"t\"}",
            "{\"reply\":\"error\",\"message\":\"no\"}\n{\"reply\":\"dropped\"}\n",
        );
        let mut output = Vec::new();
        serve("gibberish\n".as_bytes(), &mut output, |_| Ok(Reply::Dropped)).unwrap();
        assert!(output.starts_with(b"{\"reply\":\"error\",\"message\":\"not a request"), "{output:?}");
    }

    #[test]
    fn tables_survive_the_trip() {
        let request = Request::Load {
            table: Table { name: "t".into(), file: "/a b.parquet".into(), sort: vec!["x".into()] },
        };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"do":"load","table":{"name":"t","file":"/a b.parquet","sort":["x"]}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    }
}
