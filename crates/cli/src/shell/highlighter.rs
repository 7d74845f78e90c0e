//! Highlighting of SQL while it is typed.

use nu_ansi_term::{Color, Style};
use reedline::{Highlighter, StyledText};

use super::lexer::{TokenKind, tokens};
use crate::script;

pub(crate) struct SqlHighlighter;

impl Highlighter for SqlHighlighter {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut styled = StyledText::new();
        if script::is_command(line) {
            let word_end = line.find(char::is_whitespace).unwrap_or(line.len());
            styled.push((Style::new().fg(Color::Cyan), line[..word_end].to_owned()));
            styled.push((Style::new(), line[word_end..].to_owned()));
            return styled;
        }
        for token in tokens(line) {
            styled.push((style(token.kind), line[token.range].to_owned()));
        }
        styled
    }
}

fn style(kind: TokenKind) -> Style {
    match kind {
        TokenKind::Keyword => Style::new().fg(Color::Blue).bold(),
        TokenKind::Text => Style::new().fg(Color::Green),
        TokenKind::Number => Style::new().fg(Color::Purple),
        TokenKind::Comment => Style::new().dimmed(),
        TokenKind::QuotedName | TokenKind::Word | TokenKind::Space | TokenKind::Symbol => Style::new(),
    }
}
