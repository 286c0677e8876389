"""Prints what llama.cpp continues the models of tests/formats.rs with: python3 greedy_formats.py FOLDER, where the test left them.

Needs numpy and llama-cpp-python 0.3.36, on the CPU. Behind each text is the smallest difference between the best and the second, in
standard deviations of the logits: llama.cpp rounds activations to eight bits, which is off by some hundredths of one.
"""
import pathlib
import sys

import numpy as np
from llama_cpp import Llama

for path in sorted(pathlib.Path(sys.argv[1]).glob("greedy-*.gguf")):
    model = Llama(model_path=str(path), n_ctx=64, logits_all=True, verbose=False)
    model.eval([3, 1, 4])
    text, least = [], np.inf
    for _ in range(12):
        logits = np.array(model.scores[model.n_tokens - 1])
        best = np.sort(logits)[-2:]
        least = min(least, (best[1] - best[0]) / logits.std())
        text.append(int(np.argmax(logits)))
        model.eval(text[-1:])
    print(path.stem, text, f"{least:.2f}")
