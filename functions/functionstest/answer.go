package functionstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type answer struct {
	w      http.ResponseWriter
	r      *http.Request
	fault  fault
	style  string // the path of the request
	tokens int
}

// write reports whether the client was there until the end.
func (a *answer) write(stream bool) bool {
	if stream {
		return a.stream()
	}
	words := make([]string, 0, a.tokens)
	for i := range a.tokens {
		if !a.token(i) {
			return false
		}
		words = append(words, fmt.Sprintf("t%d", i))
	}
	body, _ := json.Marshal(a.whole(strings.Join(words, " "))) // maps of strings always marshal
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if a.fault.cut >= 0 {
		_, _ = a.w.Write(body[:len(body)/2])
		a.abort()
	}
	_, _ = a.w.Write(body)
	return true
}

// abort ends the connection in the middle of the answer.
func (a *answer) abort() {
	_ = http.NewResponseController(a.w).Flush()
	panic(http.ErrAbortHandler)
}

// token waits for token i; it returns false if the client has left.
func (a *answer) token(i int) bool {
	if a.fault.exitAfter == i {
		_ = http.NewResponseController(a.w).Flush()
		os.Exit(5)
	}
	if a.fault.stall == i {
		<-a.r.Context().Done()
		return false
	}
	select {
	case <-time.After(a.fault.pause):
		return a.r.Context().Err() == nil
	case <-a.r.Context().Done():
		return false
	}
}

func (a *answer) stream() bool {
	a.w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(a.w)
	for i := range a.tokens {
		if !a.token(i) {
			return false
		}
		switch i {
		case a.fault.cut:
			_, _ = fmt.Fprint(a.w, `data: {"choices":[{"index":0,"del`)
			a.abort()
		case a.fault.eof:
			return true
		}
		finish := ""
		if i == a.tokens-1 {
			finish = "length"
		}
		a.event(fmt.Sprintf("t%d ", i), finish)
		if err := flush.Flush(); err != nil {
			return false
		}
	}
	switch a.style {
	case "/v1/responses":
		_, _ = fmt.Fprint(a.w, "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n")
	case "/v1/messages":
		_, _ = fmt.Fprint(a.w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	default:
		_, _ = fmt.Fprint(a.w, "data: [DONE]\n\n")
	}
	return true
}

const created = 1700000000

func (a *answer) event(text, finish string) {
	var reason any
	if finish != "" {
		reason = finish
	}
	choice := map[string]any{"index": 0, "finish_reason": reason}
	name := ""
	v := map[string]any{"id": "fake", "object": "chat.completion.chunk", "created": created, "model": "fake", "choices": []any{choice}}
	switch a.style {
	case "/v1/completions":
		v["object"], choice["text"], choice["logprobs"] = "text_completion", text, nil
	case "/v1/chat/completions":
		choice["delta"] = map[string]any{"content": text}
	case "/v1/responses":
		name, v = "response.output_text.delta", map[string]any{"type": "response.output_text.delta", "delta": text}
	case "/v1/messages":
		name, v = "content_block_delta", map[string]any{"type": "content_block_delta", "delta": map[string]any{"text": text}}
	}
	if name != "" {
		_, _ = fmt.Fprintf(a.w, "event: %s\n", name)
	}
	raw, _ := json.Marshal(v) // maps of strings always marshal
	_, _ = fmt.Fprintf(a.w, "data: %s\n\n", raw)
}

func (a *answer) whole(text string) map[string]any {
	choice := map[string]any{"index": 0, "finish_reason": "length", "logprobs": nil, "text": text}
	object := "text_completion"
	if a.style == "/v1/chat/completions" {
		delete(choice, "text")
		object, choice["message"] = "chat.completion", map[string]any{"role": "assistant", "content": text, "refusal": nil}
	}
	return map[string]any{
		"id": "fake", "object": object, "created": created, "model": "fake", "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": 1, "completion_tokens": a.tokens, "total_tokens": a.tokens + 1},
	}
}
