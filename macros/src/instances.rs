//! Generic kernels: `instances(scale_f32<f32, 4>, scale_u32<u32, 2>)`.
//!
//! The function becomes a generic `#[device]` function, and each instance a kernel that calls it. Only the arguments of the
//! kernel have to be written without parameters: they are replaced there word by word.

use crate::function::Function;
use crate::options::Options;
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Error, Expr, FnArg, GenericParam, Pat, Path, PathArguments, Result};

/// A kernel to be written, and its options.
pub struct Instance {
    pub f: Function,
    pub options: Options,
}

/// The instances of a generic kernel.
pub fn of(f: &Function, options: &Options) -> Result<Vec<Instance>> {
    let mut parameters = Vec::new();
    for p in &f.sig.generics.params {
        match p {
            GenericParam::Type(t) => parameters.push(t.ident.clone()),
            GenericParam::Const(c) => parameters.push(c.ident.clone()),
            GenericParam::Lifetime(l) => {
                return Err(Error::new_spanned(l, "a kernel has no lifetimes: its launch borrows the buffers"));
            }
        }
    }
    if parameters.is_empty() {
        return Err(Error::new_spanned(
            &f.sig.ident,
            "`instances` are of a generic kernel: this one has no parameters",
        ));
    }
    if options.name.is_some() {
        return Err(Error::new_spanned(&f.sig.ident, "`instances` name the entries: leave `name` out"));
    }
    options.instances.iter().map(|path| one(f, options, &parameters, path)).collect()
}

fn one(f: &Function, options: &Options, parameters: &[Ident], path: &Path) -> Result<Instance> {
    let wanted = || {
        let names = parameters.iter().map(Ident::to_string).collect::<Vec<_>>().join(", ");
        Error::new_spanned(path, format!("an instance is a name and what stands for the parameters: `name<{names}>`"))
    };
    let (Some(segment), 1) = (path.segments.first(), path.segments.len()) else { return Err(wanted()) };
    let PathArguments::AngleBracketed(given) = &segment.arguments else { return Err(wanted()) };
    if given.args.len() != parameters.len() {
        return Err(wanted());
    }
    let values: Vec<TokenStream> = given.args.iter().map(ToTokens::to_token_stream).collect();
    let replace = |tokens: TokenStream| substitute(tokens, parameters, &values);

    let generic = &f.sig.ident;
    let mut kernel = f.clone();
    kernel.sig.ident = Ident::new(&segment.ident.to_string(), generic.span());
    kernel.sig.generics = syn::Generics::default();
    let mut names = Vec::new();
    for input in &mut kernel.sig.inputs {
        if let FnArg::Typed(t) = input {
            t.ty = syn::parse2(replace(t.ty.to_token_stream()))?;
            if let Pat::Ident(p) = &mut *t.pat {
                p.mutability = None;
                names.push(p.ident.clone());
            }
        }
    }
    kernel.body = Group::new(Delimiter::Brace, quote!(#generic::<#(#values),*>(#(#names),*)));
    let arguments = given.args.to_token_stream().to_string().replace(" ,", ",").replace(" ;", ";");
    let doc = format!("The instance `{generic}<{arguments}>`.");
    kernel.attrs.push(syn::parse_quote!(#[doc = ""]));
    kernel.attrs.push(syn::parse_quote!(#[doc = #doc]));

    let mut options = options.clone();
    options.instances.clear();
    let expression = |e: &Expr| syn::parse2::<Expr>(replace(e.to_token_stream()));
    options.block = options.block.iter().map(expression).collect::<Result<_>>()?;
    options.min_blocks = options.min_blocks.as_ref().map(expression).transpose()?;
    if options.variant.is_empty() {
        options.variant = arguments;
    }
    Ok(Instance { f: kernel, options })
}

/// The tokens with every parameter replaced that is not part of a longer path.
fn substitute(tokens: TokenStream, parameters: &[Ident], values: &[TokenStream]) -> TokenStream {
    let mut colons = 0;
    let mut out = TokenStream::new();
    for token in tokens {
        let in_path = colons == 2;
        colons = if matches!(&token, TokenTree::Punct(p) if p.as_char() == ':') { colons + 1 } else { 0 };
        match token {
            TokenTree::Ident(id) => match parameters.iter().position(|p| *p == id).filter(|_| !in_path) {
                Some(at) => out.extend(values[at].clone()),
                None => out.extend([TokenTree::Ident(id)]),
            },
            TokenTree::Group(g) => {
                let mut inner = Group::new(g.delimiter(), substitute(g.stream(), parameters, values));
                inner.set_span(g.span());
                out.extend([TokenTree::Group(inner)]);
            }
            other => out.extend([other]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(attr: TokenStream, item: TokenStream) -> std::result::Result<Vec<String>, String> {
        let f: Function = syn::parse2(item).map_err(|e| e.to_string())?;
        let options = Options::parse(attr).map_err(|e| e.to_string())?;
        let instances = of(&f, &options).map_err(|e| e.to_string())?;
        Ok(instances
            .iter()
            .map(|i| {
                let (sig, block, dims, v) = (&i.f.sig, &i.f.body, &i.options.block, &i.options.variant);
                format!("{} | {} | {v}", quote!(#sig #block), quote!(#(#dims),*))
            })
            .collect())
    }

    fn scale() -> TokenStream {
        quote! {
            /// Scales.
            pub unsafe fn scale<T: Element, const V: usize>(mut x: In<[T; V]>, y: Out<<T as other::T>::V>, n: T) {}
        }
    }

    #[test]
    fn an_instance_calls_the_generic_function() {
        let found =
            split(quote!(block = 32 * V, instances(scale_f<f32, 4>, scale_u<[u8; 2], { 1 + 1 }>)), scale()).unwrap();
        assert_eq!(
            found,
            [
                "unsafe fn scale_f (x : In < [f32 ; 4] > , y : Out < < f32 as other :: T > :: V > , n : f32) \
                 { scale :: < f32 , 4 > (x , y , n) } | 32 * 4 | f32, 4",
                "unsafe fn scale_u (x : In < [[u8 ; 2] ; { 1 + 1 }] > , y : Out < < [u8 ; 2] as other :: T > :: V > , n : [u8 ; 2]) \
                 { scale :: < [u8 ; 2] , { 1 + 1 } > (x , y , n) } | 32 * { 1 + 1 } | [u8; 2], { 1 + 1 }",
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let one = |attr| split(attr, scale()).unwrap_err();
        assert!(one(quote!(block = 32, instances(a<f32>))).contains("`name<T, V>`"));
        assert!(one(quote!(block = 32, instances(a))).contains("`name<T, V>`"));
        assert!(one(quote!(block = 32, instances())).contains("at least one"));
        assert!(one(quote!(block = 32, name = "x", instances(a<f32, 1>))).contains("leave `name` out"));
        let plain = quote!(
            unsafe fn f(n: u32) {}
        );
        assert!(split(quote!(block = 32, instances(a<f32>)), plain).unwrap_err().contains("no parameters"));
    }
}
