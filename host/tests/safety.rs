//! What the safe API promises, from outside. What must not compile is in the documentation of `Stream::launch` and
//! `KernelImage::from_parts`, and in `device/tests/compile_fail`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use gpu_kernels::elementwise::ResidualAdd;
use gpu_kernels::sampling::sample::{self, RECORD, Sample, Sampling};
use gpu_kernels::state::Column;
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Buffer, Device, Error, Stream};

const N: usize = 1 << 12;

fn streams() -> (Device, Stream, Stream) {
    let device = Device::open(0).unwrap();
    println!("engine: {}", device.engine());
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    (device, a, b)
}

/// y = x + x
fn double(x: &Buffer<f32>, y: &mut Buffer<f32>, on: &Stream) -> Result<(), Error> {
    on.launch(ResidualAdd { x, residual: x, y, n: N as u32 })
}

/// Events that were made meanwhile, on the software driver.
fn events(device: &Device, work: impl FnOnce()) -> Option<u64> {
    let before = software::call_counts().get("cuEventCreate");
    work();
    device.is_software().then(|| software::call_counts().get("cuEventCreate") - before)
}

/// The software driver's checks know which operations nothing orders: a finding is an error of `synchronize` and `read`.
#[test]
fn memory_orders_the_streams_that_use_it() {
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    let (device, a, b) = streams();
    let x = a.upload(&[1.0f32; N]).unwrap();
    let mut y = a.zeros::<f32>(N).unwrap();
    let mut z = b.zeros::<f32>(N).unwrap();

    double(&x, &mut y, &a).unwrap();
    b.fill(&mut y, 3.0).unwrap(); // Write after write.
    a.copy(&y, &mut z).unwrap(); // Read after write, write after write.
    b.fill(&mut y, 4.0).unwrap(); // Write after read.
    assert_eq!(b.read(&z).unwrap(), [3.0; N], "the host reads");
    assert_eq!(a.read(&y).unwrap(), [4.0; N]);

    a.fill(&mut y, 5.0).unwrap();
    b.write(&mut y, &[6.0; N]).unwrap(); // The host writes.
    let staging = device.pinned::<f32>(N).unwrap();
    a.fill(&mut z, 7.0).unwrap();
    b.read_pinned(&z, &staging).unwrap();
    a.write_pinned(&staging, &mut y).unwrap();
    assert_eq!(b.read(&y).unwrap(), [7.0; N]);
    device.synchronize().unwrap();
}

#[test]
fn launches_of_graphs_are_uses_on_their_stream() {
    let _checked = software::check(Checks { profile: false, ..Checks::ALL });
    let (device, a, b) = streams();
    let x = a.upload(&[1.0f32; N]).unwrap();
    let mut y = a.zeros::<f32>(N).unwrap();
    let graph = a.capture(|scope| scope.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: N as u32 })).unwrap();
    for round in 0..3 {
        b.fill(&mut y, 0.5).unwrap();
        graph.launch(&a).unwrap();
        assert_eq!(b.read(&y).unwrap(), [2.0; N], "round {round}");
        graph.launch(&b).unwrap();
        a.fill(&mut y, 0.25).unwrap();
        assert_eq!(b.read(&y).unwrap(), [0.25; N], "round {round}");
    }
    // A buffer that is dropped while another stream still uses it is no use of memory that is gone.
    let mut z = b.zeros::<f32>(N).unwrap();
    a.copy(&y, &mut z).unwrap();
    drop((y, z, graph));
    device.synchronize().unwrap();
}

/// A stream that is being captured by one thread is waited for, by another, behind what it was given before.
#[test]
fn a_stream_that_is_captured_is_waited_for() {
    let (_device, a, b) = streams();
    let x = a.upload(&[1.0f32; N]).unwrap();
    let (mut y, mut z) = (a.zeros::<f32>(N).unwrap(), a.zeros::<f32>(N).unwrap());
    double(&x, &mut y, &a).unwrap();
    let graph = a
        .capture(|scope| {
            let read = std::thread::scope(|s| s.spawn(|| b.read(&y).unwrap()).join().unwrap());
            assert_eq!(read, [2.0; N]);
            scope.fill(&mut z, 9.0)
        })
        .unwrap();
    assert_eq!(graph.nodes(), 1, "the other thread's wait is no part of the graph");
    graph.launch(&b).unwrap();
    assert_eq!(a.read(&z).unwrap(), [9.0; N]);
}

/// Threads that use the same memory in opposite orders wait for one another, and not for ever.
#[test]
fn threads_take_turns() {
    let (_device, a, b) = streams();
    let (mut y, mut z) = (a.zeros::<u32>(64).unwrap(), a.zeros::<u32>(64).unwrap());
    let graph = |on: &Stream, y: &mut Buffer<u32>, z: &mut Buffer<u32>, value| {
        on.capture(|scope| {
            scope.fill(y, value)?;
            scope.copy(y, z)
        })
        .unwrap()
    };
    let one = graph(&a, &mut y, &mut z, 1);
    let two = graph(&b, &mut z, &mut y, 2);
    std::thread::scope(|s| {
        s.spawn(|| (0..200).for_each(|_| one.launch(&a).unwrap()));
        s.spawn(|| (0..200).for_each(|_| two.launch(&b).unwrap()));
    });
    // Each graph leaves one value in both.
    let (y, z) = (a.read(&y).unwrap(), b.read(&z).unwrap());
    assert!(y == z && (y == [1; 64] || y == [2; 64]), "{y:?} {z:?}");
}

#[test]
fn an_order_that_is_known_costs_nothing() {
    let (device, a, b) = streams();
    let x = a.upload(&[1.0f32; N]).unwrap();
    let (mut y, mut z) = (a.zeros::<f32>(N).unwrap(), a.zeros::<f32>(N).unwrap());
    let none = |made: Option<u64>, what: &str| assert_eq!(made.unwrap_or(0), 0, "{what}");
    none(events(&device, || (0..10).for_each(|_| double(&x, &mut y, &a).unwrap())), "one stream");
    none(events(&device, || double(&x, &mut z, &a).unwrap()), "both read");
    let made = events(&device, || b.fill(&mut y, 1.0).unwrap());
    assert_eq!(made.unwrap_or(1), 1, "another stream writes what the first has written");
    none(events(&device, || b.fill(&mut z, 1.0).unwrap()), "it has waited for that already");
    b.synchronize().unwrap();
    none(events(&device, || double(&x, &mut y, &a).unwrap()), "the host has waited for it");
    let mark = a.record().unwrap();
    b.wait(&mark).unwrap();
    none(events(&device, || b.fill(&mut y, 1.0).unwrap()), "an event orders them");
}

/// Neither metadata nor what was copied of a tensor changes under its reader, whatever becomes of the file.
#[test]
fn a_model_file_may_change_while_it_is_open() {
    use warpsmith_host::gguf::{Gguf, GgufError, GgufWriter, TensorType};
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("changes.gguf");
    let mut w = GgufWriter::new();
    w.key("general.name", "a name in UTF-8");
    // More metadata than is read at once.
    w.key("tokenizer.ggml.tokens", vec!["token".to_owned(); 200_000]);
    w.tensor("weights", &[4], TensorType::F32, [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect())
        .unwrap();
    let bytes = w.to_bytes();
    std::fs::write(&path, &bytes).unwrap();
    let file = Gguf::open(&path).unwrap();
    let name = file.str("general.name").unwrap().unwrap();
    let tensor = file.tensor("weights").unwrap().data;
    let before = tensor.to_vec().unwrap();
    assert_eq!(before[..4], 1.0f32.to_le_bytes());
    assert_eq!(file.array("tokenizer.ggml.tokens").unwrap().unwrap().iter().count(), 200_000);

    // Another program overwrites it in place, then cuts it short.
    std::fs::write(&path, vec![0xff; bytes.len()]).unwrap();
    assert_eq!((name, std::str::from_utf8(name.as_bytes())), ("a name in UTF-8", Ok("a name in UTF-8")));
    assert_eq!(tensor.to_vec().unwrap(), [0xff; 16], "a copy is what the file holds now");
    std::fs::write(&path, &bytes[..100]).unwrap();
    let error = tensor.to_vec().unwrap_err();
    assert!(matches!(&error, GgufError::Read { needed: 16, .. }), "{error}");
    assert!(error.to_string().contains("tensor `weights`"), "{error}");
    assert_eq!(before[..4], 1.0f32.to_le_bytes());
    assert_eq!(file.str("general.name").unwrap(), Some("a name in UTF-8"));
}

/// The decoder's way: addresses in device memory, by an `unsafe` launch whose caller keeps the owner.
#[test]
fn addresses_are_followed_by_unsafe_launches_alone() {
    let (device, s, _) = streams();
    let mut logits = [0.0f32; 32];
    logits[5] = 9.0;
    let logits = s.upload(&logits).unwrap();
    let seen = s.upload(&[0u32]).unwrap();
    let params = [Sampling { flags: RECORD, seen: seen.address(), ..Sampling::GREEDY }];
    let (params, columns) = (s.upload(&params).unwrap(), s.upload(&[Column::at(0, 0)]).unwrap());
    let mut y = s.zeros::<u32>(1).unwrap();
    let mut work = device.alloc::<u64>(sample::work_len(1) as usize).unwrap();
    let mut tickets = s.zeros::<u32>(1).unwrap();
    let sample = Sample {
        logits: &logits,
        params: &params,
        columns: &columns,
        y: &mut y,
        work: &mut work,
        tickets: &mut tickets,
        n: 32,
        stride: 32,
    };
    // SAFETY: `seen` lives to the end of the test, and nothing else uses it before the stream is waited for.
    unsafe { sample.launch(&mut &s, false, false) }.unwrap();
    assert_eq!((s.read(&y).unwrap(), s.read(&seen).unwrap()), (vec![5], vec![1 << 5]));
}
