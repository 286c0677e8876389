"""Where the peers' sources are from, and how their kernels become PTX."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import llama
import llama_attention
import llama_many
import marlin
import oxibonsai
import triton_products

HERE = pathlib.Path(__file__).parent
OXIBONSAI = ("oxibonsai-kernels", "0.2.3")


def run(*command: str | pathlib.Path, **options) -> str:
    """What a command prints; its errors go where ours go."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def llama_sources(folder: pathlib.Path) -> pathlib.Path:
    return archived(folder, "llama-cpp-python", "vendor/llama.cpp", "ggml/")


def marlin_sources(folder: pathlib.Path) -> pathlib.Path:
    return archived(folder, "gptqmodel", "gptqmodel_ext/marlin")


def archived(folder: pathlib.Path, package: str, inside: str, only: str = "") -> pathlib.Path:
    """A folder of a source archive on PyPI, unpacked beside it, or of that folder what begins with `only`. The archive is compared with
    the checksum in sources.txt."""
    sources = folder / pathlib.Path(inside).name
    if not sources.exists():
        requirement = folder / f"{package}.txt"
        requirement.write_text(pinned(package))
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        run(*pip, "--no-binary", package, "--dest", folder, "--requirement", requirement)
        (archive,) = folder.glob(f"{package.replace('-', '_')}-*.tar.gz")
        unpacked = folder / "unpacked"
        with tarfile.open(archive) as file:
            wanted = [m for m in file.getmembers() if f"/{inside}/{only}" in m.name]
            file.extractall(unpacked, wanted, filter="data")
        next(unpacked.glob(f"*/{inside}")).rename(sources)
        shutil.rmtree(unpacked)
    return sources


def pinned(package: str) -> str:
    """The line of sources.txt for a package."""
    (line,) = (text for text in (HERE / "sources.txt").read_text().splitlines() if text.startswith(f"{package}=="))
    return line + "\n"


def oxibonsai_sources() -> pathlib.Path:
    """The crate as cargo keeps it: asking for what it is unpacks it, and nothing that it depends on."""
    name, version = OXIBONSAI
    run("cargo", "info", "--quiet", "--color=never", f"{name}@{version}", cwd="/")
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    found = sorted(home.glob(f"registry/src/*/{name}-{version}"))
    if not found:
        sys.exit(f"cargo has not unpacked {name} {version} in {home}: name a folder with --oxibonsai")
    return found[0]


def toolkit() -> pathlib.Path:
    """NVIDIA's compiler in this environment."""
    return next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cu*/bin/nvcc")).parent.parent


def nvcc(source: pathlib.Path, ptx: pathlib.Path, *options: str | pathlib.Path) -> None:
    if not ptx.exists():
        print(f"compiling {source.name}", file=sys.stderr, flush=True)
        unfinished = ptx.with_suffix(".part")
        run(toolkit() / "bin/nvcc", "-ptx", "-arch=sm_90", "-std=c++17", "-w", *options, source, "-o", unfinished)
        unfinished.rename(ptx)


def compile_llama(sources: pathlib.Path, ptx: pathlib.Path) -> None:
    code = sources / llama.FOLDER
    include = [f"-I{folder}" for folder in (code, code.parent, sources / "ggml/include", HERE / "include")]
    files = [code / f"{name}.cu" for name in llama.FILES]
    for source in [*files, code / f"template-instances/{llama_attention.FILE}.cu"]:
        nvcc(source, ptx / f"{source.stem}.ptx", *llama.FLAGS, *include)
    many = ptx / f"{llama_many.FILE}.cu"
    many.write_text(llama_many.source())
    nvcc(many, ptx / f"{llama_many.FILE}.ptx", *llama.FLAGS, *include)


def compile_marlin(sources: pathlib.Path, ptx: pathlib.Path) -> None:
    source = ptx / f"{marlin.FILE}.cu"
    source.write_text(marlin.source())
    nvcc(source, ptx / f"{marlin.FILE}.ptx", *marlin.FLAGS, f"-I{sources}", f"-I{HERE / 'include'}")


def compile_oxibonsai(sources: pathlib.Path, ptx: pathlib.Path) -> None:
    for file, constant in oxibonsai.SOURCES.items():
        source = ptx / f"{file}.cu"
        source.write_text(oxibonsai.cuda((sources / oxibonsai.FOLDER / f"{file}.rs").read_text(), constant))
        nvcc(source, ptx / f"{file}.ptx")


def compile_triton(ptx: pathlib.Path) -> None:
    if not (ptx / "triton.json").exists():
        print("compiling Triton's", file=sys.stderr, flush=True)
        triton_products.compile_all(ptx)
