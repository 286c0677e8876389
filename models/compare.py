"""Greedy text of the shipped models by llama.cpp and by warpsmith, side by side.

llama.cpp rounds the activations that it multiplies with quantised matrices to 8 bits, and warpsmith does not, so the
texts may part where two tokens are nearly as likely. Where they do, the margin is shown: how much likelier, in standard
deviations of the logits, llama.cpp finds its token than warpsmith's.
"""

import argparse
import json
import subprocess
from pathlib import Path

import llama_cpp
import numpy as np

PROMPTS = ["The woman said to him,", "Jesus answered them,", "The king of Babylon"]


def greedy(path: Path, prompt: str, count: int):
    """Prompt tokens, then for every generated token its id, and its logits."""
    llama = llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, verbose=False, logits_all=True)
    tokens = llama.tokenize(prompt.encode(), add_bos=False, special=True)
    llama.eval(tokens)
    generated, rows = [], []
    for _ in range(count):
        row = np.array(llama.scores[llama.n_tokens - 1])
        generated.append(int(row.argmax()))
        rows.append(row)
        llama.eval(generated[-1:])
    text = llama.detokenize(generated).decode(errors="replace")
    return tokens, generated, rows, text


def margin(row: np.ndarray, other: int | None = None) -> float:
    """Of the likeliest token before `other`, or before the second, in standard deviations."""
    first, second = np.sort(row)[::-1][:2]
    return float((first - (second if other is None else row[other])) / row.std())


def ours(binary: Path, path: Path, prompt: str, count: int):
    command = [binary, "run", "--model", path, "--prompt", prompt, "-n", str(count), "--ignore-eos"]
    command += ["--verify", "off", "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["tokens_fed"], report["tokens_generated"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--warpsmith", type=Path, help="binary to compare with")
    parser.add_argument("--prompt", action="append", help=f"text to continue, any number of times [default: {PROMPTS}]")
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("--golden", type=Path, help="write llama.cpp's tokens and margins as JSON for tests")
    parser.add_argument("--golden-count", type=int, default=32)
    args = parser.parse_args()
    golden = []
    for path in args.files:
        for prompt in args.prompt or PROMPTS:
            tokens, expected, rows, text = greedy(path, prompt, args.n)
            margins = [margin(row) for row in rows]
            n = args.golden_count
            golden.append(
                {
                    "file": path.name,
                    "prompt": prompt,
                    "prompt_tokens": tokens,
                    "tokens": expected[:n],
                    "margins": [round(m, 4) for m in margins[:n]],
                }
            )
            verdict = f"smallest margin {min(margins):.3f}"
            if args.warpsmith:
                fed, got = ours(args.warpsmith, path, prompt, args.n)
                if fed[: len(tokens)] != tokens:
                    verdict = f"PROMPT DIFFERS: {tokens} and {fed[: len(tokens)]}"
                elif got == expected:
                    verdict = f"all {args.n} tokens equal, {verdict}"
                else:
                    at = next(i for i, (a, b) in enumerate(zip(expected, got)) if a != b)
                    verdict = f"equal up to token {at}, where the margin is {margin(rows[at], got[at]):.4f}"
            print(f"{path.name}: {prompt!r}: {verdict}")
            print(f"    {(prompt + text)!r}", flush=True)
    if args.golden:
        made_by = f"llama.cpp by llama-cpp-python {llama_cpp.__version__}, greedy, by models/compare.py"
        args.golden.write_text(json.dumps({"made_by": made_by, "cases": golden}, indent=1) + "\n")


if __name__ == "__main__":
    main()
