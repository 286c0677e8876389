//! Device time: graphs of launches between events, variants in turns.

use std::time::Instant;

use warpsmith_host::{Error, Graph, Stream};

use crate::run::{Failed, How, Launches, On, Run};

/// Samples of each variant.
const SAMPLES: usize = 60;
/// Launches of a captured graph, so that the events around it cost little of a launch.
const LAUNCHES: usize = 20;

enum Ready<'a> {
    Graph(
        &'a Stream,
        Box<Graph>,
        #[expect(dead_code, reason = "what was captured lives as long: kernels may have addresses in what it owns")]
        Launches,
    ),
    Whole(Box<dyn FnMut() -> Result<(), Failed>>),
    Timed(Box<dyn FnMut() -> Result<f64, Error>>),
}

/// Nanoseconds of device time between events around what `work` issues.
pub fn between_events(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    Ok(stream.device_time(work)?.as_secs_f64() * 1e9)
}

/// A graph of `launches` launches.
pub fn captured(
    stream: &Stream,
    launches: usize,
    mut launch: impl FnMut(&mut On<'_, '_>, usize) -> Result<(), Error>,
) -> Result<Graph, Error> {
    stream.capture(|scope| (0..launches).try_for_each(|i| launch(&mut On::Capture(scope), i)))
}

/// Nanoseconds of one launch, several of each variant, taken A-B-A-B after a round that warms up.
pub fn interleaved<'a>(runs: impl IntoIterator<Item = (&'a Stream, Run)>) -> Result<Vec<Vec<f64>>, Failed> {
    let mut ready = Vec::new();
    for (stream, run) in runs {
        ready.push(match run.how {
            How::Launches(mut launch) => {
                Ready::Graph(stream, Box::new(captured(stream, LAUNCHES, &mut launch)?), launch)
            }
            How::Whole(work) => Ready::Whole(work),
            How::Timed(time) => Ready::Timed(time),
        });
    }
    let mut samples = vec![Vec::new(); ready.len()];
    for round in 0..=SAMPLES {
        for (variant, samples) in ready.iter_mut().zip(&mut samples) {
            let nanoseconds = match variant {
                Ready::Graph(stream, graph, _) => between_events(stream, || graph.launch(stream))? / LAUNCHES as f64,
                Ready::Whole(work) => {
                    let start = Instant::now();
                    work()?;
                    start.elapsed().as_secs_f64() * 1e9
                }
                Ready::Timed(time) => time()?,
            };
            if round > 0 {
                samples.push(nanoseconds);
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use warpsmith_host::Device;
    use warpsmith_host::gpu_kernels::elementwise::ResidualAdd;

    #[test]
    fn what_launches_own_lives_until_the_last_sample() {
        struct Told(Rc<Cell<bool>>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let device = Device::open(0).unwrap();
        let stream = device.stream().unwrap();
        let dropped = Rc::new(Cell::new(false));
        let vectors = || stream.zeros::<f32>(32).unwrap();
        let launches = Run::launches(
            (Told(dropped.clone()), vectors(), vectors(), vectors()),
            |(_, x, residual, y), on, _| {
                use warpsmith_host::device::Launcher as _;
                on.launch(ResidualAdd { x, residual, y, n: 32 })
            },
            |_, _| Ok(Vec::new()),
        );
        // Known by address alone, they would be gone.
        let Run { how, outputs } = launches;
        drop(outputs);
        let seen = dropped.clone();
        let watch = Run::timed(move || {
            assert!(!seen.get(), "freed before the graph was launched");
            Ok(1.0)
        });
        let samples = interleaved([(&stream, Run { how, outputs: None }), (&stream, watch)]).unwrap();
        assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [SAMPLES, SAMPLES]);
        assert!(dropped.get());
    }
}
