//! The environment variables that shape the software engine.

use std::time::Duration;

use super::checks::Settings;
use super::spec::{self, Spec};

pub(super) struct Config {
    pub spec: Spec,
    pub devices: u32,
    pub memory: u64,
    /// 0: all cores.
    pub threads: usize,
    /// Addresses of freed memory are handed out again.
    pub reuse: bool,
    /// How long a kernel runs before somebody is told.
    pub progress: Duration,
    /// What launches are watched for.
    pub settings: Settings,
}

impl Config {
    pub fn from_environment() -> Result<Config, String> {
        Config::read(|name| match std::env::var(name) {
            Ok(value) if value.trim().is_empty() => Ok(None),
            Ok(value) => Ok(Some(value.trim().to_owned())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(e) => Err(format!("{name}: {e}")),
        })
    }

    fn read(get: impl Fn(&str) -> Result<Option<String>, String>) -> Result<Config, String> {
        let spec = match get("WARPSMITH_SM")? {
            None => spec::find(90),
            Some(text) => {
                let digits = text.strip_prefix("sm_").unwrap_or(&text);
                digits.trim_end_matches(['a', 'f']).parse().ok().and_then(spec::find)
            }
        };
        let spec = spec.ok_or_else(|| {
            let known: Vec<String> = spec::all().map(|s| s.sm().to_string()).collect();
            format!(
                "WARPSMITH_SM={}: not an architecture that the software driver knows ({})",
                get("WARPSMITH_SM").ok().flatten().unwrap_or_default(),
                known.join(", ")
            )
        })?;
        let number = |name: &str, default: u64, range: std::ops::RangeInclusive<u64>| -> Result<u64, String> {
            let Some(text) = get(name)? else { return Ok(default) };
            text.parse()
                .ok()
                .filter(|n| range.contains(n))
                .ok_or_else(|| format!("{name}={text}: expected a number from {} to {}", range.start(), range.end()))
        };
        let devices = number("WARPSMITH_DEVICES", 1, 1..=64)? as u32;
        let threads = number("WARPSMITH_THREADS", 0, 0..=1024)? as usize;
        let memory = match get("WARPSMITH_MEMORY")? {
            None => 16 << 30,
            Some(text) => size(&text).filter(|n| (1 << 20..=1 << 44).contains(n)).ok_or_else(|| {
                format!("WARPSMITH_MEMORY={text}: expected bytes, or a number with K, M, G or T, from 1M to 16T")
            })?,
        };
        let reuse = match get("WARPSMITH_REUSE")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(text) => return Err(format!("WARPSMITH_REUSE={text}: expected 0 or 1")),
        };
        let progress = match get("WARPSMITH_PROGRESS")? {
            None => Duration::from_secs(10),
            Some(text) if text == "0" => Duration::MAX,
            Some(text) => (text.parse::<f64>().ok())
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| format!("WARPSMITH_PROGRESS={text}: expected seconds, or 0 for never"))?,
        };
        Ok(Config { spec, devices, memory, threads, reuse, progress, settings: Settings::read(get)? })
    }
}

/// `1024`, `512M`, `8G`, `8GiB`.
fn size(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.trim_end_matches('B').trim_end_matches('I');
    let at = upper.find(|c: char| !c.is_ascii_digit()).unwrap_or(upper.len());
    let (digits, unit) = upper.split_at(at);
    let shift = match unit.trim() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
        Config::read(|name| Ok(pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())))
    }

    #[test]
    fn defaults() {
        let config = read(&[]).unwrap();
        assert_eq!((config.spec.sm(), config.devices, config.memory, config.threads), (90, 1, 16 << 30, 0));
    }

    #[test]
    fn good_values() {
        for (text, sm) in [("80", 80), ("sm_90a", 90), ("sm_120", 120)] {
            assert_eq!(read(&[("WARPSMITH_SM", text)]).unwrap().spec.sm(), sm);
        }
        for (text, bytes) in [("8G", 8 << 30), ("512MiB", 512 << 20), ("2gb", 2 << 30), ("1048576", 1 << 20)] {
            assert_eq!(read(&[("WARPSMITH_MEMORY", text)]).unwrap().memory, bytes, "{text}");
        }
    }

    #[test]
    fn bad_values_name_variable_and_value() {
        for (name, value) in [
            ("WARPSMITH_SM", "61"),
            ("WARPSMITH_SM", "ninety"),
            ("WARPSMITH_DEVICES", "0"),
            ("WARPSMITH_DEVICES", "-1"),
            ("WARPSMITH_MEMORY", "lots"),
            ("WARPSMITH_MEMORY", "12"),
            ("WARPSMITH_MEMORY", "99999999999999999999G"),
            ("WARPSMITH_THREADS", "2.5"),
            ("WARPSMITH_REUSE", "yes"),
            ("WARPSMITH_PROGRESS", "soon"),
            ("WARPSMITH_PROGRESS", "-1"),
        ] {
            let Err(message) = read(&[(name, value)]) else { panic!("{name}={value} accepted") };
            assert!(message.starts_with(&format!("{name}={value}: ")), "{message}");
        }
    }
}
