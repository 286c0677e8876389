//! `#[device]`.

use crate::function::Function;
use crate::side::Side;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Result};

pub fn device(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attr.is_empty() {
        return Err(Error::new_spanned(attr, "`#[device]` takes no arguments"));
    }
    let f = Function::parse("device", item)?;
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
    let side = Side::of_process();
    let host = side.host().then(|| {
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            ::warpsmith_device::__editor! {
                #[allow(unsafe_op_in_unsafe_fn, dead_code)]
                #f
            }
        }
    });
    let device = side.device().then(|| {
        quote! {
            #[cfg(target_arch = "nvptx64")]
            ::warpsmith_device::__device_fn! {
                #[allow(unsafe_op_in_unsafe_fn)]
                #f
            }
        }
    });
    Ok(quote! { #host #device })
}
