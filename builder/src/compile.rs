//! One compilation: of what an edit changed, of the crate in its modules, or of the crate as a whole, whichever is the first that does.

use crate::BuildError;
use crate::cargo::{Compilation, Compiled, Unit, Units};
use crate::edit::Edits;
use crate::ptx;

/// Compiles, or answers what is there already. The caller holds the lock of the target directory.
pub(crate) fn compile(compilation: &Compilation<'_>) -> Result<Compiled, BuildError> {
    let edits = Edits::new(compilation, &compilation.command(Units::Modules)?);
    if let Some(compiled) = edits.compile()?
        && why_whole(compilation, &compiled).is_none()
    {
        return Ok(compiled);
    }
    let ran = compilation.run(Units::Modules)?;
    if !ran.compiled.fresh {
        edits.forget();
        Unit::write_all(&ran.units, compilation.target_dir)?;
        edits.remember(&ran);
    }
    let Some(why) = why_whole(compilation, &ran.compiled) else { return Ok(ran.compiled) };
    eprintln!("warpsmith: {} is compiled as a whole for {}: {why}", compilation.package.name, compilation.arch);
    Ok(compilation.run(Units::Whole)?.compiled)
}

/// Why modules do not do: a static of a dependency, for example; or an array that stays in registers only where the whole is seen.
fn why_whole(compilation: &Compilation<'_>, compiled: &Compiled) -> Option<String> {
    match ptx::unresolved(&compiled.ptx).first() {
        Some(name) => Some(format!("a module refers to `{name}` of a dependency")),
        None if ptx::keeps_local_memory(&compiled.ptx, compilation.allow_local) => {
            Some("a kernel keeps an array in local memory if modules are compiled apart".to_owned())
        }
        None => None,
    }
}
