//! What the races of decoders learnt, kept beside the database so that the next process starts with it.
//!
//! A file for each CPU, `races/<cpu>`, which only helps: it is not synced, one that cannot be read or written is
//! left, and one that is damaged is as good as none.

use std::io;

use keirin_kernels::Level;
use keirin_race::{Races, cpu_name};

use crate::io::Io;
use crate::store::make_directory;

const DIRECTORY: &str = "races";
/// Larger files are none of ours.
const BYTES_MAX: u64 = 32 << 20;

/// The CPU, with the level of its kernels, which may be set lower.
fn cpu() -> String {
    format!("{} {}", cpu_name(), Level::best().name())
}

fn path(cpu: &str) -> String {
    let name = cpu.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    format!("{DIRECTORY}/{}", name.collect::<String>())
}

/// Reads what was learnt on this CPU.
pub(crate) fn load(io: &dyn Io, races: &Races) {
    // Behind a network, asking for it may take longer than learning.
    if io.is_far() {
        return;
    }
    let cpu = cpu();
    let read = || -> io::Result<String> {
        let input = io.open(&path(&cpu))?;
        let bytes = input.byte_count();
        if bytes > BYTES_MAX {
            return Err(io::Error::other("too large"));
        }
        let mut text = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        input.read_exact_at(0, &mut text)?;
        String::from_utf8(text).map_err(io::Error::other)
    };
    if let Ok(text) = read() {
        // A damaged text loads nothing.
        races.load(&text, &cpu).unwrap_or_default();
    }
}

/// Writes what is known, if any of it was learnt by this process.
pub(crate) fn save(io: &dyn Io, races: &Races) {
    if !races.have_run() {
        return;
    }
    let cpu = cpu();
    let (to, text) = (path(&cpu), races.save(&cpu));
    if text.len() as u64 > BYTES_MAX {
        return;
    }
    let from = format!("{to}.new");
    let write = || -> io::Result<()> {
        make_directory(io, DIRECTORY).map_err(io::Error::other)?;
        // One of a process that did not come further.
        io.remove(&from).unwrap_or_default();
        io.create(&from)?.write_all(text.as_bytes())?;
        io.replace(&from, &to)
    };
    write().unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::io::{Memory, Unlimited};

    fn races(arms: &[u64]) -> Races {
        let races = Races::default();
        let race = races.race("decode", "text", "1.s", &["plain", "wide"]);
        for _ in 0..4 {
            for (arm, nanoseconds) in arms.iter().enumerate() {
                race.record(arm, 1000, Duration::from_nanos(*nanoseconds));
            }
        }
        races
    }

    /// How often the second arm is chosen, of a hundred times.
    fn wide_share(races: &Races) -> usize {
        let race = races.race("decode", "text", "1.s", &["plain", "wide"]);
        (0..100).filter(|_| race.choose() == 1).count()
    }

    #[test]
    fn the_next_process_knows_what_was_learnt() {
        let io = Memory::new(Arc::new(Unlimited));
        save(&io, &races(&[500, 200]));
        let next = Races::default();
        load(&io, &next);
        assert!(wide_share(&next) > 90);
        // Who has learnt nothing leaves it as it is; who has, replaces it.
        save(&io, &Races::default());
        save(&io, &races(&[100, 400]));
        let last = Races::default();
        load(&io, &last);
        assert!(wide_share(&last) < 10);
        assert_eq!(io.list(DIRECTORY).unwrap().len(), 1);
    }

    #[test]
    fn damage_is_as_good_as_nothing() {
        let io = Memory::new(Arc::new(Unlimited));
        save(&io, &races(&[500, 200]));
        let path = path(&cpu());
        io.remove(&path).unwrap();
        io.create(&path).unwrap().write_all(b"keirin races 1\n\xff").unwrap();
        let next = Races::default();
        load(&io, &next);
        let race = next.race("decode", "text", "1.s", &["plain", "wide"]);
        assert_eq!([race.choose(), race.choose()], [0, 0], "nothing is known of either");
    }
}
