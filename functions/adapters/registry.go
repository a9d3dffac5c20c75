package adapters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Loader loads adapters into a runtime. Loading a loaded adapter, or unloading a missing one, does nothing. [errors.ErrUnsupported] means
// that the runtime can't change adapters while it runs. An optional method KnowAdapters([]api.ModelName) receives the adapters that the
// runtime has loaded itself.
type Loader interface {
	LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error
	UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error
}

// Gate gives a slot in the runtime, as in package proxy.
type Gate interface {
	Enter() (base string, refused *api.Error)
	Leave()
}

// Config configures a [Registry].
type Config struct {
	// No adapter may have these names.
	Model   api.ModelName
	Aliases []api.ModelName
	// Root is the folder that adapters must lie in; empty: none can be registered, and declared ones may lie anywhere.
	Root     string
	Declared []api.Adapter
	// Fixed says that the runtime takes adapters only at its start.
	Fixed  bool
	Loader Loader
	Gate   Gate
	// Fetch turns a reference ("hf://…") into a path, which may lie outside Root; nil: references are refused.
	Fetch func(ctx context.Context, reference string) (path string, err error)
	// Brings says that the runtime may have adapters that nobody declared or registered. It is asked for them after each start and wake,
	// and by [Registry.Poll].
	Brings bool
	// Room is how many adapters may be loaded at once; 0: no bound; negative: none can be registered.
	Room int
	// Most returns how many adapters the runtime can use at once; 0: unknown.
	Most func() int
	// Changed receives the sorted names of the loaded adapters, and of those on standby, when they have changed. It must not block.
	Changed func(loaded, standby []api.ModelName)
	// Transport reaches the runtime's own list of models; nil: it is not asked.
	Transport http.RoundTripper
	Logger    *slog.Logger
}

// State is the state of an adapter.
type State string

const (
	Loaded  State = "loaded"
	Pending State = "pending" // loaded when the runtime next starts or wakes
	Standby State = "standby" // there is no room for it: loaded when a request names it
	Failed  State = "failed"  // the runtime refused it when it last started or woke
)

// Adapter is a listed adapter.
type Adapter struct {
	Name    api.ModelName `json:"name"`
	Path    string        `json:"path,omitempty"`
	Parent  api.ModelName `json:"parent"`
	State   State         `json:"state"`
	Message string        `json:"message,omitempty"`

	path     string // for the runtime; empty: not resolved yet
	declared bool   // with the function; then any path is allowed
	required bool   // declared at the start, which fails without it
	brought  bool   // the runtime has loaded it itself
	created  time.Time
}

// Registry keeps the adapters of one instance.
type Registry struct {
	cfg     Config
	created time.Time
	change  chan struct{} // a lock: it holds one value while a change is under way

	usable atomic.Pointer[map[string]api.ModelName] // by name: loaded, on standby or not yet unloaded; nil: none

	mu       sync.Mutex // guards the fields below; changes also hold change
	adapters []Adapter  // sorted by name
	endpoint api.Endpoint
	use      usage
	told     [2][]api.ModelName // the last arguments of Changed
	unload   []api.ModelName    // removed, and still in the runtime: it sleeps, or requests use them
	card     *card              // the runtime's description of its model; nil: unknown
	asked    int                // how often the runtime was asked for the card
}

// New returns a registry of the declared adapters, none of which is loaded yet.
func New(cfg Config) (*Registry, error) {
	if cfg.Model == "" || cfg.Loader == nil || cfg.Gate == nil {
		return nil, errors.New("adapters: Config needs Model, Loader and Gate")
	}
	if cfg.Changed == nil {
		cfg.Changed = func(_, _ []api.ModelName) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{cfg: cfg, created: time.Now(), change: make(chan struct{}, 1)}
	for _, d := range cfg.Declared {
		if err := r.checkName(d.Name); err != nil {
			return nil, fmt.Errorf("adapter %q: %w", d.Name, err)
		}
		if d.Path == "" {
			return nil, fmt.Errorf("adapter %q: its path is empty: name a folder or a reference", d.Name)
		}
		if r.find(d.Name) >= 0 {
			return nil, fmt.Errorf("adapter %q: it is declared twice", d.Name)
		}
		if err := r.outside(d.Path); err != nil {
			return nil, fmt.Errorf("adapter %q: %w", d.Name, err)
		}
		r.put(Adapter{Name: d.Name, Path: d.Path, Parent: cfg.Model, State: Pending, declared: true, required: true, created: r.created})
	}
	return r, nil
}

func (r *Registry) checkName(name api.ModelName) *api.Error {
	if err := api.CheckAdapterName(name); err != nil {
		return api.BadRequest("id", "%v", err)
	}
	if name == r.cfg.Model || slices.Contains(r.cfg.Aliases, name) {
		return api.Errorf(http.StatusConflict, "", "%s is a name of the model itself: choose another one for the adapter", name)
	}
	return nil
}

// find returns a negative index if there is no such adapter. The caller holds mu or is New.
func (r *Registry) find(name api.ModelName) int {
	return slices.IndexFunc(r.adapters, func(a Adapter) bool { return a.Name == name })
}

// put adds or replaces an adapter. The caller holds mu or is New.
func (r *Registry) put(a Adapter) {
	if i := r.find(a.Name); i >= 0 {
		r.adapters[i] = a
		return
	}
	r.adapters = append(r.adapters, a)
	slices.SortFunc(r.adapters, func(a, b Adapter) int { return strings.Compare(string(a.Name), string(b.Name)) })
}

func (r *Registry) List() []Adapter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.adapters)
}

// Loaded returns since when each loaded adapter is known here.
func (r *Registry) Loaded() map[api.ModelName]time.Time {
	loaded := map[api.ModelName]time.Time{}
	for _, a := range r.List() {
		if a.State == Loaded {
			loaded[a.Name] = a.created
		}
	}
	return loaded
}

// Path returns an adapter's path for the runtime, empty if it is not resolved yet.
func (r *Registry) Path(name api.ModelName) (path string, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(name); i >= 0 {
		return r.adapters[i].path, true
	}
	return "", false
}

// Empty reports whether a waking runtime has nothing to load or unload.
func (r *Registry) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unload) == 0 && !slices.ContainsFunc(r.adapters, func(a Adapter) bool { return !a.brought })
}

// Of returns the adapter that a body names as its model, loaded or on standby, or "" if there is none; see [Registry.Hold].
func (r *Registry) Of(body *jsonfield.Object) api.ModelName {
	usable := r.usable.Load()
	if usable == nil {
		return ""
	}
	raw, found := body.Find("model")
	if !found || len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return ""
		}
		return (*usable)[text]
	}
	return (*usable)[string(name)]
}

// The caller calls end if the error is nil.
func (r *Registry) begin(ctx context.Context) error {
	select {
	case r.change <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Registry) end() {
	r.publish()
	<-r.change
}

// The caller holds change.
func (r *Registry) publish() {
	r.mu.Lock()
	loaded, standby := []api.ModelName{}, []api.ModelName{}
	index := map[string]api.ModelName{}
	for _, a := range r.adapters {
		switch a.State {
		case Loaded:
			loaded = append(loaded, a.Name)
		case Standby:
			standby = append(standby, a.Name)
		case Pending, Failed:
			continue
		}
		index[string(a.Name)] = a.Name
	}
	for _, name := range r.unload { // the runtime still answers for them
		index[string(name)] = name
	}
	changed := !slices.Equal(loaded, r.told[0]) || !slices.Equal(standby, r.told[1])
	r.told = [2][]api.ModelName{loaded, standby}
	r.mu.Unlock()
	if len(index) > 0 {
		r.usable.Store(&index)
	} else {
		r.usable.Store(nil)
	}
	if changed {
		r.cfg.Changed(slices.Clone(loaded), slices.Clone(standby))
	}
}
