package clients

import (
	"context"
	"testing"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/anthropic"
	"github.com/tmc/langchaingo/llms/ollama"
	"github.com/tmc/langchaingo/llms/openai"
)

// TestLangChain: LangChain's models for three APIs say the same.
func TestLangChain(t *testing.T) {
	url := server(t)
	for name, model := range map[string]llms.Model{
		"openai":    must(openai.New(openai.WithBaseURL(url+"/v1"), openai.WithToken("none"), openai.WithModel("pico")))(t),
		"ollama":    must(ollama.New(ollama.WithServerURL(url), ollama.WithModel("pico")))(t),
		"anthropic": must(anthropic.New(anthropic.WithBaseURL(url+"/v1"), anthropic.WithToken("none"), anthropic.WithModel("pico")))(t),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			same(t, "text", must(llms.GenerateFromSinglePrompt(ctx, model, "echo apple pear", llms.WithTemperature(0), llms.WithMaxTokens(40)))(t), "apple pear")
			text := ""
			_, err := llms.GenerateFromSinglePrompt(ctx, model, "echo apple pear", llms.WithTemperature(0), llms.WithMaxTokens(40), llms.WithStreamingFunc(func(_ context.Context, part []byte) error {
				text += string(part)
				return nil
			}))
			if err != nil || text != "apple pear" {
				t.Errorf("streamed %q, %v", text, err)
			}
		})
	}
	t.Run("vectors", func(t *testing.T) {
		model := must(openai.New(openai.WithBaseURL(url+"/v1"), openai.WithToken("none"), openai.WithEmbeddingModel("pico")))(t)
		if got := must(model.CreateEmbedding(bounded(t), []string{"red", "blue"}))(t); len(got) != 2 || len(got[0]) < 8 {
			t.Errorf("%d vectors", len(got))
		}
		native := must(ollama.New(ollama.WithServerURL(url), ollama.WithModel("pico")))(t)
		if got := must(native.CreateEmbedding(bounded(t), []string{"red", "blue"}))(t); len(got) != 2 || len(got[0]) < 8 {
			t.Errorf("Ollama's: %d vectors", len(got))
		}
	})
	t.Run("a tool", func(t *testing.T) {
		if !onEngine() {
			t.Skip("Ollama finds no tools in pico's template")
		}
		model := must(openai.New(openai.WithBaseURL(url+"/v1"), openai.WithToken("none"), openai.WithModel("pico")))(t)
		got := must(model.GenerateContent(bounded(t), []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "echo red")}, llms.WithTemperature(0),
			llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "dye", Parameters: color()}}}), llms.WithToolChoice("required")))(t)
		if calls := got.Choices[0].ToolCalls; len(calls) == 0 || calls[0].FunctionCall.Name != "dye" || !isRed(calls[0].FunctionCall.Arguments) {
			t.Errorf("the calls are %+v", calls)
		}
	})
}
