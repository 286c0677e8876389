//! `#[kernel]`, `#[device]` and `#[derive(Element)]`. Use them through `warpsmith-device`, which
//! they name in what they write.

mod chosen;
mod device_fn;
mod element;
mod expand;
mod function;
mod instances;
mod json;
mod options;
mod side;
mod signature;

use proc_macro::TokenStream;

/// Makes a GPU kernel of an `unsafe fn`.
///
/// ```text
/// /// One line that says what it computes.
/// #[kernel(block = 256, min_blocks = 4)]
/// pub unsafe fn rms_norm(x: In<f32>, w: In<f32>, y: Out<f32>, cols: u32, eps: f32) { … }
/// ```
///
/// | key | value | meaning |
/// |---|---|---|
/// | `block` | expression or `(x, y)` or `(x, y, z)`, required | threads of a block; also the launch bound |
/// | `min_blocks` | expression, not 0 | blocks that a multiprocessor should hold at a time; bounds registers |
/// | `name` | string | the PTX entry, if not the function's name |
/// | `family` | string | what it belongs with; by default the name of the source file |
/// | `variant` | string | which of several versions of one kernel this is |
/// | `addresses` | `"ignored"` | it follows none of the addresses that its elements hold |
/// | `instances` | `(name<f32, 4>, …)` | kernels of a generic function, by name and what stands for its parameters |
///
/// **Generic kernels.** A PTX entry has one type, so a generic kernel names its instances; each becomes a kernel with a launch
/// struct of its own, and the generic function stays what `#[device]` makes of it:
///
/// ```text
/// #[kernel(block = 256, instances(scale_f32<f32, 4>, scale_u32<u32, 2>))]
/// pub unsafe fn scale<T: Element + Mul<Output = T>, const V: usize>(x: In<T>, y: Out<T>, by: T, n: u32) { … }
/// // ScaleF32 { x: &x, y: &mut y, by: 0.5, n }, ScaleU32 { … }
/// ```
///
/// Types of arguments, `block` and `min_blocks` may use the parameters; a buffer of an associated type is written
/// `In<<T as Trait>::Name>` there, and a value of one takes a parameter of its own. `shared_array!` in the body takes a length that does not depend on a parameter: take the largest, or
/// `shared::dynamic`. `variant` is what stands for the parameters unless it is given.
///
/// **On the device** it writes the PTX entry and a line of metadata in a PTX comment
/// (`// @kernel {…}`), which costs nothing and which the builder reads. `unsafe` blocks are not
/// needed in the body.
///
/// **On the host** it writes a struct named after the function in camel case, with a public field
/// per argument that keeps the argument's documentation: `In<T>` and `Awaited<T>` become `&DeviceSlice<T>`,
/// `Out<T>` and `InOut<T>` become `&mut DeviceSlice<T>`, values stay values. The struct implements
/// `Kernel`. The body is not compiled there.
///
/// Arguments are `In<T>`, `Awaited<T>`, `Out<T>`, `InOut<T>`, integers of 8 to 64 bits, `f32`, `f64`, `f16`,
/// `bf16`, and `#[repr(C)]` structs with `#[derive(Element)]`. Everything else is refused, since
/// code generators do not agree how to pass it.
///
/// **Addresses.** A kernel touches the buffers of its arguments, and memory that a `DeviceAddress` in its elements leads to. Where
/// it takes such elements, its launch struct is not `Confined`: only `launch_unchecked`, which is `unsafe`, launches it.
/// `addresses = "ignored"` promises that the body follows none of them, and makes it `Confined`.
///
/// An attribute below `#[kernel]` goes where it belongs: documentation to the struct, lint levels
/// to the body, `cfg` to everything that is written.
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    let (attr, item) = (attr.into(), item.into());
    match chosen::left_out(&attr, &item) {
        Some(rest) => rest.into(),
        None => expand::kernel(attr, item).unwrap_or_else(syn::Error::into_compile_error).into(),
    }
}

/// Marks a helper function that runs on the device only: it is left out on the host, and inlined
/// on the device before LLVM runs.
///
/// A helper with a barrier or a warp collective in it **must** carry this attribute. LLVM knows
/// that a collective must not be copied into the arms of a divergent `if`, but not that a function
/// contains one; `#[inline(always)]` is only a hint where it matters. A function that cannot be
/// inlined (it calls itself, or is used as a function pointer) is a compile error. In an
/// `unsafe fn`, `unsafe` blocks are not needed.
#[proc_macro_attribute]
pub fn device(attr: TokenStream, item: TokenStream) -> TokenStream {
    device_fn::device(attr.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `Element` for a struct of elements: plain data that host and device lay out alike.
///
/// The struct is `#[repr(C)]` or `#[repr(transparent)]`, has no type parameters and no padding,
/// and is `Copy`. Each rule that is broken is a compile error that says so.
///
/// A field with the attribute `#[varies]` differs between launches that are otherwise alike, such as the number of a layer: it is never a
/// constant of a launch's own code, which the runtime's `Capture::specialise` asks for.
#[proc_macro_derive(Element, attributes(varies))]
pub fn element(item: TokenStream) -> TokenStream {
    element::derive(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
