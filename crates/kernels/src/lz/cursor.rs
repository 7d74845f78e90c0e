//! The fast loop: steps over one block, or alternately over two.
//!
//! The unsafe code gains copies of a fixed width without bounds checks: the room for a whole step is checked
//! once.

use std::marker::PhantomData;

/// The position of a fast loop in a block. Its invariant, which holds because only this file changes the
/// fields: `at <= input_end` in one allocation, which can be read; `written <= output_len`, and `output_len`
/// bytes from `output` on can be written.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    /// The next byte of input.
    at: *const u8,
    input_end: *const u8,
    output: *mut u8,
    written: usize,
    output_len: usize,
    /// Stop when this many bytes are written.
    until: usize,
    input: *const u8,
    /// Whether another loop must continue, because the next step does not fit or is unusual.
    has_stopped: bool,
    buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Cursor<'a> {
    /// # Panics
    /// When a position is outside of its buffer.
    pub(crate) fn new(
        input: &'a [u8],
        read: usize,
        output: &'a mut [u8],
        written: usize,
        until: usize,
    ) -> Self {
        assert!(written <= output.len());
        let bytes = input.as_ptr_range();
        Self {
            at: input[read..].as_ptr(),
            input_end: bytes.end,
            output: output.as_mut_ptr(),
            written,
            output_len: output.len(),
            until,
            input: bytes.start,
            has_stopped: false,
            buffers: PhantomData,
        }
    }

    /// A cursor for one step, from its parts.
    ///
    /// # Safety
    /// The parts must be those of another cursor, whose buffers outlive this one and which is not used
    /// meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn from_parts(
        at: *const u8,
        input_end: *const u8,
        output: *mut u8,
        written: usize,
        output_len: usize,
    ) -> Self {
        let (input, until, has_stopped) = (at, output_len, false);
        Self { at, input_end, output, written, output_len, until, input, has_stopped, buffers: PhantomData }
    }

    /// The position after `step`.
    #[inline(always)]
    pub(crate) fn end(&self, step: Step) -> End {
        if step == Step::Stop { (std::ptr::null(), 0) } else { (self.at, self.written) }
    }

    /// Bytes read and written, and whether the loop only stopped because it reached `until` or the end of the
    /// block.
    pub(crate) fn progress(&self) -> (usize, usize, bool) {
        (self.at.addr() - self.input.addr(), self.written, !self.has_stopped)
    }

    /// Leaves the block to the exact loop.
    pub(crate) fn stop(&mut self) {
        self.has_stopped = true;
    }

    /// The next byte of input.
    #[inline(always)]
    pub(crate) fn at(&self) -> *const u8 {
        self.at
    }

    #[inline(always)]
    pub(crate) fn input_end(&self) -> *const u8 {
        self.input_end
    }

    #[inline(always)]
    pub(crate) fn input_left(&self) -> usize {
        self.input_end.addr() - self.at.addr()
    }

    /// The start of the output.
    #[inline(always)]
    pub(crate) fn output(&self) -> *mut u8 {
        self.output
    }

    /// Bytes of output that are decoded.
    #[inline(always)]
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    #[inline(always)]
    pub(crate) fn output_len(&self) -> usize {
        self.output_len
    }

    #[inline(always)]
    pub(crate) fn output_left(&self) -> usize {
        self.output_len - self.written
    }

    /// Moves to another position in both buffers.
    ///
    /// # Safety
    /// `at` must lie in the input or at its end; `written` bytes of the output must be decoded, no more than
    /// it holds.
    #[inline(always)]
    pub(crate) unsafe fn go_to(&mut self, at: *const u8, written: usize) {
        debug_assert!(at <= self.input_end && written <= self.output_len, "a step leaves its buffers");
        (self.at, self.written) = (at, written);
    }
}

/// The position after a step, in registers: a null pointer for [`Step::Stop`].
pub(crate) type End = (*const u8, usize);

/// A step that takes a cursor in parts: `at`, `input_end`, `output`, `written` and `output_len`.
pub(crate) type StepByParts = unsafe fn(*const u8, *const u8, *mut u8, usize, usize) -> End;

/// Steps by a function that is not inlined; it takes the parts of a cursor and returns an [`End`], because
/// with the address of the cursor the loop would keep the cursor in memory.
///
/// # Safety
/// As for `step`; and it must end at a position to which [`Cursor::go_to`] may go.
#[inline(always)]
pub(crate) unsafe fn out_of_line(cursor: &mut Cursor<'_>, step: StepByParts) -> Step {
    let Cursor { at, input_end, output, written, output_len, .. } = *cursor;
    // SAFETY: the caller's promise.
    let (at, written) = unsafe { step(at, input_end, output, written, output_len) };
    if at.is_null() {
        return Step::Stop;
    }
    // SAFETY: the caller's promise about where `step` ends.
    unsafe { cursor.go_to(at, written) };
    Step::Long
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It read and wrote no more than [`Arm::INPUT_ROOM`] and [`Arm::OUTPUT_ROOM`].
    Short,
    /// It read or wrote more, and checked that the room for one more step is left.
    Long,
    /// It left position and state unchanged: the exact loop must decode what comes next.
    Stop,
}

/// One way to decode the next sequence.
pub(crate) trait Arm {
    /// State that is kept in registers from step to step.
    type State: Copy;
    /// The most bytes of input that a short step reads, and that must remain before a step.
    const INPUT_ROOM: usize;
    /// The most bytes of output that a short step writes, and that must remain before a step.
    const OUTPUT_ROOM: usize;

    /// Prepares the state, and may decode a little for that. `None` if this arm cannot decode the block.
    ///
    /// # Safety
    /// The CPU must have the features that the arm uses.
    unsafe fn start(cursor: &mut Cursor<'_>) -> Option<Self::State>;

    /// Decodes one sequence.
    ///
    /// # Safety
    /// The CPU must have the features that the arm uses; the cursor must have room; the state must be that
    /// after the last step.
    unsafe fn step(cursor: &mut Cursor<'_>, state: &mut Self::State) -> Step;
}

struct Lane<'a, A: Arm> {
    cursor: Cursor<'a>,
    state: A::State,
    output_limit: usize,
}

impl<'a, A: Arm> Lane<'a, A> {
    /// # Safety
    /// As [`Arm::start`].
    #[inline(always)]
    unsafe fn enter(cursor: &Cursor<'a>) -> Option<Self> {
        let mut cursor = *cursor;
        // Limited so that without room for a step the lane is at the end of the block or has reached `until`.
        let output_limit = cursor.until.saturating_add(A::OUTPUT_ROOM).min(cursor.output_len);
        // SAFETY: the caller's promise.
        let state = unsafe { A::start(&mut cursor) }?;
        Some(Self { cursor, state, output_limit })
    }

    /// The number of short steps for which there surely is room.
    #[inline(always)]
    fn budget(&self) -> usize {
        let output_left = self.output_limit.saturating_sub(self.cursor.written);
        (self.cursor.input_left() / A::INPUT_ROOM).min(output_left / A::OUTPUT_ROOM)
    }

    /// # Safety
    /// As [`Arm::step`].
    #[inline(always)]
    unsafe fn step(&mut self) -> Step {
        // SAFETY: the caller's promise; the state is handed on.
        unsafe { A::step(&mut self.cursor, &mut self.state) }
    }

    #[inline(always)]
    fn leave(self, cursor: &mut Cursor<'a>, last: Step) {
        let is_near_the_end = self.budget() == 0 && self.cursor.written < self.cursor.until;
        *cursor = self.cursor;
        cursor.has_stopped = last == Step::Stop || is_near_the_end;
    }
}

/// Aligns the following loop to a cache line, or nearly: where the linker happens to put the function makes
/// some loops 5 % faster or slower.
#[inline(always)]
fn align_loop() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it is padding, without effect.
    unsafe {
        std::arch::asm!(".p2align 6", options(nomem, nostack, preserves_flags));
    }
}

/// Steps over one block, or alternately over two until the first of them stops.
///
/// Checking for room before each step would take registers that two lanes do not have. So the room is
/// converted to a number of steps, and again after these, or after a long step, which has changed it.
///
/// # Safety
/// The CPU must have the features that the arm uses.
#[inline(always)]
pub(crate) unsafe fn run<A: Arm>(a: &mut Cursor<'_>, b: Option<&mut Cursor<'_>>) {
    // SAFETY: the caller's promise.
    let Some(mut first) = (unsafe { Lane::<A>::enter(a) }) else {
        a.has_stopped = true;
        return;
    };
    let Some(b) = b else {
        let last = 'run: loop {
            let mut steps = first.budget();
            if steps == 0 {
                break Step::Short;
            }
            align_loop();
            loop {
                // SAFETY: the caller's promise, and the budget is room.
                match unsafe { first.step() } {
                    Step::Short => {
                        steps -= 1;
                        if steps == 0 {
                            break;
                        }
                    }
                    Step::Long => break,
                    Step::Stop => break 'run Step::Stop,
                }
            }
        };
        first.leave(a, last);
        return;
    };
    // SAFETY: the caller's promise.
    let Some(mut second) = (unsafe { Lane::<A>::enter(b) }) else {
        b.has_stopped = true;
        first.leave(a, Step::Short);
        return;
    };
    let mut last = [Step::Short; 2];
    'both: loop {
        let mut steps = first.budget().min(second.budget());
        if steps == 0 {
            break;
        }
        align_loop();
        loop {
            // SAFETY: the caller's promise, and the budgets are room.
            match unsafe { first.step() } {
                Step::Short => {}
                Step::Long => steps = steps.min(first.budget() + 1),
                Step::Stop => {
                    last[0] = Step::Stop;
                    break 'both;
                }
            }
            // SAFETY: the caller's promise, and the budgets are room.
            match unsafe { second.step() } {
                Step::Short => {}
                Step::Long => steps = steps.min(second.budget() + 1),
                Step::Stop => {
                    last[1] = Step::Stop;
                    break 'both;
                }
            }
            steps -= 1;
            if steps == 0 {
                break;
            }
        }
    }
    first.leave(a, last[0]);
    second.leave(b, last[1]);
}
