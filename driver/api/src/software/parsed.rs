//! Modules that were parsed last: the same text for several devices, or for several contexts one after the other, is parsed once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use warpsmith_simt::{LoadError, LoadOptions, Module};

/// Bytes of text of the modules that are kept, whoever else has them.
const KEPT: usize = 32 << 20;

static LAST: Mutex<Parsed> = Mutex::new(Parsed { modules: VecDeque::new(), bytes: 0 });

/// By architecture of the device, the last one last.
struct Parsed {
    modules: VecDeque<(u32, Arc<Module>)>,
    bytes: usize,
}

impl Parsed {
    fn find(&mut self, text: &str, sm: u32) -> Option<Arc<Module>> {
        let at = self.modules.iter().rposition(|(of, module)| *of == sm && module.text() == text)?;
        let (_, module) = self.modules.remove(at)?;
        self.modules.push_back((sm, Arc::clone(&module)));
        Some(module)
    }

    fn keep(&mut self, sm: u32, module: &Arc<Module>) {
        self.bytes += module.text().len();
        self.modules.push_back((sm, Arc::clone(module)));
        while self.bytes > KEPT {
            let Some((_, first)) = self.modules.pop_front() else { break };
            self.bytes -= first.text().len();
        }
    }
}

/// The module of a text for a device of capability `sm`.
///
/// # Errors
/// Those of [`Module::load_entries`].
pub(crate) fn module(text: &str, sm: u32) -> Result<Arc<Module>, LoadError> {
    let last = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = last().find(text, sm) {
        return Ok(module);
    }
    // Without the lock: it takes its time.
    let module = Arc::new(Module::load_entries(text, &LoadOptions { sm })?);
    last().keep(sm, &module);
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, bytes: usize) -> String {
        let body = " ".repeat(bytes);
        format!(".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry {name}()\n{{\nret;\n}}\n{body}")
    }

    #[test]
    fn a_text_is_parsed_once_for_an_architecture_while_it_is_kept() {
        let mut parsed = Parsed { modules: VecDeque::new(), bytes: 0 };
        let texts = [text("a", 0), text("b", 0), text("c", KEPT)];
        let load = |text: &str| Arc::new(Module::load_entries(text, &LoadOptions { sm: 90 }).unwrap());
        let [a, b, c] = texts.each_ref().map(|text| load(text));
        parsed.keep(90, &a);
        parsed.keep(90, &b);
        assert!(parsed.find(&texts[0], 80).is_none());
        assert!(Arc::ptr_eq(&parsed.find(&texts[0], 90).unwrap(), &a));
        assert!(Arc::ptr_eq(&parsed.find(&texts[1], 90).unwrap(), &b));
        assert_eq!(parsed.bytes, texts[0].len() + texts[1].len());
        // More than is kept: of all, the last too.
        parsed.keep(90, &c);
        assert!(texts.iter().all(|text| parsed.find(text, 90).is_none()));
        assert_eq!(parsed.bytes, 0);
    }

    #[test]
    fn a_module_is_the_one_that_was_parsed_before_and_a_refusal_is_made_again() {
        let text = text("once", 0);
        let first = module(&text, 90).unwrap();
        assert!(Arc::ptr_eq(&module(&text, 90).unwrap(), &first));
        assert!(!Arc::ptr_eq(&module(&text, 80).unwrap(), &first));
        let wrong = text.replace("ret", "rot");
        let said = [(), ()].map(|()| module(&wrong, 90).err().unwrap().to_string());
        assert_eq!(said[0], said[1]);
    }
}
