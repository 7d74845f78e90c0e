//! Ctrl-C.
//!
//! While a statement runs, Ctrl-C cancels it; a second one, for a statement that does not notice, ends
//! the program. While none runs, the shell's editor reads the key itself; a script ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::watch;

/// The exit code that shells give to SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    shared: Arc<Shared>,
    /// Remembers which presses are dealt with: one between two statements of a script is for the next.
    since: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Shared {
    /// Counts the presses that a statement may want to know of.
    pressed: watch::Sender<u64>,
    running: AtomicBool,
    /// Presses since the running statement began.
    unheeded: AtomicU32,
}

impl Interrupts {
    /// Starts to listen, on a thread of its own: the threads of a database come and go with `.open`.
    pub(crate) fn install(interactive: bool) -> Self {
        let shared = Arc::new(Shared {
            pressed: watch::channel(0).0,
            running: AtomicBool::new(false),
            unheeded: AtomicU32::new(0),
        });
        let listener = shared.clone();
        // Without the listener, Ctrl-C ends the program: that is the best that is left.
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            std::thread::spawn(move || runtime.block_on(listener.listen(interactive)));
        }
        let since = shared.pressed.subscribe();
        Self { shared, since }
    }

    /// What was pressed until now is dealt with: a new line begins.
    pub(crate) fn forget(&mut self) {
        self.since = self.shared.pressed.subscribe();
    }

    /// From now on Ctrl-C is for the caller, until the answer is dropped.
    pub(crate) fn watch(&self) -> Interrupt {
        let pressed = self.since.clone();
        self.shared.unheeded.store(0, Ordering::Release);
        self.shared.running.store(true, Ordering::Release);
        Interrupt { pressed, shared: self.shared.clone() }
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, interactive: bool) {
        while tokio::signal::ctrl_c().await.is_ok() {
            let running = self.running.load(Ordering::Acquire);
            let ignored = self.unheeded.fetch_add(1, Ordering::AcqRel) > 0;
            if (running && ignored) || (!running && !interactive) {
                std::process::exit(EXIT_INTERRUPTED);
            }
            self.pressed.send_modify(|count| *count += 1);
        }
    }
}

/// Waits for Ctrl-C on behalf of one statement.
#[derive(Debug)]
pub(crate) struct Interrupt {
    pressed: watch::Receiver<u64>,
    shared: Arc<Shared>,
}

impl Interrupt {
    /// Returns when Ctrl-C is pressed.
    pub(crate) async fn pressed(&mut self) {
        if self.pressed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.shared.running.store(false, Ordering::Release);
    }
}
