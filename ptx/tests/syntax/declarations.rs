//! What a module declares.

use super::*;

#[test]
fn header_of_a_module() {
    let module = parse(FORMS);
    assert_eq!(module.version, (8, 5));
    assert_eq!(module.target, Target { sm: 90, suffix: None, debug: false });
    assert_eq!(module.files[&1], "forms.cu");
    let debug = parse(".version 8.8\n.target sm_100f, debug\n");
    assert_eq!(debug.target, Target { sm: 100, suffix: Some('f'), debug: true });
}

#[test]
fn module_variables() {
    let m = parse(FORMS);
    let dynamic = variable(&m, "dynamic");
    assert_eq!((dynamic.space, dynamic.linkage, dynamic.align), (Space::Shared, Linkage::Extern, 16));
    assert_eq!((&dynamic.dims[..], dynamic.size), (&[0][..], 0));

    let floats: Vec<f32> =
        variable(&m, "coefficients").init.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(floats, [1.5, 1.0, -2.0, 1000.0]);
    assert_eq!(variable(&m, "tentative").linkage, Linkage::Common);
    assert_eq!(variable(&m, "overridable").linkage, Linkage::Weak);
    assert_eq!(variable(&m, "ordered").align, 8);
    let ints = |name: &str| -> Vec<i32> {
        variable(&m, name).init.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(ints("second"), [15]);
    assert_eq!(ints("third"), [5, 31]);
    assert_eq!(ints("rows"), [1, 2, 3, 4, 5]);
    assert_eq!((variable(&m, "rows").dims.as_slice(), variable(&m, "rows").size), (&[3, 2][..], 24));
    // As ptxas folds them.
    assert_eq!(ints("folded"), [9, 8, -1, 2, 0, 5]);
    assert_eq!(ints("casts"), [1, 0]);
    let pairs = variable(&m, "pairs");
    assert_eq!((pairs.vector, pairs.align, pairs.size, pairs.init.len()), (2, 8, 16, 16));
    assert_eq!(variable(&m, "text").init, [104, 105, 0]);
    assert_eq!(variable(&m, "text").size, 16);
    let doubles: Vec<f64> =
        variable(&m, "doubles").init.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(doubles, [1.5, 0.5]);
}

#[test]
fn addresses_in_initialisers() {
    let m = parse(FORMS);
    let of = |name: &str| -> Vec<(u64, String, i64, bool)> {
        variable(&m, name).relocations.iter().map(|r| (r.at, r.symbol.clone(), r.addend, r.generic)).collect()
    };
    let text = || "text".to_string();
    assert_eq!(of("addresses"), [(0, text(), 0, false), (8, text(), 4, false), (16, "rows".to_string(), 8, true)]);
    assert_eq!(of("packed"), [(1, text(), 0, false)]);
    assert_eq!(variable(&m, "packed").init, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of("table"), [(0, "actual".to_string(), 0, false), (8, "in_registers".to_string(), 0, false)]);
}

#[test]
fn a_definition_replaces_its_declaration() {
    let m = parse(FORMS);
    assert_eq!(m.functions.iter().filter(|f| f.name == "helper").count(), 1);
    let helper = function(&m, "helper");
    assert!(helper.noreturn && helper.body.is_some());
    assert!(function(&m, "vprintf").body.is_none());
    let m = parse(&module(".extern .global .b32 a; .visible .global .b32 a = 3;"));
    assert_eq!((m.variables.len(), m.variables[0].linkage), (1, Linkage::Visible));
}

#[test]
fn aliases_are_resolved() {
    let text = module(".visible .func f(){ret;} .visible .func g(); .alias g, f; .func h(){ call g; ret; }");
    let m = parse(&text);
    assert_eq!(m.aliases, [("g".to_string(), "f".to_string())]);
    let call = &function(&m, "h").body.as_ref().unwrap().instructions[0];
    assert_eq!(call.operands, [Operand::Symbol("f".to_string(), 0)]);
}

#[test]
fn parameters_of_an_entry() {
    let m = parse(FORMS);
    let entry = function(&m, "forms");
    assert!(entry.is_entry);
    let params: Vec<_> = entry.params.iter().map(|p| (p.offset, p.size, p.align, p.ptr)).collect();
    assert_eq!(
        params,
        [
            (0, 8, 8, Some((Space::Global, 16))),
            (8, 8, 8, Some((Space::Generic, 1))),
            (16, 8, 8, Some((Space::Const, 4))),
            (24, 28, 8, None),
            (52, 4, 4, None),
        ]
    );
    let d = &entry.directives;
    assert_eq!((d.reqntid, d.maxntid), (Some([32, 2, 1]), None));
    assert_eq!((d.minnctapersm, d.maxnreg), (Some(2), Some(64)));
    assert_eq!((d.reqnctapercluster, d.explicitcluster), (Some([2, 1, 1]), true));
}

#[test]
fn parameters_in_registers() {
    let m = parse(FORMS);
    let f = function(&m, "in_registers");
    assert!(f.params.iter().chain(&f.returns).all(|p| p.in_register));
    let names: Vec<_> = f.body.as_ref().unwrap().registers.iter().map(|(_, n)| n.as_str()).collect();
    assert_eq!(names, ["result", "a", "b"]);
}
