//! The function under an attribute.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Result, Signature, Visibility};

/// A function whose body is handed on as it is: nothing here asks what it says, and the compiler names what is wrong with it, where it
/// is. Taking bodies apart was most of what these macros cost.
#[derive(Clone)]
pub struct Function {
    pub attrs: Vec<Attribute>,
    pub vis: Visibility,
    pub sig: Signature,
    /// In braces.
    pub body: Group,
}

impl Function {
    /// `item`, under the attribute `name`.
    pub fn parse(name: &str, item: TokenStream) -> Result<Function> {
        syn::parse2(item)
            .map_err(|_| Error::new(Span::call_site(), format!("`#[{name}]` stands on a function with a body")))
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let (vis, sig) = (input.parse()?, input.parse()?);
        Ok(Function { attrs, vis, sig, body: braces(input.parse()?)? })
    }
}

/// The group itself, or what a `$body:block` of a macro stands for.
fn braces(body: TokenTree) -> Result<Group> {
    match body {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Ok(group),
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => braces(syn::parse2(group.stream())?),
        other => Err(Error::new(other.span(), "expected a body in braces")),
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.append_all(&self.attrs);
        self.vis.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        self.body.to_tokens(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn what_is_no_function_with_a_body_is_refused() {
        let parse = |item| Function::parse("device", item).map(|f| f.to_token_stream().to_string());
        for item in [
            quote!(
                struct S;
            ),
            quote!(
                fn f();
            ),
            quote!(fn f() []),
            quote!(
                fn f() {}
                fn g() {}
            ),
            quote!(),
        ] {
            let error = parse(item.clone()).err().map(|e| e.to_string());
            assert_eq!(error.as_deref(), Some("`#[device]` stands on a function with a body"), "{item}");
        }
        let block: TokenStream = TokenTree::Group(Group::new(Delimiter::None, quote!({ 1 }))).into();
        assert_eq!(
            parse(quote!(#[inline] pub(crate) fn f(x: u32) -> u32 #block)).unwrap(),
            quote!(
                #[inline]
                pub(crate) fn f(x: u32) -> u32 {
                    1
                }
            )
            .to_string()
        );
    }

    #[test]
    fn a_body_is_not_read() {
        let item = quote!(
            fn f() {
                let = ;
            }
        );
        assert_eq!(Function::parse("kernel", item.clone()).unwrap().to_token_stream().to_string(), item.to_string());
    }
}
