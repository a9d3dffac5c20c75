package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
	"github.com/rouse-dev/rouse/internal/disk"
)

// Store holds the declared accounts.
type Store struct {
	client  *http.Client
	others  Others
	table   atomic.Pointer[table]
	raw     atomic.Pointer[[]byte]
	budgets sync.Map // [control.Budget] by account id

	mu       sync.Mutex          // held while a file is applied; guards the fields below
	accounts map[string]*Account // by hash
	issuers  map[string]*issuer  // by URL
}

// table is immutable.
type table struct {
	byHash    map[[sha256.Size]byte]*Account
	anonymous *Account // nil: clients without a key are refused
	issuers   map[string]*issuer

	objectives map[string]int
}

// NewStore returns a store that admits no one. client may be nil.
func NewStore(client *http.Client) *Store {
	if client == nil {
		client = &http.Client{Timeout: 10 * time.Second}
	}
	s := &Store{client: client, others: nobody{}, accounts: map[string]*Account{}, issuers: map[string]*issuer{}}
	s.table.Store(&table{})
	return s
}

// Load applies a valid file. Requests of removed keys end.
func (s *Store) Load(f *apikey.File) {
	s.Budgets() // new accounts go on from there
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := &table{byHash: make(map[[sha256.Size]byte]*Account, len(f.Keys)), issuers: make(map[string]*issuer, len(f.Issuers)), objectives: make(map[string]int, len(f.Objectives))}
	accounts := make(map[string]*Account, len(f.Keys))
	for _, k := range f.Keys {
		hash, tenant := strings.ToLower(k.Hash), k.Owner()
		if k.Name == apikey.Anonymous {
			tenant = ""
		}
		a := s.accounts[hash]
		if a == nil || a.Name != k.Name || a.Tenant != tenant {
			a = newAccount(ofKey+" "+hash, k.Name, tenant, s, k.Rights, k.Expires, now)
		} else {
			a.set(k.Rights, k.Expires, now)
		}
		accounts[hash] = a
		if k.Name == apikey.Anonymous {
			t.anonymous = a
			continue
		}
		sum, _ := hex.DecodeString(hash) // the file is valid
		t.byHash[[sha256.Size]byte(sum)] = a
	}
	for _, o := range f.Objectives {
		t.objectives[o.Name] = o.Priority
	}
	for _, i := range f.Issuers {
		known := s.issuers[i.URL]
		if known == nil || !known.takes(i) {
			known = newIssuer(i, s)
		}
		t.issuers[i.URL] = known
	}
	old, oldIssuers := s.accounts, s.issuers
	s.accounts, s.issuers = accounts, t.issuers
	s.table.Store(t)
	for hash, a := range old {
		if accounts[hash] != a {
			a.revoke()
		}
	}
	for url, i := range oldIssuers {
		if t.issuers[url] != i {
			i.revoke()
		}
	}
}

// LoadFile reads and applies a file.
func (s *Store) LoadFile(path string) error {
	raw, err := read(path)
	if err != nil {
		return err
	}
	return s.take(path, raw)
}

// Everybody could add keys to a file that everybody may write.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("read the keys: everybody on this machine may write %s (%s), and so add keys: chmod o-w %s", path, info.Mode().Perm(), path)
	}
	raw, err := disk.ReadText(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	return raw, nil
}

func (s *Store) take(path string, raw []byte) error {
	if err := s.Take(raw); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Take applies a file's content, or nothing.
func (s *Store) Take(raw []byte) error {
	f, err := apikey.Parse(raw)
	if err != nil {
		return err
	}
	s.Load(f)
	s.raw.Store(&raw)
	return nil
}

// Follow applies a file whenever it changes.
func (s *Store) Follow(ctx context.Context, path string, interval time.Duration, log *slog.Logger) error {
	var taken []byte
	if raw := s.raw.Load(); raw != nil {
		taken = *raw
	}
	disk.Follow(ctx, path, interval, read, taken, func(raw []byte) (int, error) {
		err := s.take(path, raw)
		return s.Len(), err
	}, "keys", log)
	return nil
}

// Len returns the number of declared keys.
func (s *Store) Len() int { return len(s.table.Load().byHash) }

// Objective returns a priority, whether it is declared, and whether any is.
func (s *Store) Objective(name string) (priority int, declared, some bool) {
	t := s.table.Load()
	priority, declared = t.objectives[name]
	return priority, declared, len(t.objectives) > 0
}

// Authenticate finds the account of a request. The error is an [api.Error]: a 401, or a 503 for an unreachable
// issuer. Where clients without a key are admitted, a text that can't be a key counts as none: some libraries
// require one.
func (s *Store) Authenticate(r *http.Request) (*Account, error) {
	key, several := shown(r.Header)
	if several != "" {
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the request has the header %s more than once: send one key", several)
	}
	t := s.table.Load()
	switch {
	case key != "":
	case t.anonymous != nil:
		return t.anonymous, nil
	case len(t.byHash) == 0 && len(t.issuers) == 0:
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "a key is needed here, and none is declared yet: who runs this server makes one")
	default:
		return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "a key is needed here: send one as a bearer token (Authorization: Bearer …) or as x-api-key")
	}
	if a := t.byHash[sha256.Sum256([]byte(key))]; a != nil {
		if a.expired(time.Now()) {
			return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the key %s has expired", a.Name)
		}
		return a, nil
	}
	if len(t.issuers) > 0 {
		if url, is := issuerOf(key); is && t.issuers[url] != nil {
			return t.issuers[url].account(r.Context(), key)
		}
	}
	if t.anonymous != nil && !strings.HasPrefix(key, apikey.Prefix) {
		return t.anonymous, nil
	}
	return nil, api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the key is not known here")
}

// headers for keys besides Authorization: Anthropic's, Azure's and Google's.
var headers = [...]string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// several names a repeated header: a proxy may have read another value.
func shown(h http.Header) (key, several string) {
	const bearer = "Authorization"
	if len(h[bearer]) > 1 {
		return "", bearer
	}
	scheme, token, found := strings.Cut(h.Get(bearer), " ")
	if found && strings.EqualFold(scheme, "bearer") {
		key = strings.TrimSpace(token)
	}
	for _, name := range headers {
		if len(h[name]) > 1 {
			return "", name
		}
		if key == "" && len(h[name]) == 1 {
			key = strings.TrimSpace(h[name][0])
		}
	}
	return key, ""
}

// ErrRevoked ends requests of revoked keys.
var ErrRevoked error = api.Errorf(http.StatusUnauthorized, api.CodeInvalidKey, "the key of this request was revoked")

var errNoClaim = errors.New("the token has no such claim")

// mostAnswer bounds an issuer's answers, in bytes.
const mostAnswer = 1 << 20

// answers repeats an issuer's last answer to a URL, or error, for retryIssuer.
type answers struct {
	from http.RoundTripper

	mu   sync.Mutex // held during a request
	last map[string]answer
}

type answer struct {
	at   time.Time
	resp *http.Response
	body []byte
	err  error
}

// RoundTrip implements [http.RoundTripper].
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, found := a.last[r.URL.String()]
	if !found || time.Since(l.at) >= retryIssuer {
		l = ask(a.from, r)
		a.last[r.URL.String()] = l
	}
	if l.err != nil {
		return nil, l.err
	}
	resp := *l.resp
	resp.Body = io.NopCloser(bytes.NewReader(l.body))
	return &resp, nil
}

func ask(from http.RoundTripper, r *http.Request) (l answer) {
	defer func() { l.at = time.Now() }()
	if l.resp, l.err = from.RoundTrip(r); l.err != nil { //nolint:bodyclose // it is closed below
		return l
	}
	defer l.resp.Body.Close()
	l.body, l.err = io.ReadAll(l.resp.Body)
	return l
}
