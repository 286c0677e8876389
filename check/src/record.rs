//! Lines of the report file: what the driver of a checked program writes, and whoever has started the program reads.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::FINDING;
use crate::report::{HostSite, Report};

/// What the lines look like. It counts up when fields change their meaning or go.
pub const FORMAT: u32 = 3;

/// A line of the report file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// A process has begun.
    Start(ProcessStart),
    /// A finding, when it is first seen.
    Finding(Box<Report>),
    /// Approximate instructions of a kernel that has run.
    Approximate(ApproximateRecord),
    /// Counters of the launches of a kernel in one shape; see `LaunchProfile` of the driver.
    Profile(Value),
    /// What copies to the host have delivered.
    Outputs(Outputs),
    /// A process has ended.
    End(End),
}

/// A process has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessStart {
    /// [`FORMAT`] of the lines of this process.
    pub format: u32,
    /// Its number.
    pub process: u32,
    /// Architecture of its first device.
    pub sm: Option<u32>,
    /// The schedule's seed.
    pub seed: u64,
}

/// Approximate instructions of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproximateRecord {
    /// The kernel.
    pub kernel: String,
    /// Each with its name, its bound and what is computed instead.
    pub instructions: Vec<Value>,
}

/// What copies to the host have delivered in a process, by the thread that issued them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outputs {
    /// The process.
    pub process: u32,
    /// Who called the driver: places that copies name by their numbers.
    pub sites: Vec<HostSite>,
    /// The threads.
    pub threads: Vec<CopiedBy>,
}

/// The copies of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopiedBy {
    /// Each with the number of its place, its bytes, and a digest of what it has delivered.
    pub copies: Vec<(usize, u64, String)>,
    /// How many there are beyond those.
    pub more: u64,
    /// A digest of all of these.
    pub rest: String,
}

/// A process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Its number.
    pub process: u32,
    /// How often each of its findings was seen, in the order of their lines.
    pub counts: Vec<u64>,
}

impl Record {
    /// The counters, if it is about those.
    pub fn into_profile(self) -> Option<Value> {
        match self {
            Record::Profile(profile) => Some(profile),
            _ => None,
        }
    }

    /// As a line of JSON, without its end.
    pub fn to_line(&self) -> String {
        let typed = |kind: &str, value: serde_json::Result<Value>| {
            let mut value = value.unwrap_or_default();
            value["type"] = Value::from(kind);
            value.to_string()
        };
        match self {
            Record::Start(start) => typed("start", serde_json::to_value(start)),
            Record::Finding(report) => report.to_json().to_string(),
            Record::Approximate(record) => typed("approximate", serde_json::to_value(record)),
            Record::Profile(value) => value.to_string(),
            Record::Outputs(outputs) => typed("outputs", serde_json::to_value(outputs)),
            Record::End(end) => typed("end", serde_json::to_value(end)),
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// A line that is no JSON, of a type or with fields that this version does not know, or without some that it needs.
    pub fn parse(line: &str) -> Result<Record, RecordError> {
        let read = |line: &str| -> Result<Record, String> {
            let mut value: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
            let kind = value["type"].as_str().ok_or("it names no type")?.to_owned();
            match kind.as_str() {
                FINDING => return typed(value).map(|report| Record::Finding(Box::new(report))),
                "profile" => return Ok(Record::Profile(value)),
                _ => {}
            }
            value.as_object_mut().and_then(|fields| fields.remove("type"));
            match kind.as_str() {
                "start" => match value["format"].as_u64() {
                    Some(format) if format == u64::from(FORMAT) => typed(value).map(Record::Start),
                    Some(format) => Err(format!("its format is {format}, and this program reads {FORMAT}")),
                    None => Err(format!("it names no format, and this program reads {FORMAT}")),
                },
                "approximate" => typed(value).map(Record::Approximate),
                "outputs" => typed(value).map(Record::Outputs),
                "end" => typed(value).map(Record::End),
                other => Err(format!("its type is `{other}`, which is unknown")),
            }
        };
        read(line).map_err(|why| RecordError { why, line: line.chars().take(SHOWN).collect() })
    }
}

fn typed<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|e| e.to_string())
}

/// Characters of a line that an error shows.
const SHOWN: usize = 200;

/// A line of a report file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    why: String,
    line: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a line of the report cannot be read: {}; was it written by another version of the software driver? It begins: {}",
            self.why, self.line
        )
    }
}

impl std::error::Error for RecordError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::HostFrame;
    use crate::{Defect, Finding, Rule, Severity};

    fn finding() -> Value {
        Report::new(Finding::new(Rule::DivisionByZero, Severity::Warning, Defect::DivisionByZero)).to_json()
    }

    #[track_caller]
    fn refused(value: &Value, because: &str) {
        let error = Record::parse(&value.to_string()).unwrap_err().to_string();
        assert!(error.contains(because) && error.contains("another version of the software driver"), "{error}");
    }

    #[test]
    fn lines_come_back_as_they_were() {
        // Each field has another value than its default, for which a lost one would be taken.
        let frame = HostFrame { function: "main".into(), file: Some("main.rs".into()), line: 3 };
        let records = [
            Record::Start(ProcessStart { format: FORMAT, process: 7, sm: Some(90), seed: 3 }),
            Record::Profile(serde_json::json!({ "type": "profile", "kernel": "k", "launches": 2 })),
            Record::Approximate(ApproximateRecord { kernel: "k".into(), instructions: vec![Value::from("ex2")] }),
            Record::Outputs(Outputs {
                process: 7,
                sites: vec![HostSite { api: "cuMemcpyDtoH_v2".into(), frames: vec![frame] }],
                threads: vec![CopiedBy { copies: vec![(0, 64, "digest".into())], more: 2, rest: "all".into() }],
            }),
            Record::End(End { process: 7, counts: vec![2, 1] }),
        ];
        for record in records {
            assert_eq!(Record::parse(&record.to_line()), Ok(record));
        }
    }

    #[test]
    fn lines_of_another_version_are_refused() {
        assert!(Record::parse(&finding().to_string()).is_ok());
        let mut newer = finding();
        newer["colour"] = Value::from("red");
        refused(&newer, "unknown field `colour`");
        let mut older = finding();
        older.as_object_mut().unwrap().remove("defect");
        refused(&older, "missing field `defect`");
        let mut other = finding();
        other["rule"] = Value::from("race::texture");
        refused(&other, "no rule is called `race::texture`");
        refused(&serde_json::json!({ "type": "colour" }), "its type is `colour`");
        refused(&serde_json::json!({ "type": "start", "process": 1, "sm": 90, "seed": 0 }), "it names no format");
        let later = serde_json::json!({ "type": "start", "format": 99, "process": 1, "sm": 90, "seed": 0 });
        refused(&later, "its format is 99");
        refused(&Value::from(3), "it names no type");
    }
}
