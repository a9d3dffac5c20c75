package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// answer is a running Ollama's answer to a prompt of one user message at temperature 0.
type answer struct {
	User string `json:"user"`
	Text string `json:"text"`
}

// askOllama asks a model that `ollama create` has made from the file at path; README.md says how.
func askOllama(url, name, path, out string) error {
	sum, err := fileSum(path)
	if err != nil {
		return err
	}
	var answers []any
	for _, p := range picoPrompts {
		text, err := chatOnce(url, name, p)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		answers = append(answers, answer{User: p, Text: text})
	}
	head := map[string]any{"madeWith": "Ollama v0.17.4 over its HTTP API, temperature 0, repeat_penalty 1, 1 thread", "sha256": sum}
	return writeJSON(out, head, map[string][]any{"answers": answers})
}

func chatOnce(url, name, user string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": name, "stream": false,
		"messages": []map[string]string{{"role": "user", "content": user}},
		"options":  map[string]any{"temperature": 0, "num_predict": 48},
	})
	if err != nil {
		return "", err
	}
	resp, err := http.Post(url+"/api/chat", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s %w", resp.Status, data, err)
	}
	var reply struct{ Message struct{ Content string } }
	err = json.Unmarshal(data, &reply)
	return reply.Message.Content, err
}
