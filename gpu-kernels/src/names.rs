//! Names of choices: what programs print, what options and requests are read from, said once beside each choice.

use std::fmt;

/// A name that is none of a choice's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was to be chosen.
    pub what: &'static str,
    /// The name that was given.
    pub given: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownName { what, given, known } = self;
        write!(f, "no {what} is called {given:?}: there are {}", known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// Gives the variants of an enum their names: `ALL`, `name`, `alias`, `about`, `Display` and `FromStr`. A variant may have another
/// name beside its own, which is read and never printed. For the crates of this project.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($choice:ident, $what:literal, $count:literal: $($variant:ident = $name:literal $(or $alias:literal)?, $about:literal;)*) => {
        impl $choice {
            /// All of them.
            pub const ALL: [$choice; $count] = [$($choice::$variant),*];

            /// Its name, as options take it and reports print it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($choice::$variant => $name,)*
                }
            }

            /// Another name that options take for it.
            #[must_use]
            pub fn alias(self) -> Option<&'static str> {
                match self {
                    $($choice::$variant => [$($alias,)? ""].first().copied().filter(|alias| !alias.is_empty()),)*
                }
            }

            /// What choosing it means, for help texts.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $($choice::$variant => $about,)*
                }
            }
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $choice {
            type Err = $crate::names::UnknownName;

            fn from_str(given: &str) -> Result<$choice, Self::Err> {
                let is_meant = |choice: &$choice| choice.name() == given || choice.alias() == Some(given);
                $choice::ALL.into_iter().find(is_meant).ok_or_else(|| $crate::names::UnknownName {
                    what: $what,
                    given: given.to_owned(),
                    known: $choice::ALL.map($choice::name).to_vec(),
                })
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    use crate::gemv::Activations;
    use crate::kv::KvType;

    #[test]
    fn a_choice_is_read_from_what_it_prints() {
        for kv in KvType::ALL {
            assert_eq!(kv.to_string().parse(), Ok(kv));
        }
        for activations in Activations::ALL {
            assert_eq!(activations.to_string().parse(), Ok(activations));
        }
        assert_eq!(("exact".parse(), "fastest".parse()), (Ok(Activations::F32), Ok(Activations::Int8)));
        let error = "f8".parse::<KvType>().unwrap_err();
        assert_eq!(error.to_string(), "no type of KV cache is called \"f8\": there are f16, f32, int8");
        assert!("F16".parse::<KvType>().is_err() && "".parse::<Activations>().is_err());
    }
}
