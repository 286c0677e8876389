//! `#[device]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, ItemFn, Result};

pub fn device(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attr.is_empty() {
        return Err(Error::new_spanned(attr, "`#[device]` takes no arguments"));
    }
    let f: ItemFn =
        syn::parse2(item).map_err(|_| Error::new(Span::call_site(), "`#[device]` stands on a function with a body"))?;
    if let Some(t) = &f.sig.asyncness {
        return Err(Error::new_spanned(t, "a device function cannot be `async`"));
    }
    if let Some(t) = &f.sig.abi {
        return Err(Error::new_spanned(t, "a device function is always inlined: an ABI means nothing"));
    }
    for a in &f.attrs {
        if a.path().is_ident("inline") {
            return Err(Error::new_spanned(a, "`#[device]` decides the inlining: it is always inlined"));
        }
    }
    Ok(quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        ::warpsmith_device::__editor! {
            #[allow(unsafe_op_in_unsafe_fn, dead_code)]
            #f
        }

        #[cfg(target_arch = "nvptx64")]
        ::warpsmith_device::__device_fn! {
            #[allow(unsafe_op_in_unsafe_fn)]
            #f
        }
    })
}
