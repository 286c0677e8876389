//! From an instruction to operations: the table of opcodes, with decoder, class and cost of each.

use super::floating::is_float;
use super::integer::unsupported;
use super::mods::Mods;
use super::proto::{Builder, Lowered};
use crate::note::Class;
use crate::note::Work;
use crate::ptx::ast::Instruction;

/// The opcodes that the machine knows, by their words.
macro_rules! opcodes {
    ($($name:ident $word:literal),* $(,)?) => {
        /// An opcode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::enum_variant_names)]
        enum Opcode {
            $($name,)*
        }

        impl Opcode {
            fn named(word: &str) -> Option<Opcode> {
                match word {
                    $($word => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Ld "ld", Ldu "ldu", St "st", Mov "mov", Cvt "cvt", Cvta "cvta", Isspacep "isspacep",
    Atom "atom", Red "red", Fence "fence", Membar "membar",
    Add "add", Sub "sub", Mul "mul", Mad "mad", Fma "fma", Div "div", Rem "rem", Min "min", Max "max", Neg "neg", Abs "abs",
    Addc "addc", Subc "subc", Madc "madc", Mul24 "mul24", Mad24 "mad24", Sad "sad", Dp4a "dp4a", Dp2a "dp2a",
    And "and", Or "or", Xor "xor", Not "not", Cnot "cnot", Lop3 "lop3", Shl "shl", Shr "shr", Shf "shf", Prmt "prmt",
    Bfe "bfe", Bfi "bfi", Bfind "bfind", Bmsk "bmsk", Szext "szext", Popc "popc", Clz "clz", Brev "brev", Fns "fns",
    Setp "setp", Set "set", Selp "selp", Slct "slct", Copysign "copysign", Testp "testp",
    Rcp "rcp", Sqrt "sqrt", Rsqrt "rsqrt", Sin "sin", Cos "cos", Lg2 "lg2", Ex2 "ex2", Tanh "tanh",
    Vadd "vadd", Vsub "vsub", Vabsdiff "vabsdiff", Vmin "vmin", Vmax "vmax", Vshl "vshl", Vshr "vshr", Vmad "vmad", Vset "vset",
    Vadd2 "vadd2", Vsub2 "vsub2", Vavrg2 "vavrg2", Vabsdiff2 "vabsdiff2", Vmin2 "vmin2", Vmax2 "vmax2", Vset2 "vset2",
    Vadd4 "vadd4", Vsub4 "vsub4", Vavrg4 "vavrg4", Vabsdiff4 "vabsdiff4", Vmin4 "vmin4", Vmax4 "vmax4", Vset4 "vset4",
    Bra "bra", Brx "brx", Call "call", Ret "ret", Exit "exit", Trap "trap", Brkpt "brkpt",
    Bar "bar", Barrier "barrier", Mbarrier "mbarrier", Shfl "shfl", Vote "vote", Match "match", Redux "redux", Elect "elect",
    Activemask "activemask", Cp "cp", Mapa "mapa", Getctarank "getctarank",
    Mma "mma", Wmma "wmma", Ldmatrix "ldmatrix", Stmatrix "stmatrix", Movmatrix "movmatrix",
    Alloca "alloca", Stacksave "stacksave", Stackrestore "stackrestore",
    Prefetch "prefetch", Prefetchu "prefetchu", Applypriority "applypriority", Discard "discard", Createpolicy "createpolicy",
    Nanosleep "nanosleep", Pmevent "pmevent", Griddepcontrol "griddepcontrol", Setmaxnreg "setmaxnreg",
}

/// How an instruction is decoded, what profiles count it as, and the floating-point operations of a lane in it.
type DecodeRow<'b> = (fn(&mut Builder<'b>, &Instruction, &Mods<'_>) -> Lowered<()>, Class, Work);

/// The row of an instruction.
fn row<'b>(opcode: Opcode, i: &Instruction) -> DecodeRow<'b> {
    use Opcode::*;
    let has = |word: &str| i.modifiers.iter().any(|w| w == word);
    let last = i.modifiers.last().map_or("", String::as_str);
    // Modifiers may stand in any order.
    let float = i.modifiers.iter().any(|w| is_float(w));
    let arithmetic = arithmetic(last);
    let special = if has("approx") { Class::Special } else { arithmetic };
    let (integer, none) = (Class::Integer, Work::None);
    let floating: fn(&mut Builder<'b>, &Instruction, &Mods<'_>) -> Lowered<()> = Builder::float;
    match opcode {
        Ld | Ldu => (Builder::load, of_space(i), none),
        St if has("async") => (Builder::store_async, of_space(i), none),
        St if has("bulk") => (Builder::store_bulk, Class::Shared, none),
        St => (Builder::store, of_space(i), none),
        Red if has("async") => (Builder::store_async, Class::Atomic, none),
        Atom | Red => (Builder::atomic, Class::Atomic, none),
        Fence | Membar => (Builder::fence, Class::Barrier, none),
        Mov => (Builder::mov, Class::Move, none),
        Cvt => (Builder::cvt, Class::Convert, none),
        Cvta => (Builder::cvta, Class::Convert, none),
        Isspacep => (Builder::isspacep, Class::Move, none),
        Add if float => (floating, arithmetic, sum(last)),
        Add => (Builder::add, integer, none),
        Sub if float => (floating, arithmetic, sum(last)),
        Sub => (Builder::sub, integer, none),
        Mul if float => (floating, arithmetic, product(last)),
        Mul => (Builder::multiply, integer, none),
        Mad | Fma if float => (floating, arithmetic, fused(last)),
        Mad | Madc | Mul24 | Mad24 => (Builder::multiply, integer, none),
        Fma => (floating, arithmetic, none),
        Div if float => (floating, special, none),
        Div | Rem => (Builder::divide, integer, none),
        Min | Max | Neg | Abs if float => (floating, arithmetic, none),
        Min | Max => (Builder::extreme, integer, none),
        Neg | Abs | Not | Cnot | Popc | Clz | Brev | Bfind => (Builder::unary_int, integer, none),
        Addc => (Builder::add_carry, integer, none),
        Subc => (Builder::sub_borrow, integer, none),
        And | Or | Xor => (Builder::logic, integer, none),
        Lop3 => (Builder::lop3, integer, none),
        Shl | Shr => (Builder::shift, integer, none),
        Shf | Prmt | Bfe | Bfi | Bmsk | Szext | Fns | Sad | Dp4a | Dp2a => (Builder::fields, integer, none),
        Setp => (Builder::setp, arithmetic, none),
        Set => (Builder::set, arithmetic, none),
        Selp => (Builder::selp, Class::Move, none),
        Slct => (Builder::slct, Class::Move, none),
        Copysign => (Builder::copysign, arithmetic, none),
        Testp => (Builder::testp, arithmetic, none),
        Rcp | Sqrt | Rsqrt | Sin | Cos | Lg2 | Ex2 | Tanh => (Builder::function, special, none),
        Vadd | Vsub | Vabsdiff | Vmin | Vmax | Vshl | Vshr | Vmad | Vset => (Builder::video, integer, none),
        Vadd2 | Vsub2 | Vavrg2 | Vabsdiff2 | Vmin2 | Vmax2 | Vset2 | Vadd4 | Vsub4 | Vavrg4 | Vabsdiff4 | Vmin4
        | Vmax4 | Vset4 => (Builder::video_parts, integer, none),
        Bra => (Builder::branch, Class::Control, none),
        Brx => (Builder::branch_indexed, Class::Control, none),
        Call => (Builder::call, Class::Control, none),
        Ret | Exit | Trap | Brkpt => (Builder::stop, Class::Control, none),
        Bar if has("warp") => (Builder::barrier, Class::Collective, none),
        Bar | Barrier => (Builder::barrier, Class::Barrier, none),
        Mbarrier => (Builder::mbarrier, Class::Barrier, none),
        Shfl => (Builder::shuffle, Class::Collective, none),
        Vote | Match | Redux | Elect => (Builder::gather, Class::Collective, none),
        Activemask => (Builder::activemask, Class::Collective, none),
        Cp => (Builder::copy_async, Class::Global, none),
        Mapa | Getctarank => (Builder::cluster_address, Class::Other, none),
        Mma => (Builder::mma, Class::Tensor, volume(i)),
        Wmma => (Builder::wmma, Class::Tensor, volume(i)),
        Ldmatrix | Stmatrix => (Builder::matrix_access, Class::Shared, none),
        Movmatrix => (Builder::move_matrix, Class::Tensor, none),
        Alloca | Stacksave | Stackrestore => (Builder::stack, Class::Other, none),
        Prefetch | Prefetchu | Applypriority | Discard | Createpolicy | Nanosleep | Pmevent | Griddepcontrol
        | Setmaxnreg => (Builder::hint, Class::Other, none),
    }
}

/// The class of an access, by its space.
fn of_space(i: &Instruction) -> Class {
    match () {
        () if i.modifiers.iter().any(|w| w.starts_with("shared")) => Class::Shared,
        () if i.modifiers.iter().any(|w| w == "local" || w == "const" || w.starts_with("param")) => Class::Local,
        () => Class::Global,
    }
}

/// The class of arithmetic, by its type.
fn arithmetic(ty: &str) -> Class {
    match ty {
        "f64" => Class::Fp64,
        "f16" | "f16x2" | "bf16" | "bf16x2" => Class::Half,
        "f32" | "f32x2" | "tf32" => Class::Fp32,
        _ => Class::Integer,
    }
}

/// Elements of a half-precision type.
fn elements(ty: &str) -> Option<u8> {
    match ty {
        "f16" | "bf16" => Some(1),
        "f16x2" | "bf16x2" => Some(2),
        _ => None,
    }
}

fn sum(ty: &str) -> Work {
    match ty {
        "f32" => Work::Fadd,
        "f64" => Work::Dadd,
        _ => elements(ty).map_or(Work::None, Work::Hadd),
    }
}

fn product(ty: &str) -> Work {
    match ty {
        "f32" => Work::Fmul,
        "f64" => Work::Dmul,
        _ => elements(ty).map_or(Work::None, Work::Hmul),
    }
}

fn fused(ty: &str) -> Work {
    match ty {
        "f32" => Work::Ffma,
        "f64" => Work::Dfma,
        _ => elements(ty).map_or(Work::None, Work::Hfma),
    }
}

/// Operations of a matrix product, from its shape: twice m·n·k.
fn volume(i: &Instruction) -> Work {
    let of = |shape: &String| {
        let [m, n, k] = super::matrix::size(shape)?;
        u32::try_from(2 * m.checked_mul(n)?.checked_mul(k)?).ok()
    };
    i.modifiers.iter().find_map(of).map_or(Work::None, Work::Tensor)
}

impl Builder<'_> {
    /// Decodes one instruction; `begin` has been called for it.
    pub(super) fn decode(&mut self, i: &Instruction) -> Lowered<()> {
        let Some(opcode) = Opcode::named(&i.opcode) else {
            let part = part_of_isa(&i.opcode).map_or_else(String::new, |part| format!(" ({part})"));
            return Err(unsupported(&format!("instruction `{}`{part}", full_name(i))));
        };
        let (decode, class, work) = row(opcode, i);
        (self.class_of, self.work_of) = (class, work);
        decode(self, i, &Mods::new(i))
    }
}

/// What an instruction belongs to that the machine does not have.
fn part_of_isa(opcode: &str) -> Option<&'static str> {
    Some(match opcode {
        "tensormap" => "tensor maps",
        "wgmma" => "products of warp groups",
        "tcgen05" => "tensor memory",
        "multimem" => "memory of several devices",
        "clusterlaunchcontrol" => "clusters of several blocks",
        "tex" | "tld4" | "txq" | "istypep" => "textures",
        "suld" | "sust" | "sured" | "suq" => "surfaces",
        _ => return None,
    })
}

/// Opcode and modifiers as they stand in the text.
fn full_name(i: &Instruction) -> String {
    i.modifiers.iter().fold(i.opcode.clone(), |name, word| name + "." + word)
}
