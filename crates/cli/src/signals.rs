//! Ctrl-C, SIGTERM and SIGHUP.
//!
//! While a statement runs, a signal cancels it; then a script ends, and the shell goes on only after Ctrl-C. A
//! second signal, for a statement that does not stop, ends the program at once. So does a signal while no statement
//! runs, or just as one ends, and a script reports it; the exception is Ctrl-C at the prompt, which the shell's
//! editor reads itself. However the program ends, its temporary files are removed, and the exit code is 128 plus
//! the signal's number, as in shells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::Failure;
use crate::terminal::{self, Terminal};

/// How long the program may take to end after SIGTERM or SIGHUP.
const END_WAIT_MAX: Duration = Duration::from_secs(4);

/// A signal that asks the program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: `kill`, or the machine shuts down.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

impl Signal {
    /// Whether the signal ends even the shell.
    pub(crate) fn ends_shell(self) -> bool {
        self != Self::Interrupt
    }

    pub(crate) fn exit_code(self) -> u8 {
        128 + match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    /// What the signal did to a statement, as a message.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Interrupt => "cancelled",
            Self::Terminate => "cancelled: the program was told to end (SIGTERM)",
            Self::HangUp => "cancelled: the terminal is gone (SIGHUP)",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Signals {
    shared: Arc<Shared>,
    /// Remembers which signals were handled: one between two statements of a script is for the next.
    since: watch::Receiver<Option<Signal>>,
}

#[derive(Debug)]
struct Shared {
    /// The last signal for the running statement.
    sent: watch::Sender<Option<Signal>>,
    is_script: bool,
    /// Whether a statement runs. Locked while a signal is sent, so that none comes between a statement's last check
    /// and its end.
    running: Mutex<bool>,
    /// Signals since the running statement began.
    unheeded: AtomicU32,
}

impl Signals {
    /// Starts to listen on a thread of its own, because the threads of a database come and go with `.open`.
    pub(crate) fn install(interactive: bool) -> Self {
        let shared = Arc::new(Shared {
            sent: watch::channel(None).0,
            is_script: !interactive,
            running: Mutex::new(false),
            unheeded: AtomicU32::new(0),
        });
        let listener = shared.clone();
        // If the listener cannot be started, signals end the program as usual.
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            // Installed before the thread starts, so that an early signal is not missed.
            let signals = runtime.block_on(async { Received::install() });
            std::thread::spawn(move || runtime.block_on(listener.listen(signals)));
        }
        let since = shared.sent.subscribe();
        Self { shared, since }
    }

    /// Marks all signals so far as handled: a new line begins.
    pub(crate) fn forget(&mut self) {
        self.since = self.shared.sent.subscribe();
    }

    /// Directs signals to the caller until the returned watch [ends](SignalWatch::end) or is dropped.
    pub(crate) fn watch(&self) -> SignalWatch {
        let sent = self.since.clone();
        let mut running = self.shared.running.lock();
        self.shared.unheeded.store(0, Ordering::Release);
        *running = true;
        drop(running);
        SignalWatch { sent, shared: self.shared.clone() }
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, mut signals: Received) {
        loop {
            let signal = signals.next().await;
            let running = self.running.lock();
            let is_first = self.unheeded.fetch_add(1, Ordering::AcqRel) == 0;
            if !*running && !self.is_script && signal == Signal::Interrupt {
                continue;
            }
            if !*running && self.is_script {
                end_script(signal);
            }
            if !*running || !is_first {
                end_at_once(signal);
            }
            self.sent.send_replace(Some(signal));
            drop(running);
            if signal.ends_shell() {
                std::thread::spawn(move || {
                    std::thread::sleep(END_WAIT_MAX);
                    end_at_once(signal);
                });
            }
        }
    }
}

/// Ends a script in which no statement runs, and reports why, since no statement does.
fn end_script(signal: Signal) -> ! {
    Failure::Stopped(signal).print(Terminal::detect().stderr_palette());
    end_at_once(signal);
}

fn end_at_once(signal: Signal) -> ! {
    let _none = keirin::remove_temporary_files();
    terminal::restore();
    std::process::exit(i32::from(signal.exit_code()));
}

/// The streams of signals; `None` if the system does not let us listen.
struct Received {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
    hang_up: Option<tokio::signal::unix::Signal>,
}

impl Received {
    fn install() -> Self {
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            // Under nohup SIGHUP must stay ignored.
            hang_up: if is_hang_up_ignored() { None } else { signal(SignalKind::hangup()).ok() },
        }
    }

    async fn next(&mut self) -> Signal {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            let received = match signal {
                Some(signal) => signal.recv().await,
                None => None,
            };
            if received.is_none() {
                std::future::pending::<()>().await;
            }
        }
        tokio::select! {
            () = one(&mut self.interrupt) => Signal::Interrupt,
            () = one(&mut self.terminate) => Signal::Terminate,
            () = one(&mut self.hang_up) => Signal::HangUp,
        }
    }
}

/// Whether the parent process set SIGHUP to be ignored, as Linux tells in `/proc`.
fn is_hang_up_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hang_up(&status))
}

/// The lowest bit in the mask of ignored signals is signal 1, SIGHUP.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Waits for a signal on behalf of one statement.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    sent: watch::Receiver<Option<Signal>>,
    shared: Arc<Shared>,
}

impl SignalWatch {
    /// Returns when a signal arrives.
    pub(crate) async fn received(&mut self) -> Signal {
        loop {
            if self.sent.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(signal) = *self.sent.borrow_and_update() {
                return signal;
            }
        }
    }

    /// Called when the statement is done. A signal that it did not receive ends a script: the next statement may
    /// never come.
    pub(crate) fn end(mut self) {
        let mut running = self.shared.running.lock();
        *running = false;
        let unheard = self.sent.has_changed().unwrap_or(false).then(|| *self.sent.borrow_and_update());
        if self.shared.is_script
            && let Some(signal) = unheard.flatten()
        {
            end_script(signal);
        }
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        *self.shared.running.lock() = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_seen_in_the_mask_of_ignored_signals() {
        let check = |status: &str, expected| assert_eq!(ignores_hang_up(status), expected, "{status}");
        check("Name:\tkeirin\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n", true);
        check("Name:\tkeirin\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n", false);
        check("", false);
    }
}
