//! What a module's `.version` and `.target` allow.
//!
//! A GPU's loader refuses a module that uses an instruction younger than its `.version` or its
//! `.target`; so must whatever else runs PTX, or it passes code that no GPU loads. The table in
//! `table.rs` holds, for each opcode and modifier, the least PTX ISA version and architecture as
//! `ptxas` 13.5 enforces them; `tests/ptx/isa.tsv` records what was compared. Instructions that
//! the table does not know need nothing: whether they exist at all is for lowering to say.
//! What does not depend on version and target, above all the types of operands, is in `forms.rs`.

mod forms;
mod table;

use super::ast::{Function, Instruction, Linkage, Module, Operand, Pos, Reg, Target, Type};
use super::{Diagnostic, MAX_DIAGNOSTICS};
use foldhash::{HashMap, HashMapExt};
use table::{OTHERS, RULES, Rule, SPECIAL};

/// The newest PTX ISA version that is known.
pub const LATEST: (u32, u32) = (9, 5);

/// Parameter bytes of an entry that every version allows.
const SMALL_PARAMS: u32 = 4352;
/// Parameter bytes of an entry that any version allows.
const LARGE_PARAMS: u32 = 32764;

/// Everything in the module that its `.version` and `.target` do not allow, in text order. The
/// diagnostics have no line text; see [`Diagnostic::attach_text`].
pub fn check(module: &Module) -> Vec<Diagnostic> {
    let mut checker = Checker { module, found: Vec::new(), rules: by_opcode(), known: HashMap::new() };
    checker.header();
    for variable in &module.variables {
        checker.variable(variable);
    }
    for (alias, _) in &module.aliases {
        let pos = module.functions.iter().find(|f| f.name == *alias).map(|f| f.pos);
        checker.demand(pos.unwrap_or_default(), ".alias", (6, 3), 30);
    }
    for function in &module.functions {
        checker.function(function);
    }
    checker.found.sort_by_key(|d| d.pos);
    checker.found
}

/// Whether an instruction's opcode is one of the ISA's, and what look like types among its modifiers are.
pub fn knows(instruction: &Instruction) -> bool {
    let opcode = instruction.opcode.as_str();
    let mut opcodes = RULES.iter().map(|r| r.opcodes).chain(forms::opcodes()).chain(OTHERS.iter().copied());
    let typed = |m: &String| {
        let number = m.strip_prefix(['b', 'u', 's', 'f']).filter(|n| n.bytes().all(|c| c.is_ascii_digit()));
        number.is_none_or(|n| n.is_empty() || forms::names_type(m))
    };
    opcodes.any(|list| list.split('|').any(|o| o == opcode)) && instruction.modifiers.iter().all(typed)
}

/// `sm_90a`.
fn name(target: &Target) -> String {
    match target.suffix {
        Some(suffix) => format!("sm_{}{suffix}", target.sm),
        None => format!("sm_{}", target.sm),
    }
}

/// The ISA version that introduced a target; `None` if there is no such target.
fn introduced(target: &Target) -> Option<(u32, u32)> {
    warpsmith_arch::Target::find(target.sm, target.suffix).map(|known| known.isa)
}

fn by_opcode() -> HashMap<&'static str, Vec<&'static Rule>> {
    let mut map: HashMap<&str, Vec<&Rule>> = HashMap::new();
    for rule in RULES {
        for opcode in rule.opcodes.split('|') {
            map.entry(opcode).or_default().push(rule);
        }
    }
    map
}

/// What one form of an instruction violates in this module.
type Verdict = Vec<String>;

struct Checker<'m> {
    module: &'m Module,
    found: Vec<Diagnostic>,
    rules: HashMap<&'static str, Vec<&'static Rule>>,
    /// Verdicts by form: most instructions repeat.
    known: HashMap<(&'m str, &'m [String], usize, bool), Verdict>,
}

impl<'m> Checker<'m> {
    fn report(&mut self, pos: Pos, message: String) {
        if self.found.len() < MAX_DIAGNOSTICS {
            self.found.push(Diagnostic::new(pos, message));
        }
    }

    /// Demands a version and an architecture for a feature.
    fn demand(&mut self, pos: Pos, feature: &str, isa: (u32, u32), sm: u32) {
        if self.module.version < isa {
            let text = format!("Feature '{feature}' requires PTX ISA .version {}.{} or later", isa.0, isa.1);
            self.report(pos, text);
        }
        if self.module.target.sm < sm {
            self.report(pos, format!("Feature '{feature}' requires .target sm_{sm} or higher"));
        }
    }

    fn header(&mut self) {
        let (version, target) = (self.module.version, &self.module.target);
        let here = Pos::default();
        if version > LATEST {
            let latest = format!("{}.{}", LATEST.0, LATEST.1);
            let text = format!("Unsupported .version {}.{}; current version is '{latest}'", version.0, version.1);
            return self.report(here, text);
        }
        match introduced(target) {
            None => self.report(here, format!("Unsupported .target '{}'", name(target))),
            Some(first) if version < first => {
                let text =
                    format!("PTX .version {}.{} does not support .target {}", version.0, version.1, name(target));
                self.report(here, text);
            }
            Some(_) => {}
        }
    }

    fn variable(&mut self, variable: &super::ast::Variable) {
        match variable.linkage {
            Linkage::Weak => self.demand(variable.pos, ".weak directive", (3, 1), 0),
            Linkage::Common => self.demand(variable.pos, ".common directive", (5, 0), 0),
            _ => {}
        }
        self.type_of(variable.pos, variable.ty);
        if variable.ty == Type::U8 && !variable.relocations.is_empty() {
            self.demand(variable.pos, "mask operator in initializer", (7, 1), 0);
        }
        if variable.relocations.iter().any(|r| r.generic) {
            self.demand(variable.pos, "generic() operator", (3, 1), 0);
        }
    }

    fn type_of(&mut self, pos: Pos, ty: Type) {
        match ty {
            Type::B128 => self.demand(pos, "Type .b128", (8, 3), 70),
            Type::F16x2 => self.demand(pos, ".f16x2 packed data-type", (4, 2), 53),
            _ => {}
        }
    }

    fn function(&mut self, function: &'m Function) {
        let pos = function.pos;
        if function.linkage == Linkage::Weak {
            self.demand(pos, ".weak directive", (3, 1), 0);
        }
        if function.noreturn {
            self.demand(pos, ".noreturn", (6, 4), 30);
        }
        let directives = &function.directives;
        let cluster = [
            (directives.reqnctapercluster.is_some(), ".reqnctapercluster", (7, 8)),
            (directives.explicitcluster, ".explicitcluster", (7, 8)),
            (directives.maxclusterrank.is_some(), ".maxclusterrank", (7, 8)),
            (directives.blocksareclusters, ".blocksareclusters", (9, 0)),
        ];
        for (used, feature, isa) in cluster {
            if used {
                self.demand(pos, feature, isa, 90);
            }
        }
        if function.is_entry {
            self.params(function);
        }
        let Some(body) = &function.body else { return };
        for variable in &body.variables {
            self.variable(variable);
        }
        let declared = |ty: Type| body.registers.iter().any(|(t, _)| *t == ty);
        for ty in [Type::B128, Type::F16x2] {
            if declared(ty) {
                self.type_of(pos, ty);
            }
        }
        for instruction in &body.instructions {
            self.instruction(instruction, &body.registers);
        }
    }

    fn params(&mut self, function: &Function) {
        let Some(last) = function.params.last() else { return };
        let bytes = last.offset.saturating_add(last.size);
        if bytes > LARGE_PARAMS {
            let text = format!(
                "Entry function '{}' uses too much parameter space ({bytes:#x} bytes, {LARGE_PARAMS:#x} max).",
                function.name
            );
            self.report(function.pos, text);
        } else if bytes > SMALL_PARAMS {
            self.demand(function.pos, "Kernel parameter size larger than 4352 bytes", (8, 1), 70);
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction, registers: &[(Type, String)]) {
        if let Some(message) = forms::check(instruction, registers) {
            self.report(instruction.pos, message);
        }
        // `cp.async` tells a source size from an ignore-source predicate by the operand's type.
        if instruction.opcode == "cp"
            && let Some(Operand::Reg(Reg(index))) = instruction.operands.get(3)
            && registers.get(*index as usize).is_some_and(|(ty, _)| *ty == Type::Pred)
        {
            self.demand(instruction.pos, "cp.async with ignore-src", (7, 5), 80);
        }
        for operand in &instruction.operands {
            if let Operand::Special(register) = operand {
                self.special(instruction.pos, register);
            }
        }
        let Some(rules) = self.rules.get(instruction.opcode.as_str()) else { return };
        let (modifiers, operands) = (instruction.modifiers.as_slice(), &instruction.operands);
        let sink = operands.first() == Some(&Operand::Sink);
        let key = (instruction.opcode.as_str(), modifiers, operands.len(), sink);
        let module = self.module;
        let verdict = self.known.entry(key).or_insert_with(|| judge(rules, instruction, module));
        for message in verdict.clone() {
            self.report(instruction.pos, message);
        }
    }

    fn special(&mut self, pos: Pos, register: &str) {
        let base = register.split('.').next().unwrap_or_default();
        let rule = SPECIAL.iter().find(|(names, ..)| names.split('|').any(|name| base == name));
        if let Some((_, isa, sm)) = rule {
            self.demand(pos, &format!("%{base}"), *isa, *sm);
        }
    }
}

/// The messages for one instruction: of all unmet demands, the one for the youngest version and
/// the one for the highest architecture.
fn judge(rules: &[&Rule], instruction: &Instruction, module: &Module) -> Verdict {
    let (version, target) = (module.version, &module.target);
    let mut isa: Option<&Rule> = None;
    let mut sm: Option<&Rule> = None;
    let mut verdict = Verdict::new();
    for &rule in rules.iter().filter(|rule| applies(rule.when, instruction)) {
        if version < rule.isa && isa.is_none_or(|other| other.isa < rule.isa) {
            isa = Some(rule);
        }
        if target.sm < rule.sm && sm.is_none_or(|other| other.sm < rule.sm) {
            sm = Some(rule);
        }
        if rule.only.is_some_and(|only| !only(target)) {
            verdict.push(format!("Feature '{}' not supported on .target '{}'", rule.feature, name(target)));
        }
    }
    if let Some(rule) = isa {
        let (major, minor) = rule.isa;
        verdict.push(format!("Feature '{}' requires PTX ISA .version {major}.{minor} or later", rule.feature));
    }
    if let Some(rule) = sm {
        verdict.push(format!("Feature '{}' requires .target sm_{} or higher", rule.feature, rule.sm));
    }
    let has = |word: &str| instruction.modifiers.iter().any(|m| m == word);
    if instruction.opcode == "cvt" && (has("e4m3x2") || has("e5m2x2")) && target.sm == 89 && version < (8, 1) {
        verdict.push("Feature 'cvt with FP8 types on sm_89' requires PTX ISA .version 8.1 or later".to_string());
    }
    if matches!(instruction.opcode.as_str(), "shfl" | "vote") && !has("sync") && target.sm >= 70 && version >= (6, 4) {
        verdict.push(format!(
            "Instruction '{}' without '.sync' is not supported on .target sm_70 and higher from PTX ISA version 6.4",
            instruction.opcode
        ));
    }
    verdict
}

/// Whether an instruction meets all of a rule's conditions; see [`Rule::when`].
fn applies(when: &str, instruction: &Instruction) -> bool {
    when.split_ascii_whitespace().all(|condition| match condition.strip_prefix('!') {
        Some(negated) => !negated.split('|').any(|one| holds(one, instruction)),
        None => condition.split('|').any(|one| holds(one, instruction)),
    })
}

fn holds(one: &str, instruction: &Instruction) -> bool {
    let modifiers = &instruction.modifiers;
    if let Some(count) = one.strip_prefix('#') {
        return count.parse() == Ok(instruction.operands.len());
    }
    if one == "_" {
        return instruction.operands.first() == Some(&Operand::Sink);
    }
    if let Some(prefix) = one.strip_suffix('*') {
        return modifiers.iter().any(|m| m.starts_with(prefix));
    }
    match one.split_once('.') {
        Some((first, second)) => modifiers.windows(2).any(|pair| pair[0] == first && pair[1] == second),
        None => modifiers.iter().any(|m| m == one),
    }
}
