//! Arguments that several entry points share are listed once: kernels, launches and contracts are made from the list.
//!
//! A family has a `macro_rules! arguments` with its list, which calls `callback! { (args) NAME: (TYPE), … }`. `define!` makes
//! structs of it, and `convert!` an entry point of what a launch gives.

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

/// The arguments of a list as kernels get them, as launches give them and as contracts see them; `X` is a type that differs from
/// kernel to kernel.
macro_rules! define {
    (($Arguments:ident $Given:ident $Seen:ident $($X:ident)?) $($name:ident: ($($ty:tt)*),)*) => {
        /// The arguments as a kernel gets them.
        #[cfg(any(target_arch = "nvptx64", rust_analyzer))]
        #[derive(Clone, Copy)]
        pub(crate) struct $Arguments$(<$X>)? {
            $(pub $name: $($ty)*,)*
        }

        /// The arguments as a launch gives them.
        #[cfg(not(target_arch = "nvptx64"))]
        pub struct $Given<'a $(, $X: Element)?> {
            $(
                #[doc = concat!("The argument `", stringify!($name), "`, of which the kernel's module tells.")]
                pub $name: given!('a $($ty)*),
            )*
        }

        /// The arguments as a contract sees them.
        #[cfg(not(target_arch = "nvptx64"))]
        pub(crate) struct $Seen<'a $(, $X: Element)?> {
            $(pub $name: seen!('a $($ty)*),)*
        }
    };
}

/// Makes an entry point from what a launch gives, and shows its arguments to its contract.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! convert {
    ($Name:ident: $module:ident$(::$inner:ident)*, $Given:ident $Seen:ident $($X:ident)?, $($name:ident)*) => {
        impl<'a> From<crate::$module$(::$inner)*::$Given<'a $(, $X)?>> for $Name<'a> {
            fn from(given: crate::$module$(::$inner)*::$Given<'a $(, $X)?>) -> $Name<'a> {
                $Name { $($name: given.$name),* }
            }
        }

        impl $Name<'_> {
            fn seen(&self) -> crate::$module$(::$inner)*::$Seen<'_ $(, $X)?> {
                crate::$module$(::$inner)*::$Seen { $($name: self.$name),* }
            }
        }
    };
}
