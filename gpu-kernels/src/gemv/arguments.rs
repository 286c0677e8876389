//! The arguments of products, each listed once: entry points, launches and contracts are made from these lists.

#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_device::DeviceSlice;
use warpsmith_device::prelude::*;

/// `arguments! { f32 callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of a product whose
/// activations are f32; `arguments! { coded X callback (args) }` with those of one whose activations are vectors `X` of codes.
macro_rules! arguments {
    (f32 $callback:ident $args:tt) => {
        $callback! { $args
            weights: (In<U32x4>),
            x: (Awaited<f32>),
            add: (Awaited<f32>),
            sums: (Awaited<f32>),
            next_weight: (In<f32>),
            y: (Out<f32>),
            scaled: (Out<f32>),
            next_sums: (Out<f32>),
            rows: (u32),
            cols: (u32),
            columns: (u32),
            x_stride: (u32),
            y_stride: (u32),
            add_stride: (u32),
            parts: (u32),
            block_units: (u32),
            flags: (u32),
            eps: (f32),
        }
    };
    (coded $X:ident $callback:ident $args:tt) => {
        $callback! { $args
            weights: (In<U32x4>),
            x: (Awaited<$X>),
            add: (Awaited<f32>),
            sums: (Awaited<f32>),
            next_weight: (In<f32>),
            y: (InOut<f32>),
            scaled: (InOut<f32>),
            next_sums: (Out<f32>),
            coded: (Out<U32x4>),
            counted: (InOut<u32>),
            rows: (u32),
            cols: (u32),
            columns: (u32),
            y_stride: (u32),
            add_stride: (u32),
            parts: (u32),
            block_units: (u32),
            flags: (u32),
            codes: (u32),
            eps: (f32),
        }
    };
}

/// What a launch gives for an argument.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! given {
    ($a:lifetime In<$t:ty>) => { &$a DeviceSlice<$t> };
    ($a:lifetime Awaited<$t:ty>) => { &$a DeviceSlice<$t> };
    ($a:lifetime Out<$t:ty>) => { &$a mut DeviceSlice<$t> };
    ($a:lifetime InOut<$t:ty>) => { &$a mut DeviceSlice<$t> };
    ($a:lifetime $t:ty) => { $t };
}

/// What a contract sees of an argument.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! seen {
    ($a:lifetime $marker:ident<$t:ty>) => { &$a DeviceSlice<$t> };
    ($a:lifetime $t:ty) => { $t };
}

macro_rules! define {
    (($Arguments:ident $Given:ident $Seen:ident $($X:ident)?) $($name:ident: ($($ty:tt)*),)*) => {
        /// The arguments as a kernel gets them.
        #[cfg(any(target_arch = "nvptx64", rust_analyzer))]
        pub struct $Arguments$(<$X>)? {
            $(pub $name: $($ty)*,)*
        }

        /// The arguments as a launch gives them.
        #[cfg(not(target_arch = "nvptx64"))]
        pub struct $Given<'a $(, $X: Element)?> {
            $(pub $name: given!('a $($ty)*),)*
        }

        /// The arguments as a contract sees them.
        #[cfg(not(target_arch = "nvptx64"))]
        pub struct $Seen<'a $(, $X: Element)?> {
            $(pub $name: seen!('a $($ty)*),)*
        }
    };
}

arguments! { f32 define (Arguments Given Seen) }
arguments! { coded X define (CodedArguments CodedGiven CodedSeen X) }

/// Makes an entry point from what a launch gives, and shows its arguments to its contract.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! convert {
    ($Name:ident: $Given:ident $Seen:ident $($X:ident)?, $($name:ident)*) => {
        impl<'a> From<crate::gemv::arguments::$Given<'a $(, $X)?>> for $Name<'a> {
            fn from(given: crate::gemv::arguments::$Given<'a $(, $X)?>) -> $Name<'a> {
                $Name { $($name: given.$name),* }
            }
        }

        impl $Name<'_> {
            fn seen(&self) -> crate::gemv::arguments::$Seen<'_ $(, $X)?> {
                crate::gemv::arguments::$Seen { $($name: self.$name),* }
            }
        }
    };
}
