package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// errChunk is an event that can't be read, or that is an error.
var errChunk = errors.New("chunk")

// chunk is an event of a stream.
type chunk struct {
	Choices []struct{ Text string }
	Error   json.RawMessage
}

// lines reads a greedy stream to its end: comments, and the text of events. comment may be nil. A stream that is cut is an error.
func (s *Engine) lines(ctx context.Context, header http.Header, body map[string]any, comment func(string), event func(at time.Time, text string, done bool)) error {
	return s.Lines(ctx, "/v1/completions", header, body, func(at time.Time, line string) error {
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
			if comment != nil {
				comment(line)
			}
			return nil
		case data == "[DONE]":
			event(at, "", true)
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil || c.Error != nil {
			return fmt.Errorf("%w %s: %w", errChunk, data, err)
		}
		text := ""
		for _, choice := range c.Choices {
			text += choice.Text
		}
		event(at, text, false)
		return nil
	})
}

// ask streams eight greedy tokens after these. first is when the first one was there.
func (s *Engine) ask(ctx context.Context, tokens []int) (text string, first time.Duration, err error) {
	began := time.Now()
	err = s.lines(ctx, nil, map[string]any{
		"model": "m", "prompt": tokens, "max_tokens": 8, "temperature": 0, "ignore_eos": true, "stream": true,
	}, nil, func(at time.Time, more string, _ bool) {
		if first == 0 {
			first = at.Sub(began)
		}
		text += more
	})
	return text, first, err
}

// digest waits until the model's file was read once, which is remembered.
func (s *Engine) digest(ctx context.Context, folder string) error {
	for {
		if found, err := filepath.Glob(filepath.Join(folder, "conversations", "*.digest")); err != nil || len(found) > 0 {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
