package clients

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// TestOpenAI: OpenAI's own client, with chat completions as its users begin.
func TestOpenAI(t *testing.T) {
	ctx := bounded(t)
	c := openai.NewClient(option.WithBaseURL(server(t)+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	ask := openai.ChatCompletionNewParams{Model: "pico", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("echo apple pear")}, Temperature: openai.Float(0)}
	got := must(c.Chat.Completions.New(ctx, ask))(t)
	same(t, "text", got.Choices[0].Message.Content, "apple pear")
	same(t, "finish_reason", got.Choices[0].FinishReason, "stop")

	var acc openai.ChatCompletionAccumulator
	for s := c.Chat.Completions.NewStreaming(ctx, ask); ; {
		if !s.Next() {
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			break
		}
		if !acc.AddChunk(s.Current()) {
			t.Errorf("the chunk %s does not fit", s.Current().RawJSON())
		}
	}
	same(t, "streamed text", acc.Choices[0].Message.Content, "apple pear")

	page := must(c.Models.List(ctx))(t)
	if len(page.Data) == 0 {
		t.Error("no models")
	}
	vectors := must(c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "pico", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"red", "blue"}}}))(t)
	same(t, "vectors", len(vectors.Data), 2)

	_, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "nobody", Messages: ask.Messages})
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != 404 {
		t.Errorf("an unknown model: %v", err)
	}
}

// TestOpenAIResponses: the same client's responses.
func TestOpenAIResponses(t *testing.T) {
	ctx := bounded(t)
	c := openai.NewClient(option.WithBaseURL(server(t)+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	ask := responses.ResponseNewParams{Model: "pico", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("echo apple pear")}, Temperature: openai.Float(0)}
	got := must(c.Responses.New(ctx, ask))(t)
	same(t, "text", got.OutputText(), "apple pear")
	same(t, "status", got.Status, responses.ResponseStatusCompleted)
	if got.Usage.TotalTokens == 0 || got.Usage.TotalTokens != got.Usage.InputTokens+got.Usage.OutputTokens {
		t.Errorf("usage: %s", got.Usage.RawJSON())
	}

	text, last := "", ""
	s := c.Responses.NewStreaming(ctx, ask)
	for s.Next() {
		switch e := s.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseCompletedEvent:
			last = e.Response.OutputText()
		}
	}
	if s.Err() != nil || text != "apple pear" || last != text {
		t.Errorf("streamed %q, at the end %q, %v", text, last, s.Err())
	}
	if !onEngine() {
		return
	}

	form := ask
	form.Input = responses.ResponseNewParamsInputUnion{OfString: openai.String("json name=bob age=7")}
	form.Text = responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigUnionParam{
		OfJSONSchema: &responses.ResponseFormatTextJSONSchemaConfigParam{Name: "person", Strict: param.NewOpt(true)},
	}}
	same(t, "JSON", must(c.Responses.New(ctx, form, option.WithJSONSet("text.format.schema", person)))(t).OutputText(), bob)

	cut := ask
	cut.MaxOutputTokens = openai.Int(1)
	got = must(c.Responses.New(ctx, cut))(t)
	same(t, "status of a limit", got.Status, responses.ResponseStatusIncomplete)
	same(t, "reason of a limit", got.IncompleteDetails.Reason, "max_output_tokens")

	tool := ask
	tool.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "dye", Parameters: color(), Strict: param.NewOpt(true)}}}
	tool.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsRequired)}
	tool.ParallelToolCalls = openai.Bool(false)
	parts, whole := strings.Builder{}, ""
	s = c.Responses.NewStreaming(ctx, tool)
	for s.Next() {
		switch e := s.Current().AsAny().(type) {
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			parts.WriteString(e.Delta)
		case responses.ResponseFunctionCallArgumentsDoneEvent:
			whole = e.Arguments
		}
	}
	if s.Err() != nil || whole != parts.String() || !isRed(whole) {
		t.Errorf("streamed arguments %q, at the end %q, %v", parts.String(), whole, s.Err())
	}

	stored := ask
	stored.PreviousResponseID = openai.String("resp_none")
	_, err := c.Responses.New(ctx, stored)
	if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode < 400 || e.StatusCode >= 500 || e.Param != "previous_response_id" {
		t.Errorf("a response that nobody has: %v", err)
	}
}
