package main

import "fmt"

// pathChat is the path of all requests.
const pathChat = "/v1/chat/completions"

// chat is the body of a request.
func chat(model string, tokens int, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"echo hello world"}],"max_tokens":%d,"temperature":0,"stream":%t}`, model, tokens, stream)
}
