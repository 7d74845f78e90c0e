//! A report as a page without links to anything else, which draws the plan as a tree.

use std::fmt::Write;

use super::report::{Report, Step};
use super::text::{bytes, count, duration, without_time};

/// The page's head, up to its title.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Query plan</title>
<style>
:root { color-scheme: light dark; --ink: #1b1d22; --soft: #667; --line: #ccd; --paper: #fff; --bar: #d8542a; --track: #eef; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e7ea; --soft: #9aa; --line: #445; --paper: #16181d; --bar: #ff7a4d; --track: #262a33; }
}
body { margin: 2rem; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
.facts { color: var(--soft); margin: 0 0 1.5rem; }
ul { list-style: none; margin: 0; padding-left: 1.6rem; }
ul.plan { padding-left: 0; }
li { position: relative; padding: .35rem 0; }
ul ul > li::before { content: ""; position: absolute; left: -1rem; top: 0; bottom: 0; border-left: 1px solid var(--line); }
ul ul > li:last-child::before { bottom: auto; height: 1.5rem; }
ul ul > li::after { content: ""; position: absolute; left: -1rem; top: 1.5rem; width: .8rem; border-top: 1px solid var(--line); }
.step { display: grid; grid-template-columns: minmax(0, 1fr) 6rem 7rem 6rem; gap: 0 1rem; align-items: baseline;
  border: 1px solid var(--line); border-radius: 6px; padding: .45rem .7rem; max-width: 75rem; }
.step > * { overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.other { color: var(--soft); font-weight: normal; }
.track { grid-column: 1 / -1; height: 5px; border-radius: 3px; background: var(--track); margin: .3rem 0 .2rem; }
.bar { height: 100%; border-radius: 3px; background: var(--bar); }
.detail { grid-column: 1 / -1; color: var(--soft); font-size: .87em; }
</style>
</head>
<body>
"#;

/// The page.
pub(super) fn write(report: &Report) -> String {
    let mut page = HEAD.to_owned();
    let machine = &report.machine;
    let _ = write!(
        page,
        "<h1>{}</h1>\n<p class=\"facts\">{} rows in {} on {} threads, busy {:.0} % of the time; planned in {}<br>\n\
         {}: {} threads, {:.1} GB/s from memory, {:.1} GB/s one thread</p>\n<ul class=\"plan\">\n",
        escaped(&report.headline),
        count(report.rows as u64),
        duration(report.milliseconds),
        report.threads,
        100.0 * report.busy,
        duration(report.planning_milliseconds),
        escaped(machine.cpu),
        machine.threads,
        machine.gb_per_second,
        machine.thread_gb_per_second,
    );
    step(&mut page, &report.plan);
    page.push_str(
        "</ul>\n<p class=\"facts\">Times are of all threads, each step without its inputs. \
         Steps in grey are DataFusion's.</p>\n</body>\n</html>",
    );
    page
}

fn step(page: &mut String, of: &Step) {
    let time = of.milliseconds.map_or_else(|| without_time(of).to_owned(), duration);
    let memory = if of.memory_bytes == 0 { String::new() } else { bytes(of.memory_bytes) };
    let _ = write!(
        page,
        "<li><div class=\"step\"><strong{}>{}</strong><span class=\"number\">{time}</span>\
         <span class=\"number\">{} rows</span><span class=\"number\">{memory}</span>\
         <div class=\"track\"><div class=\"bar\" style=\"width: {:.1}%\"></div></div>\
         <div class=\"detail\">{}</div>",
        if of.is_ours { "" } else { " class=\"other\"" },
        escaped(&of.operator),
        of.rows.map(count).unwrap_or_default(),
        100.0 * of.share,
        escaped(&of.description),
    );
    for detail in super::text::details(of, false) {
        let _ = write!(page, "<div class=\"detail\">{}</div>", escaped(&detail));
    }
    page.push_str("</div>");
    if !of.inputs.is_empty() {
        page.push_str("\n<ul>\n");
        of.inputs.iter().for_each(|input| step(page, input));
        page.push_str("</ul>\n");
    }
    page.push_str("</li>\n");
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
