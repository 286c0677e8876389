"""OpenAI's Python client against a server: requests at once, whole and streamed, get what each of them gets alone."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import openai

TEMPLATE = "{% for m in messages %}{{ m.role }} said, {{ m.content }} {% endfor %}"
SYSTEM = "You are a man who is in the land and answers whatever he is asked, one day after the other."
# Fewer places than requests: some wait, and join while others are decoded.
OPTIONS = ["--batch", "4", "--prefill", "24", "--draft", "2", "--name", "small"]


class Server:
    """The server, from its start to its end."""

    def __init__(self, runner, model, template):
        command = [runner, "--model", model, "--listen", "127.0.0.1:0", "--chat-template", template, *OPTIONS]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("serving "):
                self.url = line.split()[1]
                break
        else:
            sys.exit("the server has not started:\n" + "".join(said))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert code == 0, f"the server ends with {code}"


def requests():
    """What is asked: (chat, fields)."""
    prompts = ["The woman said to him,", "And it came to pass", "In the land of Canaan there was", "He said:", "a"]
    drawn = [{}, {"temperature": 0.8, "seed": 7}, {"temperature": 1.0, "top_p": 0.8, "seed": 11}]
    for i in range(10):
        fields = {"model": "small", "max_tokens": 8 + i, **drawn[i % 3]}
        if i % 2 == 0:
            yield False, {**fields, "prompt": prompts[i // 2]}
        else:
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompts[i // 2]}]
            yield True, {**fields, "messages": messages}


def whole(chat, answer):
    """Text, reason and tokens of an answer."""
    (choice,) = answer.choices
    text = choice.message.content if chat else choice.text
    return text, choice.finish_reason, (answer.usage.prompt_tokens, answer.usage.completion_tokens)


class Pieces:
    """The same of a stream."""

    def __init__(self, chat):
        self.chat, self.text, self.reason, self.usage, self.count = chat, "", None, None, 0

    def take(self, piece):
        if piece.usage is not None:
            self.usage = (piece.usage.prompt_tokens, piece.usage.completion_tokens)
        for choice in piece.choices:
            text = choice.delta.content if self.chat else choice.text
            self.text += text or ""
            self.count += bool(text)
            self.reason = choice.finish_reason or self.reason

    def all(self):
        return self.text, self.reason, self.usage


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def of(client, chat):
    return client.chat.completions if chat else client.completions


def ask(client, chat, fields, stream):
    if not stream:
        return whole(chat, of(client, chat).create(**fields))
    pieces = Pieces(chat)
    for piece in of(client, chat).create(**fields, **STREAMED):
        pieces.take(piece)
    assert pieces.count > 1, "a stream of one piece"
    return pieces.all()


async def ask_later(client, chat, fields, stream):
    if not stream:
        return whole(chat, await of(client, chat).create(**fields))
    pieces = Pieces(chat)
    async for piece in await of(client, chat).create(**fields, **STREAMED):
        pieces.take(piece)
    return pieces.all()


def leave(client):
    """Closes a stream after its first piece."""
    with client.completions.create(model="small", prompt="Who leaves", max_tokens=300, stream=True) as stream:
        next(iter(stream))


async def all_at_once(url, asked):
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=300) as client:
        later = [ask_later(client, *request, stream=i % 3 != 0) for i, request in enumerate(asked)]
        return await asyncio.gather(*later)


def same(what, got, want):
    for i, (got, want) in enumerate(zip(got, want, strict=True)):
        assert got == want, f"{what}, request {i}: {got} instead of {want}"


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        assert error.code == code, error
    else:
        sys.exit(f"no {kind.__name__}")


def main(runner, model):
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w") as file:
            file.write(TEMPLATE)
        server = Server(runner, model, template)
    try:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
        assert [m.id for m in client.models.list()] == ["small"]
        asked = list(requests())
        alone = [ask(client, *request, stream=False) for request in asked]
        assert len({text for text, _, _ in alone}) == len(alone), f"two of these are alike: {alone}"
        assert all(usage[1] > 1 for _, _, usage in alone), alone

        with ThreadPoolExecutor(len(asked) + 1) as threads:
            gone = threads.submit(leave, client)
            some = [threads.submit(ask, client, *request, stream=i % 2 == 0) for i, request in enumerate(asked)]
            same("threads", [one.result() for one in some], alone)
            gone.result()
        same("asyncio", asyncio.run(all_at_once(server.url, asked)), alone)

        completions = client.completions
        refused(openai.NotFoundError, "model_not_found", lambda: completions.create(model="other", prompt="a"))
        long = list(range(200)) * 9
        refused(
            openai.BadRequestError,
            "context_length_exceeded",
            lambda: completions.create(model="small", prompt=long),
        )
        print(f"ok: {len(asked)} requests of openai {openai.__version__}, alone, from threads and by asyncio")
        server.end()
    finally:
        server.process.kill()


main(*sys.argv[1:])
