"""Compares what went over the mock's wires with the engines' own packages.

Every member of every request and response must be a field of the class that the
engine has for it, of a type that the field's annotation allows; every field
without a default must be there. What the engine writes as a plain dictionary must
at least be spelled in its source. Nothing of the packages is imported or run.

    python3 check.py EXCHANGES.jsonl SGLANG VLLM LLAMACPP

The last three are folders: the unpacked wheels of sglang and vllm, and llama.cpp.
Prints what does not fit, then "N passed, N failed, 0 skipped".
"""

import ast
import json
import pathlib
import re
import sys


def optional(item):
    """Whether a field has a default."""
    if item.value is None:
        return "ClassVar" in ast.unparse(item.annotation)
    if isinstance(item.value, ast.Call) and ast.unparse(item.value.func).rpartition(".")[2] in ("Field", "field"):
        given = {k.arg for k in item.value.keywords} & {"default", "default_factory"}
        return bool(given) or bool(item.value.args) and ast.unparse(item.value.args[0]) != "..."
    return True


def alias(item):
    """The name of a field on the wire, where it is another."""
    if isinstance(item.value, ast.Call):
        for k in item.value.keywords:
            if k.arg == "alias" and isinstance(k.value, ast.Constant):
                return k.value.value
    return None


class Classes:
    """The fields of the classes in some files, with those of their bases. Releases
    keep them in other places, so that not all of the files need be there: what is
    nowhere is found when its fields are looked for."""

    def __init__(self, root, *files):
        self.nodes, self.source = {}, ""
        for path in (pathlib.Path(root) / name for name in files):
            if not path.exists():
                continue
            text = path.read_text()
            self.source += text
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef):
                    self.nodes[node.name] = node

    def fields(self, name):
        """The fields of a class: their annotations, and whether they may be left out."""
        node = self.nodes.get(name)
        if node is None:
            return {}
        out = {}
        for base in node.bases:
            out |= self.fields(ast.unparse(base))
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                out[alias(item) or item.target.id] = (item.annotation, optional(item))
            elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
                given = item.args.args[1:]
                required = len(given) - len(item.args.defaults)
                out |= {a.arg: (a.annotation, i >= required) for i, a in enumerate(given) if a.annotation}
        return out

    def check(self, value, name, where):
        """Yields what the class, or a class inside it, does not allow."""
        if isinstance(value, list):
            for v in value:
                yield from self.check(v, name, where + "[]")
        if not isinstance(value, dict):
            return
        fields = self.fields(name)
        for key, (_, may_miss) in fields.items():
            if key not in value and not may_miss:
                yield f"{where}.{key} is missing, and {name} has no default for it"
        for key, v in value.items():
            if key not in fields:
                yield f"{where}.{key} is no field of {name}"
                continue
            annotation = fields[key][0]
            if not self.fits(v, annotation):
                yield f"{where}.{key} is {json.dumps(v)[:60]}, not {ast.unparse(annotation)} as {name} has it"
            # Of a union, one has to fit.
            inner = [n for n in re.findall(r"\w+", ast.unparse(annotation)) if self.fields(n)]
            tries = [list(self.check(v, n, f"{where}.{key}")) for n in inner]
            if tries:
                yield from min(tries, key=len)

    def fits(self, value, annotation):
        """Whether a JSON value can be what an annotation says. Names that are no
        class here, such as aliases, allow anything."""
        if isinstance(annotation, ast.Constant):
            if annotation.value is None:
                return value is None
            if isinstance(annotation.value, str):  # a forward reference
                return self.fits(value, ast.parse(annotation.value, mode="eval").body)
            return True
        if isinstance(annotation, ast.BinOp):
            return self.fits(value, annotation.left) or self.fits(value, annotation.right)
        if isinstance(annotation, ast.Subscript):
            outer = ast.unparse(annotation.value).rpartition(".")[2]
            inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            match outer:
                case "Optional":
                    return value is None or self.fits(value, inner[0])
                case "Union":
                    return any(self.fits(value, a) for a in inner)
                case "Annotated":
                    return self.fits(value, inner[0])
                case "Literal":
                    return value in [ast.literal_eval(a) for a in inner]
                case "list" | "List" | "Sequence" | "Iterable":
                    return isinstance(value, list) and all(self.fits(v, inner[0]) for v in value)
                case "dict" | "Dict" | "Mapping":
                    return isinstance(value, dict) and all(self.fits(v, inner[1]) for v in value.values())
            return True
        match ast.unparse(annotation):
            case "int":
                return isinstance(value, int) and not isinstance(value, bool)
            case "float":
                return isinstance(value, (int, float)) and not isinstance(value, bool)
            case "str":
                return isinstance(value, str)
            case "bool":
                return isinstance(value, bool)
            case name if self.fields(name):
                return isinstance(value, dict)
        return True

    def spelled(self, value, where):
        """Yields the members whose names are nowhere in the source."""
        if isinstance(value, list):
            for v in value:
                yield from self.spelled(v, where + "[]")
        if isinstance(value, dict):
            for key, v in value.items():
                if not re.search(rf"\b{re.escape(key)}\b", self.source):
                    yield f"{where}.{key} is nowhere in the source"
                yield from self.spelled(v, f"{where}.{key}")


def sglang_rules(root):
    c = Classes(
        root,
        "sglang/srt/managers/io_struct.py",
        "sglang/srt/sampling/sampling_params.py",
        "sglang/srt/entrypoints/openai/protocol.py",
        "sglang/srt/managers/tokenizer_manager.py",
        "sglang/srt/utils/weight_versions.py",
        "sglang/srt/managers/schedule_batch.py",
        "sglang/srt/entrypoints/http_server.py",
    )

    def generate(request):
        params = request.get("sampling_params")
        yield from c.check({k: v for k, v in request.items() if k != "sampling_params"}, "GenerateReqInput", "request")
        yield from c.check(params, "SamplingParams", "request.sampling_params")

    def chat(response):
        for choice in response.get("choices", []):
            yield from c.spelled(choice.pop("meta_info", None), "response.choices[].meta_info")
        yield from c.check(response, "ChatCompletionResponse", "response")

    return {
        "/generate": (generate, lambda r: c.spelled(r, "response")),
        "/abort_request": (lambda r: c.check(r, "AbortReq", "request"), None),
        "/tokenize": (lambda r: c.check(r, "TokenizeRequest", "request"), None),
        "/v1/chat/completions": (lambda r: c.check(r, "ChatCompletionRequest", "request"), chat),
        "/v1/models": (None, lambda r: c.check(r, "ModelList", "response")),
    }


def vllm_rules(root):
    entry = "vllm/entrypoints/"
    c = Classes(
        root,
        "vllm/sampling_params.py",
        "vllm/outputs.py",
        entry + "openai/engine/protocol.py",
        entry + "serve/engine/protocol.py",
        entry + "generate/base/protocol.py",
        entry + "openai/completion/protocol.py",
        entry + "openai/chat_completion/protocol.py",
        entry + "serve/disagg/protocol.py",
        entry + "scale_out/token_in_token_out/protocol.py",
        entry + "serve/tokenize/protocol.py",
        entry + "openai/models/protocol.py",
        entry + "serve/disagg/api_router.py",
        entry + "scale_out/token_in_token_out/api_router.py",
    )

    def by(request, response):
        return (
            request and (lambda r: c.check(r, request, "request")),
            response and (lambda r: c.check(r, response, "response")),
        )

    def completions(r):
        name = "CompletionResponse" if "choices" in r and any("routed_experts" in x for x in r["choices"]) else "CompletionStreamResponse"
        return c.check(r, name, "response")

    return {
        "/v1/completions": (lambda r: c.check(r, "CompletionRequest", "request"), completions),
        "/v1/chat/completions/render": by("ChatCompletionRequest", "GenerateRequest"),
        "/inference/v1/generate": by("GenerateRequest", "GenerateTokensResponse"),
        "/v1/chat/completions/derender": by("DerenderChatRequest", None),
        "/inference/v1/abort_requests": (lambda r: c.spelled(r, "request"), None),
        "/tokenize": by("TokenizeCompletionRequest", "TokenizeResponse"),
        "/v1/models": by(None, "ModelList"),
    }


def llama_rules(root):
    folder = pathlib.Path(root) / "tools/server"
    source = "".join(p.read_text() for p in sorted(folder.glob("*.cpp")))

    def quoted(value, where):
        if isinstance(value, list):
            for v in value:
                yield from quoted(v, where + "[]")
        if isinstance(value, dict):
            for key, v in value.items():
                if f'"{key}"' not in source:
                    yield f"{where}.{key} is nowhere in the server"
                if key != "json_schema":
                    yield from quoted(v, f"{where}.{key}")

    rule = (lambda r: quoted(r, "request"), lambda r: quoted(r, "response"))
    return {"/completion": rule, "/props": rule, "/tokenize": (rule[0], None)}


def main(exchanges, sglang, vllm, llama):
    rules = {"sglang": sglang_rules(sglang), "vllm": vllm_rules(vllm), "llamacpp": llama_rules(llama)}
    # The mock serves several engines under these paths: members of the others
    # are ignored by each.
    shared = {"/tokenize"}
    passed, faults = 0, []
    for line in open(exchanges):
        e = json.loads(line)
        engine = e["engine"].split("-")[0]
        rule = rules[engine].get(e["path"])
        if rule is None:
            continue
        for check, part in zip(rule, ("request", "response")):
            if check is None or part not in e or (part == "response" and e["path"] in shared):
                continue
            found = list(check(e[part]))
            faults += [f"{e['engine']} {e['path']}: {f}" for f in found]
            passed += not found
    for fault in sorted(set(faults)):
        print(fault)
    print(f"{passed} passed, {len(set(faults))} failed, 0 skipped")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(*sys.argv[1:])
