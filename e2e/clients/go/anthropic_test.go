package clients

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// TestAnthropic: Anthropic's own client.
func TestAnthropic(t *testing.T) {
	ctx := bounded(t)
	c := anthropic.NewClient(option.WithBaseURL(server(t)), option.WithAPIKey("none"), option.WithMaxRetries(0))
	ask := anthropic.MessageNewParams{Model: "pico", MaxTokens: 40, Temperature: anthropic.Float(0), Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("echo apple pear"))}}
	got := must(c.Messages.New(ctx, ask))(t)
	same(t, "text", got.Content[0].Text, "apple pear")
	same(t, "stop_reason", got.StopReason, anthropic.StopReasonEndTurn)

	var acc anthropic.Message
	s := c.Messages.NewStreaming(ctx, ask)
	for s.Next() {
		if err := acc.Accumulate(s.Current()); err != nil {
			t.Error(err)
		}
	}
	if s.Err() != nil || len(acc.Content) != 1 || acc.Content[0].Text != "apple pear" || acc.StopReason != anthropic.StopReasonEndTurn || acc.Usage.OutputTokens == 0 {
		t.Errorf("streamed %s, %v", acc.RawJSON(), s.Err())
	}
	if _, err := c.Messages.New(ctx, anthropic.MessageNewParams{Model: "nobody", MaxTokens: 1, Messages: ask.Messages}); true {
		if e := (*anthropic.Error)(nil); !errors.As(err, &e) || e.StatusCode != 404 {
			t.Errorf("an unknown model: %v", err)
		}
	}
	if !onEngine() {
		return
	}

	n := must(c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "pico", Messages: ask.Messages}))(t)
	same(t, "tokens", n.InputTokens, got.Usage.InputTokens+got.Usage.CacheReadInputTokens)

	tool := ask
	tool.MaxTokens = 200
	tool.Tools = []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: color()["properties"], Required: []string{"color"}}, "dye")}
	tool.ToolChoice = anthropic.ToolChoiceParamOfTool("dye")
	acc = anthropic.Message{}
	s = c.Messages.NewStreaming(ctx, tool)
	for s.Next() {
		if err := acc.Accumulate(s.Current()); err != nil {
			t.Error(err)
		}
	}
	if s.Err() != nil || len(acc.Content) != 1 || acc.StopReason != anthropic.StopReasonToolUse {
		t.Fatalf("a streamed tool: %s, %v", acc.RawJSON(), s.Err())
	}
	use := acc.Content[0].AsToolUse()
	var input map[string]string
	if err := json.Unmarshal(use.Input, &input); err != nil || input["color"] != "red" || use.Name != "dye" {
		t.Errorf("the call is %s", use.RawJSON())
	}
	next := tool
	next.ToolChoice = anthropic.ToolChoiceUnionParam{}
	next.Messages = append(next.Messages, acc.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(use.ID, "done", false), anthropic.NewTextBlock("echo plum")))
	if got := must(c.Messages.New(ctx, next))(t); got.Usage.OutputTokens == 0 {
		t.Errorf("after the result: %s", got.RawJSON())
	}
}

// TestAnthropicBatches: batches of messages with Anthropic's own client.
func TestAnthropicBatches(t *testing.T) {
	ctx := bounded(t)
	c := anthropic.NewClient(option.WithBaseURL(server(t)), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithHeader("X-Request-Timeout", "1m")) // it is due at once
	var requests []anthropic.MessageBatchNewParamsRequest
	words := map[string]string{"one": "apple", "two": "pear"}
	for id, word := range words {
		requests = append(requests, anthropic.MessageBatchNewParamsRequest{CustomID: id, Params: anthropic.MessageBatchNewParamsRequestParams{Model: "pico", MaxTokens: 20, Temperature: anthropic.Float(0),
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("echo " + word))}}})
	}
	b := must(c.Messages.Batches.New(ctx, anthropic.MessageBatchNewParams{Requests: requests}))(t)
	for b.ProcessingStatus != anthropic.MessageBatchProcessingStatusEnded {
		b = must(c.Messages.Batches.Get(ctx, b.ID, anthropic.MessageBatchGetParams{}))(t)
		time.Sleep(50 * time.Millisecond)
	}
	same(t, "succeeded", b.RequestCounts.Succeeded, 2)
	same(t, "ended", b.EndedAt.Before(b.CreatedAt), false)
	results := c.Messages.Batches.ResultsStreaming(ctx, b.ID, anthropic.MessageBatchResultsParams{})
	n := 0
	for ; results.Next(); n++ {
		r := results.Current()
		same(t, r.CustomID, r.Result.AsSucceeded().Message.Content[0].Text, words[r.CustomID])
	}
	if results.Err() != nil || n != 2 {
		t.Errorf("%d results, %v", n, results.Err())
	}
	must(c.Messages.Batches.Delete(ctx, b.ID, anthropic.MessageBatchDeleteParams{}))(t)
	if _, err := c.Messages.Batches.Get(ctx, b.ID, anthropic.MessageBatchGetParams{}); true {
		if e := (*anthropic.Error)(nil); !errors.As(err, &e) || e.StatusCode != 404 {
			t.Errorf("after that: %v", err)
		}
	}
}
