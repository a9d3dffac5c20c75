package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// Client is a client of the administrative API (package api/admin): by a server's own socket, or the API server's
// proxy. It is safe for concurrent use.
type Client struct {
	HTTP *http.Client
	URL  func(path string) string
	// Peer names the server in errors.
	Peer string
	// Header has the credential.
	Header http.Header
	// Refused reads an unsuccessful answer that is not the server's own; nil: all are.
	Refused func(resp *http.Response, method string, body []byte) error
}

const maxRefusal = 64 << 10

// Open sends a request, with in as JSON unless nil, and returns the answer, whatever its size. An unsuccessful answer
// is an error: an *[api.Error] if the server refuses.
func (c *Client) Open(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL(path), body)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", c.Peer, err)
	}
	maps.Copy(req.Header, c.Header)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var op *net.OpError
		if errors.As(err, &op) { // without the URL, which would repeat it
			err = op
		}
		return nil, fmt.Errorf("reach %s: %w", c.Peer, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if c.Refused != nil {
		if err := c.Refused(resp, method, raw); err != nil {
			return nil, err
		}
	}
	return nil, refusal(resp, raw)
}

func refusal(resp *http.Response, raw []byte) error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"` // some model servers send a number
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil || body.Error.Message == "" {
		return fmt.Errorf("the server answered %s: %s", resp.Status, bytes.TrimSpace(raw))
	}
	code, _ := body.Error.Code.(string)
	return api.Errorf(resp.StatusCode, code, "%s", body.Error.Message)
}

// Call sends a request and decodes the answer into out, if that is not nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.Open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Peer, api.Explain(err))
	}
	return nil
}
