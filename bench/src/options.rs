//! The command line of a benchmark: criterion's options, of which the software driver needs a few.

use regex::Regex;

/// Options of criterion that take a value.
const WITH_VALUE: [&str; 18] = [
    "-c",
    "--color",
    "-s",
    "--save-baseline",
    "-b",
    "--baseline",
    "--baseline-lenient",
    "--format",
    "--profile-time",
    "--load-baseline",
    "--sample-size",
    "--warm-up-time",
    "--measurement-time",
    "--nresamples",
    "--noise-threshold",
    "--confidence-level",
    "--significance-level",
    "--plotting-backend",
];
/// Options of criterion and of Rust's test harness that say nothing to counts.
const IGNORED: [&str; 12] = [
    "--noplot",
    "-n",
    "--verbose",
    "-v",
    "--quiet",
    "--quick",
    "--discard-baseline",
    "--nocapture",
    "--show-output",
    "--include-ignored",
    "--no-capture",
    "--no-fail-fast",
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Compare outputs and counters, and measure no time: asked for, or because `cargo bench` is not who asks.
    pub test: bool,
    /// Only say what there is.
    pub list: bool,
    /// Nothing is run: Rust's harness would run tests that are ignored, of which a benchmark has none.
    pub none: bool,
    filters: Vec<Filter>,
}

#[derive(Clone, Debug)]
enum Filter {
    Exact(String),
    Pattern(Regex),
}

impl Options {
    /// Reads the options; an unknown one is an error, so that a slip is not a filter that nothing matches.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Options, String> {
        let (mut options, mut words) = (Options::default(), Vec::new());
        let (mut exact, mut bench) = (false, false);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let name = argument.split('=').next().unwrap_or_default();
            match argument.as_str() {
                "--test" => options.test = true,
                "--bench" => bench = true,
                "--list" => options.list = true,
                "--exact" => exact = true,
                "--ignored" => options.none = true,
                known if IGNORED.contains(&known) => {}
                _ if WITH_VALUE.contains(&name) || name == "--output-format" => {
                    if name == argument && arguments.next().is_none() {
                        return Err(format!("{name} needs a value"));
                    }
                }
                unknown if unknown.starts_with('-') => {
                    return Err(format!(
                        "unknown option {unknown}: benchmarks take FILTER, --test, --list and --exact"
                    ));
                }
                _ => words.push(argument),
            }
        }
        options.test |= !bench;
        for word in words {
            options.filters.push(match exact {
                true => Filter::Exact(word),
                false => Filter::Pattern(Regex::new(&word).map_err(|e| format!("`{word}` is no filter: {e}"))?),
            });
        }
        Ok(options)
    }

    /// Whether everything is run.
    pub fn all(&self) -> bool {
        self.filters.is_empty() && !self.none
    }

    /// Whether a benchmark of that name is meant.
    pub fn selects(&self, id: &str) -> bool {
        let matches = |filter: &Filter| match filter {
            Filter::Exact(name) => name == id,
            Filter::Pattern(pattern) => pattern.is_match(id),
        };
        !self.none && (self.filters.is_empty() || self.filters.iter().any(matches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, String> {
        Options::read(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_filter_is_a_pattern_or_a_name() {
        let some = read("--bench saxpy/1.*4").unwrap();
        assert!(some.selects("saxpy/1024/v1") && !some.selects("saxpy/256/v1") && !some.all());
        let exact = read("--exact saxpy/1").unwrap();
        assert!(exact.selects("saxpy/1") && !exact.selects("saxpy/1024"));
        assert!(read("--bench --test").unwrap().all() && read("--bench --test").unwrap().test);
        assert!(!some.test && exact.test, "only `cargo bench` passes --bench");
        assert!(!read("--ignored").unwrap().selects("saxpy/1"));
    }

    #[test]
    fn a_value_is_no_filter_and_a_slip_is_an_error() {
        assert!(read("--sample-size 20 --save-baseline=x").unwrap().all());
        assert!(read("--sample-size").unwrap_err().contains("needs a value"));
        assert!(read("--tset").unwrap_err().contains("--tset"));
        assert!(read("(").unwrap_err().contains("no filter"));
    }
}
