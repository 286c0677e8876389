//! What products read: columns of f32, or quantized ones, which the launch that computes the columns writes, or one of its own; and those
//! in another order, which matrices with act-order take, and a launch of its own writes of either kind.

use super::memory::Memory;
use super::stack::Stack;
use super::workspace::stride;
use gpu_kernels::gather::Gather;
use gpu_kernels::gemv::quant_format::NONE;
use gpu_kernels::gemv::{
    Activations, Gemv, OutputQuantization, QuantFormat, Quantize, QuantizedProduct, choose, fastest, quant_format,
};
use warpsmith_device::{DeviceSlice, Launcher, U32x4};
use warpsmith_runtime::{Buffer, Error, Stream};

/// Which activations products take, and how they are launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The cheapest that are allowed.
    pub allowed: Activations,
    /// Only where they are known to be faster.
    pub tuned: bool,
    /// The device's compute capability.
    pub sm: u32,
    /// Launches begin while those before them end.
    pub programmatic: bool,
    /// Prompts attend with queries and weights rounded to f16.
    pub rounded: bool,
}

impl Choice {
    /// The quantized activations that a stack's product reads, if it does not read f32.
    pub fn of(self, stack: &Stack) -> Option<QuantizedProduct> {
        let activations = match self.tuned {
            true => fastest(stack.format, stack.rows(), stack.cols, self.allowed, self.sm),
            false => choose(stack.format, self.allowed),
        };
        QuantizedProduct::of(stack.format, activations)
    }

    /// What the first of several products that reads quantized activations reads, as they are computed.
    pub fn wanted(self, stacks: &[Stack]) -> Option<QuantFormat> {
        let in_order = stacks.iter().filter(|s| s.order().is_none());
        in_order.filter_map(|s| self.of(s)).map(QuantizedProduct::quant_format).min()
    }

    /// Stacks in an order in which nothing is quantized twice, nor gathered.
    pub fn sorted(self, stacks: &[Stack]) -> Vec<&Stack> {
        let mut all: Vec<&Stack> = stacks.iter().collect();
        all.sort_by_key(|s| (s.order(), self.of(s).map(QuantizedProduct::quant_format)));
        all
    }
}

/// Quantized activations between the launch that computes columns and the products that read them: in one of two sets, as a
/// launch that writes the next ones still reads those before.
pub(super) struct QuantizedActivations<M: Memory = Stream> {
    sets: [M::Buffer<U32x4>; 2],
    /// How many elements of each group were computed; every launch leaves them at zero.
    group_counters: M::Buffer<u32>,
    /// The set that is read next, and what is there.
    at: usize,
    ready: Option<QuantFormat>,
    /// Columns of f32 in another order, in models that have such.
    gathered: Option<M::Buffer<f32>>,
}

/// What products read of [`QuantizedActivations`].
pub(super) struct Held<'a> {
    /// The set that is read.
    pub quantized: &'a mut DeviceSlice<U32x4>,
    /// What is in it, and in which [order](Stack::order).
    pub ready: Option<(QuantFormat, Option<u64>)>,
    /// Where gathered columns go, and those that are there.
    gathered: (&'a mut DeviceSlice<f32>, Option<u64>),
}

impl<'a> Held<'a> {
    /// A set with what is in it, for products that gather nothing.
    pub fn of(quantized: &'a mut DeviceSlice<U32x4>, ready: Option<QuantFormat>) -> Held<'a> {
        let ready = ready.map(|format| (format, None));
        Held { quantized, ready, gathered: (DeviceSlice::empty_mut(), None) }
    }

    /// The format of what is in it as it was computed.
    pub fn in_order(&self) -> Option<QuantFormat> {
        self.ready.filter(|(_, order)| order.is_none()).map(|(format, _)| format)
    }
}

impl<M: Memory> QuantizedActivations<M> {
    /// For `columns` columns with these sizes, of which up to `gathered` elements are gathered, 0 for none.
    pub fn new(
        memory: &M,
        (vectors, groups): (usize, usize),
        gathered: usize,
        columns: usize,
    ) -> Result<Self, M::Error> {
        let sets = [memory.buffer(vectors, columns)?, memory.buffer(vectors, columns)?];
        let group_counters = memory.zeros(groups, columns)?;
        let gathered = (gathered > 0).then(|| memory.buffer(gathered, columns)).transpose()?;
        Ok(QuantizedActivations { sets, group_counters, at: 0, ready: None, gathered })
    }
}

impl QuantizedActivations {
    /// Sizes for columns of up to `cols` elements: vectors of a set, and counters.
    pub fn sizes(cols: usize) -> (usize, usize) {
        let vectors = QuantFormat::ALL.map(|c| c.len(cols as u32) as usize).into_iter().max().unwrap_or(0);
        (vectors, quant_format::groups(cols as u32) as usize)
    }

    /// Counters as launches rely on them.
    pub fn restore(&mut self, stream: &Stream) -> Result<(), Error> {
        stream.fill(&mut self.group_counters, 0)
    }

    /// Nothing is there.
    pub fn clear(&mut self) {
        (self.at, self.ready) = (0, None);
    }

    /// For a launch that passes through both sets and leaves quantized ones in the first, if they are wanted: what is there, the
    /// sets, and the counters.
    pub fn both(
        &mut self,
        wanted: Option<QuantFormat>,
    ) -> (Option<QuantFormat>, [&mut DeviceSlice<U32x4>; 2], &mut DeviceSlice<u32>) {
        let ready = std::mem::replace(&mut self.ready, wanted);
        let [a, b] = &mut self.sets;
        let sets: [&mut DeviceSlice<U32x4>; 2] = if self.at == 0 { [a, b] } else { [b, a] };
        (ready, sets, &mut self.group_counters)
    }

    /// Which set is read next.
    pub fn kept(&self) -> usize {
        self.at
    }

    /// That set is read again, in which there is what launches read last.
    pub fn back(&mut self, at: usize, ready: Option<QuantFormat>) {
        (self.at, self.ready) = (at, ready);
    }

    /// For the launches that read what is there and, where those behind them want quantized ones, write these.
    pub fn pass(&mut self, wanted: Option<QuantFormat>) -> (Held<'_>, Option<OutputQuantization<'_>>) {
        let (ready, at) = (self.ready, self.at);
        let [a, b] = &mut self.sets;
        let (read, write) = if at == 0 { (a, b) } else { (b, a) };
        self.ready = wanted;
        if wanted.is_some() {
            self.at = 1 - at;
        }
        let written = wanted.map(|format| OutputQuantization {
            format,
            quantized: write,
            group_counters: &mut self.group_counters,
        });
        let gathered = (self.gathered.as_deref_mut().unwrap_or(DeviceSlice::empty_mut()), None);
        (Held { gathered, ..Held::of(read, ready) }, written)
    }
}

/// What products divide their results by: the parts of the sums of squares and eps; nothing, where there are no parts.
pub(super) fn pending(sums: &DeviceSlice<f32>, parts: u32, eps: f32) -> Option<(&DeviceSlice<f32>, u32, f32)> {
    (parts > 0).then_some((sums, parts, eps))
}

/// Columns that one or several products read.
pub(super) struct Input<'a> {
    pub x: &'a DeviceSlice<f32>,
    pub columns: u32,
    /// Elements from a column to the next.
    pub stride: usize,
    /// The parts of the sums of squares and eps, where a norm is due.
    pub norm: Option<(&'a DeviceSlice<f32>, u32, f32)>,
    pub choice: Choice,
    /// Where others than those go, and what is there.
    pub held: Held<'a>,
}

impl Input<'_> {
    /// `y = W x`, with the stack's bias, with `y_stride` elements from a column to the next, and `rows` outputs; launches what quantizes them, or
    /// gathers them, if they are not there.
    pub fn product<'a, L: Launcher<Error = Error>>(
        &'a mut self,
        on: &mut L,
        stack: &'a Stack,
        rows: u32,
        (y, y_stride): (&'a mut DeviceSlice<f32>, usize),
    ) -> Result<Gemv<'a>, Error> {
        let (columns, mut x_stride) = (self.columns, self.stride);
        let product = self.choice.of(stack);
        let format = product.map(QuantizedProduct::quant_format);
        match (&stack.columns, format) {
            (Some(order), _) => self.gather(on, order, format)?,
            (None, Some(format)) => self.quantize(on, format, stack.cols)?,
            (None, None) => {}
        }
        let gemv = match product {
            Some(product) => Gemv::quantized(product, stack.records(), rows, stack.cols, self.held.quantized, y),
            None if stack.columns.is_some() => {
                x_stride = stride(stack.cols as usize);
                Gemv::new(stack.format, stack.records(), rows, stack.cols, self.held.gathered.0, y)
            }
            None => Gemv::new(stack.format, stack.records(), rows, stack.cols, self.x, y),
        };
        let gemv = gemv.bias(stack.bias());
        let gemv = match self.norm {
            Some((sums, parts, eps)) => gemv.norm(sums, parts, eps),
            None => gemv,
        };
        // SAFETY: it multiplies with weights, which were written before the first step; the rest it awaits.
        Ok(unsafe { gemv.columns(columns, x_stride as u32, y_stride as u32).programmatic(self.choice.programmatic) })
    }

    /// Launches what quantizes them, if they are not there.
    pub fn quantize<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        format: QuantFormat,
        cols: u32,
    ) -> Result<(), Error> {
        if self.held.in_order() == Some(format) {
            return Ok(());
        }
        let quantize =
            Quantize::new(format, self.x, self.held.quantized, cols).columns(self.columns, self.stride as u32);
        // SAFETY: it reads nothing but what it awaits.
        unsafe { quantize.programmatic(self.choice.programmatic) }.launch(on)?;
        self.held.ready = Some((format, None));
        Ok(())
    }

    /// Launches what gathers them in that order, as f32 or as quantized ones, if they are not there.
    fn gather<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        order: &Buffer<u32>,
        format: Option<QuantFormat>,
    ) -> Result<(), Error> {
        let Held { quantized, ready, gathered: (gathered, there) } = &mut self.held;
        let wanted = format.map(|format| (format, Some(order.id())));
        if (wanted.is_some() && *ready == wanted) || (wanted.is_none() && *there == Some(order.id())) {
            return Ok(());
        }
        let gather = Gather {
            x: self.x,
            order,
            y: gathered,
            quantized,
            cols: order.len() as u32,
            columns: self.columns,
            x_stride: self.stride as u32,
            y_stride: stride(order.len()) as u32,
            quant_format: format.map_or(NONE, |format| format as u32),
        };
        // SAFETY: it follows no address; orders were uploaded before the first step, and the rest it awaits.
        unsafe { on.launch_programmatic(gather, self.choice.programmatic) }?;
        match wanted {
            Some(_) => *ready = wanted,
            None => *there = Some(order.id()),
        }
        Ok(())
    }
}
