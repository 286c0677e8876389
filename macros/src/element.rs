//! `#[derive(Element)]`.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Field, Fields, Member, Result, Type, spanned::Spanned};

/// What `#[derive(Element)]` adds to a struct.
pub fn derive(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let name = &input.ident;
    let fields = fields(&input.data)?;
    if fields.is_empty() {
        return Err(Error::new(
            name.span(),
            "an `Element` has at least one field: an empty struct has no place in device memory",
        ));
    }
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics.params,
            "an `Element` is one concrete type: its padding cannot be checked for every parameter",
        ));
    }
    check_layout(&input)?;
    let types: Vec<_> = fields.iter().map(|f| &f.ty).collect();
    let bounds = types.iter().map(|ty| {
        quote_spanned! {ty.span()=> is_element::<#ty>(); }
    });
    let message = format!(
        "`{name}` has padding: host and GPU would disagree on bytes that nobody wrote. Order the fields from large to small, or fill the gaps with fields of your own"
    );
    let padding = quote_spanned! {name.span()=>
        const _: () = assert!(::core::mem::size_of::<#name>() == #(::core::mem::size_of::<#types>())+*, #message);
    };
    let varies = varies(name, fields)?;
    let implementations = implementations(name, &types, &varies);
    Ok(quote! {
        const _: () = {
            const fn is_element<T: ::warpsmith_device::Element>() {}
            #[allow(dead_code)]
            const fn fields() { #(#bounds)* }
        };
        #padding
        #implementations
    })
}

/// The fields of a struct; nothing else is an `Element`.
fn fields(data: &Data) -> Result<&Fields> {
    match data {
        Data::Struct(s) => Ok(&s.fields),
        Data::Enum(e) => Err(Error::new(
            e.enum_token.span(),
            "an enum is no `Element`: not every bit pattern is one of its values; pass its number",
        )),
        Data::Union(u) => {
            Err(Error::new(u.union_token.span(), "a union is no `Element`: it does not say which of its fields holds"))
        }
    }
}

/// Checks that host and device lay the struct out alike, with aligned fields.
fn check_layout(input: &DeriveInput) -> Result<()> {
    let (mut fixed, mut packed) = (false, None);
    for attr in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        attr.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.path.is_ident("packed") {
                packed = Some(meta.path.span());
            }
            if meta.input.peek(syn::token::Paren) {
                let inside;
                syn::parenthesized!(inside in meta.input);
                inside.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if let Some(span) = packed {
        return Err(Error::new(span, "a packed struct is no `Element`: the GPU faults on unaligned fields"));
    }
    if !fixed {
        return Err(Error::new(
            input.ident.span(),
            "an `Element` needs `#[repr(C)]`: without it host and device may lay it out differently",
        ));
    }
    Ok(())
}

/// The words that are no constants of a launch's own code: those of marked fields, and what fields say of themselves.
fn varies(name: &Ident, fields: &Fields) -> Result<TokenStream> {
    let of = |(i, field): (usize, &Field)| {
        let mut marked = false;
        for attr in field.attrs.iter().filter(|a| a.path().is_ident("varies")) {
            attr.meta.require_path_only()?;
            marked = true;
        }
        let member = field.ident.clone().map_or(Member::Unnamed(i.into()), Member::Named);
        let ty = &field.ty;
        Ok(quote! {
            ::warpsmith_device::__private::varying::<#ty>(::core::mem::offset_of!(#name, #member), #marked)
        })
    };
    let fields = fields.iter().enumerate().map(of).collect::<Result<Vec<_>>>()?;
    Ok(quote!(#(#fields)|*))
}

/// The traits of a struct that has been found to be an `Element`.
fn implementations(name: &Ident, types: &[&Type], varies: &TokenStream) -> TokenStream {
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: every field is an `Element`, for which zero is valid.
        unsafe impl ::warpsmith_device::__private::bytemuck::Zeroable for #name {}
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: `repr(C)`, every field is an `Element`, and the assertion above excludes padding.
        unsafe impl ::warpsmith_device::__private::bytemuck::Pod for #name {}
        // SAFETY: `repr(C)`, every field is an `Element`, and the assertion above excludes padding.
        unsafe impl ::warpsmith_device::Element for #name {
            #[cfg(not(target_arch = "nvptx64"))]
            const VARIES: u32 = #varies;
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: no field holds an address. (`for` lets the bound be false: the struct is then no `Plain`.)
        unsafe impl ::warpsmith_device::Plain for #name where #(for<'plain> #types: ::warpsmith_device::Plain),* {}
        #[cfg(target_arch = "nvptx64")]
        impl ::warpsmith_device::shared::SharedElement for #name {
            #[inline(always)]
            unsafe fn load(address: u32) -> #name {
                // SAFETY: the caller's promise.
                unsafe { ::warpsmith_device::shared::load_plain(address) }
            }
            #[inline(always)]
            unsafe fn store(address: u32, v: #name) {
                // SAFETY: the caller's promise.
                unsafe { ::warpsmith_device::shared::store_plain(address, v) }
            }
        }
    }
}
