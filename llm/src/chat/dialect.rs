//! The dialect of Jinja that chat templates are written in: that of Hugging Face's `apply_chat_template`.
//!
//! Blocks take the line break behind them and the spaces before them, loops have `break` and `continue`, strings, lists and
//! dictionaries have Python's methods, `tojson` writes what `json.dumps(…, ensure_ascii=False)` does, and there are
//! `raise_exception` and `strftime_now`. `{% generation %}`, which marks what a model wrote for training, marks nothing here.

use super::ChatError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde::Serialize;
use std::borrow::Cow;

/// What a template may spend: it is part of a file that others made, and may loop and build as long as this lasts (some
/// million instructions, 64 MB).
const FUEL: u64 = 4_000_000;
/// Name of the template in messages.
const NAME: &str = "chat_template";

/// A method of Python's types.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name, args) {
        (Some(text), "title", []) => Ok(title(text).into()),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Python's `str.title`: a word is a run of letters, so that an apostrophe begins another.
fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphabetic();
    }
    out
}

/// What `raise_exception` was called with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// A template, ready to be rendered.
pub(super) fn compile(source: &str) -> Result<Environment<'static>, ChatError> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(|e| ChatError::Syntax { reason: e.to_string() })?);
    // `.html` and the like would escape; a prompt is text.
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(method);
    env.set_fuel(Some(FUEL));
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, reason.clone()).with_source(Raised(reason)))
    });
    env.add_function("strftime_now", strftime_now);
    env.add_template_owned(NAME, without_generation_blocks(source).into_owned())
        .map_err(|e| ChatError::Syntax { reason: described(&e) })?;
    Ok(env)
}

/// The text that a compiled template makes of these variables.
pub(super) fn render(env: &Environment<'static>, variables: Value) -> Result<String, ChatError> {
    let template = env.get_template(NAME).map_err(|e| ChatError::Render { reason: described(&e) })?;
    template.render(variables).map_err(|e| match raised(&e) {
        Some(reason) => ChatError::Refused { reason },
        None => ChatError::Render { reason: described(&e) },
    })
}

fn raised(error: &Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = source {
        if let Some(Raised(reason)) = e.downcast_ref() {
            return Some(reason.clone());
        }
        source = e.source();
    }
    None
}

/// The message and the line, without the source around it.
fn described(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), |d| format!("{}: {d}", error.kind()));
    error.line().map_or_else(|| what.clone(), |line| format!("{what} (line {line})"))
}

/// `{% generation %}…{% endgeneration %}` as a condition that holds, with the same trimming.
fn without_generation_blocks(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}").map(|n| n + 2) else { break };
        let block = &rest[start..start + length];
        let inner = block[2..length - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match inner {
            "generation" => out.push_str(&block.replace("generation", "if true")),
            "endgeneration" => out.push_str(&block.replace("endgeneration", "endif")),
            _ => out.push_str(block),
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Today, as `format` says, in local time.
fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::ZonedDateTime::now())
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {e}")))
}

/// Python's `json.dumps` with `ensure_ascii=False`: a space after commas and colons, or `indent` spaces a level.
fn tojson(value: Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let invalid = |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}"));
    let indent = match positional.first() {
        Some(indent) => Some(indent.clone()),
        None => options.get::<Option<Value>>("indent")?,
    };
    let indent = indent.filter(|v| !v.is_none()).map(|v| usize::try_from(v).map(|n| n.min(64))).transpose()?;
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: ensure_ascii is not implemented"));
    }
    options.assert_all_used()?;
    let mut out = Vec::new();
    let value = if sorted { Value::from(Serde(serde_json::to_value(&value).map_err(invalid)?)) } else { value };
    match indent {
        Some(n) => {
            let spaces = " ".repeat(n);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter)).map_err(invalid)?;
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)).map_err(invalid)?,
    }
    String::from_utf8(out).map(Value::from).map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}")))
}

/// `{"a": 1, "b": [1, 2]}`.
struct Spaced;

impl Spaced {
    fn separate<W: ?Sized + std::io::Write>(writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
