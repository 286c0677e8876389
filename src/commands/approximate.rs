//! Approximate instructions of the kernels that ran.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use warpsmith_simt::BOUNDS_FROM;

/// By kernel, each instruction once: name, bound, and what is computed here.
#[derive(Default)]
pub struct Approximate(BTreeMap<String, Vec<Value>>);

impl Approximate {
    /// Adds those of a kernel.
    pub fn add(&mut self, kernel: &str, instructions: Vec<Value>) {
        if instructions.is_empty() {
            return;
        }
        let known = self.0.entry(kernel.to_owned()).or_default();
        for instruction in instructions {
            if !known.contains(&instruction) {
                known.push(instruction);
            }
        }
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: Approximate) {
        other.0.into_iter().for_each(|(kernel, all)| self.add(&kernel, all));
    }

    pub fn to_json(&self) -> Vec<Value> {
        self.0.iter().map(|(kernel, all)| json!({ "kernel": kernel, "instructions": all })).collect()
    }

    /// Prints them, if there are any.
    pub fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        println!("approximate instructions; a GPU's results may differ from these within the bounds of {BOUNDS_FROM}:");
        for (kernel, all) in &self.0 {
            println!("  {kernel}: {}", sentence(all));
        }
    }
}

/// Instructions with their bounds, in a line.
pub fn sentence(all: &[Value]) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let one = |a: &Value| format!("{} ({}; {})", text(&a["instruction"]), text(&a["bound"]), text(&a["computed"]));
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_and_instruction_is_there_once() {
        let of = |name: &str| json!({ "instruction": name, "bound": "2 ulp", "computed": "correctly rounded" });
        let mut all = Approximate::default();
        all.add("k", vec![of("div.full.f32")]);
        all.add("k", vec![of("div.full.f32"), of("ex2.approx.f32")]);
        all.add("plain", Vec::new());
        assert_eq!(all.to_json().len(), 1);
        let line = "div.full.f32 (2 ulp; correctly rounded), ex2.approx.f32 (2 ulp; correctly rounded)";
        assert_eq!(sentence(&all.0["k"]), line);
    }
}
