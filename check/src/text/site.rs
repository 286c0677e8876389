//! The sides of findings, in words.

use warpsmith_simt::machine::note::Order;

use crate::Site;
use crate::defect::Verb;
use crate::site::{Detail, SiteKind};

impl Site {
    /// What happened here, e.g. `write of 4 bytes`.
    pub fn label(&self) -> String {
        let by = |what: &str, kernel: &Option<String>| match kernel {
            Some(kernel) => format!("{what} by kernel `{kernel}`"),
            None => what.to_owned(),
        };
        let earlier = |is: bool| if is { "earlier " } else { "" };
        let fixed = match &self.kind {
            SiteKind::Access { verb, bytes, earlier: before } => {
                let of = bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
                return format!("{}{}{of}", earlier(*before), verb.name());
            }
            SiteKind::UndefinedLoad { kernel } => return by("undefined bytes loaded", kernel),
            SiteKind::UndefinedStore { kernel } => return by("store of undefined data", kernel),
            SiteKind::StoredBefore { kernel } => return by("stored before", kernel),
            SiteKind::Use { writes, kernel, operation, earlier: before } => {
                let verb = if *writes { Verb::Write } else { Verb::Read };
                return format!("{}{} ({operation})", earlier(*before), by(verb.name(), kernel));
            }
            SiteKind::Free { operation } => operation,
            SiteKind::Waits { warp, lanes, waits, more } => {
                let others = match more {
                    0 => String::new(),
                    1 => "; so does another group of lanes".to_owned(),
                    n => format!("; so do {n} more groups of lanes"),
                };
                return format!("warp {warp}, lanes {lanes:#010x}: {waits}{others}");
            }
            SiteKind::Named(name) => name,
            SiteKind::Instruction(verb) => verb.instruction(),
            SiteKind::AsyncCopy => "asynchronous copy",
            SiteKind::Barrier => "barrier",
            SiteKind::LeftOut => "gone around it, and exited",
            SiteKind::Shuffle => "shuffle",
            SiteKind::Part => "part of it",
            SiteKind::Division => "division",
            SiteKind::Decision => "decision",
            SiteKind::Addressed => "access",
            SiteKind::Operation => "operation",
            SiteKind::Store => "store",
            SiteKind::Executed => "executed",
            SiteKind::Here => "here",
        };
        fixed.to_owned()
    }

    /// The value, or what else is known. May be empty.
    pub fn note(&self) -> String {
        let list = |values: &[u64]| values.iter().map(|v| format!("{v:#x}")).collect::<Vec<_>>().join(", ");
        match &self.detail {
            Detail::None => String::new(),
            Detail::OtherLanes(n) => format!("and {n} other lanes of the warp"),
            Detail::OtherThreads(n) => format!("and {n} other threads of the block"),
            Detail::Reads(values) => format!("reads {}", list(values)),
            Detail::Writes { new, over: None } => format!("writes {}", list(new)),
            Detail::Writes { new, over: Some(old) } => format!("writes {} over {}", list(new), list(old)),
            Detail::Finds { old, order, scope } => {
                format!("finds {}, {} at scope .{}", list(old), name(*order), scope.name())
            }
            Detail::WroteThis => "wrote what is read now".to_owned(),
            Detail::Strong { order, scope } => format!("{} at scope .{}", name(*order), scope.name()),
            Detail::Shared { bytes, at, target: false } => format!("{bytes} bytes at offset {at}"),
            Detail::Shared { bytes, at, target: true } => format!("{bytes} bytes to offset {at}"),
            Detail::Lanes(lanes) => format!("lanes {lanes:#010x}"),
            Detail::Masked { lanes, mask } => format!("lanes {lanes:#010x} name {mask:#010x}"),
            Detail::FirstToArrive => "the first to arrive".to_owned(),
        }
    }
}

/// An order as reports name it.
fn name(order: Order) -> &'static str {
    match order {
        Order::Weak => "weak",
        Order::Volatile => "volatile",
        Order::Relaxed => "relaxed",
        Order::Acquire => "acquire",
        Order::Release => "release",
        Order::AcqRel => "acq_rel",
    }
}
