//! What the linker leaves to lowering: functions that a library has as machine code alone.
//!
//! The joined text says so in a `.pragma`, whose strings the ISA leaves to whoever compiles the text.

/// Begins the string.
const WORD: &str = "warpsmith machine_code";

/// The statement that says that a function is machine code in a file.
pub fn machine_code(function: &str, file: &str) -> String {
    let file: String = file.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    format!(".pragma \"{WORD} {function} {file}\";\n")
}

/// The file in which a function is machine code, by the strings of a module's pragmas.
pub fn machine_code_of<'a>(pragmas: &'a [String], function: &str) -> Option<&'a str> {
    pragmas.iter().find_map(|text| {
        let rest = text.trim_matches('"').strip_prefix(WORD)?.strip_prefix(' ')?;
        rest.strip_prefix(function)?.strip_prefix(' ')
    })
}
