"""Makes a tiny model with random weights: python3 vllm_model.py TOKENIZER_JSON TEMPLATE FOLDER

The tokenizer is a real one (Qwen 3's); the weights are drawn so wide that some
tokens are far likelier than others. It says nothing sensible, and its logprobs
are as good as any.
"""

import json
import pathlib
import shutil
import sys

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

tokenizer, template, folder = sys.argv[1:]
out = pathlib.Path(folder)
torch.manual_seed(1)
config = Qwen3Config(
    vocab_size=151936,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    max_position_embeddings=32768,
    initializer_range=0.25,
    tie_word_embeddings=True,
    bos_token_id=151643,
    eos_token_id=151645,
)
AutoModelForCausalLM.from_config(config).to(torch.float32).save_pretrained(out)
shutil.copy(tokenizer, out / "tokenizer.json")
shutil.copy(template, out / "chat_template.jinja")
(out / "tokenizer_config.json").write_text(
    json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
)
(out / "generation_config.json").write_text(json.dumps({"eos_token_id": [151645, 151643]}))
