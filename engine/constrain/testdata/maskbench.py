# llguidance for TestMaskBench: a tokenizer, then files of MaskBench, a line each.
import json
import sys
import time

import llguidance
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask


def say(value):
    print(json.dumps(value), flush=True)


def measure(tokenizer, mask, grammar, tests):
    bits = mask.view("uint32")[0]
    clock = time.perf_counter_ns
    began = clock()
    first = llguidance.LLMatcher(tokenizer, grammar)
    answer = {"compile": clock() - began, "steps": [], "takes": []}
    if first.is_error():
        return {"error": first.get_error()}
    for tokens in tests:
        matcher, takes = first.deep_copy(), True
        for token in tokens:
            began = clock()
            fill_next_token_bitmask(matcher, mask, 0)
            takes = bool(int(bits[token // 32]) >> (token % 32) & 1)
            if takes:
                matcher.consume_token(token)
            answer["steps"].append(clock() - began)
            if not takes:
                break
        answer["takes"].append(takes and matcher.is_accepting())
    return answer


def main():
    head = json.loads(sys.stdin.readline())
    tokenizer = llguidance.LLTokenizer(head["tokenizer"], eos_token=head["end"])
    mask = allocate_token_bitmask(1, tokenizer.vocab_size)
    say({"version": llguidance.__version__, "python": sys.version.split()[0]})
    for line in sys.stdin:
        with open(line.rstrip("\n"), encoding="utf-8") as f:
            file = json.load(f)
        say({
            "schema": json.dumps(file["schema"]),
            "texts": [json.dumps(t["data"], ensure_ascii=False) for t in file["tests"]],
            "valid": [t["valid"] for t in file["tests"]],
        })
        grammar = json.dumps({"grammars": [{"json_schema": file["schema"]}]})
        say(measure(tokenizer, mask, grammar, json.loads(sys.stdin.readline())))


main()
