//! Time of a product on a GPU: graphs of launches between events, activations in turns, over weights that no cache holds.

use warpsmith_device::U32x4;
use warpsmith_host::gpu_kernels::cases::Tensor;
use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::{
    Activations, Gemv, OutputQuantization, Quantize, QuantizedProduct, quant_format,
};
use warpsmith_host::{Buffer, Error, Graph, Stream};

/// Samples of each kind of activations, behind one that warms up.
pub const SAMPLES: usize = 30;
/// Products of a captured graph, so that the events around it cost little of one.
pub const PRODUCTS: usize = 20;
/// So many bytes of weights are rotated: more than an L2 cache holds (60 MB on an H200, 126 MB on a B200).
const COLD_BYTES: usize = 320 << 20;
/// Copies of small weights, at most: each has a launch to itself.
const COPIES: usize = PRODUCTS;

/// Microseconds of a product, which quantizes what it computes if its own activations are quantized, by the activations that the format takes; medians.
pub fn times(
    stream: &Stream,
    format: Format,
    (rows, cols): (u32, u32),
    samples: usize,
) -> Result<Vec<(Activations, f64)>, String> {
    let text = |e: Error| e.to_string();
    let records = Tensor::many_records(format, rows as usize, cols as usize).map_err(|e| e.to_string())?;
    let copies = COLD_BYTES.div_ceil(16 * records.len().max(1)).clamp(1, COPIES);
    let copies = if stream.device().is_software() { 1 } else { copies };
    let weights: Vec<Buffer<U32x4>> =
        (0..copies).map(|_| stream.upload(&records)).collect::<Result<_, _>>().map_err(text)?;
    let kinds: Vec<Activations> = super::candidates(format);
    let graphs: Vec<Graph> = kinds
        .iter()
        .map(|a| products(stream, format, *a, (rows, cols), &weights))
        .collect::<Result<_, _>>()
        .map_err(text)?;
    let mut taken = vec![Vec::with_capacity(samples); graphs.len()];
    for round in 0..=samples {
        for (graph, taken) in graphs.iter().zip(&mut taken) {
            let time = stream.device_time(|| graph.launch(stream)).map_err(text)?;
            if round > 0 {
                taken.push(time.as_secs_f64() * 1e6 / PRODUCTS as f64);
            }
        }
    }
    Ok(kinds.into_iter().zip(taken.into_iter().map(median)).collect())
}

/// A graph of [`PRODUCTS`] products, each with the next of the weights.
fn products(
    stream: &Stream,
    format: Format,
    activations: Activations,
    (rows, cols): (u32, u32),
    weights: &[Buffer<U32x4>],
) -> Result<Graph, Error> {
    // Values do not matter to the time, as long as they are ordinary.
    let x = stream.upload(&(0..cols).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect::<Vec<f32>>())?;
    let mut y = stream.zeros::<f32>(rows as usize)?;
    let of = QuantizedProduct::of(format, activations);
    let mut activations = stream.zeros::<U32x4>(of.map_or(1, |c| c.quant_format().len(cols) as usize))?;
    if let Some(of) = of {
        Quantize::new(of.quant_format(), &x, &mut activations, cols).launch(&mut &*stream)?;
    }
    // As in a decoding step: a product quantizes what it computes.
    let next = of.map(QuantizedProduct::quant_format).filter(|c| rows.is_multiple_of(c.block()));
    let mut quantized = stream.zeros::<U32x4>(next.map_or(1, |c| c.len(rows) as usize))?;
    let mut group_counters = stream.zeros::<u32>(quant_format::groups(rows) as usize)?;
    stream.capture(|scope| {
        weights.iter().cycle().take(PRODUCTS).try_for_each(|weights| match of {
            None => Gemv::new(format, weights, rows, cols, &x, &mut y).launch(scope),
            Some(of) => {
                let written = next.map(|format| OutputQuantization {
                    format,
                    quantized: &mut quantized,
                    group_counters: &mut group_counters,
                });
                Gemv::quantized(of, weights, rows, cols, &activations, &mut y).quantize_output(written).launch(scope)
            }
        })
    })
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_host::Device;

    #[test]
    fn every_kind_of_activations_has_a_time() {
        // On the software driver it is no device time, but goes the same way.
        let device = Device::open(0).unwrap();
        let stream = device.stream().unwrap();
        for format in [Format::Q1_0, Format::Q4_K] {
            let times = times(&stream, format, (16, 256), 2).unwrap();
            let kinds: Vec<Activations> = times.iter().map(|t| t.0).collect();
            let takes = super::super::candidates(format);
            assert_eq!(kinds, takes);
            assert!(times.iter().all(|t| t.1.is_finite() && t.1 > 0.0), "{times:?}");
        }
        assert_eq!(device.live_allocations(), 0);
    }

    #[test]
    fn a_shape_that_the_format_does_not_have_is_an_error() {
        let stream = Device::open(0).unwrap().stream().unwrap();
        let error = times(&stream, Format::Q4_K, (16, 100), 2).unwrap_err();
        assert!(error.contains("256"), "{error}");
    }

    #[test]
    fn medians_do_not_depend_on_order() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert!(median(Vec::new()).is_nan());
    }
}
