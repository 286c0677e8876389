"""Compiles the sources of this folder to the PTX that the tests read. README.md says how.

    python compile.py [NAME…]     all sources, or those whose file name begins so
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PTX = HERE / "ptx"


def cuda(source):
    """A .cu file: its `// arch:` line says for which targets."""
    import nvidia

    root = pathlib.Path(list(nvidia.__path__)[0]) / "cu13"
    text = source.read_text()
    for arch in re.search(r"^// arch: (.*)$", text, re.M).group(1).split():
        out = PTX / f"cuda_{source.stem}_sm{arch}.ptx"
        command = [root / "bin/nvcc", "-ptx", f"-arch=sm_{arch}", "-std=c++17", f"-I{root}/include/cccl"]
        # A relative path, so that none of this machine gets into the text.
        command += [source.name, "-o", out]
        subprocess.run(command, check=True, cwd=source.parent)
        finish(out, f"cuda/{source.name}, nvcc 13.5.37, sm_{arch}")


def triton(source):
    """A .py file: its KERNELS lists function, signature, constants, target and options."""
    import types

    import triton as tr
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Under a relative name, so that none of this machine gets into the text.
    module = types.ModuleType(source.stem)
    os.chdir(HERE)
    code = compile(source.read_text(), str(source.relative_to(HERE)), "exec")
    sys.modules[source.stem] = module
    exec(code, module.__dict__)
    for name, (signature, constants, sm, options) in module.KERNELS.items():
        ast = ASTSource(getattr(module, name), signature, constexprs=constants)
        compiled = tr.compile(ast, target=GPUTarget("cuda", sm, 32), options=options)
        out = PTX / f"triton_{name}_sm{sm}.ptx"
        text = compiled.asm["ptx"]
        text = text.replace(str(pathlib.Path(tr.__file__).parent.parent) + "/", "")
        out.write_text(text)
        finish(out, f"triton/{source.name}, Triton {tr.__version__}, sm_{sm}")


def finish(out, origin):
    text = out.read_text()
    out.write_text(f"// From {origin}.\n{text}")
    size = len(text)
    print(f"{out.name:44} {size:7} bytes" + ("  TOO LARGE" if size > 60_000 else ""), flush=True)


def main():
    os.environ.setdefault("TRITON_ALWAYS_COMPILE", "1")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    PTX.mkdir(exist_ok=True)
    wanted = tuple(sys.argv[1:]) or ("",)
    for source in sorted(HERE.glob("cuda/*.cu")):
        if source.name.startswith(wanted):
            cuda(source)
    for source in sorted(HERE.glob("triton/*.py")):
        if source.name.startswith(wanted):
            triton(source)


if __name__ == "__main__":
    main()
