//! Metadata against entries, launch bounds, shared memory, lints.

use std::collections::{BTreeMap, BTreeSet};

use super::meta::{self, KernelLine};
use super::{Rules, outline};
use warpsmith_image::KernelEntry;
use warpsmith_ptx::ast::Space;
use warpsmith_ptx::outline::{BodyOutline, FunctionOutline, Outline, VariableOutline};

/// Shared memory that a kernel may declare; more must be asked for at launch.
const STATIC_SHARED_LIMIT: u64 = warpsmith_arch::DEFAULT_SHARED as u64;
const THREADS_LIMIT: u64 = warpsmith_arch::MAX_THREADS as u64;

/// Functions that the driver provides.
pub(super) const DRIVER_FUNCTIONS: &[&str] = &["vprintf", "__assertfail", "malloc", "free"];

/// What a text lacks, to stand at a byte of it.
#[derive(Debug)]
pub(super) struct Insert {
    pub(super) at: usize,
    pub(super) text: String,
}

/// What is known of a text that satisfies the rules.
#[derive(Debug)]
pub(super) struct Checked {
    /// Launch bounds.
    pub(super) inserts: Vec<Insert>,
    pub(super) isa: (u32, u32),
    /// By name.
    pub(super) kernels: Vec<KernelEntry>,
    pub(super) warnings: Vec<String>,
}

/// Checks a text of this outline, or answers everything that is wrong with it.
pub(super) fn check(text: &str, scan: &Outline<'_>, rules: &Rules<'_>) -> Result<Checked, Vec<String>> {
    let kernel_lines = meta::lines(text);
    let mut problems = Vec::new();
    let mut warnings = Vec::new();

    let isa = check_header(scan, rules, &mut problems);
    check_externs(scan, &mut problems);
    check_shared_names(scan, &mut problems);
    let lines = meta::read(&kernel_lines, &mut problems);
    let unreadable = lines.len() != kernel_lines.len();
    let mut by_name: BTreeMap<&str, &KernelLine> = BTreeMap::new();
    for line in &lines {
        if by_name.insert(&line.kernel.name, line).is_some() {
            problems.push(format!("two kernels are called `{}`; names are global, so rename one", line.kernel.name));
        }
    }

    let mut kernels = Vec::new();
    let mut inserts = Vec::new();
    for entry in scan.functions.iter().filter(|f| f.is_entry) {
        let Some(line) = by_name.remove(entry.name) else {
            if !unreadable {
                problems.push(format!(
                    "entry `{}` has no metadata; write kernels with #[kernel], which emits it",
                    entry.name
                ));
            }
            continue;
        };
        let mut kernel = line.kernel.clone();
        check_params(entry, line, &mut problems);
        for (arg, offset) in kernel.args.iter_mut().zip(offsets(entry)) {
            arg.offset = u32::try_from(offset).unwrap_or(u32::MAX);
        }
        let bounds = launch_bounds(entry, line, rules, &mut problems);
        inserts.extend(bounds.map(|text| Insert { at: entry.header_end, text }));

        let reached = Reached::from(entry, scan);
        let shared = reached.static_shared();
        if shared > STATIC_SHARED_LIMIT {
            problems.push(format!(
                "kernel `{}` declares {shared} bytes of shared memory; at most {STATIC_SHARED_LIMIT} can be declared. \
                 Use dynamic shared memory for more",
                entry.name
            ));
        }
        kernel.static_shared = u32::try_from(shared).unwrap_or(u32::MAX);
        kernel.dynamic_shared_used = reached.uses_dynamic_shared();
        kernel.grid_barrier = reached.has("warpsmith_grid_barrier");
        kernel.waits = reached.has("griddepcontrol.wait");
        kernel.local_bytes = u32::try_from(reached.local_bytes()).unwrap_or(u32::MAX);
        if kernel.local_bytes > 0 && !may_use_local(line, rules.allow_local) {
            let to = if rules.refuse_local { &mut problems } else { &mut warnings };
            to.push(local_memory(entry.name, kernel.local_bytes, rules.refuse_local));
        }
        kernel.collectives = reached.collectives();
        check_collectives(&kernel.name, line, &kernel.collectives, &mut problems);
        reached.warn(scan, &mut warnings);
        kernels.push(kernel);
    }
    for name in by_name.keys() {
        problems.push(format!("there is metadata for `{name}`, but no entry of that name in the PTX"));
    }
    if kernels.is_empty() && problems.is_empty() {
        problems
            .push("there is no kernel in it; is the crate's module with the kernels compiled for nvptx64?".to_owned());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Checked { inserts, isa, kernels, warnings })
}

fn check_header(scan: &Outline<'_>, rules: &Rules<'_>, problems: &mut Vec<String>) -> (u32, u32) {
    let wanted = rules.arch.to_string();
    match scan.target {
        Some(target) if target == wanted => {}
        Some(target) => problems.push(format!("`.target` is {target}, but {wanted} was asked for")),
        None => problems.push("there is no `.target`; is this PTX?".to_owned()),
    }
    match (scan.version, rules.isa) {
        (None, _) => problems.push("there is no `.version`; is this PTX?".to_owned()),
        (Some(found), Some(wanted)) if found != wanted => {
            problems.push(format!("`.version` is {}.{}, but {}.{} was asked for", found.0, found.1, wanted.0, wanted.1))
        }
        _ => {}
    }
    scan.version.unwrap_or_default()
}

fn check_externs(scan: &Outline<'_>, problems: &mut Vec<String>) {
    let defined: BTreeSet<&str> = scan.functions.iter().filter(|f| f.body.is_some()).map(|f| f.name).collect();
    let mut seen = BTreeSet::new();
    for function in scan.functions.iter().filter(|f| f.is_extern && !f.is_entry) {
        if !defined.contains(function.name) && !DRIVER_FUNCTIONS.contains(&function.name) && seen.insert(function.name)
        {
            problems.push(format!(
                "function `{}` is called but defined nowhere, so no GPU can load this. Write it in Rust, or leave the \
                 call out of device code: only {} come with the driver",
                function.name,
                DRIVER_FUNCTIONS.join(", ")
            ));
        }
    }
}

/// A generator that has no better loops to give is no fault of the kernel.
fn may_use_local(line: &KernelLine, allowed: &[String]) -> bool {
    line.allow_local || allowed.contains(&line.kernel.name)
}

/// Whether a kernel that may not use local memory does.
pub(crate) fn keeps_local_memory(text: &str, allowed: &[String]) -> bool {
    if !text.contains(".local ") {
        return false;
    }
    let scan = outline(text);
    let lines = meta::read(&meta::lines(text), &mut Vec::new());
    let refused = |name: &str| lines.iter().any(|line| line.kernel.name == name && !may_use_local(line, allowed));
    scan.functions
        .iter()
        .filter(|f| f.is_entry && refused(f.name))
        .any(|entry| Reached::from(entry, &scan).local_bytes() > 0)
}

fn local_memory(kernel: &str, bytes: u32, refused: bool) -> String {
    let remedy = match refused {
        true => "Index with constants, or allow it with `\"allow_local\": true` or KernelCrate::allow_local",
        false => "Write the loop with static_for!, which leaves none",
    };
    format!(
        "kernel `{kernel}` keeps {bytes} bytes per thread in local memory, which is slow: an array is indexed by a value \
         that is not constant, or its loop is not unrolled. {remedy}"
    )
}

/// Shared arrays are symbols of the whole module, whichever function declares them.
fn check_shared_names(scan: &Outline<'_>, problems: &mut Vec<String>) {
    let functions: BTreeSet<&str> = scan.functions.iter().map(|f| f.name).collect();
    let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
    for variable in scan.variables.iter().filter(|v| !v.is_extern) {
        let twice = !seen.insert(variable.name);
        if (twice || functions.contains(variable.name)) && told.insert(variable.name) {
            let other = if twice { "another variable" } else { "a kernel" };
            problems.push(format!(
                "`{name}` is the name of {other} too: the name that `shared_array!({name}: …)` or `constant_array!` is given is \
                 a symbol of the whole library, so each name is used once. Rename one, or declare the array once and hand it on",
                name = variable.name
            ));
        }
    }
}

/// Offset of every parameter: each at the next multiple of its alignment.
fn offsets(entry: &FunctionOutline<'_>) -> Vec<u64> {
    layout(entry.params.iter().map(|p| (p.size, p.align)))
}

fn layout(items: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
    let mut end = 0_u64;
    items
        .map(|(size, align)| {
            let offset = align_up(end, align);
            end = offset.saturating_add(size);
            offset
        })
        .collect()
}

fn align_up(value: u64, align: u64) -> u64 {
    value.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}

fn check_params(entry: &FunctionOutline<'_>, line: &KernelLine, problems: &mut Vec<String>) {
    let args = &line.kernel.args;
    if args.len() != entry.params.len() {
        problems.push(format!(
            "kernel `{}` has {} arguments by its metadata, but {} parameters in the PTX",
            entry.name,
            args.len(),
            entry.params.len()
        ));
        return;
    }
    let host = layout(args.iter().map(|a| (u64::from(a.size), u64::from(a.align))));
    let device = offsets(entry);
    for (((arg, param), host), device) in args.iter().zip(&entry.params).zip(host).zip(device) {
        for (what, by_metadata, in_ptx) in [
            ("size", u64::from(arg.size), param.size),
            ("alignment", u64::from(arg.align), param.align),
            ("offset", host, device),
        ] {
            if by_metadata != in_ptx {
                problems.push(format!(
                    "kernel `{}`, argument `{}` ({}): {what} {by_metadata} by its metadata, but {in_ptx} in the PTX (`{}`)",
                    entry.name, arg.name, arg.ty, param.name
                ));
            }
        }
    }
}

/// `.maxntid` and `.minnctapersm`, to stand behind the parameter list.
fn launch_bounds(
    entry: &FunctionOutline<'_>,
    line: &KernelLine,
    rules: &Rules<'_>,
    problems: &mut Vec<String>,
) -> Option<String> {
    let [x, y, z] = line.kernel.block;
    let threads = line.kernel.block.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    if threads == 0 || threads > THREADS_LIMIT || z > 64 {
        problems.push(format!(
            "kernel `{}`: a block of {x} x {y} x {z} threads is impossible; 1 to {THREADS_LIMIT} are allowed, z at most 64",
            entry.name
        ));
        return None;
    }
    if let Some(own) = entry.directives.iter().find(|d| matches!(**d, ".maxntid" | ".reqntid" | ".minnctapersm")) {
        problems.push(format!(
            "entry `{}` already says `{own}`; launch bounds come from `block` and `min_blocks` of #[kernel]",
            entry.name
        ));
        return None;
    }
    let mut text = format!("\n.maxntid {x}, {y}, {z}");
    if line.kernel.min_blocks > 0 {
        // A bound that the multiprocessor cannot hold is ignored by ptxas as a whole.
        let warps_full = threads.next_multiple_of(32);
        let possible = (u64::from(rules.arch.threads_per_multiprocessor()) / warps_full).max(1);
        text.push_str(&format!("\n.minnctapersm {}", u64::from(line.kernel.min_blocks).min(possible)));
    }
    Some(text)
}

fn check_collectives(name: &str, line: &KernelLine, found: &BTreeMap<String, u32>, problems: &mut Vec<String>) {
    for (kind, expected) in &line.expected {
        let count = found.get(kind).copied().unwrap_or(0);
        if count != *expected {
            problems.push(format!(
                "kernel `{name}` has {count} `{kind}` instructions, but its metadata expects {expected}; a compiler \
                 that clones or drops collectives makes a kernel hang"
            ));
        }
    }
}

/// An entry with everything that it calls.
struct Reached<'s, 'a> {
    entry: &'a str,
    /// The entry first.
    bodies: Vec<(&'a str, &'s BodyOutline<'a>)>,
    variables: Vec<&'s VariableOutline<'a>>,
    /// Alignment of the shared memory given at launch; 1 if the module declares none.
    dynamic_align: u64,
}

impl<'s, 'a> Reached<'s, 'a> {
    fn from(entry: &'s FunctionOutline<'a>, scan: &'s Outline<'a>) -> Reached<'s, 'a> {
        let defined: BTreeMap<&str, &FunctionOutline<'a>> =
            scan.functions.iter().filter(|f| !f.is_entry && f.body.is_some()).map(|f| (f.name, f)).collect();
        let mut seen = BTreeSet::new();
        let mut bodies = Vec::new();
        let mut open = vec![entry];
        while let Some(function) = open.pop() {
            let Some(body) = &function.body else { continue };
            bodies.push((function.name, body));
            for name in &body.names {
                if let Some(callee) = defined.get(name)
                    && seen.insert(*name)
                {
                    open.push(callee);
                }
            }
        }
        let module = scan.variables.iter().filter(|v| bodies.iter().any(|(_, b)| b.names.contains(v.name)));
        let dynamic = scan.variables.iter().filter(|v| v.space == Space::Shared && v.is_extern);
        let dynamic_align = dynamic.map(|v| v.align).max().unwrap_or(1);
        let own = bodies.iter().flat_map(|(_, b)| &b.variables);
        let variables = module.chain(own).collect();
        Reached { entry: entry.name, bodies, variables, dynamic_align }
    }

    /// As ptxas counts: in the order of declaration, then up to where the shared memory given at
    /// launch would begin, if the module declares any.
    fn static_shared(&self) -> u64 {
        let end = self
            .variables
            .iter()
            .filter(|v| v.space == Space::Shared && !v.is_extern)
            .fold(0, |end, v| align_up(end, v.align).saturating_add(v.size.unwrap_or(0)));
        align_up(end, self.dynamic_align)
    }

    fn uses_dynamic_shared(&self) -> bool {
        self.variables.iter().any(|v| v.space == Space::Shared && v.is_extern)
    }

    /// Whether an instruction or a name is there; a register `warpsmith_grid_barrier` is declared where `grid::sync` stands.
    fn has(&self, name: &str) -> bool {
        self.bodies.iter().any(|(_, body)| body.names.contains(name))
    }

    /// Without the memory that a function which prints hands its arguments over in: it must be there, and costs only what
    /// prints.
    fn local_bytes(&self) -> u64 {
        let prints = |(name, body): &&(&str, &BodyOutline<'_>)| *name != self.entry && body.names.contains("vprintf");
        let handed_over: Vec<_> = self.bodies.iter().filter(prints).flat_map(|(_, body)| &body.variables).collect();
        let counts = |v: &&&VariableOutline<'_>| {
            v.space == Space::Local && !handed_over.iter().any(|own| std::ptr::eq(*own, **v))
        };
        self.variables.iter().filter(counts).fold(0, |sum, v| sum.saturating_add(v.size.unwrap_or(0)))
    }

    fn collectives(&self) -> BTreeMap<String, u32> {
        let mut sum: BTreeMap<String, u32> = BTreeMap::new();
        for (kind, count) in self.bodies.iter().flat_map(|(_, body)| collectives(body)) {
            *sum.entry(kind.to_owned()).or_default() += count;
        }
        sum
    }

    fn warn(&self, scan: &Outline<'_>, warnings: &mut Vec<String>) {
        for (name, kinds) in self.bodies.iter().skip(1).map(|(name, body)| (name, collectives(body))) {
            if kinds.is_empty() {
                continue;
            }
            warnings.push(format!(
                "kernel `{}` calls `{name}`, which contains {}; a call can be cloned into divergent branches. \
                 Mark functions with collectives #[inline(always)] (#[device] does)",
                self.entry,
                kinds.into_keys().collect::<Vec<_>>().join(", ")
            ));
        }
        for global in scan.variables.iter().filter(|v| v.space == Space::Global) {
            let used = self.bodies.iter().any(|(_, b)| b.names.contains(global.name));
            let stored = self.bodies.iter().any(|(_, b)| b.stored_to.contains(global.name));
            let lower = global.name.to_ascii_lowercase();
            if used && (lower.contains("smem") || lower.contains("shared")) {
                warnings.push(format!(
                    "kernel `{}` uses `{}`, which sounds like shared memory but lies in global memory, one copy for all \
                     blocks; declare it with shared_array!",
                    self.entry, global.name
                ));
            } else if stored {
                warnings.push(format!(
                    "kernel `{}` writes the static `{}`, which lies in global memory, one copy for all blocks and \
                     launches; pass a buffer, or declare it with shared_array! if a block's own copy is meant",
                    self.entry, global.name
                ));
            }
        }
    }
}

/// How many collective instructions of each kind are in a body.
fn collectives(body: &BodyOutline<'_>) -> BTreeMap<&'static str, u32> {
    let mut sum: BTreeMap<&'static str, u32> = BTreeMap::new();
    for (opcode, count) in &body.opcodes {
        if let Some(kind) = collective(opcode) {
            *sum.entry(kind).or_default() += count;
        }
    }
    sum
}

/// The kind of a collective instruction: one that all lanes of a warp or block execute together.
fn collective(opcode: &str) -> Option<&'static str> {
    Some(match opcode.split_once('.')?.0 {
        // `bar.warp.sync` joins a warp, the others a block or cluster; all must stay single.
        "bar" | "barrier" => "barrier",
        "shfl" => "shfl",
        "vote" => "vote",
        "match" => "match",
        "redux" => "redux",
        "elect" => "elect",
        "mma" | "wmma" | "wgmma" => "mma",
        "ldmatrix" | "stmatrix" => "ldmatrix",
        _ => return None,
    })
}
