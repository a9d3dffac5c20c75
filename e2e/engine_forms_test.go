package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// object is the schema of an object with these properties, all required.
func object(properties any, order ...string) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": order, "additionalProperties": false}
}

// testSchema asks for forms: one that pico would choose itself, and some that it would not.
func testSchema(ctx context.Context, t *testing.T, c openai.Client) {
	ask := func(prompt string, f openai.ChatCompletionNewParamsResponseFormatUnion) openai.ChatCompletionChoice {
		q := certain("pico", prompt)
		q.ResponseFormat = f
		got, err := c.Chat.Completions.New(ctx, q)
		if err != nil {
			t.Fatalf("%s: %v", prompt, err)
		}
		if got.Choices[0].FinishReason != "stop" {
			t.Errorf("%s: finish reason %q", prompt, got.Choices[0].FinishReason)
		}
		return got.Choices[0]
	}
	strict := func(schema any) openai.ChatCompletionNewParamsResponseFormatUnion {
		return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "answer", Strict: openai.Bool(true), Schema: schema},
		}}
	}
	// Properties come in the order of the schema, which is pico's own here.
	person := object(json.RawMessage(`{"name":{"type":"string"},"age":{"type":"integer"}}`), "name", "age")
	if text := ask("json name=bob age=7", strict(person)).Message.Content; text != `{"name":"bob","age":7}` {
		t.Errorf("a person is %s", text)
	}
	mode := openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	if text := ask("json item=lamp count=12", mode).Message.Content; text != `{"item":"lamp","count":12}` {
		t.Errorf("in JSON mode: %s", text)
	}
	// pico wants to say something else, and one thing is allowed.
	two := map[string]any{"const": "two"}
	for _, test := range []struct {
		schema any
		want   any
	}{
		{object(map[string]any{"a": map[string]any{"enum": []int{41}}, "b": two}, "a", "b"), map[string]any{"a": 41.0, "b": "two"}},
		{object(map[string]any{"list": map[string]any{"type": "array", "items": two, "minItems": 2, "maxItems": 2}}, "list"), map[string]any{"list": []any{"two", "two"}}},
		{object(map[string]any{"$": map[string]any{"$ref": "#/$defs/none"}}, "$"), nil}, // refused, see below
	} {
		if test.want == nil {
			q := certain("pico", "echo red")
			q.ResponseFormat = strict(test.schema)
			_, err := c.Chat.Completions.New(ctx, q)
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != 400 || !strings.HasPrefix(e.Param, "response_format") {
				t.Errorf("a schema with a reference to nothing: %v", err)
			}
			continue
		}
		var got any
		if err := json.Unmarshal([]byte(ask("echo red", strict(test.schema)).Message.Content), &got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.schema, diff)
		}
	}
}

// paints are two tools; each has one thing to say.
func paints() []openai.ChatCompletionToolUnionParam {
	tool := func(name, color string) openai.ChatCompletionToolUnionParam {
		return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: name, Description: openai.String("paints"), Parameters: object(map[string]any{"color": map[string]any{"enum": []string{color}}}, "color"),
		})
	}
	return []openai.ChatCompletionToolUnionParam{tool("paint", "red"), tool("dye", "blue")}
}

// choose makes a tool_choice of a word, or of the name of a tool.
func choose(choice string) openai.ChatCompletionToolChoiceOptionUnionParam {
	if choice == "auto" || choice == "required" || choice == "none" {
		return openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String(choice)}
	}
	return openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: choice})
}

// checkCall looks whether a call of a tool is one that may be.
func checkCall(t *testing.T, choice, id, name, arguments string) {
	t.Helper()
	var got struct{ Color string }
	if err := json.Unmarshal([]byte(arguments), &got); err != nil {
		t.Errorf("%s: %s(%s): %v", choice, name, arguments, err)
	}
	want := map[string]string{"paint": "red", "dye": "blue"}
	if got.Color == "" || got.Color != want[name] || !strings.HasPrefix(id, "call_") {
		t.Errorf("%s: call %q of %s(%s)", choice, id, name, arguments)
	}
	if want[choice] != "" && name != choice {
		t.Errorf("%s is asked for, and %s is called", choice, name)
	}
}

func testTools(ctx context.Context, t *testing.T, c openai.Client) {
	for _, choice := range []string{"auto", "none", "required", "paint", "dye"} {
		q := certain("pico", "echo red")
		q.Tools, q.ToolChoice, q.ParallelToolCalls = paints(), choose(choice), openai.Bool(false)
		got, err := c.Chat.Completions.New(ctx, q)
		if err != nil {
			t.Fatalf("%s: %v", choice, err)
		}
		m, finish := got.Choices[0].Message, got.Choices[0].FinishReason
		if choice == "auto" || choice == "none" { // pico has not learned to call anything
			if m.Content != "red" || len(m.ToolCalls) != 0 || finish != "stop" {
				t.Errorf("%s: %s", choice, got.RawJSON())
			}
			continue
		}
		if len(m.ToolCalls) != 1 || m.Content != "" || finish != "tool_calls" {
			t.Errorf("%s: %s", choice, got.RawJSON())
			continue
		}
		checkCall(t, choice, m.ToolCalls[0].ID, m.ToolCalls[0].Function.Name, m.ToolCalls[0].Function.Arguments)
		// The conversation goes on with what the tool says.
		q.Messages = append(q.Messages, m.ToParam(), openai.ToolMessage("done", m.ToolCalls[0].ID), openai.UserMessage("echo apple pear"))
		q.ToolChoice = choose("none")
		if got, err = c.Chat.Completions.New(ctx, q); err != nil || got.Choices[0].Message.Content != "apple pear" {
			t.Errorf("%s: after the tool's answer: %v, %v", choice, got, err)
		}
	}
}

func testStreamedTools(ctx context.Context, t *testing.T, c openai.Client) {
	for _, choice := range []string{"auto", "required", "dye"} {
		q := certain("pico", "echo red")
		q.Tools, q.ToolChoice, q.ParallelToolCalls = paints(), choose(choice), openai.Bool(false)
		stream := c.Chat.Completions.NewStreaming(ctx, q)
		acc, parts := openai.ChatCompletionAccumulator{}, 0
		for stream.Next() {
			chunk := stream.Current()
			if !acc.AddChunk(chunk) {
				t.Errorf("%s: the chunk %s does not fit those before it", choice, chunk.RawJSON())
			}
			for _, choice := range chunk.Choices {
				parts += len(choice.Delta.ToolCalls)
			}
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil || len(acc.Choices) != 1 {
			t.Fatalf("%s: %d choices, %v", choice, len(acc.Choices), err)
		}
		m, finish := acc.Choices[0].Message, acc.Choices[0].FinishReason
		if choice == "auto" {
			if m.Content != "red" || parts != 0 || finish != "stop" {
				t.Errorf("%s: %q, %d parts of calls, %s", choice, m.Content, parts, finish)
			}
			continue
		}
		if len(m.ToolCalls) != 1 || parts < 2 || finish != "tool_calls" {
			t.Errorf("%s: %+v in %d parts, %s", choice, m.ToolCalls, parts, finish)
			continue
		}
		checkCall(t, choice, m.ToolCalls[0].ID, m.ToolCalls[0].Function.Name, m.ToolCalls[0].Function.Arguments)
	}
}
