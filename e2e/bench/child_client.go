package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type Client struct {
	HTTP *http.Client
	Base api.Endpoint
	Host string // in the header; empty: the address
}

func NewClient(base api.Endpoint) *Client {
	return &Client{HTTP: &http.Client{Transport: api.NewTransport(256)}, Base: base}
}

func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Send returns a successful answer. body is bytes, nil, or what is written as JSON.
func (c *Client) Send(ctx context.Context, method, path string, header http.Header, body any) (*http.Response, error) {
	raw, ready := body.([]byte)
	if body != nil && !ready {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base.URL(path), bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Host = c.Host
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	return resp, nil
}

func (c *Client) Post(ctx context.Context, path string, body any) error {
	resp, err := c.Send(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (c *Client) Call(ctx context.Context, method, path string, body, answer any) error {
	resp, err := c.Send(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s %s: read %.200s: %w", method, path, raw, err)
	}
	return nil
}

// Lines calls each with every line and the time of its first byte. A cut stream is an error; an error of each ends it.
func (c *Client) Lines(ctx context.Context, path string, header http.Header, body any, each func(at time.Time, line string) error) error {
	resp, err := c.Send(ctx, http.MethodPost, path, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		_, err := lines.Peek(1)
		at := time.Now()
		line := ""
		if err == nil {
			line, err = lines.ReadString('\n')
		}
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			if err := each(at, line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("POST %s: the stream ended: %w", path, err)
		}
	}
}

// First returns the time of the first event. each, which may be nil, gets every event's data.
func (c *Client) First(ctx context.Context, path string, body any, each func(data string)) (first time.Time, err error) {
	err = c.Lines(ctx, path, nil, body, func(at time.Time, line string) error {
		data, event := strings.CutPrefix(line, "data:")
		if !event { // comments tell how far a start is
			return nil
		}
		if first.IsZero() {
			first = at
		}
		if strings.Contains(data, `"error"`) {
			return fmt.Errorf("POST %s: the stream has an error: %s", path, data)
		}
		if each != nil {
			each(strings.TrimSpace(data))
		}
		return nil
	})
	if err == nil && first.IsZero() {
		err = fmt.Errorf("POST %s: the stream has no event", path)
	}
	return first, err
}
