//! The shell's own commands, in scripts as well as at the prompt.
//!
//! Names and meanings are those of sqlite3 and duckdb where those have them; a unique beginning of a name
//! is enough, as it is there.

use std::path::PathBuf;

use super::completer::name_in_sql;
use super::names::texts;
use crate::console::{Console, Flow};
use crate::error::{Failure, Result};
use crate::format::Format;
use crate::output::Output;
use crate::render::{escape_controls, type_name};

/// What a command takes, as far as completion can help.
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
    /// As the help shows it; what is in brackets may be left out.
    arguments: &'static str,
    argument: Argument,
    help: &'static str,
    run: fn(&mut Console, &[String]) -> Result<Flow>,
}

impl DotCommand {
    /// The least and the most arguments.
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

const COMMANDS: &[DotCommand] = &[
    DotCommand {
        name: "bail",
        arguments: "on|off",
        argument: Argument::OnOff,
        help: "End a script at its first error (on) or go on (off)",
        run: |console, words| switch(&mut console.settings.bail, words),
    },
    DotCommand {
        name: "echo",
        arguments: "on|off",
        argument: Argument::OnOff,
        help: "Print statements and commands before they run",
        run: |console, words| switch(&mut console.settings.echo, words),
    },
    DotCommand {
        name: "exit",
        arguments: "",
        argument: Argument::Other,
        help: "Leave, as .quit and Ctrl-D do",
        run: |_, _| Ok(Flow::Quit),
    },
    DotCommand {
        name: "format",
        arguments: "[FORMAT]",
        argument: Argument::Format,
        help: "Set or show how answers are written; .mode is the same",
        run: format,
    },
    DotCommand {
        name: "headers",
        arguments: "on|off",
        argument: Argument::OnOff,
        help: "Show column names in tables, csv and tsv",
        run: |console, words| switch(&mut console.settings.headers, words),
    },
    DotCommand {
        name: "help",
        arguments: "[COMMAND]",
        argument: Argument::Command,
        help: "Show this list, or one command",
        run: help,
    },
    DotCommand {
        name: "import",
        arguments: "FILE TABLE",
        argument: Argument::File,
        help: "Load a file into a table, which is made if there is none",
        run: import,
    },
    DotCommand {
        name: "maxrows",
        arguments: "[N]",
        argument: Argument::Other,
        help: "Rows that a table shows; 0 for all",
        run: |console, words| limit(console, "maxrows", words, |console| &mut console.settings.rows_max),
    },
    DotCommand {
        name: "maxwidth",
        arguments: "[N]",
        argument: Argument::Other,
        help: "Characters that a table is wide; 0 for no limit",
        run: |console, words| limit(console, "maxwidth", words, |console| &mut console.settings.width_max),
    },
    DotCommand {
        name: "mode",
        arguments: "[FORMAT]",
        argument: Argument::Format,
        help: "Set or show how answers are written; .format is the same",
        run: format,
    },
    DotCommand {
        name: "nullvalue",
        arguments: "TEXT",
        argument: Argument::Other,
        help: "What NULL looks like, but in json, parquet and arrow",
        run: |console, words| {
            console.settings.null = Some(escape_controls(&words[0]).into_owned());
            Ok(Flow::Continue)
        },
    },
    DotCommand {
        name: "once",
        arguments: "FILE",
        argument: Argument::File,
        help: "Write the next answer to a file; its ending decides the format",
        run: once,
    },
    DotCommand {
        name: "open",
        arguments: "[DATABASE]",
        argument: Argument::File,
        help: "Go on with another database; without a name, an empty one in memory",
        run: |console, words| console.reopen(words.first().map(PathBuf::from)).map(|()| Flow::Continue),
    },
    DotCommand {
        name: "output",
        arguments: "[FILE]",
        argument: Argument::File,
        help: "Write answers to a file; without a name, to the screen again",
        run: output,
    },
    DotCommand {
        name: "print",
        arguments: "[TEXT]...",
        argument: Argument::Other,
        help: "Print text among the answers",
        run: |console, words| console.print(&format!("{}\n", words.join(" "))).map(|()| Flow::Continue),
    },
    DotCommand {
        name: "quit",
        arguments: "",
        argument: Argument::Other,
        help: "Leave, as .exit and Ctrl-D do",
        run: |_, _| Ok(Flow::Quit),
    },
    DotCommand {
        name: "read",
        arguments: "FILE",
        argument: Argument::File,
        help: "Run the statements and commands in a file",
        run: |console, words| console.run_file(&PathBuf::from(&words[0])),
    },
    DotCommand {
        name: "schema",
        arguments: "[TABLE]",
        argument: Argument::Table,
        help: "Show the columns of all tables, or of one, as CREATE TABLE",
        run: schema,
    },
    DotCommand {
        name: "show",
        arguments: "",
        argument: Argument::Other,
        help: "Show what these commands have set",
        run: |console, _| show(console),
    },
    DotCommand {
        name: "tables",
        arguments: "[TEXT]",
        argument: Argument::Table,
        help: "List tables and views, or those whose name contains the text",
        run: tables,
    },
    DotCommand {
        name: "timer",
        arguments: "on|off",
        argument: Argument::OnOff,
        help: "Show how long statements take",
        run: |console, words| switch(&mut console.settings.timer, words),
    },
    DotCommand {
        name: "types",
        arguments: "on|off",
        argument: Argument::OnOff,
        help: "Show types under the names in tables",
        run: |console, words| {
            let mut types = false;
            switch(&mut types, words)?;
            console.settings.types = Some(types);
            Ok(Flow::Continue)
        },
    },
];

/// What psql's users type, and ours for it.
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

/// What the command called `name` takes.
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
    let words = split_words(line.trim_start_matches('.')).map_err(Failure::command)?;
    let Some((name, arguments)) = words.split_first() else {
        return Err(Failure::command("there is no command after the dot").with_hint(".help lists them"));
    };
    let command = find(name)?;
    let (least, most) = command.counts();
    if arguments.len() < least || arguments.len() > most {
        let wrong = if arguments.len() < least { "is missing something" } else { "does not take that much" };
        return Err(Failure::command(format!(".{} {wrong}", command.name))
            .with_hint(format!("usage: {}", command.usage())));
    }
    (command.run)(console, arguments)
}

/// The command of that name, or of the only name that begins so.
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
        .filter(|(distance, name)| distance * 2 <= name.len());
    Err(match nearest {
        Some((_, name)) => unknown.with_hint(format!("did you mean .{name}?")),
        None => unknown.with_hint(".help lists them"),
    })
}

/// Words between spaces; quotes keep spaces, and a doubled quote is one.
fn split_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    while let Some(first) = characters.peek().copied() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        let mut word = String::new();
        if first == '\'' || first == '"' {
            characters.next();
            loop {
                match characters.next() {
                    Some(c) if c == first => {
                        if characters.next_if_eq(&first).is_none() {
                            break;
                        }
                        word.push(first);
                    }
                    Some(c) => word.push(c),
                    None => return Err(format!("the quote {first} is not closed")),
                }
            }
        } else {
            while let Some(c) = characters.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    Ok(words)
}

fn switch(value: &mut bool, words: &[String]) -> Result<Flow> {
    *value = match words[0].to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => true,
        "off" | "no" | "false" | "0" => false,
        other => return Err(Failure::command(format!("expected on or off, found {other}"))),
    };
    Ok(Flow::Continue)
}

fn limit(
    console: &mut Console,
    name: &str,
    words: &[String],
    setting: fn(&mut Console) -> &mut Option<usize>,
) -> Result<Flow> {
    match words.first() {
        Some(word) => {
            let number =
                word.parse().map_err(|_| Failure::command(format!(".{name}: '{word}' is not a number")))?;
            *setting(console) = Some(number);
        }
        None => {
            let text = limit_text(*setting(console));
            console.print(&format!("{text}\n"))?;
        }
    }
    Ok(Flow::Continue)
}

fn limit_text(limit: Option<usize>) -> String {
    match limit {
        None => "what fits a terminal, all elsewhere".to_owned(),
        Some(0) => "all".to_owned(),
        Some(number) => number.to_string(),
    }
}

fn format(console: &mut Console, words: &[String]) -> Result<Flow> {
    match words.first() {
        Some(word) => {
            console.settings.format = word.parse().map_err(Failure::command)?;
            console.output.format = None;
        }
        None => {
            let now = console.settings.format.name();
            let lines = Format::all()
                .map(|(name, what)| format!("{} {name:<9} {what}\n", if name == now { "*" } else { " " }));
            console.print(&lines.collect::<String>())?;
        }
    }
    Ok(Flow::Continue)
}

fn help(console: &mut Console, words: &[String]) -> Result<Flow> {
    let text = match words.first() {
        Some(word) => {
            let command = find(word.trim_start_matches('.'))?;
            format!("{}\n    {}\n", command.usage(), command.help)
        }
        None => {
            let width = COMMANDS.iter().map(|command| command.usage().len()).max().unwrap_or(0);
            let lines =
                COMMANDS.iter().map(|command| format!("{:<width$}  {}\n", command.usage(), command.help));
            let mut text: String = lines.collect();
            text.push_str(
                "\nSQL ends with a semicolon. Files are tables: FROM 'trips.parquet'; FROM 'logs/*.csv';\n\
                 Ctrl-C stops a statement, Ctrl-R searches the history, Tab completes.\n",
            );
            text
        }
    };
    console.print(&text).map(|()| Flow::Continue)
}

fn import(console: &mut Console, words: &[String]) -> Result<Flow> {
    let [file, table] = words else { return Ok(Flow::Continue) };
    let file = file.replace('\'', "''");
    let exists = console.query(&format!("SELECT * FROM {} LIMIT 0", name_in_sql(table))).is_ok();
    let table = name_in_sql(table);
    let sql = if exists {
        format!("INSERT INTO {table} SELECT * FROM '{file}'")
    } else {
        format!("CREATE TABLE {table} AS SELECT * FROM '{file}'")
    };
    console.run_sql(&sql, None, 1).map(|()| Flow::Continue)
}

fn once(console: &mut Console, words: &[String]) -> Result<Flow> {
    let path = PathBuf::from(&words[0]);
    let mut output = Output::file(&path)?;
    output.format = Format::of_file(&path);
    console.output_once = Some(output);
    Ok(Flow::Continue)
}

fn output(console: &mut Console, words: &[String]) -> Result<Flow> {
    let next = match words.first() {
        Some(word) => {
            let path = PathBuf::from(word);
            let mut output = Output::file_at_once(&path)?;
            output.format = Format::of_file(&path);
            output
        }
        None => Output::stdout(),
    };
    std::mem::replace(&mut console.output, next).commit()?;
    Ok(Flow::Continue)
}

/// Tables and views that are the user's: schema, name, type.
fn user_tables(console: &Console) -> Result<Vec<(String, bool)>> {
    let batches = console.query(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables \
         WHERE table_schema NOT IN ('information_schema', 'system') ORDER BY 1, 2",
    )?;
    let rows = batches.iter().flat_map(texts);
    Ok(rows
        .filter_map(|row| match row.as_slice() {
            [schema, name, kind] => {
                let name = name_in_sql(name);
                let default = matches!(schema.as_str(), "public" | "main");
                let name = if default { name } else { format!("{}.{name}", name_in_sql(schema)) };
                Some((name, kind.eq_ignore_ascii_case("view")))
            }
            _ => None,
        })
        .collect())
}

fn tables(console: &mut Console, words: &[String]) -> Result<Flow> {
    let pattern = words.first().map(|word| word.trim_matches('%').to_lowercase()).unwrap_or_default();
    let lines: String = user_tables(console)?
        .into_iter()
        .filter(|(name, _)| name.to_lowercase().contains(&pattern))
        .map(|(name, is_view)| {
            format!("{}{}\n", escape_controls(&name), if is_view { " (view)" } else { "" })
        })
        .collect();
    console.print(&lines).map(|()| Flow::Continue)
}

fn schema(console: &mut Console, words: &[String]) -> Result<Flow> {
    let tables = match words.first() {
        Some(word) if word.starts_with('"') || word.contains('.') => vec![(word.clone(), false)],
        Some(word) => {
            let wanted = name_in_sql(word);
            let known = user_tables(console)?;
            let same = |name: &str| name == wanted || name.eq_ignore_ascii_case(word);
            vec![known.into_iter().find(|(name, _)| same(name)).unwrap_or((wanted, false))]
        }
        None => user_tables(console)?,
    };
    for (name, is_view) in tables {
        let text = create_statement(console, &name, is_view)?;
        console.print(&text)?;
    }
    Ok(Flow::Continue)
}

/// The statement that would make a table of that form; a view's columns follow from its query.
fn create_statement(console: &Console, name: &str, is_view: bool) -> Result<String> {
    let schema = console.schema_of(&format!("SELECT * FROM {name}"))?;
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| {
            let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
            let name = name_in_sql(field.name());
            format!("  {} {}{not_null}", escape_controls(&name), type_name(field.data_type()))
        })
        .collect();
    let what = if is_view { "VIEW" } else { "TABLE" };
    Ok(format!("CREATE {what} {} (\n{}\n);\n", escape_controls(name), columns.join(",\n")))
}

fn show(console: &mut Console) -> Result<Flow> {
    let settings = &console.settings;
    let on_off = |value: bool| if value { "on" } else { "off" }.to_owned();
    let database =
        console.database_path.as_ref().map_or("in memory".to_owned(), |path| path.display().to_string());
    let lines = [
        ("database", database),
        ("bail", on_off(settings.bail)),
        ("echo", on_off(settings.echo)),
        ("format", settings.format.name().to_owned()),
        ("headers", on_off(settings.headers)),
        ("maxrows", limit_text(settings.rows_max)),
        ("maxwidth", limit_text(settings.width_max)),
        ("nullvalue", settings.null.clone().unwrap_or_else(|| "NULL, and in files what they use".to_owned())),
        ("timer", on_off(settings.timer)),
        ("types", settings.types.map_or("on a terminal".to_owned(), on_off)),
    ];
    let text: String = lines.iter().map(|(name, value)| format!("{name:<9}  {value}\n")).collect();
    console.print(&text).map(|()| Flow::Continue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_spaces_outside_quotes() {
        let check =
            |line: &str, expected: &[&str]| assert_eq!(split_words(line).unwrap(), expected, "{line}");
        check("mode csv", &["mode", "csv"]);
        check("  read  'my file.sql' ", &["read", "my file.sql"]);
        check("nullvalue ''", &["nullvalue", ""]);
        check("print 'it''s' \"a 'b'\"", &["print", "it's", "a 'b'"]);
        check("", &[]);
        assert!(split_words("read 'x").is_err());
    }

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
