//! Commands that change or show how the shell works.

use crate::console::{Console, Flow, Settings};
use crate::error::{Failure, Result};
use crate::format::Format;
use crate::render::escape_controls;

pub(super) fn switch(
    console: &mut Console,
    words: &[String],
    setting: fn(&mut Settings) -> &mut bool,
) -> Result<Flow> {
    let value = setting(&mut console.settings);
    let Some(word) = words.first() else {
        let text = on_off(*value);
        return console.print(&format!("{text}\n")).map(|()| Flow::Continue);
    };
    *value = parse_on_off(word)?;
    Ok(Flow::Continue)
}

fn parse_on_off(word: &str) -> Result<bool> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" => Ok(true),
        "off" | "no" | "false" | "0" => Ok(false),
        _ => Err(Failure::command(format!("expected on or off, found '{word}'"))),
    }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

pub(super) fn types(console: &mut Console, words: &[String]) -> Result<Flow> {
    let Some(word) = words.first() else {
        let text = types_text(console.settings.types);
        return console.print(&format!("{text}\n")).map(|()| Flow::Continue);
    };
    console.settings.types = Some(parse_on_off(word)?);
    Ok(Flow::Continue)
}

fn types_text(types: Option<bool>) -> &'static str {
    types.map_or("on a terminal", on_off)
}

pub(super) fn null_value(console: &mut Console, words: &[String]) -> Result<Flow> {
    let Some(word) = words.first() else {
        let text = null_text(console.settings.null.as_deref()).to_owned();
        return console.print(&format!("{text}\n")).map(|()| Flow::Continue);
    };
    console.settings.null = Some(escape_controls(word).into_owned());
    Ok(Flow::Continue)
}

fn null_text(null: Option<&str>) -> &str {
    match null {
        None => "NULL, and in files what they use",
        Some("") => "nothing",
        Some(text) => text,
    }
}

pub(super) fn limit(
    console: &mut Console,
    name: &str,
    words: &[String],
    setting: fn(&mut Settings) -> &mut Option<usize>,
) -> Result<Flow> {
    let limit = setting(&mut console.settings);
    let Some(word) = words.first() else {
        let text = limit_text(*limit);
        return console.print(&format!("{text}\n")).map(|()| Flow::Continue);
    };
    let number = word.parse().map_err(|_| Failure::command(format!(".{name}: '{word}' is not a number")))?;
    *limit = Some(number);
    Ok(Flow::Continue)
}

fn limit_text(limit: Option<usize>) -> String {
    match limit {
        None => "what fits a terminal, all elsewhere".to_owned(),
        Some(0) => "all".to_owned(),
        Some(number) => number.to_string(),
    }
}

pub(super) fn format(console: &mut Console, words: &[String]) -> Result<Flow> {
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

pub(super) fn show(console: &mut Console) -> Result<Flow> {
    let settings = &console.settings;
    let database =
        console.database_path.as_ref().map_or("in memory".to_owned(), |path| path.display().to_string());
    let lines = [
        ("database", database),
        ("bail", on_off(settings.bail).to_owned()),
        ("echo", on_off(settings.echo).to_owned()),
        ("format", settings.format.name().to_owned()),
        ("headers", on_off(settings.headers).to_owned()),
        ("maxrows", limit_text(settings.rows_max)),
        ("maxwidth", limit_text(settings.width_max)),
        ("nullvalue", null_text(settings.null.as_deref()).to_owned()),
        ("timer", on_off(settings.timer).to_owned()),
        ("types", types_text(settings.types).to_owned()),
    ];
    let text: String = lines.iter().map(|(name, value)| format!("{name:<9}  {value}\n")).collect();
    console.print(&text).map(|()| Flow::Continue)
}
