//! What programs did under several schedules: how they ended, and what their copies to the host delivered.
//!
//! Copies are compared thread by thread, in each thread's own order, and which thread is which does not matter: a program
//! whose threads overtake each other, but copy the same, is the same.

use warpsmith_check::defect::Difference;
use warpsmith_check::record::{CopiedBy, Record};
use warpsmith_check::{Defect, Finding, HostSite, Report, Rule, Severity};

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
    /// Who called the driver.
    call: HostSite,
    bytes: u64,
    digest: String,
}

impl Outcome {
    /// Of the lines of a report file.
    pub fn new(code: u8, lines: &[Record]) -> Outcome {
        let mut lanes = Vec::new();
        for line in lines {
            let Record::Outputs(outputs) = line else { continue };
            let lane = |thread: &CopiedBy| Lane {
                copies: (thread.copies.iter())
                    .map(|(at, bytes, digest)| Copied {
                        call: outputs.sites.get(*at).cloned().unwrap_or_default(),
                        bytes: *bytes,
                        digest: digest.clone(),
                    })
                    .collect(),
                more: (thread.more, thread.rest.clone()),
            };
            lanes.extend(outputs.threads.iter().map(lane));
        }
        Outcome { code, lanes }
    }

    /// How many copies, and bytes of those that are listed.
    pub fn size(&self) -> (u64, u64) {
        let copies = self.lanes.iter().map(|l| l.copies.len() as u64 + l.more.0).sum();
        (copies, self.lanes.iter().flat_map(|l| &l.copies).map(|c| c.bytes).sum())
    }

    /// The first thing that another run did otherwise.
    pub fn difference(&self, other: &Outcome) -> Option<Differs> {
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
            None => (self.code != other.code).then_some(Differs {
                what: Difference::ExitCode { before: self.code, after: other.code },
                call: HostSite::default(),
            }),
        }
    }
}

/// What differs between two runs, and the call that it was seen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    what: Difference,
    call: HostSite,
}

fn first_difference(before: &Lane, after: &Lane) -> Differs {
    let pairs = before.copies.iter().zip(&after.copies);
    let path = |number, before: Option<&Copied>, after: Option<&Copied>| Differs {
        what: Difference::Path { number, before: before.map(|c| c.bytes), after: after.map(|c| c.bytes) },
        call: before.or(after).map(|c| c.call.clone()).unwrap_or_default(),
    };
    if let Some((at, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
        let number = at + 1;
        return if (&a.call, a.bytes) == (&b.call, b.bytes) {
            Differs { what: Difference::Bytes { number, bytes: a.bytes }, call: a.call.clone() }
        } else {
            path(number, Some(a), Some(b))
        };
    }
    let common = before.copies.len().min(after.copies.len());
    if before.copies.len() == after.copies.len() {
        return Differs { what: Difference::Later { number: common + 1 }, call: HostSite::default() };
    }
    path(common + 1, before.copies.get(common), after.copies.get(common))
}

impl Differs {
    /// The finding that the runs under two seeds differ so.
    pub fn report(&self, seeds: (u64, u64), replay: String) -> Report {
        let defect = Defect::Schedule { seeds, difference: self.what.clone() };
        let finding = Finding::new(Rule::Nondeterminism, Severity::Error, defect);
        Report { site: self.call.clone(), replay, ..Report::new(finding) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A report of one process; threads of copies, each a site, a size and a digest.
    fn outcome(code: u8, threads: Value) -> Outcome {
        let threads: Vec<Value> =
            threads.as_array().unwrap().iter().map(|c| json!({ "copies": c, "more": 0, "rest": "0" })).collect();
        let sites = json!([{ "api": "cuMemcpyDtoH_v2", "frames": [] }, { "api": "cuMemcpy", "frames": [] }]);
        let line = json!({ "type": "outputs", "process": 1, "sites": sites, "threads": threads });
        Outcome::new(code, &[Record::parse(&line.to_string()).unwrap()])
    }

    fn message(before: &Outcome, after: &Outcome, seeds: (u64, u64)) -> String {
        before.difference(after).unwrap().report(seeds, "again".to_owned()).finding.message()
    }

    #[test]
    fn threads_may_swap_places_but_not_bytes() {
        let (one, two) = (json!([[0, 4, "a"], [0, 4, "b"]]), json!([[0, 4, "c"], [0, 4, "b"]]));
        let before = outcome(0, json!([one, two]));
        assert_eq!(before.difference(&outcome(0, json!([two, one]))), None);
        assert_eq!(before.size(), (4, 16));
        let swapped = json!([[0, 4, "b"], [0, 4, "a"]]);
        let difference = before.difference(&outcome(0, json!([two, swapped]))).unwrap();
        assert!(matches!(difference.what, Difference::Bytes { number: 1, bytes: 4 }), "{difference:?}");
    }

    #[test]
    fn the_first_difference_is_named() {
        let before = outcome(0, json!([[[0, 4, "a"], [1, 8, "b"]]]));
        assert_eq!(before.difference(&before), None);
        let other_code = before.difference(&Outcome { code: 3, ..before.clone() }).unwrap();
        assert_eq!(other_code.what, Difference::ExitCode { before: 0, after: 3 });
        let other = outcome(0, json!([[[0, 4, "a"], [1, 8, "x"]]]));
        assert_eq!(
            message(&before, &other, (0, 2)),
            "copy 2 to the host, of 8 bytes, delivers other bytes under seed 2 than under seed 0"
        );
        let report = before.difference(&other).unwrap().report((0, 2), "again".to_owned());
        let json = report.to_json();
        assert_eq!((&json["call"]["api"], &json["seeds"]), (&"cuMemcpy".into(), &json!([0, 2])));
        assert_eq!(json["replay"], "again");
        let shorter = outcome(0, json!([[[0, 4, "a"]]]));
        let told = message(&before, &shorter, (0, 1));
        assert_eq!(told, "copy 2 to the host is of 8 bytes under seed 0 and missing under seed 1");
        let told = message(&outcome(0, json!([])), &shorter, (0, 1));
        assert_eq!(told, "copy 1 to the host is missing under seed 0 and of 4 bytes under seed 1");
    }

    #[test]
    fn what_is_not_listed_counts_as_well() {
        let of = |rest: &str| {
            let threads = json!([{ "copies": [], "more": 2, "rest": rest }]);
            let line = json!({ "type": "outputs", "process": 1, "sites": [], "threads": threads });
            Outcome::new(0, &[Record::parse(&line.to_string()).unwrap()])
        };
        let (a, b) = (of("a"), of("b"));
        assert_eq!((a.difference(&b).unwrap().what, a.size().0), (Difference::Later { number: 1 }, 2));
    }
}
