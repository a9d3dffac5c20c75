package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/internal/jsonlog"
)

// console reports what a server does: lines and bars for people, JSON logs for programs. It is safe for many goroutines.
type console struct {
	out      io.Writer
	log      *slog.Logger
	people   bool // not JSON
	terminal bool // with bars

	mu     sync.Mutex // guards all below, and out
	states map[api.InstanceID]api.InstanceStatus
	bars   map[api.InstanceID]*bar
	loads  map[api.FunctionName]time.Duration // of the last start
}

func newConsole(out, errs io.Writer, people, terminal bool, level slog.Level) *console {
	c := &console{out: out, people: people, terminal: terminal, states: map[api.InstanceID]api.InstanceStatus{}, bars: map[api.InstanceID]*bar{}, loads: map[api.FunctionName]time.Duration{}}
	if !people {
		c.log = jsonlog.New(errs, level)
		return c
	}
	if terminal {
		errs = aboveBars{c, errs}
	}
	if level >= slog.LevelInfo {
		level = max(level, slog.LevelWarn)
	}
	c.log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime}))
	return c
}

type aboveBars struct {
	c *console
	w io.Writer
}

func (a aboveBars) Write(line []byte) (int, error) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.clearBars()
	return a.w.Write(line)
}

func shortTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
	}
	return a
}

// isOpen reports whether everybody may use a server, from other machines too.
func isOpen(info local.Info) bool {
	_, host, _ := strings.Cut(info.URL, "://")
	return !page.IsLocal(host) && !info.Keys
}

func (c *console) logReady(info local.Info, functions []api.Function, set declaredSet, try string) {
	for _, f := range functions {
		c.log.Info("declared", "function", f.Name, "model", f.Model, "runtime", f.Runtime.Kind, "from", render.Source(f), "origin", f.Origin)
	}
	for _, read := range set.Read {
		c.log.Info("read", "what", read)
	}
	for _, hint := range set.Hints {
		c.log.Info("hint", "what", hint)
	}
	for _, left := range set.Left {
		c.log.Warn("something is left out", "what", left.What, "because", left.Why)
	}
	if isOpen(info) {
		c.log.Warn(openWarning, "url", info.URL)
	}
	if info.Fingerprint != "" {
		c.log.Info("TLS certificate", "file", info.Certificate, "sha256", info.Fingerprint)
	}
	if info.Clusters != "" {
		c.log.Info("clusters may join", "address", info.Clusters)
	}
	c.log.Info("ready", "url", info.URL, "admin", info.Admin, "version", info.Version, "try", try)
}

func (c *console) ready(info local.Info, functions []api.Function, set declaredSet) {
	first := api.Function{Name: "default/MODEL", Model: "MODEL"} // for a cluster that is yet to come
	if len(functions) > 0 {
		first = functions[0]
	}
	prompt := "Who are you?"
	if first.Runtime.Kind == api.RuntimeEngine && first.Runtime.Model == pico.Name {
		prompt = "echo hello world" // it knows few words
	}
	options := ""
	if info.Fingerprint != "" {
		options = " --cacert " + shortPath(info.Certificate)
	}
	if info.Keys {
		options += ` -H "Authorization: Bearer $ROUSE_API_KEY"`
	}
	try := fmt.Sprintf(`curl %s/v1/chat/completions%s -d '{"model":"%s","messages":[{"role":"user","content":"%s"}]}'`, info.URL, options, first.Model, prompt)
	try = strings.NewReplacer("://[::]:", "://localhost:", "://0.0.0.0:", "://localhost:").Replace(try)
	if !c.people {
		c.logReady(info, functions, set, try)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, "rouse %s takes requests at %s\n\n", info.Version, info.URL)
	width := 0
	for _, f := range functions {
		width = max(width, len(f.Name.Short()))
	}
	for _, f := range functions[:min(len(functions), mostListed)] {
		fmt.Fprintf(c.out, "  %-*s  %s (%s)\n", width, f.Name.Short(), render.Source(f), f.Origin)
	}
	if more := len(functions) - mostListed; more > 0 {
		fmt.Fprintf(c.out, "  and %d more: %s ls\n", more, program())
	}
	c.tellSet(set)
	if info.Fingerprint != "" {
		fmt.Fprintf(c.out, "  certificate: %s, SHA-256 %s\n", shortPath(info.Certificate), info.Fingerprint)
	}
	if info.Clusters != "" {
		fmt.Fprintf(c.out, "  clusters join at %s\n", info.Clusters)
	}
	if isOpen(info) {
		fmt.Fprintf(c.out, "\nwarning: %s\n", openWarning)
	}
	fmt.Fprintf(c.out, "\nask it:  %s\n    or:  %s run %s %q\n", try, program(), first.Name.Name(), prompt)
	at := info.Page
	if !c.terminal { // other output is kept, so it must not contain the token
		at, _, _ = strings.Cut(info.Page, "#")
		at += fmt.Sprintf(" (%s ui prints it with the right to administer)", program())
	}
	fmt.Fprintf(c.out, "  page:  %s\n  stop:  Ctrl-C\n\n", at)
}

const mostListed = 20

// tellSet needs c.mu held.
func (c *console) tellSet(set declaredSet) {
	if len(set.Read)+len(set.Left)+len(set.Hints) > 0 {
		fmt.Fprintln(c.out)
	}
	for _, read := range set.Read {
		fmt.Fprintf(c.out, "  read: %s\n", read)
	}
	for _, hint := range set.Hints {
		fmt.Fprintf(c.out, "  %s\n", hint)
	}
	for i, left := range set.Left {
		if i == mostListed {
			fmt.Fprintf(c.out, "  and %d more are left out\n", len(set.Left)-i)
			break
		}
		fmt.Fprintf(c.out, "  %s\n", left)
	}
}

// notices are for people to see although nothing is wrong.
func (c *console) notices() *slog.Logger {
	if !c.people {
		return c.log
	}
	return slog.New(noticeHandler{c, c.log.Handler()})
}

// noticeHandler prints messages of level info as lines; the rest goes to the log.
type noticeHandler struct {
	c *console
	slog.Handler
}

func (h noticeHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (h noticeHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "in" {
			line += fmt.Sprintf(" (%s)", shortPath(a.Value.String()))
		}
		return true
	})
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.clearBars()
	_, err := fmt.Fprintf(h.c.out, "%s  %s\n", r.Time.Format(time.TimeOnly), line)
	return err
}

const openWarning = "whoever can reach this address can use the models; let clients need keys (--keys), put a proxy that authenticates in front, or listen on 127.0.0.1"

// program returns how to type this program's name.
func program() string {
	name := filepath.Base(os.Args[0])
	path, _ := exec.LookPath(name)
	found, _ := os.Stat(path)
	if self, _ := os.Stat(os.Args[0]); os.SameFile(found, self) { // false where one is missing
		return name
	}
	return os.Args[0]
}

func (c *console) observe(e api.Event) {
	if !c.people || e.Type != api.EventInstanceState {
		return
	}
	var s api.InstanceStatus
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.states[s.Instance]
	c.states[s.Instance] = s
	if s.State == api.Awake && s.LoadTime > 0 {
		c.loads[s.Function] = s.LoadTime
	}
	if s.State == api.Starting {
		c.startBar(s)
	} else {
		c.endBar(s.Instance)
	}
	if line := change(old, s); line != "" {
		c.clearBars()
		fmt.Fprintf(c.out, "%s  %s %s\n", time.Now().Format("15:04:05"), s.Function.Name(), line)
	}
	if s.State == api.Gone && s.Seq == math.MaxUint64 { // from the goroutine that waited for the process
		delete(c.states, s.Instance)
	}
}

// tell leaves programs the log.
func (c *console) tell(line string) {
	if !c.people {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearBars()
	fmt.Fprintf(render.Harmless(c.out), "%s  %s\n", time.Now().Format("15:04:05"), line)
}

// change describes a change of state that matters to people, or returns "".
func change(old, s api.InstanceStatus) string {
	if old.State == s.State && old.Level == s.Level {
		return ""
	}
	switch s.State {
	case api.Starting:
		if old.State == api.Asleep {
			return ""
		}
		return "starts"
	case api.Awake:
		if s.WakeTime > 0 && s.SleepTime > 0 {
			return fmt.Sprintf("is awake again after %s", render.Rounded(s.WakeTime))
		}
		return fmt.Sprintf("is awake after %s", render.Rounded(s.LoadTime))
	case api.Asleep:
		return fmt.Sprintf("is asleep (level %d)", s.Level)
	case api.Unhealthy:
		return "is unhealthy: " + strings.ReplaceAll(s.Message, "\n", " ")
	case api.Gone:
		return "is unloaded"
	}
	return ""
}

func (c *console) stopping(drain time.Duration) {
	if !c.people {
		return // the server logs it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearBars()
	fmt.Fprintf(c.out, "\nstopping: requests may finish within %s; Ctrl-C again ends everything at once\n", drain)
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.bars {
		c.endBar(id)
	}
}

// barAfter spares quick starts a bar.
const barAfter = 300 * time.Millisecond

type bar struct {
	*render.Bar
	status api.InstanceStatus // guarded by the console's mu
	most   time.Duration      // expected; 0: unknown
}

// startBar needs c.mu held.
func (c *console) startBar(s api.InstanceStatus) {
	if !c.terminal {
		return
	}
	b := c.bars[s.Instance]
	if b == nil {
		b = &bar{Bar: render.NewBar(c.out, &c.mu), most: c.loads[s.Function]}
		c.bars[s.Instance] = b
		b.Show(barAfter, func() (string, float64) {
			return fmt.Sprintf("          %s: %s", b.status.Function.Name(), b.status.Stage), b.share(time.Now())
		})
	}
	b.status = s
}

// share is reported or estimated from the last start, and below 1; 0: unknown.
func (b *bar) share(now time.Time) float64 {
	share := b.status.Progress
	if share == 0 && b.most > 0 {
		share = float64(now.Sub(b.status.Since)) / float64(b.most)
	}
	return max(0, min(share, 0.99))
}

// clearBars needs c.mu held.
func (c *console) clearBars() {
	for _, b := range c.bars {
		b.Clear()
	}
}

// endBar needs c.mu held.
func (c *console) endBar(id api.InstanceID) {
	if b := c.bars[id]; b != nil {
		delete(c.bars, id)
		b.Hide()
	}
}
