"""Opens a GGUF file with llama.cpp, and answers each line of its input, {"pos": 0, "tokens": [1, 2]}, with a line: the logits after the last token, Base64 of
little-endian float32. At position 0 a new sequence begins. On the processor, 1 thread, weights as in the file, keys and values in F32, no flash attention."""
import base64
import json
import sys

import llama_cpp.llama_cpp as api
import numpy as np

CONTEXT = 512
quiet = api.llama_log_callback(lambda *_: None)
api.llama_log_set(quiet, None)
api.llama_backend_init()
load = api.llama_model_default_params()
load.use_extra_bufts = False
model = api.llama_model_load_from_file(sys.argv[1].encode(), load)
if not model:
    raise SystemExit(f"llama.cpp does not load {sys.argv[1]}")
params = api.llama_context_default_params()
params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
params.n_threads = params.n_threads_batch = 1
params.type_k = params.type_v = api.GGML_TYPE_F32
params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
context = api.llama_init_from_model(model, params)
words = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
batch = api.llama_batch_init(CONTEXT, 0, 1)
for line in sys.stdin:
    ask = json.loads(line)
    pos, tokens = ask["pos"], ask["tokens"]
    if pos == 0:
        api.llama_memory_clear(api.llama_get_memory(context), True)
    batch.n_tokens = len(tokens)
    for i, t in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = t, pos + i, 1, 0, i == len(tokens) - 1
    if api.llama_decode(context, batch) != 0:
        raise SystemExit(f"llama.cpp does not compute {len(tokens)} tokens at {pos}")
    logits = np.ctypeslib.as_array(api.llama_get_logits_ith(context, len(tokens) - 1), (words,))
    print(base64.b64encode(logits.astype("<f4").tobytes()).decode(), flush=True)
