package fetch

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/s3"
)

// Config configures a [Cache].
type Config struct {
	// Dir is the cache's folder; "": $HOME/.cache/rouse/models.
	Dir string
	// Limit bounds the total size of the cache's files; 0: only the disk does.
	Limit api.Bytes
	// Client does all network access; nil: one with timeouts. Its CheckRedirect is not used.
	Client *http.Client
	// Attempts is how often in a row a request is tried without a new byte; 0: 6.
	Attempts int
	// Backoff is the first wait, which doubles up to 30 s; 0: 500 ms.
	Backoff time.Duration
	// Stall is how long a download may bring nothing before it is tried again; 0: 30 s.
	Stall time.Duration
	// MaxAge is how long a reference that is not pinned is used without asking its source; 0: it is always asked.
	MaxAge time.Duration
	// Offline uses only the cache.
	Offline bool
	// Free returns the free space of dir's disk; nil: statfs(2).
	Free func(dir string) (api.Bytes, error)

	Hub    Hub
	S3     S3
	Ollama Ollama
	// DockerConfig is a file with registries' credentials, read at each use; missing or "": anonymous.
	DockerConfig string
	Share        Share

	// Again gets the error of a request that is tried again; nil: it is logged.
	Again  func(error)
	Logger *slog.Logger // nil: none
}

// Hub is the Hugging Face hub of hf:// references.
type Hub struct {
	// Endpoint; "": https://huggingface.co.
	Endpoint string
	// TokenFile is read at each use; missing or "": Token is used.
	TokenFile string
	Token     string
}

// S3 is the service of s3:// references.
type S3 = s3.Service

// Ollama is the registry of ollama:// references without a host.
type Ollama struct {
	// Endpoint; "": https://registry.ollama.ai.
	Endpoint string
}

// Environment reads the environment variables of each source's own tools.
func Environment(getenv func(string) string) Config {
	under := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	home := getenv("HOME")
	cache := cmp.Or(getenv("XDG_CACHE_HOME"), under(home, ".cache"))
	c := Config{
		Dir:          cmp.Or(getenv("ROUSE_CACHE"), under(cache, "rouse/models")),
		Offline:      getenv("HF_HUB_OFFLINE") == "1",
		DockerConfig: cmp.Or(under(getenv("DOCKER_CONFIG"), "config.json"), getenv("REGISTRY_AUTH_FILE"), under(home, ".docker/config.json")),
		Hub: Hub{
			Endpoint:  getenv("HF_ENDPOINT"),
			TokenFile: cmp.Or(getenv("HF_TOKEN_PATH"), under(cmp.Or(getenv("HF_HOME"), under(cache, "huggingface")), "token")),
		},
		S3:     s3.Environment(getenv),
		Ollama: Ollama{Endpoint: getenv("OLLAMA_REGISTRY")},
		Share:  Share{SecretFile: getenv("ROUSE_SHARE_SECRET_FILE"), Listen: getenv("ROUSE_SHARE_LISTEN")},
	}
	for peer := range strings.SplitSeq(getenv("ROUSE_SHARE_PEERS"), ",") {
		if peer = strings.TrimSpace(peer); peer != "" {
			c.Share.Peers = append(c.Share.Peers, peer)
		}
	}
	if token := getenv("HF_TOKEN"); token != "" { // it precedes the token of a login
		c.Hub.Token = token
		if getenv("HF_TOKEN_PATH") == "" {
			c.Hub.TokenFile = ""
		}
	}
	return c
}

func (c *Config) defaults() error {
	if c.Dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return errors.New("the model cache has no folder: set ROUSE_CACHE")
		}
		c.Dir = filepath.Join(cache, "rouse", "models")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("the model cache's folder %s: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.Limit < 0 || c.Attempts < 0 {
		return errors.New("fetch: Config.Limit and Attempts can't be negative")
	}
	if err := c.addresses(); err != nil {
		return err
	}
	c.Backoff, c.Stall, c.Attempts = cmp.Or(c.Backoff, 500*time.Millisecond), cmp.Or(c.Stall, 30*time.Second), cmp.Or(c.Attempts, 6)
	if c.Free == nil {
		c.Free = diskFree
	}
	if c.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = time.Minute
		c.Client = &http.Client{Transport: t}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if log := c.Logger; c.Again == nil {
		c.Again = func(err error) { log.Warn("trying a request again", "error", err) }
	}
	return nil
}

func (c *Config) addresses() error {
	for _, e := range []struct {
		field         *string
		otherwise, of string
	}{
		{&c.Hub.Endpoint, "https://huggingface.co", "the hub (HF_ENDPOINT)"},
		{&c.S3.Endpoint, "", "the S3 service (AWS_ENDPOINT_URL)"},
		{&c.Ollama.Endpoint, "https://registry.ollama.ai", "the Ollama registry (OLLAMA_REGISTRY)"},
	} {
		if *e.field == "" {
			*e.field = e.otherwise
			continue
		}
		u, err := url.Parse(*e.field)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("the address of %s is not of the form https://host[:port][/path]", e.of)
		}
		*e.field = strings.TrimRight(*e.field, "/")
	}
	return nil
}
