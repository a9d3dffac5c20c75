package clients

import (
	"errors"
	"io"
	"testing"

	openai "github.com/sashabaranov/go-openai"
)

// TestGoOpenAI: the client that many programs in Go have instead of OpenAI's.
func TestGoOpenAI(t *testing.T) {
	ctx := bounded(t)
	config := openai.DefaultConfig("none")
	config.BaseURL = server(t) + "/v1"
	c := openai.NewClientWithConfig(config)
	ask := openai.ChatCompletionRequest{Model: "pico", Temperature: 1e-9, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "echo apple pear"}}}
	got := must(c.CreateChatCompletion(ctx, ask))(t)
	same(t, "text", got.Choices[0].Message.Content, "apple pear")
	same(t, "finish_reason", got.Choices[0].FinishReason, openai.FinishReasonStop)

	streamed := ask
	streamed.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	s := must(c.CreateChatCompletionStream(ctx, streamed))(t)
	defer s.Close()
	text, usage := "", 0
	for {
		chunk, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage.TotalTokens
		}
		for _, choice := range chunk.Choices {
			text += choice.Delta.Content
		}
	}
	same(t, "streamed text", text, "apple pear")
	if usage == 0 {
		t.Error("the stream has no usage")
	}

	same(t, "completion", must(c.CreateCompletion(ctx, openai.CompletionRequest{Model: "pico", Prompt: "echo apple", MaxTokens: 3}))(t).Object, "text_completion")
	vectors := must(c.CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{Model: "pico", Input: []string{"red", "blue"}, EncodingFormat: openai.EmbeddingEncodingFormatFloat}))(t)
	same(t, "vectors", len(vectors.Data), 2)
	same(t, "model", must(c.GetModel(ctx, "pico"))(t).ID, "pico")
	if models := must(c.ListModels(ctx))(t); len(models.Models) == 0 {
		t.Error("no models")
	}
	wrong := ask
	wrong.Model = "nobody"
	_, err := c.CreateChatCompletion(ctx, wrong)
	if e := (*openai.APIError)(nil); !errors.As(err, &e) || e.HTTPStatusCode != 404 {
		t.Errorf("an unknown model: %v", err)
	}
	if !onEngine() {
		return
	}

	form := ask
	form.Messages = []openai.ChatCompletionMessage{{Role: "user", Content: "json name=bob age=7"}}
	form.ResponseFormat = &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONSchema, JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "person", Strict: true, Schema: person}}
	same(t, "JSON", must(c.CreateChatCompletion(ctx, form))(t).Choices[0].Message.Content, bob)

	tool := ask
	tool.Tools = []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: "dye", Parameters: color()}}}
	tool.ToolChoice = openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: "dye"}}
	call := must(c.CreateChatCompletion(ctx, tool))(t).Choices[0].Message.ToolCalls
	if len(call) != 1 || !isRed(call[0].Function.Arguments) {
		t.Errorf("the calls are %+v", call)
	}
}
