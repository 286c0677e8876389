//! What `quantization_config` says, and the tensors that it stands for.

use super::super::CheckpointError;
use super::super::json::{self, Object};
use super::super::rows::{Dense, Rows};
use super::super::shards::{Shards, Stored};
use super::float4::{self, Float4, Whole};
use super::float8::Float8;
use super::grouped::{Grouped, GroupedParts, Groups, MatrixCache};
use super::packing::{Packing, Zeros};
use safetensors::Dtype;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Where older checkpoints of GPTQ say how they are quantised.
const BESIDE: &str = "quantize_config.json";

/// Where ModelOpt's say it.
const MODELOPT: &str = "hf_quant_config.json";

/// A matrix, and the tensors that it is made of.
type Found = (Box<dyn Rows>, Vec<String>);

/// What a checkpoint does with its matrices. Each may still be stored as it is.
#[derive(Clone, Copy)]
enum Method {
    /// Nothing.
    Plain,
    /// GPTQ: bits of a code, columns of a group (all, where there is none), and what zeros are stored less.
    Gptq { bits: u32, group: Option<usize>, less: i16 },
    /// AWQ in the order of its matrix products: columns of a group.
    Awq { group: Option<usize> },
    /// Eight-bit floats: rows and columns of a block, if scales are of blocks.
    Float8 { block: Option<[usize; 2]> },
    /// Four-bit floats, NVFP4.
    Float4,
    /// compressed-tensors: bits of an integer, columns of a group, and whether zeros are half of what a code has room for.
    Integers { bits: u32, group: Option<usize>, symmetric: bool },
}

/// How matrices are stored.
pub(in super::super) struct Quantization {
    method: Method,
    cache: Arc<MatrixCache>,
}

impl Quantization {
    /// Reads it: of the model's configuration or, as AutoGPTQ wrote it at first, of a file beside it.
    pub fn of(config: Object<'_>, folder: &Path) -> Result<Quantization, CheckpointError> {
        let (beside, of_modelopt) = match config.get("quantization_config") {
            Some(_) => (None, None),
            None => (json::read(folder, BESIDE)?, json::read(folder, MODELOPT)?),
        };
        let method = match (config.get("quantization_config"), &beside, &of_modelopt) {
            (Some(value), ..) => method(Object::within(config.file, "quantization_config.", value)?)?,
            (None, Some(value), _) => gptq(Object::of_file(BESIDE, value)?)?,
            (None, None, Some(value)) => match Object::of_file(MODELOPT, value)?.get("quantization") {
                Some(value) => modelopt(Object::within(MODELOPT, "quantization.", value)?)?,
                None => Method::Plain,
            },
            (None, None, None) => Method::Plain,
        };
        Ok(Quantization { method, cache: Arc::default() })
    }

    /// The matrix of that name, if the checkpoint has it.
    pub fn matrix(&self, name: &str, shards: &Arc<Shards>) -> Result<Option<Found>, CheckpointError> {
        let has = |part: &str| shards.get(&format!("{name}.{part}"));
        let plain = has("weight");
        match (self.method, plain) {
            (Method::Gptq { bits, group, less }, None) if has("qweight").is_some() => {
                self.gptq(name, shards, (bits, group, less)).map(Some)
            }
            (Method::Awq { group }, None) if has("qweight").is_some() => self.awq(name, shards, group).map(Some),
            (Method::Integers { bits, group, symmetric }, None) if has("weight_packed").is_some() => {
                self.packed(name, shards, (bits, group, symmetric)).map(Some)
            }
            (Method::Integers { bits: 8, group: None, symmetric: true }, Some(stored)) if stored.dtype == Dtype::I8 => {
                self.bytes(name, shards, stored).map(Some)
            }
            (Method::Float8 { block }, Some(stored)) if matches!(stored.dtype, Dtype::F8_E4M3 | Dtype::F8_E5M2) => {
                let inverse = format!("{name}.weight_scale_inv");
                let scales = if shards.get(&inverse).is_some() { inverse } else { format!("{name}.weight_scale") };
                let made = Float8::new(shards, [stored, shards.require(&scales)?], block)?;
                Ok(Some((Box::new(made), vec![stored.name.clone(), scales])))
            }
            (Method::Float4, Some(stored)) if stored.dtype == Dtype::U8 => {
                Self::float4(name, shards, ["weight", "weight_scale", "weight_scale_2"], Whole::Factor).map(Some)
            }
            (Method::Float4, None) if has("weight_packed").is_some() => {
                Self::float4(name, shards, ["weight_packed", "weight_scale", "weight_global_scale"], Whole::Divisor)
                    .map(Some)
            }
            (_, Some(stored)) => Ok(Some((Box::new(Dense::new(shards, stored)?), vec![stored.name.clone()]))),
            (_, None) => Ok(None),
        }
    }

    fn float4(name: &str, shards: &Arc<Shards>, parts: [&str; 3], whole: Whole) -> Result<Found, CheckpointError> {
        let names = parts.map(|part| format!("{name}.{part}"));
        let [codes, scales, of_all] = &names;
        let stored = [shards.require(codes)?, shards.require(scales)?, shards.require(of_all)?];
        Ok((Box::new(Float4::new(shards, stored, whole)?), names.into()))
    }

    fn gptq(
        &self,
        name: &str,
        shards: &Arc<Shards>,
        (bits, group, less): (u32, Option<usize>, i16),
    ) -> Result<Found, CheckpointError> {
        let part = |part: &str| shards.require(&format!("{name}.{part}"));
        let (codes, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
        let [words, rows] = codes.matrix()?;
        let cols = words.saturating_mul(32) / bits as usize;
        if !words.is_multiple_of(if bits == 3 { 3 } else { 1 }) {
            return Err(codes.misshapen("rows of words for 32 inputs each"));
        }
        let count = groups_of(cols, group);
        let zeros = Zeros::Rows(zeros.clone(), less);
        let mut names = vec!["qweight", "qzeros", "scales"];
        let groups = match shards.get(&format!("{name}.g_idx")) {
            Some(index) => {
                names.push("g_idx");
                listed(shards, index, (cols, group, count))?
            }
            None => Groups::Runs(group.unwrap_or(cols)),
        };
        let parts = GroupedParts {
            codes: codes.clone(),
            packing: Packing::Inputs,
            bits,
            size: [rows, cols],
            scales: scales.clone(),
            scales_by_row: false,
            zeros,
            groups,
            count,
        };
        self.grouped(name, shards, parts, &names)
    }

    fn awq(&self, name: &str, shards: &Arc<Shards>, group: Option<usize>) -> Result<Found, CheckpointError> {
        let part = |part: &str| shards.require(&format!("{name}.{part}"));
        let (codes, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
        let [cols, words] = codes.matrix()?;
        let parts = GroupedParts {
            codes: codes.clone(),
            packing: Packing::Outputs,
            bits: 4,
            size: [words.saturating_mul(8), cols],
            scales: scales.clone(),
            scales_by_row: false,
            zeros: Zeros::Awq(zeros.clone()),
            groups: Groups::Runs(group.unwrap_or(cols)),
            count: groups_of(cols, group),
        };
        self.grouped(name, shards, parts, &["qweight", "qzeros", "scales"])
    }

    fn packed(
        &self,
        name: &str,
        shards: &Arc<Shards>,
        (bits, group, symmetric): (u32, Option<usize>, bool),
    ) -> Result<Found, CheckpointError> {
        let part = |part: &str| shards.require(&format!("{name}.{part}"));
        let (codes, shape, scales) = (part("weight_packed")?, part("weight_shape")?, part("weight_scale")?);
        let [rows, words] = codes.matrix()?;
        let per = (32 / bits) as usize;
        let stated = shards.whole_numbers(shape)?;
        let cols = match stated[..] {
            [r, c] if r == rows as u64 && c.div_ceil(per as u64) == words as u64 => c as usize,
            _ => return Err(codes.misshapen(format!("so many words as {} says: {stated:?} weights", shape.name))),
        };
        let count = groups_of(cols, group);
        let mut names = vec!["weight_packed", "weight_shape", "weight_scale"];
        let zeros = match symmetric {
            true => Zeros::Half,
            false => {
                names.push("weight_zero_point");
                Zeros::Columns(part("weight_zero_point")?.clone())
            }
        };
        let groups = match shards.get(&format!("{name}.weight_g_idx")) {
            Some(index) => {
                names.push("weight_g_idx");
                listed(shards, index, (cols, group, count))?
            }
            None => Groups::Runs(group.unwrap_or(cols)),
        };
        let parts = GroupedParts {
            codes: codes.clone(),
            packing: Packing::Rows,
            bits,
            size: [rows, cols],
            scales: scales.clone(),
            scales_by_row: true,
            zeros,
            groups,
            count,
        };
        self.grouped(name, shards, parts, &names)
    }

    fn bytes(&self, name: &str, shards: &Arc<Shards>, codes: &Stored) -> Result<Found, CheckpointError> {
        let scales = shards.require(&format!("{name}.weight_scale"))?;
        let size @ [_, cols] = codes.matrix()?;
        let parts = GroupedParts {
            codes: codes.clone(),
            packing: Packing::Bytes,
            bits: 8,
            size,
            scales: scales.clone(),
            scales_by_row: true,
            zeros: Zeros::Half,
            groups: Groups::Runs(cols),
            count: 1,
        };
        self.grouped(name, shards, parts, &["weight", "weight_scale"])
    }

    /// Checks what goes with the codes.
    fn grouped(
        &self,
        name: &str,
        shards: &Arc<Shards>,
        parts: GroupedParts,
        names: &[&str],
    ) -> Result<Found, CheckpointError> {
        let GroupedParts { codes, packing, scales, scales_by_row, zeros, size: [rows, cols], count, .. } = &parts;
        let (rows, count) = (*rows, *count);
        let fits = rows.checked_mul(*cols).is_some() && rows.checked_mul(count).is_some();
        if !fits || rows == 0 || *cols == 0 {
            return Err(codes.misshapen("a matrix that fits into memory"));
        }
        if !matches!((packing, codes.dtype), (Packing::Bytes, Dtype::I8) | (_, Dtype::I32 | Dtype::U32)) {
            return Err(codes.mistyped("I32"));
        }
        if !matches!(scales.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Err(scales.mistyped("F32, F16, BF16"));
        }
        let shape = if *scales_by_row { [rows, count] } else { [count, rows] };
        scales.expect(&shape, "from the codes and the size of a group")?;
        zeros.check([count, rows], parts.bits)?;
        let made = Grouped::new(shards, &self.cache, parts)?;
        Ok((Box::new(made), names.iter().map(|part| format!("{name}.{part}")).collect()))
    }
}

/// Groups of so many columns in a row.
fn groups_of(cols: usize, group: Option<usize>) -> usize {
    group.map_or(1, |group| cols.div_ceil(group))
}

/// Groups by a list; runs, where it says no more than the size of a group does.
fn listed(
    shards: &Shards,
    index: &Stored,
    (cols, group, count): (usize, Option<usize>, usize),
) -> Result<Groups, CheckpointError> {
    index.expect(&[cols], "one number for each column of the codes")?;
    let all = shards.integers(index)?;
    if let Some((column, &wrong)) = all.iter().enumerate().find(|(_, group)| **group as usize >= count) {
        let tensor = index.name.clone();
        return Err(CheckpointError::GroupIndex { tensor, column, group: wrong as i32, groups: count });
    }
    let size = group.unwrap_or(cols);
    let runs = all.iter().enumerate().all(|(column, &group)| group as usize == column / size);
    Ok(if runs { Groups::Runs(size) } else { Groups::Listed(all.into()) })
}

fn unsupported(method: &str, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Quantization { method: method.to_owned(), reason: reason.into() }
}

fn method(own: Object<'_>) -> Result<Method, CheckpointError> {
    let name = own.text("quant_method")?.ok_or_else(|| own.wrong("quant_method", "is missing"))?;
    match name {
        "gptq" => gptq(own),
        "awq" => awq(own),
        "fp8" => Ok(Method::Float8 { block: block(own, "weight_block_size")? }),
        "compressed-tensors" => compressed(own),
        "modelopt" | "modelopt_fp4" => modelopt(own),
        // Its experts, which have tensors of their own.
        "mxfp4" => Ok(Method::Plain),
        other => Err(unsupported(other, "`gptq`, `awq`, `fp8`, `modelopt`, `mxfp4` and `compressed-tensors` are")),
    }
}

/// Columns of a group; none: a row is one.
fn group(own: Object<'_>, key: &str) -> Result<Option<usize>, CheckpointError> {
    match own.number(key)? {
        None => Ok(None),
        Some(-1.0) => Ok(None),
        Some(n) if n >= 1.0 && n.fract() == 0.0 && n < f64::from(u32::MAX) => Ok(Some(n as usize)),
        Some(n) => Err(own.wrong(key, format!("is {n}, expected -1 or a whole number above zero"))),
    }
}

fn gptq(own: Object<'_>) -> Result<Method, CheckpointError> {
    let bits = own.require_count("bits")?;
    if ![2, 3, 4, 8].contains(&bits) {
        return Err(unsupported("gptq", format!("with {bits} bits; with 2, 3, 4 and 8 it is")));
    }
    let less = match own.text("checkpoint_format")? {
        None | Some("gptq") => 1,
        Some("gptq_v2") => 0,
        Some(other) => return Err(unsupported("gptq", format!("in the form {other:?}; `gptq` and `gptq_v2` are"))),
    };
    if own.map("dynamic")?.is_some_and(|rules| !rules.is_empty()) {
        return Err(unsupported("gptq", "with rules for single matrices (`dynamic`)"));
    }
    if own.text("pack_dtype")?.is_some_and(|dtype| dtype != "int32") {
        return Err(unsupported("gptq", "in words of other than 32 bits (`pack_dtype`)"));
    }
    Ok(Method::Gptq { bits, group: group(own, "group_size")?, less })
}

fn modelopt(own: Object<'_>) -> Result<Method, CheckpointError> {
    match own.text("quant_algo")?.ok_or_else(|| own.wrong("quant_algo", "is missing"))? {
        "NVFP4" => float4(own, "modelopt"),
        "FP8" => Ok(Method::Float8 { block: None }),
        other => Err(unsupported("modelopt", format!("with {other:?}; `NVFP4` and `FP8` are"))),
    }
}

fn float4(own: Object<'_>, method: &str) -> Result<Method, CheckpointError> {
    match group(own, "group_size")? {
        None | Some(float4::GROUP) => Ok(Method::Float4),
        Some(other) => Err(unsupported(method, format!("with floats of four bits in groups of {other}; of 16 it is"))),
    }
}

fn awq(own: Object<'_>) -> Result<Method, CheckpointError> {
    let bits = own.count("bits")?.or(own.count("w_bit")?);
    if bits != Some(4) {
        return Err(unsupported(
            "awq",
            format!("with {} bits; with 4 it is", bits.map_or("unknown".into(), |n| n.to_string())),
        ));
    }
    if let Some(other) = own.text("version")?.filter(|version| !version.eq_ignore_ascii_case("gemm")) {
        return Err(unsupported("awq", format!("in the form {other:?}; `gemm` is")));
    }
    if own.flag("zero_point")? == Some(false) {
        return Err(unsupported("awq", "without zeros (`zero_point`)"));
    }
    let key = if own.get("group_size").is_some() { "group_size" } else { "q_group_size" };
    Ok(Method::Awq { group: group(own, key)? })
}

/// Rows and columns of a block.
fn block(own: Object<'_>, key: &str) -> Result<Option<[usize; 2]>, CheckpointError> {
    let Some(list) = own.list(key)? else { return Ok(None) };
    let side = |v: &Value| v.as_u64().filter(|&n| n > 0).and_then(|n| u32::try_from(n).ok()).map(|n| n as usize);
    match list {
        [high, wide] => match (side(high), side(wide)) {
            (Some(high), Some(wide)) => Ok(Some([high, wide])),
            _ => Err(own.wrong(key, "is no size of a block")),
        },
        _ => Err(own.wrong(key, "is no size of a block")),
    }
}

fn compressed(own: Object<'_>) -> Result<Method, CheckpointError> {
    let name = "compressed-tensors";
    let groups = own.map("config_groups")?.ok_or_else(|| own.wrong("config_groups", "is missing"))?;
    let mut all = groups.values().map(|group| group.get("weights"));
    let first = all.next().flatten().ok_or_else(|| own.wrong("config_groups", "says nothing of weights"))?;
    if all.any(|other| other != Some(first)) {
        return Err(unsupported(name, "with matrices that are quantised in several ways"));
    }
    let weights = Object::within(own.file, "quantization_config.config_groups.weights.", first)?;
    let bits = weights.require_count("num_bits")?;
    let strategy = weights.text("strategy")?.unwrap_or("tensor");
    match (weights.text("type")?.unwrap_or("int"), bits, strategy) {
        ("float", 8, "tensor" | "channel") => Ok(Method::Float8 { block: None }),
        ("float", 8, "block") => match block(weights, "block_structure")? {
            None => Err(weights.wrong("block_structure", "is missing")),
            block => Ok(Method::Float8 { block }),
        },
        ("float", 4, "tensor_group") => float4(weights, name),
        ("int", 4 | 8, "group" | "channel") => {
            let group = if strategy == "group" { group(weights, "group_size")? } else { None };
            Ok(Method::Integers { bits, group, symmetric: weights.flag("symmetric")?.unwrap_or(true) })
        }
        (kind, bits, strategy) => {
            let known = "integers of 4 and 8 bits by groups and channels, and floats of 8 bits and of 4 (NVFP4), are";
            Err(unsupported(
                name,
                format!("with weights of type {kind:?}, {bits} bits and scales by {strategy}; {known}"),
            ))
        }
    }
}
