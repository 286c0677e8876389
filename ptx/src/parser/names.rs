//! Names of one function: nested scopes, registers that exist on first use, labels resolved when
//! their block ends.

use super::super::ast::{Body, Label, Location, Param, Pos, Reg, Type, Variable};
use foldhash::{HashMap, HashMapExt};

/// What a name stands for in a block.
#[derive(Clone, Copy)]
pub(super) enum Entry<'a> {
    /// A register; its index once it is used.
    Register(Type, Option<Reg>),
    /// A vector register: element type, elements, and their indices once used.
    Vector(Type, u8, [Option<Reg>; 4]),
    /// A variable or parameter under its own name.
    Symbol(&'a str),
    /// A variable that had to be renamed: its index in [`Body::variables`].
    Renamed(usize),
    /// A label.
    Label(Label),
    /// A `.branchtargets`, `.calltargets` or `.callprototype` name.
    Table(Label),
    /// Not declared; said so already.
    Unknown,
}

#[derive(Default)]
pub(super) struct Scope<'a> {
    names: HashMap<&'a str, Entry<'a>>,
    /// `%r<70>`: prefix → what each is, and count.
    ranges: HashMap<&'a str, (Entry<'a>, u32)>,
    /// For every declared name with a number at its end: prefix → least such number.
    numbered: HashMap<&'a str, u64>,
    /// Label references that no label of this block has met yet.
    pending: Vec<usize>,
    /// Where it was opened.
    pub open: Pos,
}

/// A reference to a label that may come later.
pub(super) struct Reference<'a> {
    pub name: &'a str,
    pub pos: Pos,
    pub label: Option<Label>,
}

/// What a body is while it is parsed.
pub(super) struct Scopes<'a> {
    pub stack: Vec<Scope<'a>>,
    pub body: Body,
    pub references: Vec<Reference<'a>>,
    /// Instructions with an operand that is an index into `references`.
    pub unresolved: Vec<usize>,
    /// The current `.loc`.
    pub location: Option<u32>,
    /// Symbol names in use → how many renamed copies there are.
    taken: HashMap<String, u32>,
    tables: HashMap<&'a str, u32>,
    /// Parameters outside registers: element type, and whether they are arrays.
    pub params: HashMap<&'a str, (Type, bool)>,
}

/// A register or a vector of them that is not used yet.
pub(super) fn register<'a>(ty: Type, vector: u32) -> Entry<'a> {
    match vector {
        1 => Entry::Register(ty, None),
        n => Entry::Vector(ty, n as u8, [None; 4]),
    }
}

/// A name that was found.
pub(super) enum Found<'a> {
    Register(Reg),
    /// All elements of a vector register.
    Vector(Vec<Reg>),
    Symbol(&'a str),
    Renamed(usize),
    Label(Label),
    Unknown,
}

impl<'a> Scopes<'a> {
    pub fn new(open: Pos) -> Scopes<'a> {
        Scopes {
            stack: vec![Scope { open, ..Scope::default() }],
            body: Body::default(),
            references: Vec::new(),
            unresolved: Vec::new(),
            location: None,
            taken: HashMap::new(),
            tables: HashMap::new(),
            params: HashMap::new(),
        }
    }

    pub fn push(&mut self, open: Pos) {
        self.stack.push(Scope { open, ..Scope::default() });
    }

    /// Ends the innermost block: label references that it cannot resolve pass to the one around it.
    pub fn pop(&mut self) {
        let Some(scope) = self.stack.pop() else { return };
        for index in scope.pending {
            let reference = &mut self.references[index];
            if let Some(Entry::Label(label)) = scope.names.get(reference.name) {
                reference.label = Some(*label);
            } else if let Some(outer) = self.stack.last_mut() {
                outer.pending.push(index);
            }
        }
    }

    /// Refers to a label by name; resolved when its block ends.
    pub fn refer(&mut self, name: &'a str, pos: Pos) -> Label {
        let index = self.references.len();
        self.references.push(Reference { name, pos, label: None });
        if let Some(scope) = self.stack.last_mut() {
            scope.pending.push(index);
        }
        // More than 2^32 references need a text of more than 8 GiB.
        Label(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// True if the innermost block declares the name itself.
    fn declared(&self, name: &str) -> bool {
        self.stack.last().is_some_and(|scope| {
            scope.names.get(name).is_some_and(|e| !matches!(e, Entry::Unknown)) || scope.range_of(name).is_some()
        })
    }

    /// Declares a name in the innermost block; false if it has it already.
    pub fn declare(&mut self, name: &'a str, entry: Entry<'a>) -> bool {
        if self.declared(name) {
            return false;
        }
        if let Some(scope) = self.stack.last_mut() {
            scope.names.insert(name, entry);
            for (prefix, number) in splits(name) {
                let least = scope.numbered.entry(prefix).or_insert(number);
                *least = number.min(*least);
            }
        }
        true
    }

    /// Declares `prefix<count>`; `Err` with the name that is there already.
    pub fn declare_range(&mut self, prefix: &'a str, each: Entry<'a>, count: u32) -> Result<(), String> {
        let Some(scope) = self.stack.last_mut() else { return Ok(()) };
        if let Some(&least) = scope.numbered.get(prefix)
            && least < u64::from(count)
        {
            return Err(format!("{prefix}{least}"));
        }
        if scope.ranges.contains_key(prefix) {
            return Err(format!("{prefix}<"));
        }
        scope.ranges.insert(prefix, (each, count));
        Ok(())
    }

    /// Looks a name up from the innermost block outwards; registers come into being here.
    pub fn find(&mut self, name: &'a str) -> Option<Found<'a>> {
        let registers = &mut self.body.registers;
        for scope in self.stack.iter_mut().rev() {
            if !scope.names.contains_key(name)
                && let Some(each) = scope.range_of(name)
            {
                scope.names.insert(name, each);
            }
            if let Some(entry) = scope.names.get_mut(name) {
                return Some(match entry {
                    Entry::Register(_, Some(reg)) => Found::Register(*reg),
                    Entry::Register(ty, slot) => {
                        let reg = materialise(registers, *ty, name.to_string());
                        *slot = Some(reg);
                        Found::Register(reg)
                    }
                    Entry::Vector(ty, count, slots) => {
                        let one = |(slot, x): (&mut Option<Reg>, char)| {
                            *slot.get_or_insert_with(|| materialise(registers, *ty, format!("{name}.{x}")))
                        };
                        Found::Vector(slots.iter_mut().zip("xyzw".chars()).take(usize::from(*count)).map(one).collect())
                    }
                    Entry::Symbol(name) => Found::Symbol(name),
                    Entry::Renamed(index) => Found::Renamed(*index),
                    Entry::Label(label) | Entry::Table(label) => Found::Label(*label),
                    Entry::Unknown => Found::Unknown,
                });
            }
        }
        None
    }

    /// A new register that no name of the text stands for.
    pub fn temporary(&mut self, ty: Type, name: String) -> Reg {
        materialise(&mut self.body.registers, ty, name)
    }

    /// Remembers that a name is unknown, so that it is reported once.
    pub fn give_up(&mut self, name: &'a str) {
        if let Some(scope) = self.stack.first_mut() {
            scope.names.insert(name, Entry::Unknown);
        }
    }

    /// Reserves a symbol's name, as that of a parameter.
    pub fn reserve(&mut self, name: &str) {
        self.taken.entry(name.to_string()).or_insert(0);
    }

    /// Declares a variable; one whose name is in use anywhere else in the function or, as `global`
    /// says, at module scope gets a unique name. False if the block has the name already.
    pub fn declare_variable(&mut self, name: &'a str, mut variable: Variable, global: bool) -> bool {
        if self.declared(name) {
            return false;
        }
        let index = self.body.variables.len();
        let copies = self.taken.get_mut(name);
        let entry = if copies.is_none() && !global {
            self.taken.insert(name.to_string(), 0);
            Entry::Symbol(name)
        } else {
            let number = match copies {
                Some(copies) => {
                    *copies += 1;
                    *copies
                }
                None => {
                    self.taken.insert(name.to_string(), 1);
                    1
                }
            };
            // No PTX identifier has a dot, so the name is free.
            variable.name = format!("{name}.{number}");
            Entry::Renamed(index)
        };
        self.body.variables.push(variable);
        self.declare(name, entry)
    }

    /// Defines a label before the next instruction; `None` if the block has the name already.
    pub fn label(&mut self, name: &'a str, table: bool) -> Option<Label> {
        if self.declared(name) {
            return None;
        }
        let label = Label(u32::try_from(self.body.labels.len()).ok()?);
        let mut text = name.to_string();
        if table {
            let copies = self.tables.entry(name).or_insert(0);
            if *copies > 0 {
                text = format!("{name}.{copies}");
            }
            *copies += 1;
        }
        self.body.labels.push((text, self.body.instructions.len()));
        let declared = self.declare(name, if table { Entry::Table(label) } else { Entry::Label(label) });
        declared.then_some(label)
    }

    /// The text of a label that [`Scopes::label`] gave.
    pub fn label_name(&self, label: Label) -> String {
        self.body.labels.get(label.0 as usize).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    /// The chain of calls that `inlined_at` begins: the place itself, and where the function around that was inlined, as the
    /// latest `.loc` of the place says.
    pub fn inlined(&self, place: (u32, u32, u32)) -> Vec<(u32, u32, u32)> {
        const BACK: usize = 4096;
        const DEPTH: usize = 32;
        let mut chain = vec![place];
        let known = self.body.locations.iter().rev().take(BACK).find(|l| (l.file, l.line, l.col) == place);
        chain.extend(known.into_iter().flat_map(|l| &l.inlined).take(DEPTH));
        chain
    }

    /// Makes a `.loc` current.
    pub fn set_location(&mut self, location: Location) {
        if self.body.locations.last() != Some(&location) {
            self.body.locations.push(location);
        }
        self.location = u32::try_from(self.body.locations.len() - 1).ok();
    }

    /// Declares the parameters of a function in its outermost block.
    pub fn declare_params(&mut self, params: &[Param], names: &[&'a str]) -> Vec<usize> {
        let mut duplicates = Vec::new();
        for (index, (param, name)) in params.iter().zip(names).enumerate() {
            self.reserve(name);
            let entry = if param.in_register { register(param.ty, param.vector) } else { Entry::Symbol(name) };
            let fresh = self.declare(name, entry);
            if !param.in_register {
                self.params.insert(name, (param.ty, param.array));
            }
            if !fresh {
                duplicates.push(index);
            } else if param.in_register {
                // In order, used or not: the caller finds them by name.
                self.find(name);
            }
        }
        duplicates
    }
}

impl<'a> Scope<'a> {
    /// What `%r12` is if a range of this block holds it.
    fn range_of(&self, name: &str) -> Option<Entry<'a>> {
        if self.ranges.is_empty() {
            return None;
        }
        splits(name).find_map(|(prefix, number)| {
            let (each, count) = self.ranges.get(prefix)?;
            (number < u64::from(*count)).then_some(*each)
        })
    }
}

/// The ways to read a name as prefix and number without leading zeros, longest number first.
fn splits(name: &str) -> impl Iterator<Item = (&str, u64)> {
    let bytes = name.as_bytes();
    let mut start = bytes.len();
    // A count has at most 10 digits.
    while start > 1 && bytes[start - 1].is_ascii_digit() && bytes.len() - start < 10 {
        start -= 1;
    }
    (start..bytes.len()).filter_map(move |at| {
        if bytes[at] == b'0' && at + 1 < bytes.len() {
            return None;
        }
        Some((name.get(..at)?, name.get(at..)?.parse().ok()?))
    })
}

fn materialise(registers: &mut Vec<(Type, String)>, ty: Type, name: String) -> Reg {
    let reg = Reg(u32::try_from(registers.len()).unwrap_or(u32::MAX));
    registers.push((ty, name));
    reg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_at_every_number() {
        assert_eq!(splits("%r12").collect::<Vec<_>>(), [("%r", 12), ("%r1", 2)]);
        assert_eq!(splits("%r102").collect::<Vec<_>>(), [("%r", 102), ("%r10", 2)]);
        assert_eq!(splits("%r01").collect::<Vec<_>>(), [("%r0", 1)]);
        assert_eq!(splits("%r").count(), 0);
        assert_eq!(splits("x0").collect::<Vec<_>>(), [("x", 0)]);
        assert_eq!(splits("a99999999999999999999").next(), Some(("a9999999999", 9_999_999_999)));
    }
}
