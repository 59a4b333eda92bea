"""Writes a model folder from a GGUF file of Gemma 3: tokenizer.json,
tokenizer_config.json and the chat template given.

A GGUF file has the pieces of a SentencePiece model with their scores.
tokenizer.json wants merges instead: every way to join two pieces to a third,
the best score first, as transformers converts such models.

    python3 real_files.py MODEL.gguf TEMPLATE.jinja FOLDER
"""

import json
import pathlib
import shutil
import struct
import sys

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types of tokens
SPACE = "\u2581"


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, code):
        return struct.unpack("<" + code, self.file.read(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.file.read(self.number("Q")).decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, n = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(n)]
        return self.number(NUMBERS[kind])


def metadata(path):
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            sys.exit(f"{path} is no GGUF file")
        r = Reader(file)
        r.number("I"), r.number("Q")  # version, number of tensors
        out = {}
        for _ in range(r.number("Q")):
            key = r.text()
            out[key] = r.value(r.number("I"))
        return out


def merges(vocab, pieces):
    """pieces: (text, score). The order among equal scores is that of
    transformers: longer left parts first, then longer right parts."""
    out = []
    for piece, score in pieces:
        local = []
        for i in range(1, len(piece)):
            left, right = piece[:i], piece[i:]
            if left in vocab and right in vocab:
                local.append((left, right, score))
        local.sort(key=lambda m: (vocab[m[0]], vocab[m[1]]))
        out.extend(local)
    out.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [[left, right] for left, right, _ in out]


def main(gguf, template, folder):
    meta = metadata(gguf)
    kind = meta["general.architecture"], meta["tokenizer.ggml.model"]
    if kind != ("gemma3", "llama"):
        sys.exit(f"the tokenizer of {kind} is not known here")
    tokens, types, scores = (meta["tokenizer.ggml." + k] for k in ("tokens", "token_type", "scores"))
    vocab = {t: i for i, t in enumerate(tokens)}
    added = [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": types[i] == CONTROL}
        for i, t in enumerate(tokens)
        if types[i] in (CONTROL, USER_DEFINED)
    ]
    pieces = [(t, scores[i]) for i, t in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED) and len(t) > 1]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges(vocab, pieces),
        },
    }
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "add_bos_token": True}
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [vocab["<eos>"], vocab["<end_of_turn>"]]}))
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3_text", "vocab_size": len(tokens)}))
    shutil.copy(template, folder / "chat_template.jinja")


if __name__ == "__main__":
    main(*sys.argv[1:])
