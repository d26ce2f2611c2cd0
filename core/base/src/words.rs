//! Enums that configuration files and command lines write as a word.

use core::fmt;

/// A word that is not one of those allowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    pub words: &'static [&'static str],
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown word; expected one of")?;
        self.words.iter().try_for_each(|word| write!(f, " \"{word}\""))
    }
}

impl core::error::Error for UnknownWord {}

/// Gives an enum without fields its words: `ALL`, `WORDS`, `Display` and `FromStr`. Configuration
/// files, plans and scenarios all use them.
#[macro_export]
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The words, in the order of `ALL`.
            pub const WORDS: &[&str] = &[$($word),+];
        }

        impl ::core::fmt::Display for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl ::core::str::FromStr for $type {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let at = Self::WORDS.iter().position(|word| *word == text);
                at.map(|at| Self::ALL[at]).ok_or($crate::UnknownWord { words: Self::WORDS })
            }
        }

        $crate::words_serde!($type);
    };
}

/// With the feature `serde`, such an enum is also serialised as its word.
#[cfg(feature = "serde")]
#[macro_export]
#[doc(hidden)]
macro_rules! words_serde {
    ($type:ident) => {
        impl $crate::serde::Serialize for $type {
            fn serialize<S: $crate::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word =
                    <$crate::alloc::string::String as $crate::serde::Deserialize>::deserialize(
                        from,
                    )?;
                let known = |_| $crate::serde::de::Error::unknown_variant(&word, Self::WORDS);
                word.parse().map_err(known)
            }
        }
    };
}

/// Without the feature, it is not.
#[cfg(not(feature = "serde"))]
#[macro_export]
#[doc(hidden)]
macro_rules! words_serde {
    ($type:ident) => {};
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro is for public enums")]
mod tests {
    use std::string::ToString;

    #[derive(Copy, Clone, Debug, PartialEq)]
    enum Choice {
        This,
        TheOther,
    }

    words!(Choice { This = "this", TheOther = "the-other" });

    #[test]
    fn words_there_and_back() {
        for choice in Choice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(*choice));
        }
        let error = "that".parse::<Choice>().unwrap_err();
        assert_eq!(error.to_string(), "unknown word; expected one of \"this\" \"the-other\"");
    }
}
