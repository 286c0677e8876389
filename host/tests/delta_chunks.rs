//! Prompts that delta nets take in chunks, with `fast_prefill`: the f64 reference and the text of single steps, what they depend on, and
//! what is undone, copied and divided.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "../../collectives/tests/common/several.rs"]
mod several;

use alone::empty;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use several::{clean, devices};
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::decode::{
    Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Precision, Predict, Sequence, compare,
};

/// Two delta nets and a layer that attends between them.
fn hybrid() -> Synthetic {
    let (hidden, feed_forward, context, formats) = (64, 64, 160, vec![Format::Q8_0]);
    let (architecture, layers, interval) = ("qwen35", 3, 2);
    Synthetic { architecture, layers, interval, hidden, feed_forward, context, formats, ..Default::default() }
}

/// Prompts token by token.
fn exact() -> DecoderOptions {
    DecoderOptions { batch: 4, chunk: 128, ..Default::default() }
}

fn fast() -> DecoderOptions {
    DecoderOptions { fast_prefill: true, ..exact() }
}

fn prompt(s: usize, length: usize) -> Vec<u32> {
    (0..length).map(|p| token(1000 * s + p, 96)).collect()
}

fn new(model: &Model) -> Sequence {
    empty(model, 0, KvType::F16)
}

/// The bits of the last logits.
fn last(decoder: &mut Decoder) -> Vec<u32> {
    bits(&decoder.logits(0).unwrap())
}

/// Tokens that follow a prompt, greedily.
fn text(decoder: &mut Decoder, sequence: &mut Sequence, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut text = vec![decoder.prefill(sequence, prompt).unwrap()];
    while text.len() < n {
        let token = *text.last().unwrap();
        text.push(decoder.step(&mut [Feed { sequence: &mut *sequence, token }]).unwrap()[0]);
    }
    text
}

#[test]
fn prompts_agree_with_the_reference_and_have_the_text_of_single_steps() {
    let sizes = [([2, 4, 32], 75), ([1, 2, 128], 50)];
    for (delta, length) in sizes {
        let file = Synthetic { delta, ..hybrid() }.file();
        let (model, fed) = (load(&file), prompt(1, length));
        let mut decoder = Decoder::new(&model, DecoderOptions { prompt_logits: true, chunk: 40, ..fast() }).unwrap();
        let mut logits = Vec::new();
        let (_, profile) =
            decoder.profile(|decoder| decoder.prefill_each(&mut new(&model), &fed, |p| logits.push(p.logits))).unwrap();
        assert!(profile.kernels.iter().any(|k| k.name == "delta_chunks"), "{delta:?}");
        let precision = Precision { fast_prefill: true, ..Default::default() };
        let compared = compare(&file, precision, &fed, &logits, &[], |_| {}).unwrap();
        assert!(compared.passed(), "{delta:?} {compared:?}");
        let of = |options| text(&mut Decoder::new(&model, options).unwrap(), &mut new(&model), &fed, 8);
        assert_eq!(of(fast()), of(exact()), "{delta:?}");
    }
}

/// Two prompts in chunks, one that is too short for it, and a sequence that decodes, in one step: what each gets alone.
#[test]
fn a_prompt_has_the_same_bits_beside_others() {
    let _checked = software::check(Checks::ALL);
    let model = load(&hybrid().file());
    let mut decoder = Decoder::new(&model, fast()).unwrap();
    let prompts = [40, 33, 9].map(|length| prompt(length, length));
    let mut alone = Vec::new();
    for prompt in &prompts {
        alone.push((decoder.prefill(&mut new(&model), prompt).unwrap(), last(&mut decoder)));
    }
    let start = prompt(7, 35);
    let mut decodes = new(&model);
    let token = decoder.prefill(&mut decodes, &start).unwrap();
    let after = decoder.step(&mut [Feed { sequence: &mut decodes, token }]).unwrap()[0];
    alone.insert(1, (after, last(&mut decoder)));
    for mode in [Mode::Eager, Mode::Graph, Mode::Graph] {
        decoder.set_mode(mode);
        let mut all = [new(&model), new(&model), new(&model)];
        let mut decodes = new(&model);
        decoder.prefill(&mut decodes, &start).unwrap();
        let [a, b, c] = &mut all;
        let part = |sequence, tokens| Part { sequence, tokens, predict: Predict::Next };
        let one = [token];
        let mut parts =
            [part(a, &prompts[0][..]), part(&mut decodes, &one), part(b, &prompts[1]), part(c, &prompts[2])];
        let next = decoder.step_mixed(&mut parts).unwrap().to_vec();
        for (i, (token, logits)) in alone.iter().enumerate() {
            assert_eq!((next[i], bits(&decoder.logits(i).unwrap())), (*token, logits.clone()), "{mode:?} {i}");
        }
    }
}

/// Where chunks end, prompts may be cut, into parts that are long enough for chunks.
#[test]
fn prompts_may_be_cut_where_chunks_end() {
    let model = load(&hybrid().file());
    let tokens = prompt(2, 96);
    let run = |chunk| {
        let mut decoder = Decoder::new(&model, DecoderOptions { chunk, ..fast() }).unwrap();
        (decoder.prefill(&mut new(&model), &tokens).unwrap(), last(&mut decoder))
    };
    let want = run(96);
    for chunk in [32, 48] {
        assert_eq!(run(chunk), want, "{chunk}");
    }
    // Elsewhere the text is the same.
    assert_eq!(run(40).0, want.0);
}

#[test]
fn what_is_copied_has_the_same_bits_and_what_is_undone_the_same_text() {
    let model = load(&hybrid().file());
    let mut decoder = Decoder::new(&model, fast()).unwrap();
    let (tokens, mut sequence) = (prompt(3, 50), new(&model));
    let want = text(&mut decoder, &mut sequence, &tokens, 6);
    let logits = last(&mut decoder);
    let mut first = new(&model);
    decoder.prefill(&mut first, &tokens).unwrap();
    let mut copy = first.fork().unwrap();
    let snapshot = first.snapshot().unwrap();
    let mut restored = new(&model);
    restored.restore(&snapshot).unwrap();
    for sequence in [&mut first, &mut copy, &mut restored] {
        for (i, &token) in want[..5].iter().enumerate() {
            assert_eq!(decoder.step(&mut [Feed { sequence: &mut *sequence, token }]).unwrap()[0], want[i + 1]);
        }
        assert!(last(&mut decoder) == logits);
    }
    // To where no states are: the prompt is fed again, in chunks.
    sequence.rollback(49).unwrap();
    assert_eq!(decoder.step(&mut [Feed { sequence: &mut sequence, token: tokens[49] }]).unwrap()[0], want[0]);
}

#[test]
fn devices_that_share_heads_have_the_text_of_one() {
    let (all, _turn) = devices(2);
    let file = Synthetic { delta: [2, 4, 32], hidden: 128, feed_forward: 128, ..hybrid() }.file();
    let tokens = prompt(4, 45);
    let of = |model: &Model| text(&mut Decoder::new(model, fast()).unwrap(), &mut new(model), &tokens, 6);
    let one = of(&Model::load(&all[0], &file).unwrap());
    clean(|| assert_eq!(of(&Model::load_over(&all, &file).unwrap()), one));
}
