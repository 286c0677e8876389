//! What programs did under several schedules: how they ended, and what their copies to the host delivered.
//!
//! Copies are compared thread by thread, in each thread's own order, and which thread is which does not matter: a program
//! whose threads overtake each other, but copy the same, is the same.

use serde_json::{Value, json};
use warpsmith_check::{Rule, Severity};

use super::plural;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub code: u8,
    /// By process and thread.
    lanes: Vec<Lane>,
}

/// The copies of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    copies: Vec<Copied>,
    /// Beyond those that are listed: how many, and a digest of all.
    more: (u64, String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copied {
    /// Who called the driver, as the report has it.
    call: String,
    bytes: u64,
    digest: String,
}

impl Outcome {
    /// Of the lines of a report file.
    pub fn new(code: u8, lines: &[Value]) -> Outcome {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut lanes = Vec::new();
        for line in lines.iter().filter(|l| l["type"] == "outputs") {
            for thread in line["threads"].as_array().into_iter().flatten() {
                let copy = |c: &Value| Copied {
                    call: c[0].as_u64().map_or_else(String::new, |at| line["sites"][at as usize].to_string()),
                    bytes: c[1].as_u64().unwrap_or(0),
                    digest: text(&c[2]),
                };
                lanes.push(Lane {
                    copies: thread["copies"].as_array().into_iter().flatten().map(copy).collect(),
                    more: (thread["more"].as_u64().unwrap_or(0), text(&thread["rest"])),
                });
            }
        }
        Outcome { code, lanes }
    }

    /// How many copies, and bytes of those that are listed.
    pub fn size(&self) -> (u64, u64) {
        let copies = self.lanes.iter().map(|l| l.copies.len() as u64 + l.more.0).sum();
        (copies, self.lanes.iter().flat_map(|l| &l.copies).map(|c| c.bytes).sum())
    }

    /// The first thing that another run did otherwise.
    pub fn difference(&self, other: &Outcome) -> Option<Difference> {
        let (mut ours, mut theirs) = (self.lanes.clone(), other.lanes.clone());
        ours.retain(|lane| match theirs.iter().position(|l| l == lane) {
            Some(at) => {
                theirs.remove(at);
                false
            }
            None => true,
        });
        // Of what is left, threads that did the same things belong together, whatever the bytes.
        let shape = |l: &Lane| l.copies.iter().map(|c| (c.call.clone(), c.bytes)).collect::<Vec<_>>();
        if let Some(lane) = ours.first() {
            let twin = theirs.iter().position(|l| shape(l) == shape(lane)).unwrap_or(0);
            let nothing = Lane::default();
            return Some(first_difference(lane, theirs.get(twin).unwrap_or(&nothing)));
        }
        match theirs.first() {
            Some(lane) => Some(first_difference(&Lane::default(), lane)),
            None => (self.code != other.code).then_some(Difference::Code(self.code, other.code)),
        }
    }
}

/// What differs between two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The exit code.
    Code(u8, u8),
    /// The bytes of a copy: its number among those of its thread, from 1, its size, and who made it.
    Bytes { number: usize, bytes: u64, call: String },
    /// Which copy it is.
    Path { number: usize, before: Option<(u64, String)>, after: Option<(u64, String)> },
    /// Something behind the copies that are listed one by one.
    Later { number: usize },
}

fn first_difference(before: &Lane, after: &Lane) -> Difference {
    let pairs = before.copies.iter().zip(&after.copies);
    if let Some((at, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        let number = at + 1;
        return if (&a.call, a.bytes) == (&b.call, b.bytes) {
            Difference::Bytes { number, bytes: a.bytes, call: a.call.clone() }
        } else {
            let side = |c: &Copied| Some((c.bytes, c.call.clone()));
            Difference::Path { number, before: side(a), after: side(b) }
        };
    }
    let common = before.copies.len().min(after.copies.len());
    let side = |l: &Lane| l.copies.get(common).map(|c| (c.bytes, c.call.clone()));
    if before.copies.len() == after.copies.len() {
        return Difference::Later { number: common + 1 };
    }
    Difference::Path { number: common + 1, before: side(before), after: side(after) }
}

impl Difference {
    /// The finding that the runs under two seeds differ so, as a line of a report file.
    pub fn finding(&self, seeds: (u64, u64), replay: &str) -> Value {
        let (a, b) = seeds;
        let copy = |side: &Option<(u64, String)>| match side {
            Some((bytes, _)) => format!("of {}", plural(*bytes as usize, "byte", "bytes")),
            None => "missing".to_owned(),
        };
        let (message, call) = match self {
            Difference::Code(before, after) => {
                (format!("the program ends with code {before} under seed {a} and {after} under seed {b}"), None)
            }
            Difference::Bytes { number, bytes, call } => (
                format!(
                    "copy {number} to the host, of {}, delivers other bytes under seed {b} than under seed {a}",
                    plural(*bytes as usize, "byte", "bytes")
                ),
                Some(call),
            ),
            Difference::Path { number, before, after } => (
                format!(
                    "copy {number} to the host is {} under seed {a} and {} under seed {b}",
                    copy(before),
                    copy(after)
                ),
                before.as_ref().or(after.as_ref()).map(|side| &side.1),
            ),
            Difference::Later { number } => {
                (format!("copies to the host from number {number} on are not the same under seeds {a} and {b}"), None)
            }
        };
        let help = "the result depends on the order of blocks, warps or lanes: a race, or an operation that does not \
                    commute, such as a floating-point atomic addition or a place that an atomic counter gives out";
        let call = call.and_then(|c| serde_json::from_str(c).ok()).unwrap_or(Value::Null);
        let (rule, severity) = (Rule::Nondeterminism.name(), Severity::Error.name());
        let mut text = format!("{severity}[{rule}]: {message}");
        if let Some(api) = call["api"].as_str().filter(|api| !api.is_empty()) {
            text.push_str(&format!("\n  called by {api}"));
        }
        for frame in call["frames"].as_array().into_iter().flatten() {
            let function = frame["function"].as_str().unwrap_or_default();
            text.push_str(&match frame["file"].as_str() {
                Some(file) => format!("\n    from {file}:{} in {function}", frame["line"]),
                None => format!("\n    from {function}"),
            });
        }
        text.push_str(&format!("\n  help: {help}\n  replay: {replay}"));
        json!({
            "type": "finding",
            "rule": rule,
            "severity": severity,
            "kernel": "",
            "message": message,
            "count": 1,
            "place": null,
            "sites": [],
            "help": help,
            "seeds": [a, b],
            "call": call,
            "replay": replay,
            "text": text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of one process; threads of copies, each a site, a size and a digest.
    fn outcome(code: u8, threads: Value) -> Outcome {
        let threads: Vec<Value> =
            threads.as_array().unwrap().iter().map(|c| json!({ "copies": c, "more": 0, "rest": "0" })).collect();
        let sites = json!([{ "api": "cuMemcpyDtoH_v2", "frames": [] }, { "api": "cuMemcpy", "frames": [] }]);
        Outcome::new(code, &[json!({ "type": "outputs", "sites": sites, "threads": threads })])
    }

    #[test]
    fn threads_may_swap_places_but_not_bytes() {
        let (one, two) = (json!([[0, 4, "a"], [0, 4, "b"]]), json!([[0, 4, "c"], [0, 4, "b"]]));
        let before = outcome(0, json!([one, two]));
        assert_eq!(before.difference(&outcome(0, json!([two, one]))), None);
        assert_eq!(before.size(), (4, 16));
        let swapped = json!([[0, 4, "b"], [0, 4, "a"]]);
        let difference = before.difference(&outcome(0, json!([two, swapped]))).unwrap();
        assert!(matches!(difference, Difference::Bytes { number: 1, bytes: 4, .. }), "{difference:?}");
    }

    #[test]
    fn the_first_difference_is_named() {
        let before = outcome(0, json!([[[0, 4, "a"], [1, 8, "b"]]]));
        assert_eq!(before.difference(&before), None);
        assert_eq!(before.difference(&Outcome { code: 3, ..before.clone() }), Some(Difference::Code(0, 3)));
        let other = outcome(0, json!([[[0, 4, "a"], [1, 8, "x"]]]));
        let finding = before.difference(&other).unwrap().finding((0, 2), "again");
        assert_eq!(
            finding["message"],
            "copy 2 to the host, of 8 bytes, delivers other bytes under seed 2 than under seed 0"
        );
        assert_eq!((&finding["call"]["api"], &finding["seeds"]), (&"cuMemcpy".into(), &json!([0, 2])));
        let shorter = outcome(0, json!([[[0, 4, "a"]]]));
        let finding = before.difference(&shorter).unwrap().finding((0, 1), "again");
        assert_eq!(finding["message"], "copy 2 to the host is of 8 bytes under seed 0 and missing under seed 1");
        let finding = outcome(0, json!([])).difference(&shorter).unwrap().finding((0, 1), "again");
        assert_eq!(finding["message"], "copy 1 to the host is missing under seed 0 and of 4 bytes under seed 1");
    }

    #[test]
    fn what_is_not_listed_counts_as_well() {
        let line = |rest: &str| json!({ "type": "outputs", "sites": [], "threads": [{ "copies": [], "more": 2, "rest": rest }] });
        let (a, b) = (Outcome::new(0, &[line("a")]), Outcome::new(0, &[line("b")]));
        assert_eq!((a.difference(&b), a.size().0), (Some(Difference::Later { number: 1 }), 2));
    }
}
