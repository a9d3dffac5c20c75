package translate

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// messageEvents are those of Anthropic's stream.
type messageEvents struct {
	text   *bytes.Buffer
	silent bool // thoughts are left out
	begun  bool
	block  string // the type of the block that is open; empty: none
	call   int    // the index of the call that is open
	calls  int    // that have begun
	blocks int    // that have begun
	finish string
	stop   json.RawMessage
	usage  usage
}

// pingMessage is the event that keeps a stream of Anthropic's open.
const pingMessage = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// errBack is what becomes of calls whose parts come by turns: one block, or item, ends before the next begins.
func errBack() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime went back to a tool call that had ended, which can't be told here: use /v1/chat/completions or one call at a time")
}

// chunk implements events.
func (s *messageEvents) chunk(c *completion) *api.Error {
	if !s.begun {
		s.begun = true
		s.event("message_start", map[string]any{"message": message{ID: "msg_" + strings.TrimPrefix(c.ID, "chatcmpl-"), Type: "message", Role: "assistant", Model: c.Model, Content: []any{}, Usage: c.Usage.anthropic()}})
	}
	if c.Usage.Prompt > 0 {
		s.usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	if text := choice.Delta.reasoning(); text != "" {
		if s.open("thinking", thinkingBlock{Type: "thinking"}); !s.silent {
			s.delta(map[string]string{"type": "thinking_delta", "thinking": text})
		}
	}
	if text := choice.Delta.Content; text != "" {
		s.open("text", textBlock{Type: "text"})
		s.delta(map[string]string{"type": "text_delta", "text": text})
	}
	for _, call := range choice.Delta.Calls {
		if s.block != "tool_use" || call.Index != s.call {
			if call.Index < s.calls {
				return errBack()
			}
			s.shut()
			s.call, s.calls = call.Index, call.Index+1
			s.open("tool_use", toolBlock{"tool_use", call.ID, call.Function.Name, struct{}{}})
		}
		if part := call.Function.Arguments; part != "" {
			s.delta(map[string]string{"type": "input_json_delta", "partial_json": part})
		}
	}
	if choice.Finish != "" {
		s.finish, s.stop = choice.Finish, bytes.Clone(choice.Stop)
	}
	return nil
}

// open begins a block, unless one of its type is open.
func (s *messageEvents) open(kind string, begin any) {
	if s.block == kind {
		return
	}
	s.shut()
	s.block = kind
	s.event("content_block_start", map[string]any{"index": s.blocks, "content_block": begin})
	s.blocks++
}

func (s *messageEvents) delta(part any) {
	s.event("content_block_delta", map[string]any{"index": s.blocks - 1, "delta": part})
}

// shut ends the block that is open.
func (s *messageEvents) shut() {
	if s.block != "" {
		s.event("content_block_stop", map[string]any{"index": s.blocks - 1})
		s.block = ""
	}
}

// end implements events. A message that has not said why it ends was cut.
func (s *messageEvents) end() *api.Error {
	if s.finish == "" {
		return errCut()
	}
	s.shut()
	reason, sequence := stopReason(s.finish, s.stop)
	s.event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}, "usage": s.usage.anthropic()})
	s.event("message_stop", map[string]any{})
	return nil
}

// fail implements events.
func (s *messageEvents) fail(e *api.Error) {
	s.text.Write(api.StreamMessages.Error(e, 0))
}

// event writes an event whose data has its type.
func (s *messageEvents) event(kind string, data map[string]any) {
	data["type"] = kind
	raw, _ := json.Marshal(data) // of our own types and of text that was read
	s.text.WriteString("event: " + kind + "\ndata: ")
	s.text.Write(raw)
	s.text.WriteString("\n\n")
}
