"""Reads replies as inference servers do.

Usage: oracle.py ENGINE FOLDER, where FOLDER holds the unpacked package. Cases
come as JSON lines on standard input, answers go as JSON lines to standard
output: {"reasoning": ..., "content": ..., "calls": [[name, arguments], ...]} or
{"error": ...}.

Only the parsers are wanted, not the servers around them. So the packages'
own __init__ files do not run, and a module that is not there (torch and many
others) is replaced by an empty one: importing it works, using it does not.
"""

import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types


def nothing(name):
    """A class to import and inherit from, and for no more."""
    return Nothing(
        name,
        (),
        {
            "__init__": lambda self, *args, **kwargs: None,
            "__bool__": lambda self: False,
            "__init_subclass__": classmethod(lambda cls, **kwargs: None),
        },
    )


class Nothing(type):
    """A class that has every attribute, and can be a base class."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing(name)

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


class Elsewhere(importlib.abc.MetaPathFinder):
    """Keeps a package's modules out but for the wanted ones."""

    def __init__(self, package, *wanted):
        self.package, self.wanted = package + ".", wanted

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(self.package) or any(name == w or name.startswith(w + ".") for w in self.wanted):
            return None
        return importlib.machinery.ModuleSpec(name, Absent(), is_package=True)


# What packages that are there do without, and look closely at.
OPTIONAL = {"chardet", "simplejson", "cv2", "soundfile", "soxr", "sentencepiece"}


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        root, _, inside = name.partition(".")
        if root in sys.stdlib_module_names or root.startswith("_"):
            return None  # of another system
        if root in OPTIONAL:
            return None
        # A package that is there is whole, but for the one whose parsers we want.
        if inside and root not in ("sglang", "vllm"):
            if not isinstance(getattr(sys.modules[root].__spec__, "loader", None), Absent):
                return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            value = nothing(name)
            setattr(module, name, value)
            return value

        module.__getattr__ = attribute
        return module

    def exec_module(self, module):
        pass


def package(name, folder):
    """Makes a package of a folder without running its __init__."""
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
    return module


def tool_types():
    from typing import Any, Optional

    from pydantic import BaseModel

    class Function(BaseModel):
        name: Optional[str] = None
        description: Optional[str] = None
        parameters: Optional[Any] = None
        strict: bool = False

    class Tool(BaseModel):
        type: str = "function"
        function: Function

    return Function, Tool


class SGLang:
    def __init__(self, folder):
        for name in ["sglang", "sglang.srt", "sglang.srt.function_call", "sglang.srt.parser"]:
            package(name, os.path.join(folder, *name.split(".")))
        protocol = types.ModuleType("sglang.srt.entrypoints.openai.protocol")
        protocol.Function, protocol.Tool = tool_types()
        protocol.__getattr__ = nothing
        sys.modules[protocol.__name__] = protocol
        environ = types.ModuleType("sglang.srt.environ")

        class Setting:
            def get(self):
                return False

        class Settings:
            def __getattr__(self, name):
                return Setting()

        environ.envs = Settings()
        environ.__getattr__ = nothing
        sys.modules[environ.__name__] = environ
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
        from sglang.srt.parser.reasoning_parser import ReasoningParser

        self.tool_type, self.calls, self.reasoning = protocol.Tool, FunctionCallParser, ReasoningParser

    def read(self, case):
        reasoning, text = "", case["text"]
        names = case["names"]
        if names.get("reasoning"):
            parser = self.reasoning(names["reasoning"], stream_reasoning=False, force_reasoning=case["opened"])
            reasoning, text = parser.parse_non_stream(text)
        tools = [self.tool_type(**t) for t in case["tools"]]
        calls = []
        if names.get("calls") and text:
            parser = self.calls(tools, names["calls"])
            if parser.has_tool_call(text):
                text, found = parser.parse_non_stream(text)
                calls = [[c.name, c.parameters] for c in found]
        return {"reasoning": reasoning or "", "content": text or "", "calls": calls}


class Record:
    """Stands in for the servers' message types: holds what it is given."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Vocabulary:
    """Stands in for a tokenizer: added tokens, and ids of the case at hand."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.vocab = tokens
        self.all_special_tokens = list(tokens)
        self.all_special_ids = list(tokens.values())
        self.spelled = {i: t for t, i in tokens.items()}

    def get_vocab(self):
        return self.tokens

    def get_added_vocab(self):
        return self.tokens

    def encode(self, text, **_):
        return [self.tokens[text]] if text in self.tokens else [0] * len(text)

    def decode(self, ids, **_):
        return "".join(self.spelled.get(i, "") for i in ids)

    def convert_tokens_to_ids(self, token):
        return self.tokens.get(token)


class VLLM:
    def __init__(self, folder):
        import ast

        for name in ["vllm", "vllm.tool_parsers", "vllm.reasoning", "vllm.parser", "vllm.parser.engine", "vllm.utils"]:
            package(name, os.path.join(folder, *name.split(".")))
        envs = types.ModuleType("vllm.envs")
        envs.__getattr__ = lambda name: None if name.startswith("VLLM_") else nothing(name)
        sys.modules["vllm.envs"] = sys.modules["vllm"].envs = envs
        sys.meta_path.insert(
            0, Elsewhere("vllm", "vllm.tool_parsers", "vllm.reasoning", "vllm.parser", "vllm.utils.collection_utils")
        )
        _, tool = tool_types()
        for name in [
            "vllm.entrypoints.generate.base.protocol",
            "vllm.entrypoints.openai.chat_completion.protocol",
            "vllm.entrypoints.openai.engine.protocol",
            "vllm.entrypoints.openai.responses.protocol",
        ]:
            module = types.ModuleType(name)
            kept = {}

            def attribute(name, kept=kept):
                if name.startswith("__"):
                    raise AttributeError(name)
                if name == "ChatCompletionToolsParam":
                    return tool
                return kept.setdefault(name, type(name, (Record,), {}))

            module.__getattr__ = attribute
            sys.modules[name] = module
        logger = types.ModuleType("vllm.logger")
        logger.init_logger = logging.getLogger
        sys.modules["vllm.logger"] = logger
        self.tool_type = tool
        self.tables = {}
        for kind in ["tool_parsers", "reasoning"]:
            with open(os.path.join(folder, "vllm", kind, "__init__.py")) as f:
                tree = ast.parse(f.read())
            self.tables[kind] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.Dict):
                    try:
                        self.tables[kind].update(ast.literal_eval(node))
                    except ValueError:
                        pass

    def parser(self, kind, name):
        import importlib

        file, cls = self.tables[kind][name]
        return getattr(importlib.import_module(f"vllm.{kind}.{file}"), cls)

    def read(self, case):
        names, text = case["names"], case["text"]
        tokenizer = Vocabulary(case["vocabulary"])
        tools = [self.tool_type(**t) for t in case["tools"]]
        request = Record(tools=tools, tool_choice="auto", messages=[], include_reasoning=True, skip_special_tokens=False)
        reasoning = ""
        if names.get("reasoning"):
            parser = self.parser("reasoning", names["reasoning"])(tokenizer)
            reasoning, text = parser.extract_reasoning(text, request)
        calls = []
        if names.get("calls") and text:
            parser = self.parser("tool_parsers", names["calls"])(tokenizer, tools)
            found = parser.extract_tool_calls(text, request)
            if found.tools_called:
                calls = [[c.function.name, c.function.arguments] for c in found.tool_calls]
            text = found.content
        return {"reasoning": reasoning or "", "content": text or "", "calls": calls}


def text(value):
    """A name or arguments, which may be no text where a model wrote none."""
    return value if isinstance(value, str) else json.dumps(value)


def main():
    engine, folder = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    sys.meta_path.append(Absent())
    reader = {"sglang": SGLang, "vllm": VLLM}[engine](folder)
    for line in sys.stdin:
        try:
            answer = reader.read(json.loads(line))
            answer["calls"] = [[text(v) for v in call] for call in answer["calls"]]
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
