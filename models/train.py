"""Trains one model. A run that was stopped goes on from its checkpoint."""

import argparse
import math
import time
from pathlib import Path

import tokenizers
import torch
import torch.nn.functional as F

import model as architecture

LENGTH = 512  # tokens of a training sequence
HELD_OUT = 40_000  # tokens at the end of the corpus that are never trained on


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by Newton-Schulz iterations (K. Jordan, 2024), for matrices of hidden layers."""

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                m.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(m, group["momentum"])
                wide = x if x.shape[0] <= x.shape[1] else x.T
                wide = wide / (wide.norm() + 1e-7)
                for _ in range(5):
                    a = wide @ wide.T
                    b = torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315)
                    wide = torch.addmm(wide, b, wide, beta=3.4445)
                x = wide if x.shape[0] <= x.shape[1] else wide.T
                p.add_(x, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def tokens_of(directory: Path) -> torch.Tensor:
    cache = directory / "tokens.pt"
    if not cache.exists():
        tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        text = (directory / "corpus.txt").read_text(encoding="utf-8")
        torch.save(torch.tensor(tokenizer.encode(text).ids), cache)
    return torch.load(cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path("build"))
    parser.add_argument("--scheme", choices=architecture.SCHEMES, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of the hidden matrices")
    parser.add_argument("--start", type=Path, help="checkpoint whose weights to start from")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    tokens = tokens_of(args.directory)
    train, held_out = tokens[:-HELD_OUT], tokens[-HELD_OUT:]
    model = architecture.Model(args.scheme)
    if args.start:
        model.load_state_dict(torch.load(args.start)["model"])
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    muon = Muon(matrices, args.rate)
    adam = torch.optim.AdamW(others, args.rate / 4, betas=(0.9, 0.95), weight_decay=0.0)
    rates = [(g, g["lr"]) for o in (muon, adam) for g in o.param_groups]

    path = args.directory / f"{args.scheme}.pt"
    first, cpu = 0, 0.0
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
        first, cpu = saved["step"], saved["cpu"]
        rates = [(g, r) for (g, _), r in zip(((g, 0) for o in (muon, adam) for g in o.param_groups), saved["rates"])]

    def save(step):
        state = {"model": model.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict(), "step": step}
        state |= {"cpu": cpu + time.process_time(), "rates": [r for _, r in rates]}
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)

    def evaluate():
        rows = held_out[: len(held_out) // LENGTH * LENGTH].view(-1, LENGTH)[:32]
        with torch.no_grad():
            logits = torch.cat([model(r[None]) for r in rows])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten()).item()

    warm_up = 5 if args.start else 30
    mean, started = 0.0, time.time()
    for step in range(first, args.steps):
        # Seeded by the step, so that a run that goes on sees what it would have seen.
        generator = torch.Generator().manual_seed(step)
        at = torch.randint(len(train) - LENGTH - 1, (args.batch,), generator=generator)
        rows = torch.stack([train[i : i + LENGTH + 1] for i in at])
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        progress = step / args.steps
        # Warm up, hold, then fall to nothing over the last half.
        scale = min((step + 1) / warm_up, 1.0, 2.0 * (1.0 - progress))
        for group, rate in rates:
            group["lr"] = rate * scale
        muon.step()
        adam.step()
        model.zero_grad(set_to_none=True)
        if not math.isfinite(loss.item()):
            raise SystemExit(f"step {step}: the loss is {loss.item()}")
        mean = loss.item() if step == first else 0.95 * mean + 0.05 * loss.item()
        if step % 10 == 9:
            rate = (step + 1 - first) / (time.time() - started)
            print(f"{args.scheme} step {step + 1}/{args.steps} loss {mean:.3f}, {rate:.2f} steps/s", flush=True)
        if step % 25 == 24:
            save(step + 1)
    save(args.steps)
    used = cpu + time.process_time()
    print(f"{args.scheme}: held-out loss {evaluate():.4f} per token, {used / 60:.1f} CPU minutes", flush=True)


if __name__ == "__main__":
    main()
