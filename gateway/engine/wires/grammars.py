"""Samples at random what xgrammar, the grammar engine of sglang and vLLM, allows
under structural tags.

    python3 grammars.py XGRAMMAR <TAGS.jsonl >SAMPLES.jsonl

A line of TAGS has a name, the tag, the vocabulary as base64, the tokens that
end an answer, and the one of them that the model ends a call with; one of SAMPLES a name and the ids of an answer, which is empty where
there was none within the bound. XGRAMMAR is the folder of the unpacked wheel.

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

ANSWERS = 4  # of each tag
BOUND = 500  # tokens of an answer


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
    bits = numpy.unpackbits(mask.view(numpy.uint8), bitorder="little")[:size]
    return numpy.flatnonzero(bits)


def answer(compiled, size, markup, stops, end, rng):
    """Ids that the mask allowed, one after the other. Markup is taken more often
    than anything else, so that answers end, and ends are tried early."""
    matcher, ids = xgrammar.GrammarMatcher(compiled), []
    while True:
        choice = allowed(matcher, size)
        if len(choice) == 0 or len(ids) == BOUND:
            return []
        if stops.intersection(choice):
            ids.append(end)
            break
        marks = choice[markup[choice]]
        token = int(rng.choice(marks if len(marks) and rng.random() < 0.7 else choice))
        if not matcher.accept_token(token):
            raise AssertionError(f"the mask allows {token}, the grammar does not")
        ids.append(token)
    return ids


def main():
    rng = random.Random(1)
    for line in sys.stdin:
        given = json.loads(line)
        vocabulary = [base64.b64decode(t) for t in given["vocabulary"]]
        info = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=given["stops"])
        compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(json.dumps(given["tag"]))
        markup = numpy.array([b"<" in t or b">" in t or t in (b'"', b"}", b"]", b"/", b"\n") for t in vocabulary])
        for _ in range(ANSWERS):
            print(json.dumps({"name": given["name"], "ids": answer(compiled, len(vocabulary), markup, set(given["stops"]), given["end"], rng)}))


main()
