"""Asks ptxas which files of the corpus, and which damaged variants of them, it accepts. README.md says how.

Writes verdicts.tsv and broken.tsv, which the tests read.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

import broken

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "13.5.37"
# Files with instructions that are named load errors are no base for damage: whatever is done to them is refused.
NO_BASE = ("cuda_hopper", "cuda_textures", "cuda_mbarrier", "cuda_heap", "cuda_wmma", "cuda_mma_others", "triton_printing")


def ptxas(assembler, text, sm):
    """(accepted?, the first error)"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "in.ptx"
        path.write_text(text)
        command = [assembler, f"-arch=sm_{sm}", path, "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return True, ""
    lines = [l for l in (done.stdout + done.stderr).splitlines() if re.search(r"\b(error|fatal)\b", l)]
    first = lines[0] if lines else f"exit status {done.returncode}"
    first = re.sub(r"^ptxas (?:\S*in\.ptx, |(?=fatal))", "", first)
    return False, re.sub(r"\s+", " ", first.replace(str(path), "in.ptx")).strip()


def sm_of(text):
    return re.search(r"^\.target sm_(\w+)", text, re.M).group(1)


def apply(text, number, new):
    lines = text.split("\n")
    if new == broken.CUT:
        return "\n".join(lines[: number - 1])
    lines[number - 1] = new
    return "\n".join(lines)


def quote(line):
    return line.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def main():
    assembler = sys.argv[1] if len(sys.argv) > 1 else "ptxas"
    banner = subprocess.run([assembler, "--version"], capture_output=True, text=True, check=True).stdout
    if f"V{VERSION}" not in banner:
        raise SystemExit(f"ptxas {VERSION} is needed, this is:\n{banner}")
    # The parser's own texts are named from its folder of tests.
    own, parser = HERE.parent, HERE.parents[2] / "ptx/tests"
    files = {str(p.relative_to(own)): p.read_text() for p in sorted(HERE.glob("ptx/*.ptx"))}
    files |= {str(p.relative_to(parser)): p.read_text() for p in sorted(parser.glob("ptx/*.ptx"))}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {n: pool.submit(ptxas, assembler, t, sm_of(t)) for n, t in files.items()}
        with open(HERE / "verdicts.tsv", "w") as out:
            out.write(f"# Verdicts of ptxas {VERSION}: file, sm, accepted or refused, its first error.\n")
            for name, job in jobs.items():
                accepted, message = job.result()
                verdict = "accepted" if accepted else "refused"
                out.write(f"{name}\t{sm_of(files[name])}\t{verdict}\t{message}\n")
        bases = {n: t for n, t in files.items() if n.startswith("corpus/") and not n.startswith(
            tuple("corpus/ptx/" + p for p in NO_BASE))}
        chosen = list(broken.choose(bases))
        jobs = [pool.submit(ptxas, assembler, apply(bases[c[1]], c[2], c[4]), sm_of(bases[c[1]])) for c in chosen]
        with open(HERE / "broken.tsv", "w") as out:
            out.write(f"# Damaged variants and what ptxas {VERSION} says: kind, base file, line, what stands there,\n")
            out.write("# what replaces it (`<cut>`: the text ends before it), accepted or refused, its first error.\n")
            out.write("# `\\t`, `\\n` and `\\\\` stand for tab, line end and backslash.\n")
            for (kind, name, number, old, new), job in zip(chosen, jobs):
                accepted, message = job.result()
                verdict = "accepted" if accepted else "refused"
                fields = [kind, name, str(number), quote(old), quote(new), verdict, quote(message)]
                out.write("\t".join(fields) + "\n")
    print(len(files), "files,", len(chosen), "variants,", len({c[0] for c in chosen}), "kinds")


if __name__ == "__main__":
    main()
