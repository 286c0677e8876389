//! What `#[kernel]` writes.

use crate::{
    function::Function,
    instances::{self, Instance},
    json,
    options::{Options, literal},
    side::Side,
    signature::{self, Argument, Buffer, Kind, type_text},
};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Expr, Ident, Lit, LitStr, Meta, Result, Visibility, ext::IdentExt, spanned::Spanned};

/// One kernel, understood.
struct Parts {
    f: Function,
    arguments: Vec<Argument>,
    options: Options,
    entry: String,
    family: String,
    library: String,
    file: String,
    line: usize,
    nvvm: bool,
    docs: Vec<Attribute>,
    cfgs: Vec<Attribute>,
    lints: Vec<Attribute>,
}

/// Where a kernel stands, and for which code generator it is written.
struct Site {
    library: String,
    file: String,
    line: usize,
    nvvm: bool,
}

pub fn kernel(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    expand(attr, item, |at| {
        let at = at.unwrap();
        Site {
            library: std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| String::from("kernels")),
            file: at.file().replace('\\', "/"),
            line: at.line(),
            nvvm: cfg!(feature = "nvvm"),
        }
    })
}

fn expand(attr: TokenStream, item: TokenStream, site: impl Fn(Span) -> Site) -> Result<TokenStream> {
    let f = Function::parse("kernel", item)?;
    let options = match Options::parse(attr) {
        Ok(options) => options,
        Err(mut e) => {
            if let Err(e2) = signature::check(&f) {
                e.combine(e2);
            }
            return Err(e);
        }
    };
    if options.instances.is_empty() {
        return one(f, options, site);
    }
    let mut written = quote!(#[::warpsmith_device::device] #f);
    for Instance { f, options } in instances::of(&f, &options)? {
        written.extend(one(f, options, &site)?);
    }
    Ok(written)
}

/// One kernel.
fn one(f: Function, options: Options, site: impl Fn(Span) -> Site) -> Result<TokenStream> {
    let arguments = signature::check(&f)?;
    let (mut docs, mut cfgs, mut lints) = (Vec::new(), Vec::new(), Vec::new());
    for a in f.attrs.iter().cloned() {
        if a.path().is_ident("doc") {
            docs.push(a);
        } else if a.path().is_ident("cfg") {
            cfgs.push(a);
        } else {
            lints.push(a);
        }
    }
    // Of the function as it is written: a macro may have taken the name from elsewhere.
    let Site { library, file, line, nvvm } = site(f.sig.fn_token.span);
    let family = options.family.clone().unwrap_or_else(|| file_module(&file, &library));
    let entry = options.name.clone().unwrap_or_else(|| f.sig.ident.unraw().to_string());
    let parts = Parts { line, nvvm, f, arguments, options, entry, family, library, file, docs, cfgs, lints };
    let side = Side::of_process();
    let device = side.device().then(|| (parts.struct_checks(), parts.device()));
    let (structs, device) = device.unzip();
    let (editor, checks, host) = match side.host() {
        true => (Some(parts.editor()), Some(parts.checks()), Some(parts.host())),
        false => (None, None, None),
    };
    // Completion takes the first copy of the body.
    Ok(quote! { #editor #checks #structs #device #host })
}

/// The module that a source file is: its stem, or its folder's name for `mod.rs`.
fn file_module(file: &str, library: &str) -> String {
    let mut segments = file.rsplit('/');
    let stem = segments.next().unwrap_or_default().trim_end_matches(".rs");
    let module = if stem == "mod" { segments.next().unwrap_or(stem) } else { stem };
    if matches!(module, "lib" | "main") { library.replace('-', "_") } else { String::from(module) }
}

/// `rms_norm` → `RmsNorm`.
fn camel_case(name: &str) -> String {
    name.split('_')
        .flat_map(|word| {
            let mut chars = word.chars();
            chars.next().into_iter().flat_map(char::to_uppercase).chain(chars)
        })
        .collect()
}

fn summary(docs: &[Attribute]) -> String {
    docs.iter()
        .filter_map(|a| match &a.meta {
            Meta::NameValue(nv) => match &nv.value {
                Expr::Lit(l) => match &l.lit {
                    Lit::Str(s) => Some(s.value()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
        .flat_map(|text| text.lines().map(|l| l.trim().to_string()).collect::<Vec<_>>())
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

impl Parts {
    /// Three dimensions as `u64` expressions.
    fn block(&self) -> [TokenStream; 3] {
        let dim = |i: usize| match self.options.block.get(i) {
            Some(e) => quote_spanned! {e.span()=> (#e) as u64 },
            None => quote!(1u64),
        };
        [dim(0), dim(1), dim(2)]
    }

    fn min_blocks(&self) -> TokenStream {
        match &self.options.min_blocks {
            Some(e) => quote_spanned! {e.span()=> (#e) as u32 },
            None => quote!(0u32),
        }
    }

    /// Checks of the block and of buffers. The builder makes the first of the text again, and the entry's types are the second: for each kernel
    /// they would be a tenth of what the compiler does for the device.
    fn checks(&self) -> TokenStream {
        let cfgs = &self.cfgs;
        let [x, y, z] = self.block();
        let elements = self.arguments.iter().filter_map(|a| {
            let ty = a.element();
            matches!(a.kind, Kind::Buffer(..)).then(|| quote_spanned! {ty.span()=> is_element::<#ty>(); })
        });
        let block_span = self.options.block.first().map_or_else(Span::call_site, Spanned::span);
        let fits = quote_spanned! {block_span=>
            const _: () = assert!(
                ::warpsmith_device::__private::block_fits([#x, #y, #z]),
                "a block has 1 to 1024 threads, and at most 64 in z"
            );
        };
        let markers = self.arguments.iter().filter_map(|a| match &a.kind {
            Kind::Buffer(b, element) => {
                let (ty, marker) = (&a.ty, Ident::new(b.type_name(), Span::call_site()));
                Some(quote_spanned! {ty.span()=>
                    let _: ::core::marker::PhantomData<::warpsmith_device::#marker<#element>> =
                        ::core::marker::PhantomData::<#ty>;
                })
            }
            Kind::Scalar | Kind::Struct => None,
        });
        quote! {
            #(#cfgs)*
            #[allow(clippy::unnecessary_cast)]
            #fits
            #(#cfgs)*
            const _: () = {
                const fn is_element<T: ::warpsmith_device::Element>() {}
                #[allow(dead_code, clippy::no_effect_underscore_binding)]
                const fn types() {
                    #(#elements)*
                    #(#markers)*
                }
            };
        }
    }

    /// That structs are elements. On the host, handing the value to a sink makes the same check.
    fn struct_checks(&self) -> TokenStream {
        let cfgs = &self.cfgs;
        let mut structs = self
            .arguments
            .iter()
            .filter(|a| matches!(a.kind, Kind::Struct))
            .map(|a| {
                let ty = a.element();
                quote_spanned! {ty.span()=> is_element::<#ty>(); }
            })
            .peekable();
        if structs.peek().is_none() {
            return TokenStream::new();
        }
        quote! {
            #(#cfgs)*
            #[cfg(target_arch = "nvptx64")]
            const _: () = {
                const fn is_element<T: ::warpsmith_device::Element>() {}
                #[allow(dead_code)]
                const fn types() {
                    #(#structs)*
                }
            };
        }
    }

    /// The comment in the PTX: an assembler template and its operands.
    fn metadata(&self) -> (LitStr, Vec<TokenStream>) {
        let plain = json::escape_braces;
        let field = |key: &str, value: &str| plain(&format!("\"{key}\":{}", json::string(value)));
        let mut operands = Vec::new();
        let mut operand = |name: String, value: TokenStream| {
            let id = Ident::new(&name, Span::call_site());
            operands.push(quote! { #id = const { #value } });
            format!("{{{name}}}")
        };
        let mut arguments = Vec::new();
        // Arguments have few types among them, and each operand is a constant that the compiler evaluates and keeps.
        let mut types: Vec<(String, String, String)> = Vec::new();
        for a in &self.arguments {
            let element = a.element();
            let written = type_text(element);
            if !types.iter().any(|(t, ..)| *t == written) {
                let i = types.len();
                let (size, align) = match signature::primitive_bytes(&written) {
                    Some(bytes) => (bytes.to_string(), bytes.to_string()),
                    None => (
                        operand(format!("s{i}"), quote!(::core::mem::size_of::<#element>())),
                        operand(format!("a{i}"), quote!(::core::mem::align_of::<#element>())),
                    ),
                };
                types.push((written.clone(), size, align));
            }
            let (_, size, align) = &types[types.iter().position(|(t, ..)| *t == written).unwrap_or(0)];
            let (param_size, param_align) = match a.kind {
                Kind::Buffer(..) => (String::from("8"), String::from("8")),
                Kind::Scalar | Kind::Struct => (size.clone(), align.clone()),
            };
            arguments.push(format!(
                "{{{{{},{},{},{},\"size\":{param_size},\"align\":{param_align},\"element_size\":{size},\"element_align\":{align}}}}}",
                field("name", &a.name.unraw().to_string()),
                field("type", &type_text(&a.ty)),
                field("kind", a.kind_name()),
                field("element", &written),
            ));
        }
        let mut number = |name: &str, given: Option<&Expr>, left_out: &str, value: TokenStream| match given {
            None => left_out.to_owned(),
            Some(e) => literal(e).map_or_else(|| operand(name.to_owned(), value), |n| n.to_string()),
        };
        let [x, y, z] = self.block();
        let dims = &self.options.block;
        let block: Vec<String> = [("bx", x), ("by", y), ("bz", z)]
            .into_iter()
            .enumerate()
            .map(|(i, (name, value))| number(name, dims.get(i), "1", value))
            .collect();
        let block = block.join(",");
        let min_blocks = number("mb", self.options.min_blocks.as_ref(), "0", self.min_blocks());
        let template = format!(
            "// @kernel {{{{{},{},{},{},{},{},\"line\":{},\"block\":[{block}],\"min_blocks\":{min_blocks},\"args\":[{}]}}}}",
            field("name", &self.entry),
            field("family", &self.family),
            field("variant", &self.options.variant),
            field("summary", &summary(&self.docs)),
            field("library", &self.library),
            field("file", &self.file),
            self.line,
            arguments.join(","),
        );
        (LitStr::new(&template, Span::call_site()), operands)
    }

    /// The PTX entry.
    fn device(&self) -> TokenStream {
        let Parts { cfgs, docs, lints, arguments, entry, .. } = self;
        let (template, operands) = self.metadata();
        let (vis, ident, body) = (&self.f.vis, &self.f.sig.ident, &self.f.body);
        let symbol =
            if ident == entry { quote!(#[unsafe(no_mangle)]) } else { quote!(#[unsafe(export_name = #entry)]) };
        let (mark, abi) = if self.nvvm {
            (quote!(#[nvvm_internal::kernel]), quote!(extern "C"))
        } else {
            (quote!(), quote!(extern "ptx-kernel"))
        };
        let raw = arguments.iter().map(|a| {
            let (name, element) = (&a.name, a.element());
            match a.kind {
                Kind::Buffer(Buffer::In, _) => quote! { #name: &::warpsmith_device::__private::Glob<#element> },
                Kind::Buffer(Buffer::Awaited, _) => quote! { #name: *const #element },
                Kind::Buffer(..) => quote! { #name: *mut #element },
                Kind::Scalar | Kind::Struct => quote! { #name: #element },
            }
        });
        let wrapped = arguments.iter().map(|Argument { name, mutability, ty, kind, .. }| match kind {
            Kind::Buffer(b, _) => {
                let wrapper = Ident::new(b.type_name(), Span::call_site());
                quote! { #[allow(unused_variables)] let #mutability #name: #ty = ::warpsmith_device::#wrapper::from_raw(#name); }
            }
            Kind::Scalar | Kind::Struct => quote! { #[allow(unused_variables)] let #mutability #name: #ty = #name; },
        });
        let statements = body.stream();
        quote! {
            #(#cfgs)*
            #[cfg(target_arch = "nvptx64")]
            ::core::arch::global_asm!(#template, #(#operands,)*);

            #(#cfgs)*
            #(#docs)*
            #[cfg(target_arch = "nvptx64")]
            #symbol
            #mark
            #(#lints)*
            #[allow(improper_ctypes_definitions, unsafe_op_in_unsafe_fn, clippy::too_many_arguments, clippy::missing_safety_doc)]
            #vis unsafe #abi fn #ident(#(#raw),*) {
                #(#wrapped)*
                #statements
            }
        }
    }

    /// What an editor reads on the host: the function as it is written, which nothing calls.
    fn editor(&self) -> TokenStream {
        let Parts { cfgs, lints, arguments, .. } = self;
        let (ident, body) = (&self.f.sig.ident, &self.f.body);
        let arguments = arguments.iter().map(|Argument { name, mutability, ty, .. }| quote!(#mutability #name: #ty));
        quote! {
            #(#cfgs)*
            #[cfg(not(target_arch = "nvptx64"))]
            ::warpsmith_device::__editor! {
                #(#lints)*
                #[doc(hidden)]
                #[allow(dead_code, unsafe_op_in_unsafe_fn)]
                unsafe fn #ident(#(#arguments),*) #body
            }
        }
    }

    /// The launch struct.
    fn host(&self) -> TokenStream {
        let Parts { cfgs, docs, arguments, entry, family, library, file, line, .. } = self;
        let variant = &self.options.variant;
        let summary = summary(docs);
        let vis: &Visibility = &self.f.vis;
        let name = Ident::new(&camel_case(&self.f.sig.ident.unraw().to_string()), self.f.sig.ident.span());
        let borrows = arguments.iter().any(|a| matches!(a.kind, Kind::Buffer(..)));
        let (generics, anonymous) = if borrows { (quote!(<'a>), quote!(<'_>)) } else { (quote!(), quote!()) };
        let fields = arguments.iter().map(field);
        let metas = arguments.iter().map(metadata);
        let calls = arguments.iter().enumerate().map(|(i, a)| handing_over(i, a));
        let launch_doc = format!(
            "A launch of the kernel `{entry}`. Its contract says which lengths it needs and how many blocks it takes."
        );
        let too_large = format!("the arguments of `{entry}` take more than the 4096 bytes that every driver accepts");
        let [x, y, z] = self.block();
        let min_blocks = self.min_blocks();
        let line = u32::try_from(*line).unwrap_or(0);
        let held =
            arguments.iter().filter(|a| !self.options.ignores_addresses && !matches!(a.kind, Kind::Scalar)).map(|a| {
                let ty = a.element();
                quote_spanned! {ty.span()=> for<'plain> #ty: ::warpsmith_device::Plain }
            });
        let blank = if docs.is_empty() { quote!() } else { quote!(#[doc = ""]) };
        quote! {
            #(#cfgs)*
            #(#docs)*
            #blank
            #[doc = #launch_doc]
            #[cfg(not(target_arch = "nvptx64"))]
            #[must_use = "a launch does nothing until a stream launches it"]
            #vis struct #name #generics { #(#fields),* }

            #(#cfgs)*
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(clippy::unnecessary_cast)]
            // SAFETY: the metadata and the calls below are written from the same signature, in its
            // order, and the device build writes the PTX entry from that signature too.
            unsafe impl ::warpsmith_device::Kernel for #name #anonymous {
                const META: &'static ::warpsmith_device::KernelMeta = &::warpsmith_device::KernelMeta {
                    library: #library,
                    name: #entry,
                    family: #family,
                    variant: #variant,
                    summary: #summary,
                    file: #file,
                    line: #line,
                    block: [#x as u32, #y as u32, #z as u32],
                    min_blocks: #min_blocks,
                    args: &[#(#metas),*],
                };
                #[allow(unused_variables)]
                fn args(&self, sink: &mut dyn ::warpsmith_device::ArgSink) {
                    let args = <Self as ::warpsmith_device::Kernel>::META.args;
                    #(#calls)*
                }
            }

            #(#cfgs)*
            #[cfg(not(target_arch = "nvptx64"))]
            // SAFETY: no type of an argument holds an address, or the author of the `unsafe fn` says that it follows none.
            // (`for` lets a bound be false: the kernel is then not `Confined`.)
            unsafe impl ::warpsmith_device::launch::Confined for #name #anonymous where #(#held),* {}

            #(#cfgs)*
            #[cfg(not(target_arch = "nvptx64"))]
            const _: () = assert!(
                ::warpsmith_device::__private::args_fit(<#name #anonymous as ::warpsmith_device::Kernel>::META.args),
                #too_large
            );
        }
    }
}

/// The field of the launch struct that an argument is.
fn field(a: &Argument) -> TokenStream {
    let (id, element) = (&a.name, a.element());
    let text = format!("Argument `{}: {}`.", id.unraw(), type_text(&a.ty));
    let docs = if a.docs.is_empty() {
        quote!(#[doc = #text])
    } else {
        let docs = &a.docs;
        quote!(#(#docs)* #[doc = ""] #[doc = #text])
    };
    let ty = match a.kind {
        Kind::Buffer(Buffer::In | Buffer::Awaited, _) => quote!(&'a ::warpsmith_device::DeviceSlice<#element>),
        Kind::Buffer(..) => quote!(&'a mut ::warpsmith_device::DeviceSlice<#element>),
        Kind::Scalar | Kind::Struct => quote!(#element),
    };
    quote! { #docs pub #id: #ty }
}

/// What the kernel's metadata say of an argument.
fn metadata(a: &Argument) -> TokenStream {
    let (id, ty, element) = (a.name.unraw().to_string(), type_text(&a.ty), a.element());
    let element_name = type_text(element);
    let value = || (quote!(#element), quote!(<#element as ::warpsmith_device::Element>::VARIES));
    let address = || (quote!(u64), quote!(u32::MAX));
    let (kind, (param, varies)) = match &a.kind {
        Kind::Buffer(Buffer::In | Buffer::Awaited, _) => ("In", address()),
        Kind::Buffer(b, _) => (b.type_name(), address()),
        Kind::Scalar => ("Scalar", value()),
        Kind::Struct => ("Struct", value()),
    };
    let kind = Ident::new(kind, Span::call_site());
    quote! {
        ::warpsmith_device::ArgMeta {
            name: #id,
            ty: #ty,
            kind: ::warpsmith_device::ArgKind::#kind,
            element: #element_name,
            size: ::core::mem::size_of::<#param>() as u32,
            align: ::core::mem::align_of::<#param>() as u32,
            element_size: ::core::mem::size_of::<#element>() as u32,
            element_align: ::core::mem::align_of::<#element>() as u32,
            varies: #varies,
        }
    }
}

/// How a launch hands over its argument `i`.
fn handing_over(i: usize, a: &Argument) -> TokenStream {
    let id = &a.name;
    let access = match a.kind {
        Kind::Buffer(Buffer::In | Buffer::Awaited, _) => Some("Read"),
        Kind::Buffer(Buffer::Out, _) => Some("Write"),
        Kind::Buffer(Buffer::InOut, _) => Some("ReadWrite"),
        Kind::Scalar | Kind::Struct => None,
    };
    match access.map(|a| Ident::new(a, Span::call_site())) {
        Some(access) => quote! {
            sink.buffer(
                &args[#i],
                self.#id.address().raw(),
                self.#id.byte_len() as u64,
                ::warpsmith_device::Access::#access,
            );
        },
        None => {
            // Not of the type's span: a type may be from a macro, whose `self` would be another.
            let (ty, argument) = (&a.ty, quote!(&self.#id));
            let bytes = quote_spanned! {ty.span()=>
                ::warpsmith_device::__private::bytes_of::<#ty>(#argument)
            };
            quote! { sink.scalar(&args[#i], #bytes); }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(camel_case("rms_norm"), "RmsNorm");
        assert_eq!(camel_case("gemv_q8_0"), "GemvQ80");
        assert_eq!(camel_case("copy"), "Copy");
        assert_eq!(file_module("gpu-kernels/src/norm.rs", "gpu-kernels"), "norm");
        assert_eq!(file_module("gpu-kernels/src/gemv/mod.rs", "gpu-kernels"), "gemv");
        assert_eq!(file_module("src/lib.rs", "gpu-kernels"), "gpu_kernels");
    }

    fn written(attr: TokenStream, item: TokenStream, nvvm: bool) -> String {
        let site = |_: Span| Site {
            library: String::from("my-kernels"),
            file: String::from("src/norm {1}.rs"),
            line: 7,
            nvvm,
        };
        match expand(attr, item, site) {
            Ok(tokens) => tokens.to_string(),
            Err(e) => e.to_string(),
        }
    }

    fn rms_norm() -> TokenStream {
        quote! {
            /// Says "{y}" of \ 100 %.
            pub unsafe fn rms_norm(x: In<f32>, mut y: Out<F32x4>, w: Weights, n: u32) { y.set(0, x.at(0)); }
        }
    }

    #[test]
    fn the_entry_is_that_of_the_code_generator() {
        let stock = written(quote!(block = 256), rms_norm(), false);
        assert!(
            stock.contains("# [unsafe (no_mangle)]") && stock.contains("pub unsafe extern \"ptx-kernel\" fn rms_norm")
        );
        assert!(!stock.contains("nvvm_internal"));
        let nvvm = written(quote!(block = 256), rms_norm(), true);
        assert!(nvvm.contains("# [nvvm_internal :: kernel]") && nvvm.contains("pub unsafe extern \"C\" fn rms_norm"));
        assert!(!nvvm.contains("ptx-kernel"));
        let named = written(quote!(block = 256, name = "norm"), rms_norm(), false);
        assert!(named.contains("# [unsafe (export_name = \"norm\")]") && named.contains("fn rms_norm"));
    }

    #[test]
    fn the_metadata_is_one_line_of_json_with_operands() {
        let text = written(quote!(block = (THREADS, 2), min_blocks = 4, variant = "v1"), rms_norm(), false);
        let template = text.split("global_asm ! (").nth(1).and_then(|t| {
            syn::parse_str::<LitStr>(t.split("\" ,").next().map(|t| format!("{t}\"")).unwrap_or_default().as_str()).ok()
        });
        let template = template.map(|t| t.value()).unwrap_or_default();
        assert_eq!(
            template,
            concat!(
                r#"// @kernel {{"name":"rms_norm","family":"norm {{1}}","variant":"v1","summary":"Says \"{{y}}\" of \\ 100 %.","#,
                r#""library":"my-kernels","file":"src/norm {{1}}.rs","line":7,"block":[{bx},2,1],"min_blocks":4,"args":["#,
                r#"{{"name":"x","type":"In<f32>","kind":"in","element":"f32","size":8,"align":8,"element_size":4,"element_align":4}},"#,
                r#"{{"name":"y","type":"Out<F32x4>","kind":"out","element":"F32x4","size":8,"align":8,"element_size":{s1},"element_align":{a1}}},"#,
                r#"{{"name":"w","type":"Weights","kind":"struct","element":"Weights","size":{s2},"align":{a2},"element_size":{s2},"element_align":{a2}}},"#,
                r#"{{"name":"n","type":"u32","kind":"scalar","element":"u32","size":4,"align":4,"element_size":4,"element_align":4}}]}}"#,
            )
        );
        assert!(text.contains("bx = const { (THREADS) as u64 }"));
    }

    #[test]
    fn a_type_is_asked_once_and_a_number_is_not() {
        let axpy = quote! { pub unsafe fn axpy(a: f32, x: In<f32>, z: Out<F32x4>, v: In<F32x4>, m: u32) {} };
        let text = written(quote!(block = 256), axpy, false);
        let (template, operands) =
            text.split_once("global_asm ! (").and_then(|(_, t)| t.split_once("\" ,")).unwrap_or_default();
        assert!(template.contains(r#"\"block\":[256,1,1],\"min_blocks\":0"#), "{template}");
        let operands = operands.split(") ;").next().unwrap_or_default();
        assert_eq!(operands.matches("const {").count(), 2, "{operands}");
        for (argument, size, align) in
            [("a", "4", "4"), ("x", "4", "4"), ("z", "{s1}", "{a1}"), ("v", "{s1}", "{a1}"), ("m", "4", "4")]
        {
            let of = template.split(&format!(r#"\"name\":\"{argument}\","#)).nth(1).unwrap_or_default();
            let found = of.split("element_size").nth(1).unwrap_or_default();
            assert!(found.starts_with(&format!(r#"\":{size},\"element_align\":{align}"#)), "{argument}: {of}");
        }
    }

    #[test]
    fn raw_names_lose_their_prefix_outside_the_source() {
        let text = written(
            quote!(block = 32),
            quote!(
                pub unsafe fn r#move(r#type: u32) {}
            ),
            false,
        );
        assert!(text.contains("pub struct Move { # [doc = \"Argument `type: u32`.\"] pub r#type : u32 }"), "{text}");
        assert!(text.contains("name : \"move\"") && text.contains("name : \"type\""));
    }

    #[test]
    fn the_summary_is_the_first_line_with_text() {
        let f: Function = syn::parse_quote! {
            ///
            /// One line.
            /// Another.
            fn f() {}
        };
        assert_eq!(summary(&f.attrs), "One line.");
    }
}
