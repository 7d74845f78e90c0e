//! Regular expressions without an automaton: a chain of literals, runs of characters and alternatives, matched at the
//! beginning of a text.
//!
//! Patterns that take texts apart are mostly such chains, `^https?://(?:www\.)?([^/]+)/.*$` say. Engines that take any
//! pattern run an automaton over each byte to find where the match ends, and another to find its groups. A chain takes
//! some comparisons and a search for the byte that ends each run. Where the rest of the chain cannot begin with a
//! character of a run, the run need not be tried shorter, so that most chains never go back.
//!
//! Matches and groups are those of the crate `regex`, where an earlier alternative wins: a chain goes back as Perl does
//! (Cox, "Regular Expression Matching Can Be Simple And Fast", 2007, says at what cost: patterns that go back too often
//! give up).

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// Patterns of more steps are left to others.
const STEPS_MAX: usize = 256;
/// A text for which the chain goes back more often is left to others, or whose bytes are looked at for longer: so many
/// count as once, but for those of some looks at all of the text.
const RETRIES_MAX: usize = 1_000;
const BYTES_PER_RETRY: usize = 64;
const FREE_LOOKS: usize = 4;
/// Longer bounds of runs are left to others, which may refuse them.
const BOUND_MAX: u32 = 1_000;
/// A group that took no part in the match.
pub const NO_PLACE: usize = usize::MAX;

/// See the [module](self).
///
/// ```
/// use keirin_operators::pattern::{Chain, Match};
///
/// let chain = Chain::new(r"^https?://(?:www\.)?([^/]+)/.*$").expect("it is a chain");
/// let mut matched = Match::default();
/// let text = "http://www.example.com/index.html";
/// assert_eq!(chain.find(text, &mut matched), Some(true));
/// assert_eq!(&text[matched.group(1).unwrap()], "example.com");
/// ```
#[derive(Debug)]
pub struct Chain {
    steps: Vec<Step>,
    group_count: usize,
}

/// Where a match and its groups are; its memory is used again.
#[derive(Debug, Default)]
pub struct Match {
    /// Begin and end of each group, that of the whole match first.
    places: Vec<usize>,
    retries: Vec<Retry>,
}

impl Match {
    /// The bytes of a group; 0 is the whole match. `None` if it took no part.
    #[must_use]
    pub fn group(&self, number: usize) -> Option<std::ops::Range<usize>> {
        let (start, end) = (*self.places.get(2 * number)?, *self.places.get(2 * number + 1)?);
        (start != NO_PLACE && end != NO_PLACE).then_some(start..end)
    }
}

/// What the text must go on with; the end of the steps is a match.
#[derive(Debug)]
enum Step {
    Literal(Vec<u8>),
    Run(Run),
    /// One step, or else the other.
    Split(usize, usize),
    Jump(usize),
    /// A group begins or ends.
    Place(usize),
    /// The text begins, or ends.
    Start,
    End,
}

/// Characters of a set.
#[derive(Debug)]
struct Run {
    set: Set,
    /// So many of them: bytes, of which characters have more than one only where there may be any number.
    least: usize,
    most: usize,
    is_greedy: bool,
    /// Whether what follows may match if the run is shorter than it could be.
    gives_back: bool,
}

/// Bytes: all or none of those of characters beyond ASCII.
#[derive(Clone, Debug)]
struct Set {
    has: Box<[bool; 256]>,
    /// The only byte that is not in it.
    except: Option<u8>,
}

impl Set {
    fn new(has: Box<[bool; 256]>) -> Self {
        let mut others = (0..=u8::MAX).filter(|byte| !has[usize::from(*byte)]);
        let except = others.next().filter(|_| others.next().is_none());
        Self { has, except }
    }

    fn of(class: &Class) -> Option<Self> {
        let Class::Unicode(class) = class else { return None };
        let mut has = Box::new([false; 256]);
        for range in class.ranges() {
            for character in u32::from(range.start())..=u32::from(range.end()).min(0x7F) {
                has[character as usize] = true;
            }
        }
        if let Some(last) = class.ranges().last().filter(|last| !last.end().is_ascii()) {
            let has_all = last.start() <= '\u{80}' && last.end() == char::MAX;
            has_all.then(|| has[0x80..].fill(true))?;
        }
        Some(Self::new(has))
    }

    fn is_ascii(&self) -> bool {
        !self.has[0x80]
    }

    fn has(&self, byte: u8) -> bool {
        self.has[usize::from(byte)]
    }

    /// How many of the first bytes of `text` are in the set.
    fn reach(&self, text: &[u8]) -> usize {
        let end = match self.except {
            Some(byte) => memchr::memchr(byte, text),
            None => text.iter().position(|byte| !self.has(*byte)),
        };
        end.unwrap_or(text.len())
    }
}

/// What is tried when the text does not go on as it must.
#[derive(Debug)]
enum Retry {
    /// From this step and place on.
    From { step: usize, at: usize },
    /// What is behind a greedy run, with an end before `end`, not before `least`.
    Shorter { step: usize, least: usize, end: usize },
    /// What is behind a lazy run, with a longer one, up to `most`.
    Longer { step: usize, end: usize, most: usize },
    /// A place that was another.
    Place { place: usize, was: usize },
}

impl Chain {
    /// A chain for `pattern`, in the syntax of the crate `regex`, which must begin with `^`.
    ///
    /// `None` if it is more than a chain, or no pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Option<Self> {
        let hir = regex_syntax::parse(pattern).ok()?;
        let properties = hir.properties();
        if !properties.look_set_prefix().contains(Look::Start) {
            return None;
        }
        let mut chain = Self { steps: Vec::new(), group_count: 1 + properties.explicit_captures_len() };
        chain.add(&hir)?;
        for step in 0..chain.steps.len() {
            let follows = chain.first(step + 1);
            if let Step::Run(run) = &mut chain.steps[step] {
                run.gives_back =
                    follows.is_none_or(|follows| (0..256).any(|byte| follows[byte] && run.set.has[byte]));
            }
        }
        Some(chain)
    }

    /// Count of groups with the whole match, which is the first.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.group_count
    }

    fn push(&mut self, step: Step) -> Option<usize> {
        self.steps.push(step);
        (self.steps.len() <= STEPS_MAX).then_some(self.steps.len() - 1)
    }

    fn add(&mut self, hir: &Hir) -> Option<()> {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => {
                self.push(Step::Literal(literal.0.to_vec()))?;
            }
            HirKind::Class(class) => self.add_run(class, 1, Some(1), true)?,
            HirKind::Look(Look::Start) => {
                self.push(Step::Start)?;
            }
            HirKind::Look(Look::End) => {
                self.push(Step::End)?;
            }
            HirKind::Look(_) => return None,
            HirKind::Repetition(repetition) => self.add_repetition(repetition)?,
            HirKind::Capture(capture) => {
                let place = 2 * capture.index as usize;
                self.push(Step::Place(place))?;
                self.add(&capture.sub)?;
                self.push(Step::Place(place + 1))?;
            }
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part))?,
            HirKind::Alternation(alternatives) => {
                let (last, others) = alternatives.split_last()?;
                let mut jumps = Vec::new();
                for alternative in others {
                    let split = self.push(Step::Split(0, 0))?;
                    self.add(alternative)?;
                    jumps.push(self.push(Step::Jump(0))?);
                    self.steps[split] = Step::Split(split + 1, self.steps.len());
                }
                self.add(last)?;
                let end = self.steps.len();
                jumps.into_iter().for_each(|jump| self.steps[jump] = Step::Jump(end));
            }
        }
        Some(())
    }

    fn add_repetition(&mut self, repetition: &Repetition) -> Option<()> {
        let Repetition { min, max, greedy, sub } = repetition;
        match sub.kind() {
            HirKind::Class(class) => self.add_run(class, *min, *max, *greedy),
            HirKind::Literal(literal)
                if literal.0.len() == 1 && literal.0[0].is_ascii() && *max != Some(1) =>
            {
                let mut has = Box::new([false; 256]);
                has[usize::from(literal.0[0])] = true;
                self.add_run_of(Set::new(has), *min, *max, *greedy)
            }
            _ if (*min, *max) == (0, Some(1)) => {
                let split = self.push(Step::Split(0, 0))?;
                self.add(sub)?;
                let (inside, behind) = (split + 1, self.steps.len());
                self.steps[split] =
                    if *greedy { Step::Split(inside, behind) } else { Step::Split(behind, inside) };
                Some(())
            }
            _ => None,
        }
    }

    fn add_run(&mut self, class: &Class, min: u32, max: Option<u32>, is_greedy: bool) -> Option<()> {
        self.add_run_of(Set::of(class)?, min, max, is_greedy)
    }

    fn add_run_of(&mut self, set: Set, min: u32, max: Option<u32>, is_greedy: bool) -> Option<()> {
        if min.max(max.unwrap_or(0)) > BOUND_MAX {
            return None;
        }
        // Bytes are counted, not characters.
        if !set.is_ascii() && (min > 1 || max.is_some()) {
            return None;
        }
        let most = max.map_or(usize::MAX, |max| max as usize);
        self.push(Step::Run(Run { set, least: min as usize, most, is_greedy, gives_back: true }))?;
        Some(())
    }

    /// The bytes that texts can begin with that go on from `step`; those that end there are left out, as are all if it is
    /// a match already: neither can fail where a longer run could not. `None` if that depends on where the step is.
    fn first(&self, step: usize) -> Option<[bool; 256]> {
        let mut first = [false; 256];
        let mut seen = vec![false; self.steps.len()];
        let mut waiting = vec![step];
        while let Some(step) = waiting.pop() {
            if step == self.steps.len() || std::mem::replace(&mut seen[step], true) {
                continue;
            }
            match &self.steps[step] {
                Step::Literal(literal) => first[usize::from(*literal.first()?)] = true,
                Step::Run(run) => {
                    first.iter_mut().zip(run.set.has.iter()).for_each(|(first, has)| *first |= has);
                    waiting.extend((run.least == 0).then_some(step + 1));
                }
                Step::Split(one, other) => waiting.extend([*one, *other]),
                Step::Jump(to) => waiting.push(*to),
                Step::Place(_) => waiting.push(step + 1),
                Step::Start => return None,
                Step::End => {}
            }
        }
        Some(first)
    }

    /// Whether `text` begins with a match, which `found` is then; `None` if that takes too long to say.
    pub fn find(&self, text: &str, found: &mut Match) -> Option<bool> {
        let text = text.as_bytes();
        let Match { places, retries } = found;
        places.clear();
        places.resize(2 * self.group_count, NO_PLACE);
        retries.clear();
        let (mut step, mut at) = (0, 0);
        let mut work_left = RETRIES_MAX + FREE_LOOKS * text.len() / BYTES_PER_RETRY;
        while step < self.steps.len() {
            let goes_on = match &self.steps[step] {
                Step::Literal(literal) => {
                    let is_here = text[at..].starts_with(literal);
                    at += if is_here { literal.len() } else { 0 };
                    is_here
                }
                Step::Run(run) => {
                    let most = run.reach(text, at);
                    work_left = work_left.checked_sub((most - at) / BYTES_PER_RETRY)?;
                    match run.end(text, at, most, step + 1, retries) {
                        Some(end) => {
                            at = end;
                            true
                        }
                        None => false,
                    }
                }
                Step::Split(one, other) => {
                    retries.push(Retry::From { step: *other, at });
                    step = *one;
                    continue;
                }
                Step::Jump(to) => {
                    step = *to;
                    continue;
                }
                Step::Place(place) => {
                    if !retries.is_empty() {
                        retries.push(Retry::Place { place: *place, was: places[*place] });
                    }
                    places[*place] = at;
                    true
                }
                Step::Start => at == 0,
                Step::End => at == text.len(),
            };
            if goes_on {
                step += 1;
                continue;
            }
            work_left = work_left.checked_sub(1)?;
            match next_retry(text, places, retries) {
                Some(next) => (step, at) = next,
                None => return Some(false),
            }
        }
        (places[0], places[1]) = (0, at);
        Some(true)
    }
}

impl Run {
    /// How far the run from `at` on can go.
    fn reach(&self, text: &[u8], at: usize) -> usize {
        at + self.set.reach(&text[at..text.len().min(at.saturating_add(self.most))])
    }

    /// Where the run from `at` on, which can go to `most`, ends at first; `None` if it is too short. Other ends go to
    /// `retries`, for step `next`.
    fn end(
        &self,
        text: &[u8],
        at: usize,
        most: usize,
        next: usize,
        retries: &mut Vec<Retry>,
    ) -> Option<usize> {
        // One character, if it has more bytes.
        let least = match self.least {
            1 if !self.set.is_ascii() => next_character(text, at),
            least => at + least,
        };
        if most < least {
            return None;
        }
        if self.is_greedy {
            if self.gives_back && least < most {
                retries.push(Retry::Shorter { step: next, least, end: most });
            }
            return Some(most);
        }
        if least < most {
            retries.push(Retry::Longer { step: next, end: least, most });
        }
        Some(least)
    }
}

fn is_inside_character(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| (0x80..0xC0).contains(byte))
}

fn next_character(text: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while is_inside_character(text, next) {
        next += 1;
    }
    next
}

/// The step and place to go on from.
fn next_retry(text: &[u8], places: &mut [usize], retries: &mut Vec<Retry>) -> Option<(usize, usize)> {
    loop {
        match retries.pop()? {
            Retry::From { step, at } => return Some((step, at)),
            Retry::Place { place, was } => places[place] = was,
            Retry::Shorter { step, least, end } => {
                let mut end = end - 1;
                while is_inside_character(text, end) {
                    end -= 1;
                }
                if end > least {
                    retries.push(Retry::Shorter { step, least, end });
                }
                return Some((step, end));
            }
            Retry::Longer { step, end, most } => {
                let end = next_character(text, end);
                if end < most {
                    retries.push(Retry::Longer { step, end, most });
                }
                return Some((step, end));
            }
        }
    }
}
