//! What is written comes back: every field of a report, and every kind of defect, of place and of detail.

#![allow(clippy::unwrap_used)]

use warpsmith_simt::machine::note::{Order, Scope};
use warpsmith_simt::{
    AccessKind, AllocationInfo, BadAccess, BarrierDispute, FaultKind, LaunchRefusal, Nearest, ObjectMisuse, Place,
    Problem, Reason, Stuck, Waiter, Waits,
};

use super::*;
use crate::defect::*;
use crate::record::Record;
use crate::report::HostFrame;

#[track_caller]
fn comes_back(report: &Report) {
    let line = Record::Finding(Box::new(report.clone())).to_line();
    assert_eq!(Record::parse(&line), Ok(Record::Finding(Box::new(report.clone()))), "{line}");
}

fn frame(line: u32) -> Frame {
    Frame { file: format!("src/{line}.rs"), line, column: 7 }
}

fn host(line: u32) -> HostSite {
    let frames = vec![HostFrame { function: format!("f{line}"), file: Some("src/main.rs".into()), line }];
    HostSite { api: format!("cu{line}"), frames }
}

/// A side that has a value in every field, none of them that of another.
fn site(kind: SiteKind, detail: Detail, line: u32) -> Site {
    Site {
        kind,
        block: Some([line, 1, 2]),
        thread: Some([line, 3, 4]),
        lane: line + 5,
        ptx_line: line + 6,
        ptx_text: format!("st.global.u32 [%rd{line}], %r1;"),
        ptx_statement: line + 8,
        source: vec![frame(line), frame(line + 1)],
        detail,
    }
}

fn of(defect: Defect) -> Report {
    Report::new(Finding::new(Rule::RaceGlobal, Severity::Error, defect))
}

#[test]
fn every_field_of_a_report_comes_back() {
    let (first, second) =
        (site(SiteKind::Here, Detail::WroteThis, 10), site(SiteKind::Store, Detail::OtherLanes(3), 30));
    // All fields by name: a new one has to be given a value here.
    let finding = Finding {
        rule: Rule::RaceShared,
        severity: Severity::Warning,
        kernel: "k".into(),
        defect: Defect::DivisionByZero,
        sites: vec![first.clone(), second.clone()],
        addresses: vec![256, 64],
        count: 3,
        also: vec![Also {
            rule: Rule::RaceGlobal,
            severity: Severity::Info,
            defect: Defect::BarrierAgain { barrier: 4 },
            sites: vec![second, first],
            count: 5,
        }],
    };
    let report = Report {
        finding,
        launch: Some(Launch { dynamic_shared: 9, ..Launch::new([2, 3, 4], [5, 6, 7]) }),
        site: host(1),
        allocation: Some(host(2)),
        freed: Some(host(3)),
        source: Some(host(4)),
        replay: "warpsmith check k".into(),
        shape: Some("n = 8".into()),
        process: Some(12),
    };
    comes_back(&report);
    assert_eq!(report.to_json()["place"]["line"], 10, "the innermost place of the kernel's own crate");
}

fn nearest() -> Nearest {
    Nearest { address: 0x1010, allocation: Some(AllocationInfo { base: 0x1000, size: 16 }), freed: true }
}

fn races() -> Vec<Defect> {
    let within = [
        Within::Shared { bytes: 64 },
        Within::Allocation { base: 1, bytes: 2 },
        Within::Variable { name: "v".into(), base: 3, bytes: 4 },
        Within::Unknown,
    ];
    let missing = [
        Missing::Coherence,
        Missing::Wait { object: true, target: false },
        Missing::WiderScope { scope: Scope::Cta, earlier: true, block: 2 },
        Missing::WiderSynchronisation { release: Some(3), acquire: None },
        Missing::WarpBarrier { earlier_lane: 1, lane: 2, lockstep: true, exited: false },
        Missing::BlockBarrier { earlier: (1, 2), now: (3, 4), exited: true },
        Missing::Acquire { earlier_block: 5, block: 6 },
        Missing::BlockOrder { earlier_block: 7, block: 8 },
    ];
    let verbs = [(Verb::Read, Verb::Write), (Verb::Atomic, Verb::Copy)].into_iter().cycle();
    let advice = [Advice::None, Advice::DroppedOrdering, Advice::RelaxedOnly].into_iter().cycle();
    let both = missing.into_iter().zip(within.into_iter().cycle()).zip(verbs.zip(advice));
    both.map(|((missing, within), ((access, earlier), advice))| {
        let (space, variable) = (Place::Shared, Some("w".into()));
        let (writes, silent, at, bytes) = (true, true, 24, 4);
        Defect::Race(Box::new(Race {
            access,
            earlier,
            writes,
            space,
            at,
            bytes,
            within,
            missing,
            silent,
            variable,
            advice,
        }))
    })
    .collect()
}

fn of_memory() -> Vec<Defect> {
    let loaded =
        |past| Undefined::Loaded { space: Place::Local, at: 8, bytes: 16, undefined: 3, within: Within::Unknown, past };
    let undefined = [
        Undefined::Register,
        loaded(Past::Unwritten),
        loaded(Past::Stored { kernel: Some("other".into()) }),
        Undefined::Copied(nearest()),
    ];
    let decides = [
        Decides::ControlFlow,
        Decides::Guard,
        Decides::Execution,
        Decides::Address,
        Decides::Operand,
        Decides::Comparison,
    ];
    let past = [
        OutputPast::Unwritten,
        OutputPast::WrittenElsewhere,
        OutputPast::Forgotten,
        OutputPast::Follows(Rule::RaceScope),
        OutputPast::Stored(Some(Undefined::Register)),
        OutputPast::Copied(nearest()),
    ];
    let memory = [
        AllocationKind::Device,
        AllocationKind::Pool,
        AllocationKind::Managed,
        AllocationKind::Pinned,
        AllocationKind::Registered,
        AllocationKind::Variable,
        AllocationKind::Interprocess,
    ];
    let variable = |offset| Variable { name: "tile".into(), offset, bytes: 32 };
    let decided = decides.into_iter().zip(undefined.into_iter().cycle());
    let output = |past| Defect::UndefinedOutput { bytes: 8, undefined: 2, nearest: nearest(), past };
    let leak = |memory| Defect::Leak { memory, bytes: 24, first: (64, 8), left_by: LeftBy::Context };
    let mut all: Vec<Defect> = decided.map(|(decides, data)| Defect::Undefined { decides, data }).collect();
    all.extend(past.map(output));
    all.extend(memory.map(leak));
    all.push(Defect::SameAddress { lanes: 2, different: true, space: Place::Global, at: 7, within: Within::Unknown });
    all.push(Defect::CopyUnderWay { writes: true, at: 5 });
    let (of, hit) = (vec![variable(0), variable(64)], Some(variable(32)));
    all.push(Defect::VariableOverrun { access: Verb::Atomic, bytes: 4, at: 33, of, hit });
    all.push(Defect::Overlap {
        operation: "copy".into(),
        writes: true,
        earlier: "fill".into(),
        earlier_writes: true,
        nearest: nearest(),
        programmatic: true,
    });
    all.push(Defect::FreedInUse { operation: "free".into(), user: "k".into(), nearest: nearest() });
    all
}

fn reasons() -> Vec<Reason> {
    let (here, elsewhere) = (3, 12);
    let mut all = vec![
        Reason::Unnamed { lane: 4, mask: 15 },
        Reason::PartOfWarp,
        Reason::TargetIndex,
        Reason::Rank { rank: 2 },
        Reason::FillSize { bytes: 3, unit: 8, most: 64 },
        Reason::CopySize { bytes: 3, unit: 16 },
        Reason::NoFunction { target: 48 },
        Reason::Calls { depth: 9, local: 10, limits: (8, 12) },
        Reason::Alloca { bytes: 1, most: 2, used: 3 },
        Reason::StackRestore { value: 5 },
        Reason::Wide,
        Reason::NoLibrary,
        Reason::Free { address: 6 },
        Reason::Printf { address: 7 },
        Reason::Assertion { condition: "a".into(), file: "b".into(), line: 8, function: "c".into() },
        Reason::Instructions { executed: 9, limit: 8 },
    ];
    let (grid, block, required) = ([1, 2, 3], [4, 5, 6], [7, 8, 9]);
    all.extend(
        [
            LaunchRefusal::NoKernel,
            LaunchRefusal::Empty { grid, block },
            LaunchRefusal::Grid { grid },
            LaunchRefusal::Block { block },
            LaunchRefusal::MaxThreads { threads: 1, most: 2 },
            LaunchRefusal::RequiredThreads { block, required },
            LaunchRefusal::Dynamic { bytes: 1, allowed: 2 },
            LaunchRefusal::Shared { bytes: 1, most: 2, sm: 90 },
            LaunchRefusal::Local { bytes: 1 },
            LaunchRefusal::Parameters { bytes: 1, takes: 2 },
            LaunchRefusal::Workspace,
        ]
        .map(Reason::Refused),
    );
    all.extend(
        [
            Stuck::NobodyRuns,
            Stuck::BlockIsStale,
            Stuck::LaunchIsStale,
            Stuck::NobodyIsLeft,
            Stuck::AllWait,
            Stuck::NothingRaised,
        ]
        .map(Reason::Stuck),
    );
    all.extend(
        [
            BarrierDispute::Operands,
            BarrierDispute::Number { barrier: 16, last: 15 },
            BarrierDispute::Threads { threads: 33 },
            BarrierDispute::Counts { barrier: 1, first: 32, now: 64 },
            BarrierDispute::ArrivesAgain,
            BarrierDispute::NotArrived,
            BarrierDispute::Places { here, elsewhere },
        ]
        .map(Reason::Barrier),
    );
    all.extend(
        [
            ObjectMisuse::Count { count: 0, most: 9 },
            ObjectMisuse::Uninitialised,
            ObjectMisuse::CopyUninitialised,
            ObjectMisuse::Arrivals { count: 2, pending: 1 },
            ObjectMisuse::Bytes { bytes: -3, most: 9 },
            ObjectMisuse::Completes,
            ObjectMisuse::Token,
        ]
        .map(Reason::Object),
    );
    all
}

fn stopped() -> Vec<Defect> {
    let problems = [
        Problem::Misaligned(8),
        Problem::Null,
        Problem::ReadOnly,
        Problem::Outside(16),
        Problem::OtherSpace(Place::Param),
    ];
    let access =
        |problem| BadAccess { what: AccessKind::BulkStore, bytes: 4, place: Place::Local, address: 9, problem };
    let waits = [
        Waits::Spins,
        Waits::AtBarrier { barrier: Some(2), arrived: Some((32, 64)), lanes: 5, warps: vec![1, 3] },
        Waits::InCollective { mask: 7, missing: 4 },
        Waits::ForLanes { lanes: 6 },
        Waits::HasExited,
    ];
    let waiter = |does| Waiter { warp: 1, lanes: 2, pc: 3, does, ptx_line: 4, source: Some("k.rs:5".into()) };
    let waiters: Vec<Waiter> = waits.map(waiter).into();
    let fault = |access, reason, nearest| {
        let (fault, address) = (FaultKind::Trap, Some(0x20));
        Defect::Fault { fault, address, access, reason, waiters: waiters.clone(), nearest }
    };
    let stuck = |reason| {
        let (fault, spinning, at_barrier) = (FaultKind::Deadlock, true, true);
        Defect::Stuck { fault, reason: Some(reason), spinning, at_barrier }
    };
    let mut all: Vec<Defect> = reasons().into_iter().map(stuck).collect();
    all.extend(reasons().into_iter().map(|reason| fault(None, Some(reason), None)));
    all.extend(problems.map(|problem| fault(Some(access(problem)), None, Some(nearest()))));
    all
}

fn others() -> Vec<Defect> {
    let differences = [
        Difference::Outputs,
        Difference::ExitCode { before: 1, after: 2 },
        Difference::Bytes { number: 3, bytes: 4 },
        Difference::Path { number: 5, before: Some(6), after: None },
        Difference::Later { number: 7 },
    ];
    let mut all = vec![
        Defect::BarrierLeftOut { threads: 5 },
        Defect::BarrierKinds { barrier: 1, first: "bar.sync".into(), now: "bar.red".into() },
        Defect::BarrierAgain { barrier: 2 },
        Defect::MasksDisagree { collective: "shfl".into(), lanes: 3, others: 12 },
        Defect::SplitCollective { collective: "vote".into(), lanes: 3, places: 2 },
        Defect::ShuffleSource { lane: 4, mask: Some(15) },
        Defect::DivisionByZero,
        Defect::Refused {
            function: "cuF".into(),
            code: 1,
            name: "CUDA_ERROR".into(),
            meaning: "means".into(),
            reason: "because".into(),
        },
    ];
    all.extend(differences.map(|difference| Defect::Schedule { seeds: (3, 4), difference }));
    all
}

#[test]
fn every_defect_comes_back_and_has_a_sentence() {
    let all: Vec<Defect> = [races(), of_memory(), stopped(), others()].concat();
    for defect in &all {
        let report = of(defect.clone());
        comes_back(&report);
        assert!(!report.finding.message().is_empty(), "{defect:?}");
    }
    // One that is lost in the lists above would be missed here.
    let kinds: std::collections::BTreeSet<String> =
        all.iter().map(|defect| serde_json::to_value(defect).unwrap()["kind"].to_string()).collect();
    assert_eq!(kinds.len(), 20, "{kinds:?}");
}

/// Two reasons with one sentence would be one reason to a reader.
#[test]
fn reasons_have_sentences_of_their_own() {
    let said: Vec<String> = reasons().iter().map(ToString::to_string).collect();
    for (at, sentence) in said.iter().enumerate() {
        assert!(!sentence.is_empty() && !said[..at].contains(sentence), "{sentence}");
    }
}

#[test]
fn every_side_comes_back() {
    let kernel = Some("other".to_owned());
    let kinds = [
        SiteKind::Access { verb: Verb::Copy, bytes: Some(4), earlier: true },
        SiteKind::Instruction(Verb::Atomic),
        SiteKind::AsyncCopy,
        SiteKind::Barrier,
        SiteKind::LeftOut,
        SiteKind::Named("shfl".into()),
        SiteKind::Shuffle,
        SiteKind::Part,
        SiteKind::Division,
        SiteKind::Decision,
        SiteKind::Addressed,
        SiteKind::Operation,
        SiteKind::UndefinedLoad { kernel: kernel.clone() },
        SiteKind::UndefinedStore { kernel: kernel.clone() },
        SiteKind::StoredBefore { kernel: kernel.clone() },
        SiteKind::Store,
        SiteKind::Use { writes: true, kernel, operation: "copy".into(), earlier: true },
        SiteKind::Free { operation: "free".into() },
        SiteKind::Executed,
        SiteKind::Here,
        SiteKind::Waits { warp: 1, lanes: 2, waits: Waits::LoopBegins, more: 3 },
    ];
    let details = [
        Detail::None,
        Detail::OtherLanes(1),
        Detail::OtherThreads(2),
        Detail::Reads(vec![3, 4]),
        Detail::Writes { new: vec![5], over: Some(vec![6]) },
        Detail::Finds { old: vec![7], order: Order::AcqRel, scope: Scope::System },
        Detail::WroteThis,
        Detail::Strong { order: Order::Release, scope: Scope::Cluster },
        Detail::Shared { bytes: 8, at: 9, target: true },
        Detail::Lanes(10),
        Detail::Masked { lanes: 11, mask: 12 },
        Detail::FirstToArrive,
    ];
    let pairs = kinds.into_iter().zip(details.into_iter().cycle());
    let mut report = of(Defect::DivisionByZero);
    report.finding.sites =
        (0u32..).step_by(10).zip(pairs).map(|(line, (kind, detail))| site(kind, detail, line)).collect();
    comes_back(&report);
}
