//! How far a prompt is, on a terminal, where it takes long.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Nothing is said of prompts that take less.
const LONG: Duration = Duration::from_secs(2);
/// How often the time is shown anew: a step of many tokens may take long, too.
const TICK: Duration = Duration::from_millis(500);

/// A line that says how far a prompt is, and goes with this.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of so many tokens.
    pub fn new(tokens: usize, silent: bool) -> Progress {
        let target = if silent { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Progress::on(target, tokens, LONG)
    }

    fn on(target: ProgressDrawTarget, tokens: usize, long: Duration) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(tokens as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prompt}") {
            bar.set_style(style.with_key("prompt", move |state: &ProgressState, line: &mut dyn std::fmt::Write| {
                // What cannot be shown is not missed.
                let _ = line.write_str(&told(state.pos(), tokens, state.elapsed(), long));
            }));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress(bar)
    }

    /// So many of them have been computed.
    pub fn tell(&self, done: usize) {
        self.0.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What is said after some time.
fn told(done: u64, tokens: usize, time: Duration, long: Duration) -> String {
    match time < long {
        true => String::new(),
        false => format!("prompt: {done} of {tokens} tokens in {:.0} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// Keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn said(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("<cleared>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(long: Duration) -> String {
        let terminal = Terminal::default();
        let progress = Progress::on(ProgressDrawTarget::term_like(Box::new(terminal.clone())), 700, long);
        progress.tell(512);
        progress.0.force_draw();
        drop(progress);
        terminal.said()
    }

    #[test]
    fn a_prompt_that_takes_long_has_a_line_that_goes_at_its_end() {
        let said = said(Duration::ZERO);
        let after = said.split("prompt: 512 of 700 tokens in 0 s").nth(1);
        assert!(after.is_some_and(|rest| rest.ends_with("<cleared>")), "{said}");
    }

    #[test]
    fn a_short_one_has_none() {
        let said = said(Duration::MAX);
        assert!(!said.contains("prompt"), "{said}");
        assert!(Progress::new(1, true).0.is_hidden());
    }
}
