//! The keys inside `#[kernel(…)]`.

use proc_macro2::{Span, TokenStream};
use syn::{
    Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token,
    parse::{Parse, ParseStream, Parser},
    punctuated::Punctuated,
    spanned::Spanned,
};

const KEYS: &str = "`block`, `min_blocks`, `name`, `family`, `variant`, `addresses` or `instances`";

/// What the attribute says.
#[derive(Clone)]
pub struct Options {
    /// Threads in x, y and z; one to three expressions.
    pub block: Vec<Expr>,
    pub min_blocks: Option<Expr>,
    pub name: Option<String>,
    pub family: Option<String>,
    pub variant: String,
    /// It follows no address of its elements.
    pub ignores_addresses: bool,
    /// Names of the kernels of a generic function, with what stands for its parameters.
    pub instances: Vec<Path>,
}

struct Pair {
    key: Ident,
    value: Value,
}

enum Value {
    One(Box<Expr>),
    Paths(Vec<Path>),
}

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> Result<Pair> {
        let key: Ident = input.parse()?;
        if key == "instances" && input.peek(syn::token::Paren) {
            let inside;
            syn::parenthesized!(inside in input);
            let paths = Punctuated::<Path, Token![,]>::parse_terminated(&inside)?;
            if paths.is_empty() {
                return Err(Error::new(key.span(), "`instances` has at least one: `instances(scale_f32<f32>)`"));
            }
            return Ok(Pair { key, value: Value::Paths(paths.into_iter().collect()) });
        }
        if !input.peek(Token![=]) {
            return Err(Error::new(key.span(), format!("write `{key} = …`")));
        }
        if key == "instances" {
            return Err(Error::new(key.span(), "write `instances(scale_f32<f32>, …)`"));
        }
        input.parse::<Token![=]>()?;
        Ok(Pair { key, value: Value::One(Box::new(input.parse()?)) })
    }
}

/// The value of an integer literal, if it is one.
pub fn literal(value: &Expr) -> Option<u64> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(n), .. }) => n.base10_parse().ok(),
        Expr::Paren(p) => literal(&p.expr),
        Expr::Group(g) => literal(&g.expr),
        _ => None,
    }
}

fn text(key: &Ident, value: &Expr) -> Result<LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(s), .. }) if !s.value().is_empty() => Ok(s.clone()),
        _ => Err(Error::new(value.span(), format!("`{key}` is a string that is not empty"))),
    }
}

fn block(value: Expr) -> Result<Vec<Expr>> {
    let span = value.span();
    let dims: Vec<Expr> = match value {
        Expr::Tuple(t) => t.elems.into_iter().collect(),
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => vec![value],
        Expr::Lit(_) | Expr::Array(_) | Expr::Closure(_) | Expr::Reference(_) => {
            return Err(Error::new(span, "`block` is a number of threads: `256` or `(32, 8)`"));
        }
        _ => vec![value],
    };
    if !(1..=3).contains(&dims.len()) {
        return Err(Error::new(span, "`block` has one to three dimensions"));
    }
    let numbers: Option<Vec<u64>> = dims.iter().map(literal).collect();
    if dims.iter().any(|d| literal(d) == Some(0)) {
        return Err(Error::new(span, "a block needs at least one thread in each dimension"));
    }
    if let Some(numbers) = numbers {
        let threads = numbers.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        if threads.is_none_or(|n| n > 1024) {
            return Err(Error::new(span, "a block has at most 1024 threads"));
        }
    }
    Ok(dims)
}

impl Options {
    pub fn parse(attr: TokenStream) -> Result<Options> {
        let pairs = Punctuated::<Pair, Token![,]>::parse_terminated.parse2(attr)?;
        let mut seen: Vec<String> = Vec::new();
        let (mut dims, mut min_blocks, mut name, mut family) = (None, None, None, None);
        let (mut variant, mut instances, mut ignores_addresses) = (String::new(), Vec::new(), false);
        for Pair { key, value } in pairs {
            let k = key.to_string();
            if seen.contains(&k) {
                return Err(Error::new(key.span(), format!("`{k}` is given twice")));
            }
            let value = match value {
                Value::One(value) => *value,
                Value::Paths(paths) => {
                    instances = paths;
                    seen.push(k);
                    continue;
                }
            };
            match k.as_str() {
                "block" => dims = Some(block(value)?),
                "min_blocks" => {
                    if literal(&value) == Some(0) {
                        return Err(Error::new(
                            value.span(),
                            "`min_blocks` is at least 1; leave it out to say nothing",
                        ));
                    }
                    min_blocks = Some(value);
                }
                "name" => {
                    let s = text(&key, &value)?;
                    let v = s.value();
                    let ok = v.starts_with(|c: char| c.is_ascii_alphabetic())
                        && v.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                    if !ok {
                        return Err(Error::new(
                            s.span(),
                            "`name` is a PTX entry: ASCII letters, digits and `_`, beginning with a letter",
                        ));
                    }
                    name = Some(v);
                }
                "family" => family = Some(text(&key, &value)?.value()),
                "variant" => variant = text(&key, &value)?.value(),
                "addresses" => {
                    let s = text(&key, &value)?;
                    if s.value() != "ignored" {
                        return Err(Error::new(
                            s.span(),
                            "`addresses` is \"ignored\", for a kernel that follows none of those in its elements; else leave it out",
                        ));
                    }
                    ignores_addresses = true;
                }
                _ => return Err(Error::new(key.span(), format!("unknown key `{k}`: expected {KEYS}"))),
            }
            seen.push(k);
        }
        let Some(block) = dims else {
            return Err(Error::new(Span::call_site(), "the threads of a block are missing: `#[kernel(block = 256)]`"));
        };
        Ok(Options { block, min_blocks, name, family, variant, ignores_addresses, instances })
    }
}
