//! Functions that one module declares otherwise than another defines.
//!
//! A call passes what its own module declares. So a module with another prototype calls an adapter with the one that it
//! declares, and the adapter calls the definition. What stands in the same place of both, with as many bytes, is passed on; what
//! does not has no value, as the registers of a GPU's calling convention have none that either side could rely on: the data is
//! undefined, and the checks tell who uses it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use super::{Declaration, Unit};
use crate::ast::{Function, Param, Type};

/// What the linker made of prototypes that differ.
#[derive(Default)]
pub(super) struct Adapters<'a> {
    /// By module: the names that it calls adapters by.
    pub names: Vec<HashMap<&'a str, String>>,
    /// The adapters' text.
    pub text: String,
    /// A sentence for each.
    pub warnings: Vec<String>,
}

impl<'a> Adapters<'a> {
    /// An adapter for each function of a module that is kept from another one, with another prototype.
    pub fn find(
        modules: &[Unit<'a>],
        kept: &HashMap<&'a str, usize>,
        taken: &mut HashSet<String>,
    ) -> Result<Adapters<'a>, String> {
        let mut found = Adapters::default();
        for (at, module) in modules.iter().enumerate() {
            let mut names = HashMap::new();
            for item in &module.items {
                let &[name] = item.names.as_slice() else { continue };
                let Some(by) = kept.get(name).and_then(|by| modules.get(*by)).filter(|_| kept.get(name) != Some(&at))
                else {
                    continue;
                };
                let (Some(declared), Some(defined)) = (module.function(name), by.function(name)) else { continue };
                let own = declared.body.is_some() && !module.gives_way(name);
                let same = |a: &Param, b: &Param| a.difference(b).is_none();
                if own || declared.is_entry || defined.is_entry || names.contains_key(name) {
                    continue;
                }
                if alike(declared, defined, same) {
                    continue;
                }
                let warning = format!(
                    "Prototype doesn't match for '{name}' in '{}', first defined in '{}'",
                    module.input.name, by.input.name
                );
                let new = super::free_name(name, "as", taken);
                let body = adapter(declared, defined).ok_or_else(|| warning.clone())?;
                let _ = writeln!(found.text, "{}\n{body}", module.head(item, &new));
                if !alike(declared, defined, passed_alike) {
                    found.warnings.push(warning);
                }
                names.insert(name, new);
            }
            found.names.push(names);
        }
        Ok(found)
    }
}

impl<'a> Unit<'a> {
    fn function(&self, name: &str) -> Option<&Function> {
        self.ast.functions.iter().find(|f| f.name == name)
    }

    /// The head of a function by another name, without its linking directive.
    pub(super) fn head(&self, item: &Declaration<'_>, new: &str) -> String {
        let part = |range: Range<usize>| self.input.text.get(range).unwrap_or_default();
        let linking = item.linking.clone().unwrap_or(item.head.start..item.head.start);
        let (before, behind) = (part(item.head.start..linking.start), part(linking.end..item.head.end));
        let names = BTreeMap::from_iter(item.names.iter().map(|name| (*name, new.to_owned())));
        crate::outline::with_renamed(&format!("{before}{}", behind.trim()), &names)
    }
}

/// Whether two functions take and return the same, by what `same` says of a pair of parameters.
fn alike(a: &Function, b: &Function, same: fn(&Param, &Param) -> bool) -> bool {
    let all = |a: &[Param], b: &[Param]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
    all(&a.params, &b.params) && all(&a.returns, &b.returns)
}

/// Whether NVIDIA's linkers take two parameters for the same: integers of one size with or without a sign, arrays of one size
/// whatever their alignment, and registers for what is passed in them anyway.
fn passed_alike(a: &Param, b: &Param) -> bool {
    let shape = |p: &Param| (p.array, p.vector, p.size, p.ty.is_float());
    shape(a) == shape(b)
}

/// The body of a function with the one prototype that calls the other; none where parameters are vectors or predicates.
fn adapter(declared: &Function, defined: &Function) -> Option<String> {
    let all = [&declared.params, &declared.returns, &defined.params, &defined.returns];
    if all.iter().any(|list| list.iter().any(|p| p.vector > 1 || p.ty == Type::Pred)) {
        return None;
    }
    let list = |what: &str, n: usize| (0..n).map(|at| format!("$adapter_{what}{at}")).collect::<Vec<_>>();
    let (args, results) = (list("arg", defined.params.len()), list("ret", defined.returns.len()));
    let mut text = "{\n.reg .b64 $adapter_word;\n".to_owned();
    for (name, param) in args.iter().zip(&defined.params).chain(results.iter().zip(&defined.returns)) {
        let (align, ty) = (param.align, param.ty.word());
        let length =
            if param.array { format!("[{}]", param.size / (param.ty.bits() / 8).max(1)) } else { String::new() };
        let _ = match param.in_register {
            true => writeln!(text, ".reg .{ty} {name};"),
            false => writeln!(text, ".param .align {align} .{ty} {name}{length};"),
        };
    }
    for ((name, to), from) in args.iter().zip(&defined.params).zip(&declared.params) {
        copy(&mut text, [&from.name, name], [from, to]);
    }
    let returned = if results.is_empty() { String::new() } else { format!("({}), ", results.join(", ")) };
    let _ = writeln!(text, "call {returned}{}, ({});", defined.name, args.join(", "));
    for ((name, from), to) in results.iter().zip(&defined.returns).zip(&declared.returns) {
        copy(&mut text, [name, &to.name], [from, to]);
    }
    text.push_str("ret;\n}");
    Some(text)
}

/// Copies one parameter into another of the same size; one of the two may be a register.
fn copy(text: &mut String, [from, to]: [&str; 2], [source, target]: [&Param; 2]) {
    if source.size != target.size {
        return;
    }
    let bits = 8 * source.size;
    let moved = match (source.in_register, target.in_register) {
        (true, true) => Some(format!("mov.b{bits} {to}, {from};")),
        (true, false) => Some(format!("st.param.b{bits} [{to}], {from};")),
        (false, true) => Some(format!("ld.param.b{bits} {to}, [{from}];")),
        (false, false) => None,
    };
    if let Some(moved) = moved {
        // An array may lie where no register can be loaded from.
        if source.align.min(target.align) >= source.size {
            let _ = writeln!(text, "{moved}");
        }
        return;
    }
    let fits = |n: &u32| source.size.is_multiple_of(*n) && source.align.min(target.align) >= *n;
    let unit = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
    let bits = 8 * unit;
    for at in (0..source.size).step_by(unit as usize) {
        let _ = writeln!(text, "ld.param.b{bits} $adapter_word, [{from}+{at}];");
        let _ = writeln!(text, "st.param.b{bits} [{to}+{at}], $adapter_word;");
    }
}
