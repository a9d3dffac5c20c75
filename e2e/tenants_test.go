package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// newIssuer is an OpenID Connect issuer, and a token of it with "sub": "acme".
func newIssuer(t *testing.T) (url, token string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said any = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}}
		if r.URL.Path == "/.well-known/openid-configuration" {
			said = map[string]string{"issuer": url, "jwks_uri": url + "/keys"}
		}
		_ = json.NewEncoder(w).Encode(said)
	}))
	t.Cleanup(s.Close)
	url = s.URL
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err = jwt.Signed(signer).Claims(map[string]any{"iss": url, "aud": "rouse", "sub": "acme", "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return url, token
}

// TestTenantsOfIssuers has a key of the tenant acme, and tokens of two issuers whose subject is acme: three tenants, of which none has or sees
// anything of another's. A token of a third issuer, which the file says to be of the key's tenant, has all that the key has.
func TestTenantsOfIssuers(t *testing.T) {
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(p.dir, "keys.yaml")
	key, err := p.rouse("keys", "create", "-f", keys, "ci", "--tenant", "acme", "--requests-per-minute", "100")
	if err != nil {
		t.Fatal(err)
	}
	var urls, shown []string
	text, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "issuers:\n"...)
	for _, more := range []string{"", "", ", tenants: {acme: acme}"} {
		url, token := newIssuer(t)
		urls, shown = append(urls, url), append(shown, token)
		text = fmt.Appendf(text, "- {url: %q, audience: rouse, requestsPerMinute: 100%s}\n", url, more)
	}
	if err := os.WriteFile(keys, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.serve(t, "--model", "pico", "--store", "store", "--keys", "keys.yaml")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	client := func(key string) *openai.Client {
		c := newOpenAI(p, option.WithAPIKey(strings.TrimSpace(key)))
		return &c
	}
	owners := []*openai.Client{client(key), client(shown[0]), client(shown[1])}
	same := client(shown[2])

	prompt := chat("pico", strings.Repeat("count red blue green ", 12))
	prompt.MaxTokens, prompt.Temperature = openai.Int(1), openai.Float(0)
	cached := func(c *openai.Client) (tokens int64, left string) {
		t.Helper()
		var resp *http.Response
		got, err := c.Chat.Completions.New(ctx, prompt, option.WithResponseInto(&resp))
		if err != nil {
			t.Fatal(err)
		}
		return got.Usage.PromptTokensDetails.CachedTokens, resp.Header.Get("X-Ratelimit-Remaining-Requests")
	}
	for i, c := range owners {
		if n, left := cached(c); n != 0 || left != "99" {
			t.Errorf("tenant %d, its first request: %d tokens were cached, and %s requests are left; want 0 and 99", i, n, left)
		}
	}
	for i, c := range append(owners, same) {
		if n, _ := cached(c); n == 0 {
			t.Errorf("tenant %d: its own prompt is not in the cache", i)
		}
	}

	none := func(who int, what string, err error) {
		t.Helper()
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound {
			t.Errorf("tenant %d sees a %s of another: %v", who, what, err)
		}
	}
	for i, c := range owners {
		r, err := c.Responses.New(ctx, asking("echo apple", ""))
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(ctx, t, *c, "/v1/chat/completions", "24h", echoes(1))
		awaitBatch(ctx, t, *c, b.ID, hasEnded)
		for k, other := range owners {
			if k == i {
				continue
			}
			wantsNone(ctx, t, other, r.ID)
			_, err := other.Files.Get(ctx, b.InputFileID)
			none(k, "file", err)
			_, err = other.Batches.Get(ctx, b.ID)
			none(k, "batch", err)
			_, err = other.Batches.Cancel(ctx, b.ID)
			none(k, "batch", err)
			list, err := other.Files.List(ctx, openai.FileListParams{})
			if err != nil || strings.Contains(list.RawJSON(), b.InputFileID) {
				t.Errorf("tenant %d lists the files of another: %v", k, err)
			}
		}
		_, err = same.Batches.Get(ctx, b.ID)
		if i == 0 && err != nil {
			t.Errorf("who is declared to be the tenant does not have what it has: %v", err)
		} else if i > 0 {
			none(3, "batch", err)
		}
	}

	err = retry(func() error {
		out, err := p.rouse("usage")
		for _, tenant := range []string{"acme ", urls[0] + "#acme ", urls[1] + "#acme "} {
			if err == nil && !strings.Contains(out, "\n"+tenant) {
				err = fmt.Errorf("the usage has no row of %s:\n%s", tenant, out)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
