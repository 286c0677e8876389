//! What `#[kernel]` accepts as a function, and what it refuses, with an error on the very token.

use crate::function::Function;
use quote::ToTokens;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, Pat, PatIdent, PathArguments, PointerMutability, Result,
    ReturnType, Safety, Token, Type,
};

/// How one argument is passed.
pub enum Kind {
    /// `In`, `Awaited`, `Out` or `InOut`, and the element type.
    Buffer(Buffer, Box<Type>),
    /// A number.
    Scalar,
    /// A type of the user's, which has to be an `Element`.
    Struct,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    In,
    Awaited,
    Out,
    InOut,
}

impl Buffer {
    /// The type in `warpsmith_device`.
    pub const fn type_name(self) -> &'static str {
        match self {
            Buffer::In => "In",
            Buffer::Awaited => "Awaited",
            Buffer::Out => "Out",
            Buffer::InOut => "InOut",
        }
    }
}

pub struct Argument {
    pub name: Ident,
    pub mutability: Option<Token![mut]>,
    pub docs: Vec<Attribute>,
    pub ty: Type,
    pub kind: Kind,
}

impl Argument {
    /// The name that the metadata uses for the kind.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Buffer(Buffer::In | Buffer::Awaited, _) => "in",
            Kind::Buffer(Buffer::Out, _) => "out",
            Kind::Buffer(Buffer::InOut, _) => "inout",
            Kind::Scalar => "scalar",
            Kind::Struct => "struct",
        }
    }

    /// What the buffer holds, or the value's own type.
    pub fn element(&self) -> &Type {
        match &self.kind {
            Kind::Buffer(_, element) => element,
            Kind::Scalar | Kind::Struct => &self.ty,
        }
    }
}

const SCALARS: [&str; 12] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64", "f16", "bf16"];

/// The size of a number of the language, which is its alignment too.
pub fn primitive_bytes(name: &str) -> Option<u32> {
    Some(match name {
        "u8" | "i8" => 1,
        "u16" | "i16" => 2,
        "u32" | "i32" | "f32" => 4,
        "u64" | "i64" | "f64" => 8,
        _ => return None,
    })
}

/// Source text of a type with the blanks that a person would write.
pub fn type_text(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (from, to) in
        [(" < ", "<"), (" <", "<"), ("< ", "<"), (" >", ">"), (" :: ", "::"), (":: ", "::"), (" ,", ","), (" ;", ";")]
    {
        text = text.replace(from, to);
    }
    text
}

fn refuse<T>(at: impl ToTokens, message: impl std::fmt::Display) -> Result<T> {
    Err(Error::new_spanned(at, message))
}

/// What an argument of a type is.
fn classify(ty: &Type) -> Result<Kind> {
    let path = match ty {
        Type::Group(g) => return classify(&g.elem),
        Type::Paren(p) => return classify(&p.elem),
        Type::Path(p) if p.qself.is_none() => &p.path,
        _ => return refuse_nameless(ty),
    };
    let Some(last) = path.segments.last() else {
        return refuse(ty, "expected a type");
    };
    let name = last.ident.to_string();
    let buffer = match name.as_str() {
        "In" => Some(Buffer::In),
        "Awaited" => Some(Buffer::Awaited),
        "Out" => Some(Buffer::Out),
        "InOut" => Some(Buffer::InOut),
        _ => None,
    };
    if let Some(buffer) = buffer {
        if let PathArguments::AngleBracketed(a) = &last.arguments
            && let (1, Some(GenericArgument::Type(element))) = (a.args.len(), a.args.first())
        {
            return Ok(Kind::Buffer(buffer, Box::new(element.clone())));
        }
        return refuse(ty, format!("`{name}` needs the type of its elements: `{name}<f32>`"));
    }
    match name.as_str() {
        "usize" | "isize" => refuse(
            ty,
            format!("the width of `{name}` is not part of its name: take `{}32` or `{}64`", &name[..1], &name[..1]),
        ),
        "bool" => refuse(ty, "not every byte is a `bool`: take a `u32` that is 0 or 1"),
        "char" => refuse(ty, "not every word is a `char`: take a `u32`"),
        "u128" | "i128" => refuse(ty, format!("`{name}` is passed differently by each code generator: take two `u64`")),
        "str" | "String" | "Vec" | "Box" | "Rc" | "Arc" | "Option" | "Result" | "Cow" | "HashMap" => refuse(
            ty,
            format!(
                "`{name}` lives in host memory: a kernel takes `In<T>`, `Out<T>`, `InOut<T>`, numbers and `#[repr(C)]` structs"
            ),
        ),
        "Self" => refuse(ty, "a kernel is a free function: there is no `Self`"),
        _ if SCALARS.contains(&name.as_str()) => Ok(Kind::Scalar),
        _ => Ok(Kind::Struct),
    }
}

/// Says why a type that is no path cannot be an argument, and what can be in its place.
fn refuse_nameless(ty: &Type) -> Result<Kind> {
    match ty {
        Type::Reference(r) => {
            let inner = match &*r.elem {
                Type::Slice(s) => type_text(&s.elem),
                other => type_text(other),
            };
            let use_ = if r.mutability.is_some() { "InOut" } else { "In" };
            match &*r.elem {
                Type::Slice(_) => refuse(
                    ty,
                    format!(
                        "a slice is passed differently by each code generator: take `{use_}<{inner}>` and the length as a `u32` of its own"
                    ),
                ),
                _ => refuse(ty, format!("a kernel argument cannot be a reference: take `{use_}<{inner}>`")),
            }
        }
        Type::Ptr(p) => {
            let use_ = if matches!(p.mutability, PointerMutability::Mut(_)) { "InOut" } else { "In" };
            refuse(
                ty,
                format!(
                    "a raw pointer does not say what the kernel does with it: take `{use_}<{}>`",
                    type_text(&p.elem)
                ),
            )
        }
        Type::Tuple(_) => refuse(
            ty,
            "a tuple has no fixed layout: pass its parts as arguments, or a `#[repr(C)]` struct with `#[derive(Element)]`",
        ),
        Type::Array(_) => refuse(
            ty,
            "an array is not passed by value: put it in a `#[repr(C)]` struct with `#[derive(Element)]`, or in a buffer",
        ),
        Type::Slice(_) => refuse(ty, "a slice has no size: take `In<T>` and the length as a `u32` of its own"),
        Type::FnPtr(_) => refuse(ty, "a function on the host has no address on the GPU"),
        Type::ImplTrait(_) | Type::TraitObject(_) => {
            refuse(ty, "a kernel argument has one concrete type: a PTX entry is not generic")
        }
        Type::Infer(_) => refuse(ty, "write the type out: it becomes a field of the launch struct"),
        _ => refuse(
            ty,
            "expected `In<T>`, `Out<T>`, `InOut<T>`, a number, or a `#[repr(C)]` struct with `#[derive(Element)]`",
        ),
    }
}

fn argument(input: FnArg) -> Result<Argument> {
    let typed = match input {
        FnArg::Receiver(r) => return refuse(r, "a kernel is a free function: it has no `self`"),
        FnArg::Typed(t) => t,
    };
    let Pat::Ident(PatIdent { by_ref: None, subpat: None, ident, mutability, .. }) = &*typed.pat else {
        return refuse(&typed.pat, "an argument is a plain name: it becomes a field of the launch struct");
    };
    let mut docs = Vec::new();
    for attr in typed.attrs {
        if !attr.path().is_ident("doc") {
            return refuse(attr, "only documentation may stand on a kernel argument");
        }
        docs.push(attr);
    }
    let kind = classify(&typed.ty)?;
    Ok(Argument { name: ident.clone(), mutability: *mutability, docs, ty: *typed.ty, kind })
}

/// Checks the function around its arguments.
fn header(f: &Function) -> Result<()> {
    let s = &f.sig;
    let mut errors: Vec<Error> = Vec::new();
    let mut no = |at: &dyn ToTokens, message: &str| {
        errors.push(Error::new_spanned(at.to_token_stream(), message));
    };
    if let Some(t) = &s.constness {
        no(t, "a kernel cannot be `const`");
    }
    if let Some(t) = &s.asyncness {
        no(t, "a kernel cannot be `async`: it runs to its end on the GPU");
    }
    if let Some(t) = &s.abi {
        no(t, "leave the ABI out: `#[kernel]` writes the one that the code generator needs");
    }
    if !matches!(s.safety, Safety::Unsafe(_)) {
        no(
            &s.fn_token,
            "a kernel is an `unsafe fn`: what it may touch is the contract of its launch, which the compiler cannot check",
        );
    }
    if !s.generics.params.is_empty() {
        no(
            &s.generics.params,
            "a PTX entry is not generic: name its uses, as in `#[kernel(…, instances(scale_f32<f32>, scale_f64<f64>))]`",
        );
    }
    if let Some(w) = &s.generics.where_clause {
        no(w, "a PTX entry is not generic: there is nothing to constrain");
    }
    if let Some(v) = &s.variadic {
        no(v, "a kernel has a fixed number of arguments");
    }
    if let ReturnType::Type(_, t) = &s.output {
        no(t, "a kernel returns nothing: write results to an `Out<T>`");
    }
    const OWN: [&str; 10] = [
        "no_mangle",
        "export_name",
        "link_section",
        "inline",
        "cold",
        "naked",
        "target_feature",
        "test",
        "track_caller",
        "unsafe",
    ];
    for attr in &f.attrs {
        if let Some(name) = OWN.iter().find(|n| attr.path().is_ident(n)) {
            no(
                attr,
                &format!("`#[{name}]` does not go with `#[kernel]`, which decides the symbol and how it is compiled"),
            );
        }
    }
    match errors.into_iter().reduce(|mut all, e| {
        all.combine(e);
        all
    }) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// The arguments of an acceptable kernel, or every fault that it has.
pub fn check(f: &Function) -> Result<Vec<Argument>> {
    let mut fault = header(f).err();
    let mut arguments = Vec::new();
    for input in f.sig.inputs.iter().cloned() {
        match argument(input) {
            Ok(a) => arguments.push(a),
            Err(e) => match &mut fault {
                Some(all) => all.combine(e),
                None => fault = Some(e),
            },
        }
    }
    match fault {
        Some(e) => Err(e),
        None => Ok(arguments),
    }
}
