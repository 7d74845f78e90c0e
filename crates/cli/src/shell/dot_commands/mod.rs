//! The shell's own commands, in scripts as well as at the prompt.
//!
//! Names and meanings are those of sqlite3 and duckdb where they have them; as there, a unique prefix of a name is
//! enough. [`list`] has them all.

mod files;
mod list;
mod settings;
mod tables;
mod words;

use self::list::COMMANDS;
use crate::console::{Console, Flow};
use crate::error::{Failure, Result};

/// The kind of a command's argument, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    OnOff,
    Format,
    File,
    Table,
    Command,
    Other,
}

struct DotCommand {
    name: &'static str,
    /// The arguments as the help shows them; those in brackets are optional.
    arguments: &'static str,
    argument: Argument,
    help: &'static str,
    run: fn(&mut Console, &[String]) -> Result<Flow>,
}

impl DotCommand {
    /// The least and the greatest number of arguments.
    fn counts(&self) -> (usize, usize) {
        if self.arguments.ends_with("...") {
            return (0, usize::MAX);
        }
        let words = self.arguments.split_whitespace();
        (words.clone().filter(|word| !word.starts_with('[')).count(), words.count())
    }

    fn usage(&self) -> String {
        format!(".{} {}", self.name, self.arguments).trim_end().to_owned()
    }
}

/// Commands of psql, and ours for them.
const FROM_PSQL: &[(&str, &str)] = &[
    ("\\?", ".help"),
    ("\\c", ".open"),
    ("\\copy", ".import"),
    ("\\d", ".schema"),
    ("\\dt", ".tables"),
    ("\\g", ".once"),
    ("\\h", ".help"),
    ("\\i", ".read"),
    ("\\l", ".tables"),
    ("\\o", ".output"),
    ("\\q", ".quit"),
    ("\\timing", ".timer"),
    ("\\x", ".mode vertical"),
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name)
}

/// The kind of argument of the command called `name`.
pub(crate) fn argument(name: &str) -> Option<Argument> {
    find(name).ok().map(|command| command.argument)
}

/// Runs a line such as `.mode csv`.
pub(crate) fn run(console: &mut Console, line: &str) -> Result<Flow> {
    if line.starts_with('\\') {
        let word = line.split_whitespace().next().unwrap_or_default();
        let ours = FROM_PSQL.iter().find(|(theirs, _)| *theirs == word.trim_end_matches('+'));
        let hint = ours.map_or_else(
            || "commands begin with a dot; .help lists them".to_owned(),
            |(_, ours)| format!("here it is {ours}"),
        );
        return Err(Failure::command(format!("{word} is a command of psql")).with_hint(hint));
    }
    let words = words::split(line.trim_start_matches('.')).map_err(Failure::command)?;
    let Some((name, arguments)) = words.split_first() else {
        return Err(Failure::command("there is no command after the dot").with_hint(".help lists them"));
    };
    let command = find(name)?;
    let (least, most) = command.counts();
    if arguments.len() < least || arguments.len() > most {
        let wrong = if arguments.len() < least { "an argument is missing" } else { "too many arguments" };
        return Err(Failure::command(format!(".{}: {wrong}", command.name))
            .with_hint(format!("usage: {}", command.usage())));
    }
    (command.run)(console, arguments)
}

/// The command of that name, or of the only name with that prefix.
fn find(name: &str) -> Result<&'static DotCommand> {
    let wanted = name.to_ascii_lowercase();
    if let Some(command) = COMMANDS.iter().find(|command| command.name == wanted) {
        return Ok(command);
    }
    let beginning: Vec<&DotCommand> =
        COMMANDS.iter().filter(|command| !wanted.is_empty() && command.name.starts_with(&wanted)).collect();
    if let [only] = beginning.as_slice() {
        return Ok(only);
    }
    let unknown = Failure::command(format!("there is no command .{name}"));
    if !beginning.is_empty() {
        let names: Vec<String> = beginning.iter().map(|command| format!(".{}", command.name)).collect();
        return Err(unknown.with_hint(format!("did you mean {}?", names.join(" or "))));
    }
    let nearest = names()
        .map(|name| (strsim::damerau_levenshtein(&wanted, name), name))
        .min()
        .filter(|(distance, name)| distance * 3 <= name.len());
    Err(match nearest {
        Some((_, name)) => unknown.with_hint(format!("did you mean .{name}?")),
        None => unknown.with_hint(".help lists them"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name_beginning_or_nearness() {
        let check = |name: &str, expected: Result<&str, &str>| match (find(name), expected) {
            (Ok(command), Ok(expected)) => assert_eq!(command.name, expected),
            (Err(failure), Err(expected)) => assert_eq!(failure.report(), expected),
            (found, expected) => panic!("{name}: {:?}, expected {expected:?}", found.map(|c| c.name)),
        };
        check("tables", Ok("tables"));
        check("TABLES", Ok("tables"));
        check("ta", Ok("tables"));
        check("q", Ok("quit"));
        check("tabels", Err("error: there is no command .tabels\nhint: did you mean .tables?\n"));
        check("max", Err("error: there is no command .max\nhint: did you mean .maxrows or .maxwidth?\n"));
        check("xyzzy", Err("error: there is no command .xyzzy\nhint: .help lists them\n"));
    }

    #[test]
    fn the_list_is_sorted_and_says_what_each_takes() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        let counts = |name: &str| find(name).unwrap().counts();
        assert_eq!(counts("quit"), (0, 0));
        assert_eq!(counts("import"), (2, 2));
        assert_eq!(counts("output"), (0, 1));
        assert_eq!(counts("print"), (0, usize::MAX));
    }
}
