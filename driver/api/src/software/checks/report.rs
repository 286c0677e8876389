//! What stopped a kernel, as a finding.

use warpsmith_check::Finding;
use warpsmith_simt::Fault;

/// What stopped a kernel, as a finding; see [`Finding::of_fault`].
pub fn finding_of(fault: &Fault) -> Finding {
    Finding::of_fault(fault)
}

#[cfg(test)]
mod tests {
    use warpsmith_simt::{AccessKind, AllocationInfo, BadAccess, FaultKind, Frame, Nearest, Place, Problem};

    use super::*;
    use crate::software::{Report, Rule};
    use serde_json::json;

    #[test]
    fn a_fault_is_a_finding_with_its_place() {
        let (address, place, problem) = (1 << 48, Place::Global, Problem::Outside(0));
        let allocation = Some(AllocationInfo { base: address - 8, size: 4 });
        let nearest = Nearest { address, allocation, freed: false };
        let fault = Fault {
            block: [1, 0, 0],
            thread: [37, 0, 0],
            lane: 5,
            ptx_line: 12,
            ptx_text: "\tst.global.b32 [%rd1], %r1;".into(),
            frames: vec![Frame { file: "src/k.rs".into(), line: 7, column: 3 }],
            address: Some(address),
            access: Some(BadAccess { what: AccessKind::Store, bytes: 4, place, address, problem }),
            nearest: Some(nearest),
            ..Fault::new(FaultKind::OutOfBounds, "k")
        };
        let freed = Fault { nearest: Some(Nearest { freed: true, ..nearest }), ..fault.clone() };
        assert_eq!(finding_of(&freed).rule, Rule::UseAfterFree);
        let report = Report::new(finding_of(&fault));
        let json = report.to_json();
        assert_eq!(json["rule"], "memory::out-of-bounds");
        assert_eq!(json["place"], json!({ "file": "src/k.rs", "line": 7, "column": 3 }));
        assert_eq!(json["sites"][0]["lane"], 5);
        assert_eq!(json["memory"], "4 bytes past the end of the nearest allocation, 4 bytes at 0xfffffffffff8");
        let text = report.to_string();
        assert!(text.contains("src/k.rs:7:3") && text.contains("thread (37,0,0), lane 5"), "{text}");
    }
}
