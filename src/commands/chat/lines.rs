//! Lines of standard input, and what may happen while none comes: that another process goes.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, channel};

use warpsmith_host::collectives::Lead;

use crate::failure::{Failure, Kind};

/// What is waited for.
enum Heard {
    Line(String),
    End,
    Failed(std::io::Error),
    Lost,
}

/// Lines, read by a thread of their own.
pub struct Lines(Receiver<Heard>);

impl Lines {
    /// Those of standard input.
    pub fn of_stdin(lead: Option<&Lead>) -> Result<Lines, Failure> {
        let (sender, heard) = channel();
        if let Some(lead) = lead {
            let sender = sender.clone();
            lead.on_loss(move || {
                let _ = sender.send(Heard::Lost);
            });
        }
        let read = move || {
            for line in std::io::stdin().lock().lines() {
                let (line, last) = match line {
                    Ok(line) => (Heard::Line(line), false),
                    Err(error) => (Heard::Failed(error), true),
                };
                if sender.send(line).is_err() || last {
                    return;
                }
            }
            let _ = sender.send(Heard::End);
        };
        let thread = std::thread::Builder::new().name("standard input".into()).spawn(read);
        thread.map_err(|e| Failure::new(Kind::Operation, format!("cannot read standard input: {e}")))?;
        Ok(Lines(heard))
    }

    /// The next; `None`: there are no more.
    pub fn next(&self, lead: Option<&Lead>) -> Result<Option<String>, Failure> {
        match self.0.recv() {
            Ok(Heard::Line(line)) => Ok(Some(line)),
            Ok(Heard::Failed(e)) => Err(Failure::new(Kind::Operation, format!("cannot read standard input: {e}"))),
            Ok(Heard::Lost) => lead.map_or(Ok(None), |lead| Ok(lead.check().map(|()| None)?)),
            Ok(Heard::End) | Err(_) => Ok(None),
        }
    }
}
