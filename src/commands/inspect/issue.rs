//! What the launch that was counted issued in machine code: [`slots`] for any kernel, whoever wrote it.

use serde_json::{Value, json};
use warpsmith_check::{Class, LineProfile, Metrics};

use crate::commands::budget::pipes::Pipe;
use crate::commands::budget::sass::Code;
use crate::commands::budget::slots::{self, Work};

/// Issue slots of warps.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Of the whole launch.
    pub kernel: f64,
    /// Of all its loops, if any ran.
    pub loops: Option<Work>,
}

impl Issue {
    /// Weighs machine code by a launch, as a report file has it.
    pub fn of(code: &Code, profile: &Value) -> Issue {
        let slots = slots::weigh(code, &lines(profile), 0);
        Issue { kernel: slots.kernel, loops: slots.loops }
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let work = |w: &Work| {
            let named = |(pipe, slots): (&Pipe, &f64)| (pipe.name().to_owned(), json!(slots));
            let pipes: serde_json::Map<_, _> = w.pipes.iter().map(named).collect();
            json!({ "slots": w.slots, "time": w.time(), "pipes": pipes, "global_load_bytes": w.bytes })
        };
        json!({ "kernel": self.kernel, "loops": self.loops.as_ref().map(work) })
    }
}

/// Lines of PTX that ran.
fn lines(profile: &Value) -> Vec<LineProfile> {
    let of = |line: &Value| LineProfile {
        ptx_line: line["line"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        ptx_text: line["text"].as_str().unwrap_or_default().to_owned(),
        source: Vec::new(),
        class: Class::Other,
        metrics: Metrics::named(|name| line["metrics"][name].as_u64().unwrap_or(0)),
    };
    profile["ptx"].as_array().into_iter().flatten().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::budget::sass;

    /// Two warps go through a loop of five instructions seven times each, between two and three others; the loop's copy of line 6
    /// is what ptxas made two of.
    const SASS: &str = "
.text.k:
	//## File \".nv_debug_ptx_txt\", line 3
        /*0000*/                   LDG.E R2, [R4.64] ;
        /*0010*/                   S2R R0, SR_TID.X ;
.L_x_0:
	//## File \".nv_debug_ptx_txt\", line 5
        /*0020*/                   LDG.E.128 R4, [R10.64] ;
	//## File \".nv_debug_ptx_txt\", line 6
        /*0030*/                   FFMA R1, R4, R8, R1 ;
        /*0040*/                   FFMA R1, R5, R9, R1 ;
	//## File \".nv_debug_ptx_txt\", line 7
        /*0050*/                   ISETP.NE P1, PT, R0, RZ, PT ;
        /*0060*/              @!P1 BRA `(.L_x_0) ;
	//## File \".nv_debug_ptx_txt\", line 8
        /*0070*/                   STG.E [R12.64], R1 ;
        /*0080*/                   NOP ;
        /*0090*/                   EXIT ;
";

    #[test]
    fn a_launch_is_weighed_by_the_lines_that_ran() {
        let line = |n: u64, ran: u64| {
            let loaded = if n == 5 { ran * 512 } else { 0 };
            let metrics =
                json!({ "smsp__inst_executed.sum": ran, "smsp__sass_data_bytes_mem_global_op_ld.sum": loaded });
            json!({ "line": n, "text": "", "metrics": metrics })
        };
        let profile = json!({ "ptx": [line(3, 2), line(5, 14), line(6, 28), line(7, 14), line(8, 2)] });
        let issue = Issue::of(&sass::read(SASS, "k").unwrap(), &profile);
        assert_eq!(issue.kernel, (2 * (2 + 3) + 14 * 5) as f64);
        let loops = issue.loops.as_ref().unwrap();
        assert_eq!((loops.slots, loops.pipes[&Pipe::F32]), (70.0, 28.0));
        assert_eq!(issue.to_json()["loops"]["pipes"]["global"], 14.0);
        assert_eq!(issue.to_json()["loops"]["global_load_bytes"], 14 * 512);
        assert_eq!(Issue::of(&sass::read(SASS, "k").unwrap(), &json!({ "ptx": [] })).to_json()["loops"], Value::Null);
    }
}
