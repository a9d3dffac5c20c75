"""Asks llama.cpp for the answers in files that the engine's tests read, and writes them into these files. What is asked stands in the files themselves:
a text, a prompt, a conversation's tokens. README.md says how to run it.

    llama.py tokens FILE…              ids of texts, for each pre-tokenizer
    llama.py model GGUF FILE…          logits and continuations of prompts, or the perplexity of conversations
    llama.py ollama URL NAME GGUF FILE a running Ollama's answers, as a second reference
    llama.py quant DIR FILE            what the random blocks in DIR decode to, by gguf-py
    llama.py steps GGUF                logits for the lines of the input: {"pos": 0, "tokens": [1, 2]}

On the processor, 1 thread, weights as in the file, keys and values in F32, no flash attention."""
import base64
import hashlib
import json
import math
import os
import pathlib
import sys
import tempfile
import urllib.request

import gguf
import llama_cpp.llama_cpp as api
import numpy as np

ORIGIN = "llama.cpp by engine/golden/llama.py (CPU, 1 thread, F32 KV cache, flash attention off)"
CONTEXT = 512
NEAR = 0.05  # the gap between the two highest logits below which rounding may decide
quiet = api.llama_log_callback(lambda *_: None)


class Model:
    def __init__(self, path, vocab_only=False):
        load = api.llama_model_default_params()
        load.use_extra_bufts, load.vocab_only = False, vocab_only
        self.model = api.llama_model_load_from_file(str(path).encode(), load)
        if not self.model:
            raise SystemExit(f"llama.cpp does not load {path}")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.words = api.llama_vocab_n_tokens(self.vocab)
        if vocab_only:
            return
        params = api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = api.GGML_TYPE_F32
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context, self.batch = api.llama_init_from_model(self.model, params), api.llama_batch_init(CONTEXT, 0, 1)

    def step(self, tokens, pos, all=False):
        """The logits after tokens, of which the first stands at pos; or after each of them. At 0 a new sequence begins."""
        if pos == 0:
            api.llama_memory_clear(api.llama_get_memory(self.context), True)
        b, n = self.batch, len(tokens)
        b.n_tokens = n
        for i, t in enumerate(tokens):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = t, pos + i, 1, 0, all or i == n - 1
        if api.llama_decode(self.context, b) != 0:
            raise SystemExit(f"llama.cpp does not compute {n} tokens at {pos}")
        rows = [np.ctypeslib.as_array(api.llama_get_logits_ith(self.context, i), (self.words,)).copy() for i in range(0 if all else n - 1, n)]
        return rows if all else rows[0]

    def tokenize(self, text, special):
        out = (api.llama_token * (len(text) + 16))()
        n = api.llama_tokenize(self.vocab, text, len(text), out, len(out), False, special)
        return list(out[:n])

    def is_end(self, token):
        return bool(api.llama_vocab_is_eog(self.vocab, token))

    def piece(self, token):
        buf = (api.ctypes.c_char * 256)()
        return buf.raw[:max(0, api.llama_token_to_piece(self.vocab, token, buf, 256, 0, False))]

    def greedy(self, ids, n, stop):
        """Continues ids by n tokens, or up to the end token: the logits after ids, the tokens, their text, and the steps whose two best are close."""
        logits = after = self.step(ids, 0)
        tokens, text, ties = [], b"", []
        while len(tokens) < n:
            first, second = highest(logits)[:2]
            if logits[first] - logits[second] < NEAR:
                ties.append(dict(step=len(tokens), first=first, second=second, firstLogit=short(logits[first]), secondLogit=short(logits[second])))
            tokens.append(first)
            if not self.is_end(first):
                text += self.piece(first)
            elif stop:
                break
            logits = self.step([first], len(ids) + len(tokens) - 1)
        return after, tokens, text.decode("utf-8", "replace"), ties

    def nll(self, ids):
        """The sum of -ln p of ids except the first."""
        return sum(float(np.log(np.exp(l.astype(np.float64) - float(l[t])).sum())) for l, t in zip(self.step(ids, 0, True), ids[1:]))


def highest(logits):
    """The tokens by their logits, the highest first; of equals the lower id is first."""
    return [int(i) for i in np.argsort(-logits, kind="stable")]


def short(x):
    return float(str(np.float32(x)))


def encode(x):
    return base64.b64encode(x.astype("<f4").tobytes()).decode()


def update(path, name, head, answer):
    """Changes each element of a file's list by answer, and the fields of head; false if there is no such list. Writes one element a line."""
    file = json.loads(pathlib.Path(path).read_text())
    if name not in file:
        return False
    elements = file.pop(name)
    for e in elements:
        answer(e)
    compact = lambda x: json.dumps(x, ensure_ascii=False, separators=(",", ":"))
    fields = "".join(f"\n{compact(k)}: {compact(v)}," for k, v in sorted((file | head).items()))
    lines = ",\n".join(compact({k: v for k, v in e.items() if v is not None}) for e in elements)
    pathlib.Path(path).write_text("{" + fields + f'\n"{name}": [\n{lines}\n]\n}}\n')
    return True


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def run_model(path, *files):
    m = Model(path)

    def prompt(r):
        chat = r["prompt"].endswith("assistant\n")
        r["ids"] = m.tokenize((("<bos>" if "best" in r else "") + r["prompt"]).encode(), True)
        logits, r["greedy"], text, ties = m.greedy(r["ids"], 48 if chat else len(r["greedy"]) or 40, chat)
        if "best" in r:  # of a large vocabulary: all logits would be a megabyte
            r["best"] = [dict(id=i, logit=short(logits[i])) for i in highest(logits)[:len(r["best"])]]
            r["nll"] = m.nll(r["ids"])
        else:
            r["logits"], r["text"], r["ties"] = encode(logits), text or None, ties or None

    for file in files:
        head, tokens, total = dict(madeWith=ORIGIN, sha256=digest(path)), [], []

        def document(d):
            d["nll"] = m.nll(d["ids"])
            tokens.append(len(d["ids"]) - 1), total.append(d["nll"])
            head["perplexity"] = math.exp(sum(total) / sum(tokens))

        update(file, "runs", head, prompt) or update(file, "documents", head, document)


def run_tokens(*files):
    for file in files:
        head = json.loads(pathlib.Path(file).read_text())
        v = json.loads((pathlib.Path(file).parent / head["vocab"]).read_text())["vocab"]
        with tempfile.TemporaryDirectory() as d:
            w = gguf.GGUFWriter(d + "/vocab.gguf", "llama")
            if v["StripAfter"]:
                w.add_name("phi-3")  # llama.cpp recognises the family by this name
            w.add_tokenizer_model(v["Model"])
            if head["pre"]:
                w.add_tokenizer_pre(head["pre"])
            w.add_token_list(v["Tokens"]), w.add_token_types(v["Types"])
            if v["Scores"]:
                w.add_token_scores(v["Scores"])
            if v["Merges"]:
                w.add_token_merges(v["Merges"])
            for add, token in ((w.add_bos_token_id, head["bos"]), (w.add_eos_token_id, v["EOS"]), (w.add_unk_token_id, v["Unknown"])):
                if token >= 0:
                    add(token)
            if "addSpacePrefix" in head:
                w.add_add_space_prefix(head["addSpacePrefix"])
            w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
            m = Model(d + "/vocab.gguf", True)

        def case(c):
            text = base64.b64decode(c["base64"]) if "base64" in c else c.get("text", "").encode()
            c["ids"] = m.tokenize(text, c.get("special", False))

        ends = [i for i in range(m.words) if m.is_end(i)]
        update(file, "cases", dict(madeWith=ORIGIN, addBOS=bool(api.llama_vocab_get_add_bos(m.vocab)), ends=ends), case)


def run_ollama(url, name, path, file):
    def answer(a):
        body = dict(model=name, stream=False, messages=[dict(role="user", content=a["user"])], options=dict(temperature=0, num_predict=48))
        with urllib.request.urlopen(urllib.request.Request(url + "/api/chat", json.dumps(body).encode())) as r:
            a["text"] = json.load(r)["message"]["content"]

    update(file, "answers", dict(madeWith="Ollama over its HTTP API, temperature 0, repeat_penalty 1, 1 thread", sha256=digest(path)), answer)


def run_quant(folder, file):
    def decode(c):
        kind = gguf.GGMLQuantizationType(c["type"])
        x = gguf.quants.dequantize(np.fromfile(os.path.join(folder, str(c["type"])), np.uint8), kind).astype("<f4")
        h = 0xCBF29CE484222325  # FNV-1a over the bits of all values
        for b in x.tobytes():
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        c["name"], c["hash"], c["first"] = kind.name, f"{h:x}", [short(v) for v in x.ravel()[:8]]

    update(file, "cases", dict(madeWith="gguf-py by engine/golden/llama.py"), decode)


def run_steps(path):
    m = Model(path)
    for line in sys.stdin:
        ask = json.loads(line)
        print(encode(m.step(ask["tokens"], ask["pos"])), flush=True)


api.llama_log_set(quiet, None)
api.llama_backend_init()
dict(model=run_model, tokens=run_tokens, ollama=run_ollama, quant=run_quant, steps=run_steps)[sys.argv[1]](*sys.argv[2:])
