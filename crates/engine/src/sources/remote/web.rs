//! A web server for tests: the files of a directory by ranges, slowly or wrongly if that is wanted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Serve,
    Status(u16),
    /// The connection ends in the middle of the answer.
    Cut,
    /// The answer stops in its middle, the connection stays.
    Stall,
    /// Nobody answers.
    Silence,
    /// A range that was not asked for.
    OtherRange,
    /// All of the file, whatever was asked for.
    Whole,
    /// Bytes that are not the file's.
    Wrong,
    /// Another name for the same contents.
    OtherTag,
}

type Choose = dyn Fn(&str) -> Act + Send + Sync;

/// A request: the method, the path in the directory and the range.
pub(crate) type Request = (String, String, Option<(usize, usize)>);

struct Shared {
    root: Mutex<PathBuf>,
    delay: Mutex<Duration>,
    choose: Mutex<Box<Choose>>,
    requests: Mutex<Vec<Request>>,
    running: AtomicUsize,
    running_max: AtomicUsize,
}

/// See the [module](self). It runs until the tests end.
pub(crate) struct Web {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Web {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            root: Mutex::new(root.into()),
            delay: Mutex::default(),
            choose: Mutex::new(Box::new(|_| Act::Serve)),
            requests: Mutex::default(),
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
        });
        let (address, for_all) = (listener.local_addr().unwrap(), shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), for_all.clone());
                // A client that goes away is none of our business.
                thread::spawn(move || shared.serve(&stream).unwrap_or_default());
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/db", self.address)
    }

    pub(crate) fn set_root(&self, root: impl Into<PathBuf>) {
        *self.shared.root.lock() = root.into();
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        *self.shared.delay.lock() = delay;
    }

    pub(crate) fn choose(&self, choose: impl Fn(&str) -> Act + Send + Sync + 'static) {
        *self.shared.choose.lock() = Box::new(choose);
    }

    /// The requests since this was asked the last time.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.requests.lock())
    }

    /// How many requests were answered at the same time, at most.
    pub(crate) fn running_max(&self) -> usize {
        self.shared.running_max.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut lines = BufReader::new(stream);
        loop {
            let mut request = String::new();
            if lines.read_line(&mut request)? == 0 {
                return Ok(());
            }
            let mut range = None;
            loop {
                let mut header = String::new();
                lines.read_line(&mut header)?;
                let header = header.trim().to_ascii_lowercase();
                if let Some((start, end)) =
                    header.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'))
                {
                    range = Some((start.parse().unwrap(), end.parse().unwrap()));
                }
                if header.is_empty() {
                    break;
                }
            }
            let mut words = request.split_whitespace();
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            let path = path.split('?').next().unwrap_or_default();
            let path = path.strip_prefix("/db/").unwrap_or("none").to_owned();
            let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
            self.running_max.fetch_max(running, Ordering::Relaxed);
            self.requests.lock().push((method.to_owned(), path.clone(), range));
            let act = (self.choose.lock())(&path);
            let delay = *self.delay.lock();
            thread::sleep(delay);
            let is_over = self.answer(stream, method == "HEAD", &path, range, act);
            self.running.fetch_sub(1, Ordering::Relaxed);
            if is_over? {
                return Ok(());
            }
        }
    }

    /// Answers, and says whether the connection ends.
    fn answer(
        &self,
        mut stream: &TcpStream,
        is_head: bool,
        path: &str,
        range: Option<(usize, usize)>,
        act: Act,
    ) -> Result<bool> {
        let file = fs::read(self.root.lock().join(path));
        let (status, mut body) = match (act, file) {
            (Act::Silence, _) => {
                let mut rest = [0];
                _ = stream.read(&mut rest)?;
                return Ok(true);
            }
            (Act::Status(status), _) => (format!("{status} Refused"), b"go away".to_vec()),
            (_, Err(_)) => ("404 Not Found".to_owned(), Vec::new()),
            (Act::Whole, Ok(file)) => ("200 OK".to_owned(), file),
            (_, Ok(file)) => match range {
                None => ("200 OK".to_owned(), file),
                Some((start, _)) if start >= file.len() => ("416 Range".to_owned(), Vec::new()),
                Some((start, end)) => {
                    let start = if act == Act::OtherRange { start + 1 } else { start };
                    let (size, end) = (file.len(), (end + 1).min(file.len()));
                    let range = format!("Content-Range: bytes {start}-{}/{size}", end - 1);
                    (format!("206 Partial\r\n{range}"), file[start..end].to_vec())
                }
            },
        };
        if act == Act::Wrong {
            body.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let tag = if act == Act::OtherTag { "other" } else { "one" };
        let head = format!("HTTP/1.1 {status}\r\nETag: \"{tag}\"\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes())?;
        if is_head {
            return Ok(false);
        }
        match act {
            Act::Cut => stream.write_all(&body[..body.len() / 2]).map(|()| true),
            Act::Stall => {
                stream.write_all(&body[..body.len() / 2])?;
                _ = stream.read(&mut [0])?;
                Ok(true)
            }
            _ => stream.write_all(&body).map(|()| false),
        }
    }
}
