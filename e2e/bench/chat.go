package main

import "fmt"

const pathChat = "/v1/chat/completions"

func chat(model string, tokens int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"echo hello world"}],"max_tokens":%d,"temperature":0,"stream":%t}`, model, tokens, stream)
}
