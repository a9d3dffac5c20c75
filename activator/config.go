package activator

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// Config is the activator's configuration. The zero value is usable once it has a Name.
type Config struct {
	// Name is the sender's name in events, unique among activators.
	Name string
	// Bodies bounds request bodies, each and in total: those that arrive, wait or run.
	Bodies inbound.Config
	// CommentAfter is how long a streaming client is held before it gets its header and the first comment. Default 1 s.
	CommentAfter time.Duration
	// CommentEvery is the time between further comments. Default 5 s.
	CommentEvery time.Duration
	// WriteTimeout is how long a client may leave an answer unread before its request is ended. Default 1 min.
	WriteTimeout time.Duration
	// Domain is the suffix of functions' own hosts, NAME.NAMESPACE.Domain. Default "localhost";
	// [NoDomain]: functions have no own hosts, and every host is the front door's.
	Domain string
	// Stored tells clients how a response can be stored. The activator itself stores none: the server in front that
	// does removes the fields that ask for it. Empty: responses can't be stored.
	Stored string
	// Version is the response body of /version.
	Version string
	// PrivateMetrics keeps /metrics off the front door: the caller serves [Deps.Registry] elsewhere.
	PrivateMetrics bool
}

// NoDomain is the [Config.Domain] of an activator whose functions have no own hosts.
const NoDomain = "-"

func (c Config) withDefaults() Config {
	c.Bodies = c.Bodies.WithDefaults()
	c.CommentAfter = cmp.Or(c.CommentAfter, time.Second)
	c.CommentEvery = cmp.Or(c.CommentEvery, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, time.Minute)
	c.Domain = cmp.Or(c.Domain, "localhost")
	return c
}

var domain = lazyregexp.New(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Validate returns an error for the first invalid field, with the valid values. Zero fields take their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := c.Bodies.Validate(); err != nil {
		return fmt.Errorf("activator: %w", err)
	}
	switch {
	case c.Name == "":
		return fmt.Errorf("activator: the name is empty: set one that no other activator has")
	case c.CommentAfter < 0 || c.CommentEvery <= 0:
		return fmt.Errorf("activator: comments after %s, then every %s: want times above 0", c.CommentAfter, c.CommentEvery)
	case c.WriteTimeout < 0:
		return fmt.Errorf("activator: a client may leave an answer unread for %s: want a time above 0", c.WriteTimeout)
	case c.Domain != NoDomain && !domain().MatchString(c.Domain):
		return fmt.Errorf("activator: domain %q: want lower-case labels separated by dots, such as localhost or example.com", c.Domain)
	}
	return nil
}
