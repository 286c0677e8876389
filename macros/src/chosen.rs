//! Which kernels are written, where a build wants those of some files.
//!
//! An edit of one kernel leaves the code of all others as it is, and the builder has kept that. It then names the files whose kernels
//! it lacks, and of the others nothing is written: they are most of what a compilation of many kernels takes.

use crate::side::Side;
use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

/// The files, as the compiler names them, a line each. The builder sets it, and only where it has the code of all other kernels.
const VARIABLE: &str = "WARPSMITH_KERNELS_OF";

/// What is written of a kernel that nobody wants; `None`: it is wanted.
pub fn left_out(attr: &TokenStream, item: &TokenStream) -> Option<TokenStream> {
    let files = std::env::var(VARIABLE).ok()?;
    if Side::of_process() != Side::Device {
        return None;
    }
    let function = item.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(word) if word == "fn" => Some(word.span()),
        _ => None,
    })?;
    let file = function.unwrap().file();
    (!files.lines().any(|chosen| chosen == file)).then(|| rest(attr, item))
}

/// Other device code may call the function that instances are made of.
fn rest(attr: &TokenStream, item: &TokenStream) -> TokenStream {
    let has_instances =
        attr.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "instances"));
    if has_instances { quote!(#[::warpsmith_device::device] #item) } else { TokenStream::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_call_stays() {
        let item = quote!(
            pub unsafe fn scale<const V: usize>() {}
        );
        assert!(rest(&quote!(block = 256), &item).is_empty());
        let written = rest(&quote!(block = 256, instances(scale_4<4>)), &item).to_string();
        assert_eq!(
            written,
            quote!(
                #[::warpsmith_device::device]
                pub unsafe fn scale<const V: usize>() {}
            )
            .to_string()
        );
    }
}
