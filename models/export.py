"""Writes the trained models as GGUF files and opens each with the `gguf` package's reader."""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

import blocks
import model as architecture
from model import CONFIG as C

NAME = "warpsmith-2m"
# File, scheme it was trained for, type of the matrices, type of the embedding, the file's type.
FILES = [
    ("f16", "f32", Type.F16, Type.F16, FileType.MOSTLY_F16),
    ("q8_0", "f32", Type.Q8_0, Type.Q8_0, FileType.MOSTLY_Q8_0),
    ("q4_k", "f32", Type.Q4_K, Type.Q8_0, FileType.MOSTLY_Q4_K_S),
    ("q1_0", "q1_0", Type.Q1_0, Type.Q8_0, None),
    ("tq2_0", "tq2_0", Type.TQ2_0, Type.Q8_0, FileType.MOSTLY_TQ2_0),
]
OWN = {Type.Q1_0: blocks.q1_0, Type.Q4_K: blocks.q4_k}
# LLAMA_FTYPE_MOSTLY_Q1_0 of llama.cpp, which the gguf package has no name for.
FILE_TYPE_Q1_0 = 40


def tensors(checkpoint: Path, scheme: str):
    """Names as in GGUF, and the values that the trained model computes with."""
    model = architecture.Model(scheme)
    model.load_state_dict(torch.load(checkpoint)["model"])
    numpy = lambda t: t.detach().numpy().astype(np.float32)
    yield "token_embd.weight", numpy(model.token_embd)
    yield "output_norm.weight", numpy(model.output_norm.weight)
    q, kv = C["heads"] * C["head_dim"], C["kv_heads"] * C["head_dim"]
    for i, layer in enumerate(model.layers):
        name = lambda part: f"blk.{i}.{part}.weight"
        for part in ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"):
            yield name(part), numpy(getattr(layer, part).weight)
        for part, rows in zip(("attn_q", "attn_k", "attn_v"), layer.attn_qkv.effective().split((q, kv, kv))):
            yield name(part), numpy(rows)
        for part, rows in zip(("ffn_gate", "ffn_up"), layer.ffn_gate_up.effective().chunk(2)):
            yield name(part), numpy(rows)
        yield name("attn_output"), numpy(layer.attn_output.effective())
        yield name("ffn_down"), numpy(layer.ffn_down.effective())


def vocabulary(directory: Path):
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    ids = tokenizer["model"]["vocab"]
    special = {t["content"] for t in tokenizer["added_tokens"] if t["special"]}
    tokens = sorted(ids, key=ids.get)
    types = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return tokens, types, merges


def write(path: Path, directory: Path, scheme, matrix, embedding, file_type):
    w = gguf.GGUFWriter(path, "qwen3")
    w.add_name(f"warpsmith 2M {matrix.name}")
    w.add_description("A small demonstration of a language model, trained on the World English Bible (public domain)")
    w.add_license("MIT OR Apache-2.0")
    w.add_languages(["en"])
    w.add_file_type(FILE_TYPE_Q1_0 if file_type is None else file_type)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_block_count(C["layers"])
    w.add_context_length(C["context"])
    w.add_embedding_length(C["hidden"])
    w.add_feed_forward_length(C["feed_forward"])
    w.add_head_count(C["heads"])
    w.add_head_count_kv(C["kv_heads"])
    w.add_key_length(C["head_dim"])
    w.add_value_length(C["head_dim"])
    w.add_rope_freq_base(C["rope_base"])
    w.add_layer_norm_rms_eps(C["epsilon"])
    w.add_vocab_size(C["vocab"])
    tokens, types, merges = vocabulary(directory)
    end = tokens.index("<|endoftext|>")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(end)
    w.add_eos_token_id(end)
    w.add_pad_token_id(end)
    w.add_add_bos_token(False)
    for name, values in tensors(directory / f"{scheme}.pt", scheme):
        kind = Type.F32 if values.ndim == 1 else embedding if name == "token_embd.weight" else matrix
        data = OWN[kind](values) if kind in OWN else gguf.quants.quantize(values, kind)
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check(path: Path, directory: Path, scheme, trained):
    """What the reference reader finds, and how far its weights are from the trained ones, of their root mean square."""
    expected = dict(tensors(directory / f"{scheme}.pt", scheme))
    reader = gguf.GGUFReader(path)
    assert {t.name for t in reader.tensors} == set(expected)
    worst, formats = 0.0, set()
    for t in reader.tensors:
        want = expected[t.name]
        if t.tensor_type == Type.Q1_0:
            got = decode_q1_0(t.data).reshape(want.shape)
        else:
            got = gguf.quants.dequantize(t.data, t.tensor_type).reshape(want.shape)
        worst = max(worst, float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean())))
        formats.add(t.tensor_type.name)
    if trained:
        # What the model was trained to compute with is in the file bit for bit; only the embedding is rounded.
        for t in reader.tensors:
            if t.tensor_type in (Type.Q1_0, Type.TQ2_0):
                decode = decode_q1_0 if t.tensor_type == Type.Q1_0 else lambda d: gguf.quants.dequantize(d, Type.TQ2_0)
                assert np.array_equal(decode(t.data).reshape(expected[t.name].shape), expected[t.name]), t.name
    print(f"{path}: {path.stat().st_size} bytes, {', '.join(sorted(formats))}, error {worst:.2e}")


def decode_q1_0(data: np.ndarray) -> np.ndarray:
    block = np.ascontiguousarray(data).reshape(-1, 18)
    scale = block[:, :2].copy().view("<f2").astype(np.float32)
    bits = np.unpackbits(block[:, 2:], axis=1, bitorder="little")
    return np.where(bits == 1, scale, -scale)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path("build"))
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--only", nargs="*", help="file suffixes")
    args = parser.parse_args()
    for suffix, scheme, matrix, embedding, file_type in FILES:
        if args.only and suffix not in args.only:
            continue
        path = args.out / f"{NAME}-{suffix}.gguf"
        write(path, args.directory, scheme, matrix, embedding, file_type)
        check(path, args.directory, scheme, scheme != "f32")


if __name__ == "__main__":
    main()
