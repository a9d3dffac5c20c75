package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// newSharing is a server with the store of a bucket. It serves pico, and what more arguments say.
func newSharing(t *testing.T, env []string, more ...string) *place {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	p.extra = append(p.extra, env...)
	p.serve(t, append([]string{"--model", "pico", "--store", "s3://bucket/rouse"}, more...)...)
	return p
}

// TestBatchOfTwoServers: two servers have one bucket of a real S3 service. The one that runs a batch is killed; the other takes it over, once it
// has not heard of it for a while, and no line is lost, or there twice.
func TestBatchOfTwoServers(t *testing.T) {
	t.Parallel()
	service := s3test.Gateway(t)
	env := []string{"AWS_ENDPOINT_URL=" + service.Endpoint, "AWS_ACCESS_KEY_ID=" + service.AccessKey, "AWS_SECRET_ACCESS_KEY=" + service.SecretKey}
	one, two := newSharing(t, env), newSharing(t, env)
	c1, c2 := newOpenAI(one), newOpenAI(two)
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	const lines = 1000
	id := newBatch(ctx, t, c1, "/v1/chat/completions", "24h", echoes(lines)).ID
	wakePico(ctx, t, c1)
	b := awaitBatch(ctx, t, c2, id, func(b *openai.Batch) bool { return b.RequestCounts.Completed > 50 })
	if hasEnded(b) {
		t.Fatalf("the batch has ended too early: %s", b.RawJSON())
	}
	_ = one.server.cmd.Process.Kill()
	<-one.server.ended
	wakePico(ctx, t, c2)
	for ended := false; !ended; { // it is longer until the other is believed to be gone than others wait
		var err error
		if b, err = c2.Batches.Get(ctx, id); err != nil {
			t.Fatal(err)
		}
		if ended = hasEnded(b); !ended {
			time.Sleep(200 * time.Millisecond)
		}
	}
	out := outputOf(ctx, t, c2, b.OutputFileID)
	if b.Status != openai.BatchStatusCompleted || b.RequestCounts.Completed != lines || len(out) != lines {
		t.Errorf("%d lines in the output; the batch is %s", len(out), b.RawJSON())
	}
	for k := range lines {
		if l := out[fmt.Sprint("id-", k)]; l.Response == nil || l.Response.Body.Choices[0].Message.Content != wordOf(k) {
			t.Fatalf("line %d is %+v", k, l)
		}
	}
	if printed := one.server.output() + two.server.output(); strings.Contains(printed, service.SecretKey) {
		t.Error("the secret key is printed")
	}
}

// TestStoreWithoutItsService: a server begins without the service of its store. What needs that is told to come back; all else is served.
func TestStoreWithoutItsService(t *testing.T) {
	t.Parallel()
	p := newSharing(t, []string{"AWS_ENDPOINT_URL=http://127.0.0.1:9", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := newOpenAI(p)
	wakePico(ctx, t, c)
	_, err := c.Files.List(ctx, openai.FileListParams{}, option.WithMaxRetries(0))
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusServiceUnavailable || refused.Response.Header.Get("Retry-After") == "" || refused.Code != "storage_unavailable" {
		t.Errorf("files without the service: %v", err)
	}
}
