"""Samples at random what xgrammar, the grammar engine of sglang and vLLM, allows
under structural tags.

    python3 grammars.py XGRAMMAR <TAGS.jsonl >SAMPLES.jsonl

A line of TAGS has a name, the tag, the vocabulary as base64, the tokens that
end an answer, and the one of them that the model ends a call with; one of SAMPLES
a name and the ids of an answer. XGRAMMAR is the folder of the unpacked wheel.

xgrammar is taken without the packages that only its masks on tensors need: the
grammar engine itself is compiled code.
"""

import base64
import json
import random
import sys
import unittest.mock

import numpy
import tvm_ffi  # before the stand-ins, which it would take for the real ones

ANSWERS, TRIES = 10, 100  # to each tag
BOUND = 500  # tokens of an answer
ENDS = (b"</parameter>", b"</")  # that no one token is


class Nothing:
    """A class that nothing here is an instance or a part of."""


for name in ("torch", "transformers"):
    sys.modules[name] = unittest.mock.MagicMock(
        Tensor=Nothing, LogitsProcessor=Nothing, PreTrainedTokenizerBase=Nothing, PreTrainedTokenizerFast=Nothing
    )
sys.path.insert(0, sys.argv[1])
import xgrammar  # noqa: E402


def allowed(matcher, size):
    mask = numpy.zeros((1, (size + 31) // 32), dtype=numpy.int32)
    matcher._handle.fill_next_token_bitmask(mask, 0, False)
    return numpy.unpackbits(mask.view(numpy.uint8), bitorder="little")[:size].astype(bool)


def spell(matcher, single, text, ids):
    """Says a text in tokens of one byte, if the grammar takes all of it."""
    for n, byte in enumerate(text):
        if not matcher.accept_token(single[byte]):
            matcher.rollback(n)
            return False
    ids.extend(single[byte] for byte in text)
    return True


def answer(compiled, size, markup, single, stops, end, rng):
    """Ids that the mask allowed, one after the other. Markup is taken more often
    than anything else, so that answers end, and ends are tried early."""
    matcher, ids = xgrammar.GrammarMatcher(compiled, max_rollback_tokens=16), []
    while True:
        mask = allowed(matcher, size)
        if not mask.any() or len(ids) >= BOUND:
            return []
        if mask[stops].any():
            return [*ids, end]
        if rng.random() < 0.2 and spell(matcher, single, rng.choice(ENDS), ids):
            continue
        if rng.random() < 0.7 and (mask & markup).any():
            mask &= markup
        token = int(rng.choice(numpy.flatnonzero(mask)))
        if not matcher.accept_token(token):
            raise AssertionError(f"the mask allows {token}, the grammar does not")
        ids.append(token)


def main():
    rng = random.Random(1)
    for line in sys.stdin:
        given = json.loads(line)
        vocabulary = [base64.b64decode(t) for t in given["vocabulary"]]
        # Some tokens are enough, and masks cost as many as there are: an empty one
        # is never allowed.
        vocabulary = [t if len(t) == 1 or t[:1] in b"<[" or "｜".encode() in t or i % 50 == 0 else b"" for i, t in enumerate(vocabulary)]
        info = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=given["stops"])
        compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(json.dumps(given["tag"]))
        markup = numpy.array([b"<" in t or b">" in t or t in (b'"', b"}", b"]", b"/", b"\n") or "｜".encode() in t for t in vocabulary])
        single = {t[0]: i for i, t in enumerate(vocabulary) if len(t) == 1}
        answers = 0
        for _ in range(TRIES):
            ids = answer(compiled, len(vocabulary), markup, single, given["stops"], given["end"], rng)
            if ids:
                print(json.dumps({"name": given["name"], "ids": ids}))
                answers += 1
            if answers == ANSWERS:
                break


main()
