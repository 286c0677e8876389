//! How [`formats!`](crate::formats) hands a section of its rows to a macro.

/// A format's name: that of its variant, or as the program that writes it spells it.
#[doc(hidden)]
#[macro_export]
macro_rules! format_name {
    ($V:ident) => {
        stringify!($V)
    };
    ($V:ident $name:literal) => {
        $name
    };
}

/// Picks a section out of each row of [`formats!`].
#[doc(hidden)]
#[macro_export]
macro_rules! formats_section {
    (stored $callback:ident $args:tt $($F:ident {
        embed $embed:tt product $product:tt quantized $quantized:tt tensor $tensor:tt budget $budget:tt
        stored { $($(#[$doc:meta])* $V:ident $($name:literal)?: $id:literal, $elems:literal, $bytes:literal, $units:literal;)* }
    })*) => { $callback! { $args $($F { $($(#[$doc])* $V: $crate::format_name!($V $($name)?), $id, $elems, $bytes, $units;)* })* } };
    ($section:ident $callback:ident $args:tt $($F:ident {
        embed $embed:tt product $product:tt quantized $quantized:tt tensor $tensor:tt budget $budget:tt
        stored { $($(#[$doc:meta])* $V:ident $($name:literal)?: $id:literal, $elems:literal, $bytes:literal, $units:literal;)* }
    })*) => {
        $crate::formats_rows! {
            $section $callback $args
            $($F [$($V)*] embed $embed product $product quantized $quantized tensor $tensor budget $budget;)*
        }
    };
}

/// Hands one section of all rows to a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! formats_rows {
    (embed $callback:ident $args:tt $($F:ident $formats:tt
        embed $part:tt product $p:tt quantized $c:tt tensor $t:tt budget $b:tt;)*) => { $callback! { $args $($F $part $formats)* } };
    (product $callback:ident $args:tt $($F:ident $formats:tt
        embed $e:tt product $part:tt quantized $c:tt tensor $t:tt budget $b:tt;)*) => { $callback! { $args $($F $part $formats)* } };
    (quantized $callback:ident $args:tt $($F:ident $formats:tt
        embed $e:tt product $p:tt quantized $part:tt tensor $t:tt budget $b:tt;)*) => { $callback! { $args $($F $part $formats)* } };
    (tensor $callback:ident $args:tt $($F:ident $formats:tt
        embed $e:tt product $p:tt quantized $c:tt tensor $part:tt budget $b:tt;)*) => { $callback! { $args $($F $part $formats)* } };
    (budget $callback:ident $args:tt $($F:ident $formats:tt
        embed $e:tt product $p:tt quantized $c:tt tensor $t:tt budget $part:tt;)*) => { $callback! { $args $($F $part $formats)* } };
}
