"""Fetches the training text and writes it as plain UTF-8.

The text is the World English Bible, which its translators dedicated to the public domain, from the Debian package
sword-text-web. The package holds a SWORD module: books compressed with zlib, in OSIS markup. Prefaces, headings and
footnotes are left out.
"""

import argparse
import hashlib
import html
import io
import lzma
import re
import struct
import tarfile
import urllib.request
import zlib
from pathlib import Path

PACKAGE = "sword-text-web_426.0-1_all.deb"
URL = "http://deb.debian.org/debian/pool/main/s/sword-text-web/" + PACKAGE
SHA256 = "930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1"
MODULE = "./usr/share/sword/modules/texts/ztext/engWEB2015eb/"


def fetch(directory: Path) -> bytes:
    """The package, from `directory` or from Debian, checked against its digest."""
    path = directory / PACKAGE
    if not path.exists():
        with urllib.request.urlopen(URL, timeout=180) as response:
            data = response.read()
        path.write_bytes(data)
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path}: sha256 {digest}, expected {SHA256}")
    return data


def ar_members(data: bytes):
    """The members of an ar archive, which a .deb is."""
    if data[:8] != b"!<arch>\n":
        raise SystemExit("not an ar archive")
    at = 8
    while at + 60 <= len(data):
        name = data[at : at + 16].decode().strip().rstrip("/")
        size = int(data[at + 48 : at + 58])
        yield name, data[at + 60 : at + 60 + size]
        at += 60 + size + (size & 1)


def module_files(deb: bytes) -> dict[str, bytes]:
    for name, data in ar_members(deb):
        if name == "data.tar.xz":
            with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data))) as tar:
                return {
                    m.name.removeprefix(MODULE): tar.extractfile(m).read()
                    for m in tar.getmembers()
                    if m.isfile() and m.name.startswith(MODULE)
                }
    raise SystemExit("the package has no data.tar.xz")


def verses(files: dict[str, bytes], testament: str):
    """Entries of a zText module. `.bzs` lists the compressed blocks (offset, size, plain size), `.bzv` the entries
    (block, offset in the block, length)."""
    blocks = [
        zlib.decompress(files[testament + ".bzz"][offset : offset + size]) if size else b""
        for offset, size, _ in struct.iter_unpack("<III", files[testament + ".bzs"])
    ]
    for block, start, length in struct.iter_unpack("<IIH", files[testament + ".bzv"]):
        if length:
            yield blocks[block][start : start + length].decode()


def plain(osis: str) -> str:
    """The running text, with an empty line between paragraphs."""
    # Introductions stand before the first chapter of a book and are nobody's running text.
    osis = re.sub(r'<div sID="[^"]*" type="introduction"/>.*?(?=<chapter|\Z)', "", osis, flags=re.S)
    for tag in ("note", "title", "list", "reference", "table", "figure", "speaker"):
        osis = re.sub(rf"<{tag}\b[^>]*/>", "", osis)
        # A footnote often stands where the space between two words would.
        osis = re.sub(rf"<{tag}\b[^>]*>.*?</{tag}>", " ", osis, flags=re.S)
    osis = re.sub(r'<div [^>]*type="(x-p|paragraph|book|chapter|section)"[^>]*/>|<chapter\b[^>]*>|</?p\b[^>]*>', "\n", osis)
    osis = re.sub(r"<(lg|l|lb)\b[^>]*>|</(lg|l)>", " ", osis)
    text = html.unescape(re.sub(r"<[^>]*>", "", osis))
    text = re.sub(r"[ \t]+([,.;:!?’”)])", r"\1", text.replace("¶", ""))
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path("build"))
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    files = module_files(fetch(args.directory))
    text = "\n".join(plain("\n".join(verses(files, t)).replace("\n", " ")) for t in ("ot", "nt")) + "\n"
    out = args.directory / "corpus.txt"
    out.write_text(text, encoding="utf-8")
    print(f"{out}: {len(text.encode())} bytes, sha256 {hashlib.sha256(text.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
