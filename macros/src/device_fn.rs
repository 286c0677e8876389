//! `#[device]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, spanned::Spanned};

pub fn device(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attr.is_empty() {
        return Err(Error::new(attr.span(), "`#[device]` takes no arguments"));
    }
    let span = item.span();
    let f: ItemFn = syn::parse2(item)
        .map_err(|_| Error::new(span, "`#[device]` stands on a function with a body"))?;
    if let Some(t) = &f.sig.asyncness {
        return Err(Error::new(t.span(), "a device function cannot be `async`"));
    }
    if let Some(t) = &f.sig.abi {
        return Err(Error::new(t.span(), "a device function is always inlined: an ABI means nothing"));
    }
    for a in &f.attrs {
        if a.path().is_ident("inline") {
            return Err(Error::new(a.span(), "`#[device]` already says `#[inline(always)]`"));
        }
    }
    Ok(quote! {
        #[cfg(target_arch = "nvptx64")]
        ::warpsmith_device::__device_fn! {
            #[allow(unsafe_op_in_unsafe_fn)]
            #f
        }
    })
}
